package kubecli

// MockKubevirtClient replaces KubeVirt's generated mock, which is for unit tests only.
//
// The generated one names every API group of the Kubernetes version that KubeVirt
// was released with. The lab builds KubeVirt with the libraries of its control
// plane, where one of those groups is gone.
type MockKubevirtClient struct{ KubevirtClient }
