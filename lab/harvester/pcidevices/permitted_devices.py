"""KubeVirt's list of permitted host devices, which the pcidevices controllers maintain. Pure."""

from __future__ import annotations

from typing import Any

from lab.gpu.boards import VENDOR_ID
from lab.kubernetes.client import Json


def permit_mediated(kubevirt: Json, type_name: str, resource: str) -> Json | None:
    """Return the changed spec of a KubeVirt object, or None if the type is already listed."""
    configuration, permitted = _permitted(kubevirt)
    entry = {"externalResourceProvider": True, "mdevNameSelector": type_name, "resourceName": resource}
    listed: list[Any] = permitted.get("mediatedDevices") or []
    if entry in listed:
        return None
    return _with(kubevirt, configuration, permitted | {"mediatedDevices": [*listed, entry]})


def permit_pci(kubevirt: Json, device_id: str, resource: str) -> Json | None:
    """Return the changed spec with the aliasing fault of the real controller (harvester.md 9.5, harvester#10008).

    The controller removes a listed entry from the same array that it compares later. So an entry that is not the last
    is lost and the last entry duplicated; the next reconcile appends the lost entry.
    """
    configuration, permitted = _permitted(kubevirt)
    listed: list[Any] = permitted.get("pciHostDevices") or []
    names = [entry["resourceName"] for entry in listed]
    if resource not in names:
        entry = {
            "externalResourceProvider": True,
            "pciVendorSelector": f"{VENDOR_ID}:{device_id}",
            "resourceName": resource,
        }
        return _with(kubevirt, configuration, permitted | {"pciHostDevices": [*listed, entry]})
    position = names.index(resource)
    shifted = listed[:position] + listed[position + 1 :] + listed[-1:]
    if shifted == listed:
        return None
    return _with(kubevirt, configuration, permitted | {"pciHostDevices": shifted})


def without_lost(kubevirt: Json, changed: Json, lost: list[Json]) -> Json | None:
    """Return the change without its new entries, which are added to `lost`, or None if nothing else changes."""
    _configuration, before = _permitted(kubevirt)
    configuration, after = _permitted(changed)
    kept: Json = {}
    for key, entries in after.items():
        known = before.get(key) or []
        lost += [entry for entry in entries if entry not in known and entry not in lost]
        kept[key] = [entry for entry in entries if entry in known]
    return None if kept == before else _with(changed, configuration, kept)


def _permitted(kubevirt: Json) -> tuple[Json, Json]:
    configuration = (kubevirt.get("spec") or {}).get("configuration") or {}
    return configuration, configuration.get("permittedHostDevices") or {}


def _with(kubevirt: Json, configuration: Json, permitted: Json) -> Json:
    spec = kubevirt.get("spec") or {}
    return kubevirt | {"spec": spec | {"configuration": configuration | {"permittedHostDevices": permitted}}}
