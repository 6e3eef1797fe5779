"""Objects of a Harvester cluster, as its API gives them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r, version as versions
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.snapshot import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.vm_usage import Pods
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.objects import ObjectList

Json = dict[str, Any]
TYPES = {"NVIDIA A2-4Q": "746", "NVIDIA A2-4C": "754", "NVIDIA A2-8Q": "747"}
Q4, C4, Q8 = TYPES


def gpu(node: str = "n1", *, enabled: bool = True, functions: int = 4) -> Json:
    addresses = [f"0000:08:00.{number}" for number in range(4, 4 + functions)] if enabled else []
    status = {"vfAddresses": addresses, "vGPUDevices": [r.device_name(node, one) for one in addresses]}
    return {
        "metadata": {"name": r.device_name(node, "0000:08:00.0"), "labels": {"nodename": node}},
        "spec": {"address": "0000:08:00.0", "nodeName": node, "enabled": enabled},
        "status": status if addresses else {},
    }


def vgpu(
    function: int = 4,
    *,
    node: str = "n1",
    asked: str | None = None,
    configured: str | None = None,
    offered: tuple[str, ...] = tuple(TYPES),
    status: Json | None = None,
    revision: int = 1,
) -> Json:
    address = f"0000:08:00.{function}"
    found: Json = {"availableTypes": {name: TYPES[name] for name in offered}} if offered else {}
    if configured:
        found = {"vGPUStatus": r.CONFIGURED, "uuid": TYPES[configured], "configureVGPUTypeName": configured}
    return {
        "metadata": {
            "name": r.device_name(node, address),
            "labels": {r.NODE_LABEL: node, r.PARENT_LABEL: r.device_name(node, "0000:08:00.0")},
            "resourceVersion": str(revision),
        },
        "spec": {
            "address": address,
            "nodeName": node,
            "parentGPUDeviceAddress": "0000:08:00.0",
            "enabled": asked is not None,
            "vGPUTypeName": asked or "",
        },
        "status": found if status is None else status,
    }


def claim(function: int = 4, type_name: str = Q4, *, node: str = "n1", bound: bool = True, going: bool = False) -> Json:
    metadata: Json = {
        "name": r.device_name(node, f"0000:08:00.{function}"),
        "annotations": {r.OVERRIDE_ANNOTATION: f"nvidia.com/{type_name.replace(' ', '_')}"},
    }
    if going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"passthroughEnabled": bound}}


def node(name: str = "n1", *, ready: bool = True, capacity: dict[str, int] | None = None, **counts: int) -> Json:
    """Counts are by the end of the type's name, as in q4=2."""
    names = {"q4": "nvidia.com/NVIDIA_A2-4Q", "c4": "nvidia.com/NVIDIA_A2-4C", "q8": "nvidia.com/NVIDIA_A2-8Q"}
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": {},
        "status": {
            "allocatable": {names[short]: str(count) for short, count in counts.items()},
            "capacity": {names[short]: str(count) for short, count in (capacity or counts).items()},
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def vm(
    name: str, *, devices: list[tuple[str, str]] | None = None, note: str | None = None, field: str = "hostDevices"
) -> Json:
    listed = [{"name": device, "deviceName": resource} for device, resource in devices or []]
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": {r.ALLOCATION_NOTE: note} if note else {}},
        "spec": {"template": {"spec": {"domain": {"devices": {field: listed}}}}},
    }


def instance(
    name: str,
    *,
    phase: str = "Running",
    on: str = "n1",
    devices: list[tuple[str, str]] | None = None,
    field: str = "hostDevices",
    **status: Any,
) -> Json:
    """A running instance of a VM, with the devices that it was started with."""
    listed = [{"name": device, "deviceName": resource} for device, resource in devices or []]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"domain": {"devices": {field: listed}}},
        "status": {"phase": phase, "nodeName": on, **(since() if phase == "Running" else {}), **status},
    }


def started(machine: Json, **status: Any) -> Json:
    """The instance of a VM that was started as its spec is."""
    domain = machine["spec"]["template"]["spec"]["domain"]
    return {**instance(machine["metadata"]["name"], **status), "spec": {"domain": domain}}


def launcher(
    name: str, resource: str, *, on: str = "n1", phase: str = "Running", owner: str = "", count: int = 1
) -> Json:
    """The pod of an instance, by default of one that is gone."""
    reference = {"kind": "VirtualMachineInstance", "name": name, "uid": owner or f"gone-{name}"}
    return {
        "metadata": {"name": f"virt-launcher-{name}-x", "namespace": "default", "ownerReferences": [reference]},
        "spec": {"nodeName": on, "containers": [{"name": "compute", "resources": {"limits": {resource: str(count)}}}]},
        "status": {"phase": phase},
    }


def kubevirt(*resources: str, key: str = "pciHostDevices", selector: str = "10de:25b6") -> Json:
    """KubeVirt's configuration with a list of permitted devices."""
    field = "pciVendorSelector" if key == "pciHostDevices" else "mdevNameSelector"
    entries = [{field: selector, "resourceName": one, "externalResourceProvider": True} for one in resources]
    return {
        "metadata": {"name": "kubevirt", "namespace": "harvester-system", "resourceVersion": "7"},
        "spec": {"configuration": {"permittedHostDevices": {key: entries}}},
    }


def listing(*items: Json) -> ObjectList:
    return ObjectList.of({"items": list(items), "metadata": {"resourceVersion": "1"}})


# When instances become Running and when they are looked at, if a test does not say otherwise.
RUNNING_SINCE = "2026-01-01T10:00:00Z"
NOW = datetime(2026, 1, 1, 11, tzinfo=UTC).timestamp()


def since(stamp: str = RUNNING_SINCE, phase: str = "Running") -> Json:
    """The part of an instance's status that tells when it has reached a phase."""
    return {"phaseTransitionTimestamps": [{"phase": phase, "phaseTransitionTimestamp": stamp}]}


def snapshot(version: str = "1.8", *, now: float = NOW, **lists: list[Json] | None) -> Snapshot:
    """`pods=None` for pods that could not be read, and `kubevirts=None` for an unreadable configuration of KubeVirt."""
    given = {"gpus": [gpu()], "nodes": [node()], **lists}
    fields = ("gpus", "vgpus", "nodes", "vms", "instances", "claims", "pci_devices", "mig")
    pods = given.get("pods", [])
    read = Pods(readable=False) if pods is None else Pods(listing(*pods).items)
    kubevirts = given.get("kubevirts", [])
    return Snapshot(
        versions.from_option(version),
        **{name: listing(*given.get(name, [])) for name in fields},
        pods=read,
        kubevirts=None if kubevirts is None else listing(*kubevirts),
        now=now,
    )
