"""Guest clusters: control planes, kubelets and the GPU operator."""
