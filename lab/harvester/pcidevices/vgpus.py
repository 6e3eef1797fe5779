"""Controller for VGPUDevices: sets vGPU types on virtual functions, as mdev or vendor VFIO (harvester.md 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.harvester import resources as r
from lab.harvester.hardware import Gpu, Vf
from lab.harvester.pcidevices import mdev, vendor_vfio
from lab.harvester.pcidevices.vgpu_types import CONFIGURED
from lab.kubernetes.client import Json
from lab.kubernetes.workqueue import FIRST_RETRY

if TYPE_CHECKING:
    from lab.harvester.pcidevices.process import NodeProcess


def discovered(process: NodeProcess, gpu: Gpu, vf: Vf) -> Json:
    """Return the status of a function as the driver reports it."""
    era = vendor_vfio if process.cluster.version.vendor_vfio else mdev
    status: Json = {}
    offered = {kind.name: era.type_value(kind.id) for kind in gpu.offered(vf)}
    if offered:
        status["availableTypes"] = offered
    if vf.type is not None:
        status["uuid"] = era.identifier(vf)
        status["vGPUStatus"] = CONFIGURED
        status |= era.type_name(vf)
    return status


def status_after(process: NodeProcess, discovered_status: Json, current: Json) -> Json:
    if process.cluster.version.vendor_vfio and "configureVGPUTypeName" in current:
        # The driver only knows type ids, so the status keeps its name, even a wrong one (harvester.md 6.7).
        return discovered_status | {"configureVGPUTypeName": current["configureVGPUTypeName"]}
    return discovered_status


async def reconcile(process: NodeProcess, obj: Json) -> None:
    if "deletionTimestamp" in obj["metadata"]:
        return
    function = process.host.find_vf(obj["spec"].get("address", ""))
    if function is None:
        raise LookupError(f"error generating vgpu {obj['metadata']['name']} status: no such function")
    gpu, vf = function
    process.host.check_readable(vf.address)
    era = vendor_vfio if process.cluster.version.vendor_vfio else mdev
    enabled = bool(obj["spec"].get("enabled"))
    if enabled and vf.type is None:
        written = await era.enable(process, obj, gpu, vf)
        _look_at_siblings(process, written)
    elif not enabled and vf.type is not None:
        written = await era.disable(process, obj, gpu, vf)
        _look_at_siblings(process, written)
    elif enabled and (named := await vendor_vfio.name_type(process, obj)):
        written = named
    else:
        status = status_after(process, discovered(process, gpu, vf), obj.get("status") or {})
        written = obj
        if status != (obj.get("status") or {}):
            written = await process.replace_status(r.VGPU, obj, status)
    await era.after_reconcile(process, written, vf)


def _look_at_siblings(process: NodeProcess, obj: Json) -> None:
    """Refresh the types of disabled vGPUs on the same GPU; enabled ones wait for the scan (harvester.md 6.4).

    The siblings pass through the queue's rate limiter, so the device itself is reconciled before them.
    """
    parent = r.device_name(process.node, obj["spec"]["parentGPUDeviceAddress"])
    for sibling in process.cluster[r.VGPU].labelled(r.PARENT_LABEL, parent):
        if not sibling["spec"].get("enabled") and sibling["metadata"]["name"] != obj["metadata"]["name"]:
            process.enqueue(r.VGPU, sibling["metadata"]["name"], after=FIRST_RETRY)
