"""Controller for PCIDeviceClaims: permits the function in KubeVirt and advertises it (harvester.md 9.1 and 9.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.harvester import resources as r
from lab.harvester.node.device_plugins import DevicePlugin
from lab.harvester.pcidevices import permitted_devices
from lab.kubernetes.client import Json

if TYPE_CHECKING:
    from lab.harvester.pcidevices.process import NodeProcess

# The real controller sleeps before it checks whether a plugin has devices left.
REMOVAL_PAUSE = 5.0


async def reconcile(process: NodeProcess, claim: Json) -> None:
    finalizers = claim["metadata"].get("finalizers") or []
    if "deletionTimestamp" in claim["metadata"]:
        if r.CLAIM_FINALIZER in finalizers:
            await _remove(process, claim)
        return
    if r.CLAIM_FINALIZER not in finalizers:
        claim = await process.replace(r.CLAIM, _with_finalizers(claim, [*finalizers, r.CLAIM_FINALIZER]))
    device = _owning_device(process, claim)
    # A claim keeps the resource of its vGPU, also if it outlived the vGPU and its device has a generic name again.
    annotations = claim["metadata"].get("annotations") or {}
    resource = annotations.get(r.OVERRIDE_ANNOTATION) or device["status"]["resourceName"]
    async with process.plugin_turn:
        await _permit(process, device, resource)
        plugin = process.plugins.get(resource)
        if plugin is None:
            plugin = process.plugins[resource] = DevicePlugin(process.devices, resource)
        plugin.add(claim["spec"]["address"])
        if not (claim.get("status") or {}).get("passthroughEnabled"):
            await process.replace_status(r.CLAIM, claim, {"kernelDriverToUnbind": "", "passthroughEnabled": True})


async def _remove(process: NodeProcess, claim: Json) -> None:
    _owning_device(process, claim)
    resource = (claim["metadata"].get("annotations") or {}).get(r.OVERRIDE_ANNOTATION)
    async with process.plugin_turn:
        plugin = process.plugins.get(resource or "")
        if plugin is not None:
            plugin.remove(claim["spec"]["address"])
            await process.cluster.clock.sleep(REMOVAL_PAUSE)
            if not plugin.healthy_count:
                plugin.stop()
                process.plugins.pop(plugin.resource, None)
    current = process.cluster[r.CLAIM].get(claim["metadata"]["name"])
    if current is not None:
        finalizers = [f for f in current["metadata"].get("finalizers") or [] if f != r.CLAIM_FINALIZER]
        await process.replace(r.CLAIM, _with_finalizers(current, finalizers))


def _owning_device(process: NodeProcess, claim: Json) -> Json:
    """Return the first owner of the claim; a claim without it neither works nor can be deleted (harvester.md 5.5)."""
    owners = claim["metadata"].get("ownerReferences") or []
    if not owners:
        raise LookupError(f"Cannot find PCIDevice that owns {claim['metadata']['name']}")
    device = process.cluster[r.PCI_DEVICE].get(owners[0]["name"])
    if device is None or not (device.get("status") or {}).get("resourceName"):
        raise LookupError(f"error getting claim's device {owners[0]['name']}")
    return device


async def _permit(process: NodeProcess, device: Json, resource: str) -> None:
    kubevirt = process.cluster[r.KUBEVIRT].get("kubevirt", r.HARVESTER_NAMESPACE)
    await process.throttle.take()
    if kubevirt is not None:
        changed = permitted_devices.permit_pci(kubevirt, device["status"]["deviceId"], resource)
        if changed is not None and process.cluster.loses_permits:
            changed = permitted_devices.without_lost(kubevirt, changed, process.cluster.lost_permits)
        if changed is not None:
            await process.replace(r.KUBEVIRT, changed)


def _with_finalizers(claim: Json, finalizers: list[str]) -> Json:
    return claim | {"metadata": claim["metadata"] | {"finalizers": finalizers}}
