# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Paths, labels and annotations of Harvester's API, and the names of its objects."""

from __future__ import annotations

DEVICES = "/apis/devices.harvesterhci.io/v1beta1"
GPUS = f"{DEVICES}/sriovgpudevices"
VGPUS = f"{DEVICES}/vgpudevices"
PCI_DEVICES = f"{DEVICES}/pcidevices"
CLAIMS = f"{DEVICES}/pcideviceclaims"
MIG_CONFIGURATIONS = f"{DEVICES}/migconfigurations"
NODES = "/api/v1/nodes"
VMS = "/apis/kubevirt.io/v1/virtualmachines"
INSTANCES = "/apis/kubevirt.io/v1/virtualmachineinstances"
LAUNCHER_PODS = "/api/v1/pods"
LAUNCHER_SELECTOR = "kubevirt.io=virt-launcher"
INSTANCE_KIND = "VirtualMachineInstance"
VM_NAME_LABEL = "vm.kubevirt.io/name"
SERVER_VERSION = "/apis/harvesterhci.io/v1beta1/settings/server-version"
SYSTEM_NAMESPACE = "harvester-system"
ADDONS = f"/apis/harvesterhci.io/v1beta1/namespaces/{SYSTEM_NAMESPACE}/addons"
KUBEVIRTS = f"/apis/kubevirt.io/v1/namespaces/{SYSTEM_NAMESPACE}/kubevirts"
# The key of Harvester's KubeVirt object in the list.
KUBEVIRT = f"{SYSTEM_NAMESPACE}/kubevirt"
SYSTEM_PODS = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods"

NODE_LABEL = "nodename"
PARENT_LABEL = "harvesterhci.io/parentSRIOVGPUDevice"
DRIVER_NEEDED_LABEL = "sriovgpu.harvesterhci.io/driver-needed"
BARE_METAL_LABEL = "harvesterhci.io/gpu-baremetal-workloads"
ALLOCATION_NOTE = "harvesterhci.io/deviceAllocationDetails"
SKIP_MIG_ANNOTATION = "harvesterhci.io/skip-mig-configuration"
OVERRIDE_ANNOTATION = "pcidevice.harvesterhci.io/override-resource-name"
CONFIGURED = "vGPUConfigured"
# The journal that a run writes on the objects that it changes.
JOURNAL_ANNOTATION = "vgpu.fleet/journal"
# The owner for whom a vGPU was enabled.
OWNER_ANNOTATION = "vgpu.fleet/owner"

PCIDEVICES_ADDON = "pcidevices-controller"
DRIVER_ADDON = "nvidia-driver-toolkit"
PCIDEVICES_DAEMONSET = "harvester-pcidevices-controller"
PCIDEVICES_PODS = f"app.kubernetes.io/name={PCIDEVICES_DAEMONSET}"
DRIVER_DAEMONSET = "nvidia-driver-runtime"


def restart_command(node: str) -> str:
    """Return the command that restarts the pcidevices controller of a node. Running VMs keep their devices."""
    return f"kubectl -n {SYSTEM_NAMESPACE} delete pod -l {PCIDEVICES_PODS} --field-selector spec.nodeName={node}"


def device_name(node: str, address: str) -> str:
    """Return the object name of a PCI function: the node's name, then the address without punctuation."""
    return f"{node}-{address.replace(':', '').replace('.', '')}"
