"""Changes of the pcidevices webhook to VirtualMachines, as JSON patches (harvester.md 10.5). Pure."""

from __future__ import annotations

import json
from typing import Any

from lab.harvester.admission.rules import ClusterCache, devices_of
from lab.kubernetes.client import Json

DEVICES_PATH = "/spec/template/spec/domain/devices"
Patch = list[Json]


def pcidevices_patch(cache: ClusterCache, request: Json) -> Patch:
    """Return the patch of the pcidevices mutator."""
    if not cache.version.vendor_vfio:
        return []
    return _gpus_to_host_devices(request["object"])


def _gpus_to_host_devices(vm: Json) -> Patch:
    devices = devices_of(vm)
    gpus: list[Any] = devices.get("gpus") or []
    if not gpus:
        return []
    patch: Patch = []
    if not devices.get("hostDevices"):
        patch.append({"op": "add", "path": f"{DEVICES_PATH}/hostDevices", "value": []})
    for gpu in gpus:
        value = {"name": gpu.get("name", ""), "deviceName": gpu.get("deviceName", "")}
        patch.append({"op": "add", "path": f"{DEVICES_PATH}/hostDevices/-", "value": value})
    # The real patch counts upwards while the list shrinks: with two gpus the API server cannot apply it.
    patch += [{"op": "remove", "path": f"{DEVICES_PATH}/gpus/{index}"} for index in range(len(gpus))]
    return patch


def rebuilt_note(vm: Json) -> str | None:
    """Return the allocation annotation that follows from the spec of a VM that does not run. None if it has none."""
    devices = devices_of(vm)
    named: dict[str, list[str]] = {}
    for device in [*(devices.get("hostDevices") or []), *(devices.get("gpus") or [])]:
        named.setdefault(device.get("deviceName", ""), []).append(device.get("name", ""))
    return json.dumps({"hostdevices": named}, separators=(",", ":")) if named else None
