// Package util replaces kubevirt.io/client-go/util in the lab's builds.
//
// KubeVirt's programs take the namespace they are installed in from the service
// account files of their pod, and "kubevirt" without them. Harvester installs
// KubeVirt in harvester-system, and the lab runs it outside of pods: here the
// environment says which namespace it is.
package util

import "os"

const ServiceAccountNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func GetNamespace() (string, error) {
	if namespace := os.Getenv("KUBEVIRT_NAMESPACE"); namespace != "" {
		return namespace, nil
	}
	return "kubevirt", nil
}
