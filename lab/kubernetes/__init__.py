"""Kubernetes control plane and KubeVirt: certificates, kubeconfigs, processes, and a client for the API."""
