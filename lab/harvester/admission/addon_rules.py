"""Rules of Harvester's own webhook for addons (harvester.md 10.8). Pure."""

from __future__ import annotations

from lab.harvester import resources as r
from lab.harvester.admission.rules import ClusterCache, devices_of
from lab.kubernetes.client import Json
from lab.scenarios.scenario import DRIVER_TOOLKIT, PCIDEVICES

EXPERIMENTAL_LABEL = "addon.harvesterhci.io/experimental"
SKIP_ANNOTATIONS = {
    PCIDEVICES: "harvesterhci.io/skipPCIDevicesControllerAddonWebhookCheck",
    DRIVER_TOOLKIT: "harvesterhci.io/skipNvidiaDriverToolkitAddonWebhookCheck",
}


def denial(cache: ClusterCache, request: Json) -> str | None:
    if request["operation"] == "CREATE":
        return _create(cache, request["object"])
    if request["operation"] == "DELETE":
        return _delete(request["oldObject"])
    return _update(cache, request["oldObject"], request["object"])


def _create(cache: ClusterCache, addon: Json) -> str | None:
    for other in cache.all(r.ADDON):
        if other["spec"]["chart"] == addon["spec"]["chart"]:
            return f"addon with Chart {addon['spec']['chart']} has been created, cannot create a new one"
    return None


def _delete(addon: Json) -> str | None:
    if (addon["metadata"].get("labels") or {}).get(EXPERIMENTAL_LABEL) == "true":
        return None
    return f"addon cannot be deleted: {addon['metadata']['name']}"


def _update(cache: ClusterCache, old: Json, new: Json) -> str | None:
    name = new["metadata"]["name"]
    if old["spec"]["chart"] != new["spec"]["chart"]:
        return "chart field cannot be changed."
    if old["spec"] != new["spec"] and condition(old, "InProgress") == "True":
        return f"cannot perform operation, as an existing operation is in progress on addon {name}"
    if old["spec"]["enabled"] and not new["spec"]["enabled"] and cache.version.guards_addons:
        return _in_use(cache, new)
    return None


def _in_use(cache: ClusterCache, addon: Json) -> str | None:
    name = addon["metadata"]["name"]
    skip = SKIP_ANNOTATIONS.get(name)
    if skip is None or (addon["metadata"].get("annotations") or {}).get(skip) == "true":
        return None
    # The real check compares names of host devices, so a device entry with another name escapes the check.
    known = {obj["metadata"]["name"] for obj in cache.all(r.VGPU if name == DRIVER_TOOLKIT else r.PCI_DEVICE)}
    users = sorted(
        f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"
        for vm in cache.all(r.VM)
        if any(device.get("name") in known for device in devices_of(vm).get("hostDevices") or [])
    )
    if not users:
        return None
    kind = "vGPU devices" if name == DRIVER_TOOLKIT else "passthrough devices"
    return f"{name} addon cannot be disabled as the following VMs are using {kind}: {', '.join(users)}"


def condition(addon: Json, kind: str) -> str:
    conditions = (addon.get("status") or {}).get("conditions") or []
    return next((str(entry.get("status", "")) for entry in conditions if entry.get("type") == kind), "")
