"""Numbered rules of the pcidevices webhook (harvester.md 10.2). Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from lab.harvester import resources as r
from lab.harvester.versions import Version
from lab.kubernetes.client import Json
from lab.kubernetes.resource import Resource

CONTROLLER = "system:serviceaccount:harvester-system:harvester-pcidevices-controller"
MOST_MIG_INSTANCES = 7


class ClusterCache(Protocol):
    version: Version

    def get(self, resource: Resource, name: str, namespace: str = "") -> Json | None: ...

    def all(self, resource: Resource) -> list[Json]: ...

    def labelled(self, resource: Resource, label: str, value: str) -> list[Json]: ...

    def resource_of(self, type_name: str) -> str: ...


def denial(cache: ClusterCache, request: Json) -> str | None:
    """Return the message with which the webhook denies the request, or None."""
    resource, operation = request["resource"]["resource"], request["operation"]
    rule = _RULES.get((resource, operation))
    return rule(cache, request) if rule else None


def has_broken_note(vm: Json) -> bool:
    """Return whether the allocation annotation is not JSON, which makes the real processes panic (harvester.md 4.4)."""
    try:
        json.loads(_note(vm) or "null")
    except ValueError:
        return True
    return False


def _note(vm: Json) -> str | None:
    note: str | None = (vm["metadata"].get("annotations") or {}).get(r.ALLOCATION_ANNOTATION)
    return note


def allocated(vm: Json, key: str) -> Iterator[str]:
    """Return the devices in the allocation annotation of a VM, of all resources."""
    if has_broken_note(vm):
        return
    details = json.loads(_note(vm) or "null")
    for devices in ((details or {}).get(key) or {}).values():
        yield from devices or []


def _user_of(cache: ClusterCache, device: str, key: str) -> Json | None:
    if cache.version.notes_allocations:
        users = [vm for vm in cache.all(r.VM) if device in allocated(vm, key)]
    else:
        users = [vm for vm in cache.all(r.VM) if device in _named_in_spec(vm)]
    return min(users, key=lambda vm: (vm["metadata"]["namespace"], vm["metadata"]["name"]), default=None)


def _named_in_spec(vm: Json) -> set[str]:
    devices = devices_of(vm)
    return {one.get("name", "") for field in ("gpus", "hostDevices") for one in devices.get(field) or []}


def _vgpu_in_use(cache: ClusterCache, device: str) -> str | None:
    user = _user_of(cache, device, "hostdevices" if cache.version.vendor_vfio else "gpus")
    if user is None:
        return None
    metadata = user["metadata"]
    return f"device {device} is in use with VM {metadata['name']} in namespace {metadata['namespace']}"


def _enabled(obj: Json) -> bool:
    return bool((obj.get("spec") or {}).get("enabled"))


def _vgpu_update(cache: ClusterCache, request: Json) -> str | None:
    old, new = request["oldObject"], request["object"]
    name = new["metadata"]["name"]
    if _enabled(old) and not _enabled(new):
        return _vgpu_in_use(cache, name)  # rule 1
    if not _enabled(old) and _enabled(new):
        wanted = new["spec"].get("vGPUTypeName") or ""
        if not wanted:
            return f"VGPUTypeName cannot be empty for vGPU device {name}"  # rule 2
        if wanted not in ((old.get("status") or {}).get("availableTypes") or {}):
            return f"VGPUTypeName {wanted} is not a valid profile for vGPU device {name}"  # rule 3
    return None  # rule 4: a change of type while enabled is not checked


def _vgpu_delete(cache: ClusterCache, request: Json) -> str | None:
    old = request["oldObject"]
    if cache.get(r.NODE, old["spec"].get("nodeName", "")) is None:
        return None
    return _vgpu_in_use(cache, old["metadata"]["name"])  # rule 5


def _card_update(cache: ClusterCache, request: Json) -> str | None:
    old, new = request["oldObject"], request["object"]
    if _enabled(old) and not _enabled(new):
        for device in (new.get("status") or {}).get("vGPUDevices") or []:
            reason = _vgpu_in_use(cache, device)  # rule 6
            if reason:
                return reason
    return None


def _card_delete(cache: ClusterCache, request: Json) -> str | None:
    old = request["oldObject"]
    if _enabled(old) and cache.get(r.NODE, old["spec"].get("nodeName", "")) is not None:
        return f"please disable gpuDevice {old['metadata']['name']} before deletion"  # rule 7
    return None


def _mig_update(cache: ClusterCache, request: Json) -> str | None:
    old, new = request["oldObject"], request["object"]
    name = new["metadata"]["name"]
    wanted = new["spec"].get("profileSpec") or []
    count = sum(entry.get("requested", 0) for entry in wanted)
    if count > MOST_MIG_INSTANCES:  # rule 8
        return (
            f"MIGConfiguration {name} Invalid: Cannot have more than {MOST_MIG_INSTANCES} instances defined,"
            f" found {count}"
        )
    if (old.get("status") or {}).get("status") in ("synced", "out-of-sync") and wanted != (
        old["spec"].get("profileSpec") or []
    ):
        return f"MIGConfiguration {name} cannot be modified unless configuration is disabled"  # rule 9
    if not _enabled(old) and _enabled(new):
        available = {
            entry["id"]: entry.get("available", 0) for entry in (new.get("status") or {}).get("profileStatus") or []
        }
        for entry in wanted:  # rule 10
            if entry.get("requested", 0) > available.get(entry["id"], 0):
                return (
                    f"MIGConfiguration {name} cannot has requested count {entry['requested']} for profile"
                    f" {entry['name']}, which exceeds available count {available.get(entry['id'], 0)}"
                )
    if _enabled(old) and not _enabled(new):
        for vgpu in cache.labelled(r.VGPU, r.PARENT_LABEL, name):
            if _enabled(vgpu):
                return (
                    f"cannot disable MIGConfiguration {name} as vGPU {vgpu['metadata']['name']} is enabled"  # rule 11
                )
    return None


def _node_update(cache: ClusterCache, request: Json) -> str | None:
    """Check a change of the label that reserves GPUs for containers (harvester.md 2.8)."""
    name = request["object"]["metadata"]["name"]
    before, after = _reserved(request["oldObject"]), _reserved(request["object"])
    if not cache.version.baremetal_label or before == after:
        return None
    if after:
        gpus = [obj for obj in cache.labelled(r.SRIOV_GPU, r.NODENAME_LABEL, name) if _enabled(obj)]
        names = ", ".join(sorted(obj["metadata"]["name"] for obj in gpus))
        return f"node {name} has enabled SRIOV GPU devices {names}" if gpus else None
    users = ", ".join(sorted(_path(pod) for pod in cache.all(r.POD) if _uses_gpu(pod, name)))
    return f"node {name} has pods {users} scheduled which may be using the GPU" if users else None


def _reserved(node: Json | None) -> bool:
    metadata = (node or {}).get("metadata") or {}
    return (metadata.get("labels") or {}).get(r.BARE_METAL_LABEL) == "true"


def _path(obj: Json) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _uses_gpu(pod: Json, node: str) -> bool:
    spec = pod.get("spec") or {}
    limits = [(one.get("resources") or {}).get("limits") or {} for one in spec.get("containers") or []]
    return spec.get("nodeName") == node and any(name.startswith("nvidia.com/") for found in limits for name in found)


def _claim_create(cache: ClusterCache, request: Json) -> str | None:
    name = request["object"]["metadata"]["name"]
    device = cache.get(r.PCI_DEVICE, name)
    if device is None:
        return f'pcidevices.devices.harvesterhci.io "{name}" not found'
    node = (device.get("status") or {}).get("nodeName", "")
    if cache.version.baremetal_label and _reserved(cache.get(r.NODE, node)):
        # Upstream's wording is not known.
        return f"pcidevice {name} belongs to node {node}, whose GPUs are reserved for bare metal workloads"
    if not (device.get("status") or {}).get("iommuGroup"):
        return f"pcidevice {name} has no iommuGroup available"  # rule 12
    if cache.version.protects_claims:
        children = [vgpu["metadata"]["name"] for vgpu in cache.labelled(r.VGPU, r.PARENT_LABEL, name)]
        if children:  # rule 13
            return (
                f"these vGPU devices [{', '.join(children)}] are using the PCI GPU Device [{name}], so it can't be"
                " claimed. \n If you need to claim this PCI GPU device, please disable associated SRIOVGPUDevice"
            )
    return None


def _claim_delete(cache: ClusterCache, request: Json) -> str | None:
    claim = request["oldObject"]
    name = claim["metadata"]["name"]
    user = _user_of(cache, name, "hostdevices")
    if user is not None:  # rule 14
        metadata = user["metadata"]
        return (
            f"pcideviceclaim {name} is already in use with vm {metadata['name']} in namespace {metadata['namespace']}"
        )
    if cache.version.protects_claims and request["userInfo"].get("username") != CONTROLLER:
        for owner in claim["metadata"].get("ownerReferences") or []:
            if owner["kind"] == r.VGPU.kind:  # rule 15
                return f"pcideviceclaim {name} cannot be deleted as it is owned by VGPUDevice {owner['name']}"
    return None


def devices_of(vm: Json) -> Json:
    template = ((vm.get("spec") or {}).get("template") or {}).get("spec") or {}
    devices: Json = (template.get("domain") or {}).get("devices") or {}
    return devices


def _vm_write(cache: ClusterCache, request: Json) -> str | None:
    if not cache.version.validates_device_names:
        return None
    vm = request["object"]
    devices = devices_of(vm)
    host_devices, gpus = devices.get("hostDevices") or [], devices.get("gpus") or []
    pci_names = {(device.get("status") or {}).get("resourceName") for device in cache.all(r.PCI_DEVICE)}
    for device in host_devices:  # rule 17
        name = device.get("deviceName", "")
        if not name or name not in pci_names:
            return (
                f"hostdevice {device.get('name', '')}: resource name {name} not found in pcidevice and usbdevice cache"
            )
    if cache.version.mdev:
        vgpu_names = {
            cache.resource_of(name)
            for vgpu in cache.all(r.VGPU)
            if (name := (vgpu.get("status") or {}).get("configureVGPUTypeName"))
        }
        for gpu in gpus:  # rule 16
            if gpu.get("deviceName", "") not in vgpu_names:
                return (
                    f"gpu device {gpu.get('name', '')}: resource name {gpu.get('deviceName', '')}"
                    " not found in pcidevice cache"
                )
    return _on_one_node(cache, vm["metadata"]["name"], host_devices)


def _on_one_node(cache: ClusterCache, vm_name: str, host_devices: list[Any]) -> str | None:
    node = ""
    for device in host_devices:  # rule 18; names of unknown devices are not checked
        known = cache.get(r.PCI_DEVICE, device.get("name", ""))
        if known is None:
            continue
        its_node = (known.get("status") or {}).get("nodeName", "")
        if node and its_node != node:
            return (
                f"device pcidevice/{device['name']} is not on the same node in"
                f" VirtualMachine.Spec.Template.Spec.Domain.Devices.HostDevices {vm_name}"
            )
        node = its_node
    return None


_RULES: dict[tuple[str, str], Callable[[ClusterCache, Json], str | None]] = {
    ("vgpudevices", "UPDATE"): _vgpu_update,
    ("vgpudevices", "DELETE"): _vgpu_delete,
    ("sriovgpudevices", "UPDATE"): _card_update,
    ("sriovgpudevices", "DELETE"): _card_delete,
    ("migconfigurations", "UPDATE"): _mig_update,
    ("pcideviceclaims", "CREATE"): _claim_create,
    ("pcideviceclaims", "DELETE"): _claim_delete,
    ("nodes", "UPDATE"): _node_update,
    ("virtualmachines", "CREATE"): _vm_write,
    ("virtualmachines", "UPDATE"): _vm_write,
}
