"""Node agents other than pcidevices: the kubelet, device plugins and virt-handler."""
