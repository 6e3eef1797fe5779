"""Changes of the pcidevices webhook to VirtualMachines, as JSON patches (harvester.md 10.5). Pure."""

from __future__ import annotations

import json
from typing import Any

from lab.harvester import resources as r
from lab.harvester.admission.rules import ClusterCache, devices_of
from lab.kubernetes.client import Json

DEVICES_PATH = "/spec/template/spec/domain/devices"
Patch = list[Json]


def pcidevices_patch(cache: ClusterCache, request: Json) -> Patch:
    """Return the patch of the pcidevices mutator."""
    if not cache.version.vendor_vfio:
        return []
    vm = request["object"]
    patch = _gpus_to_host_devices(vm)
    if cache.version.rebuilds_allocation_notes and request["operation"] == "UPDATE":
        patch += _rebuild_note(cache, vm)
    return patch


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


def _rebuild_note(cache: ClusterCache, vm: Json) -> Patch:
    """Rebuild the allocation annotation from the spec if no instance runs (from 1.9 on)."""
    metadata = vm["metadata"]
    if cache.get(r.VMI, metadata["name"], metadata["namespace"]) is not None:
        return []
    annotations = metadata.get("annotations") or {}
    devices = devices_of(vm)
    named: dict[str, list[str]] = {}
    for device in [*(devices.get("hostDevices") or []), *(devices.get("gpus") or [])]:
        named.setdefault(device.get("deviceName", ""), []).append(device.get("name", ""))
    key = r.ALLOCATION_ANNOTATION.replace("~", "~0").replace("/", "~1")
    path = f"/metadata/annotations/{key}"
    if not named:
        return [{"op": "remove", "path": path}] if r.ALLOCATION_ANNOTATION in annotations else []
    note = json.dumps({"hostdevices": named}, separators=(",", ":"))
    if annotations.get(r.ALLOCATION_ANNOTATION) == note:
        return []
    if not annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": {r.ALLOCATION_ANNOTATION: note}}]
    return [{"op": "add", "path": path, "value": note}]
