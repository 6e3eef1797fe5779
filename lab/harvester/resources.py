"""API resources that the lab serves or reads, and their paths."""

from __future__ import annotations

from lab.kubernetes.resource import Resource

DEVICES_GROUP = "devices.harvesterhci.io"
DEVICES = f"/apis/{DEVICES_GROUP}/v1beta1"
HARVESTER_NAMESPACE = "harvester-system"

SRIOV_GPU = Resource("SRIOVGPUDevice", "sriovgpudevices", DEVICES)
VGPU = Resource("VGPUDevice", "vgpudevices", DEVICES)
PCI_DEVICE = Resource("PCIDevice", "pcidevices", DEVICES)
CLAIM = Resource("PCIDeviceClaim", "pcideviceclaims", DEVICES)
MIG = Resource("MigConfiguration", "migconfigurations", DEVICES)
DEVICE_NODE = Resource("Node", "nodes", DEVICES)

NODE = Resource("Node", "nodes", "/api/v1")
POD = Resource("Pod", "pods", "/api/v1", namespaced=True)
DAEMON_SET = Resource("DaemonSet", "daemonsets", "/apis/apps/v1", namespaced=True)
ADDON = Resource("Addon", "addons", "/apis/harvesterhci.io/v1beta1", namespaced=True)
SETTING = Resource("Setting", "settings", "/apis/harvesterhci.io/v1beta1")
KUBEVIRT = Resource("KubeVirt", "kubevirts", "/apis/kubevirt.io/v1", namespaced=True)
VM = Resource("VirtualMachine", "virtualmachines", "/apis/kubevirt.io/v1", namespaced=True)
VMI = Resource("VirtualMachineInstance", "virtualmachineinstances", "/apis/kubevirt.io/v1", namespaced=True)
# What VMs are created from.
IMAGE = Resource("VirtualMachineImage", "virtualmachineimages", "/apis/harvesterhci.io/v1beta1", namespaced=True)
NETWORK = Resource(
    "NetworkAttachmentDefinition", "network-attachment-definitions", "/apis/k8s.cni.cncf.io/v1", namespaced=True
)
STORAGE_CLASS = Resource("StorageClass", "storageclasses", "/apis/storage.k8s.io/v1")
VOLUME_CLAIM = Resource("PersistentVolumeClaim", "persistentvolumeclaims", "/api/v1", namespaced=True)
VOLUME = Resource("PersistentVolume", "persistentvolumes", "/api/v1")

NODENAME_LABEL = "nodename"
PARENT_LABEL = "harvesterhci.io/parentSRIOVGPUDevice"
DRIVER_NEEDED_LABEL = "sriovgpu.harvesterhci.io/driver-needed"
BARE_METAL_LABEL = "harvesterhci.io/gpu-baremetal-workloads"
ORIGINAL_DRIVER_ANNOTATION = "harvesterhci.io/pcideviceDriver"
OVERRIDE_ANNOTATION = "pcidevice.harvesterhci.io/override-resource-name"
SKIP_VFIO_ANNOTATION = "pcidevices.harvesterhci.io/skip-vfio-binding"
ALLOCATION_ANNOTATION = "harvesterhci.io/deviceAllocationDetails"
RESERVED_MEMORY_ANNOTATION = "harvesterhci.io/reservedMemory"
SKIP_MIG_ANNOTATION = "harvesterhci.io/skip-mig-configuration"
CLAIM_FINALIZER = "wrangler.cattle.io/PCIDeviceClaimOnRemove"
NODE_FINALIZER = "wrangler.cattle.io/node-remove"


def device_name(node: str, address: str) -> str:
    """Return the node's name followed by the PCI address without punctuation (harvester.md 2.6)."""
    return f"{node}-{address.replace(':', '').replace('.', '')}"
