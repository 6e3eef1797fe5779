"""Simulated pcidevices controller, which runs on every node: node scan, SR-IOV, MIG, vGPUs and claims."""
