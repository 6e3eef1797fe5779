"""VirtualMachine bodies."""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.integration.api import Json

ALLOCATION = "harvesterhci.io/deviceAllocationDetails"
A2_4Q = "nvidia.com/NVIDIA_A2-4Q"
A2_4A = "nvidia.com/NVIDIA_A2-4A"


def device(name: str, resource: str = A2_4Q, **more: object) -> Json:
    return {"name": name, "deviceName": resource, **more}


def machine(
    name: str,
    *,
    gpus: Iterable[Json] | None = None,
    host_devices: Iterable[Json] | None = None,
    note: Json | str | None = None,
    run: bool = False,
    memory: str | None = None,
    limit: str | None = None,
    requests: str | None = "1Gi",
) -> Json:
    """`note` is what Harvester writes on a VM about the devices it was given."""
    devices: Json = {}
    if gpus is not None:
        devices["gpus"] = list(gpus)
    if host_devices is not None:
        devices["hostDevices"] = list(host_devices)
    domain: Json = {"devices": devices}
    if memory:
        domain["memory"] = {"guest": memory}
    if requests:
        domain["resources"] = {"requests": {"memory": requests}}
    if limit:
        domain.setdefault("resources", {})["limits"] = {"memory": limit}
    metadata: Json = {"name": name}
    if note is not None:
        metadata["annotations"] = {ALLOCATION: note if isinstance(note, str) else json.dumps(note)}
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": {"runStrategy": "Always" if run else "Halted", "template": {"spec": {"domain": domain}}},
    }


def note_for(*names: str, vfio: bool, resource: str = A2_4Q) -> Json:
    """The allocation of these devices, under the key of the era."""
    return {"hostdevices" if vfio else "gpus": {resource: list(names)}}


def devices_of(vm: Json) -> Json:
    devices: Json = vm["spec"]["template"]["spec"]["domain"]["devices"]
    return devices


def memory(vm: Json) -> tuple[str | None, str | None]:
    """What the guest has, and what is requested."""
    domain = vm["spec"]["template"]["spec"]["domain"]
    requested = ((domain.get("resources") or {}).get("requests") or {}).get("memory")
    return (domain.get("memory") or {}).get("guest"), requested
