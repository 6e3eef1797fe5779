"""What runs on a node besides pcidevices: the kubelet, device plugins and virt-handler."""
