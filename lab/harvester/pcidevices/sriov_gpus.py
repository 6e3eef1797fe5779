"""Controller for SRIOVGPUDevices: enables and disables SR-IOV of a GPU (harvester.md 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.harvester import resources as r
from lab.harvester.hardware import Gpu
from lab.harvester.pcidevices import mig_configurations
from lab.kubernetes.client import Json

if TYPE_CHECKING:
    from lab.harvester.pcidevices.process import NodeProcess


class DriverNotReady(Exception):
    """Raised if the driver is not ready, which only the log of the process shows."""


def status_of(gpu: Gpu, node: str) -> Json:
    if not gpu.vfs:
        return {}
    addresses = [vf.address for vf in gpu.vfs]
    return {"vGPUDevices": [r.device_name(node, address) for address in addresses], "vfAddresses": addresses}


async def reconcile(process: NodeProcess, obj: Json) -> None:
    if "deletionTimestamp" in obj["metadata"]:
        return
    gpu = process.host.gpu(obj["spec"].get("address", ""))
    if gpu is None:
        raise LookupError(f"no card at {obj['spec'].get('address')}")
    wanted = bool(obj["spec"].get("enabled"))
    if wanted != bool(gpu.vfs):
        reason = process.cluster.driver_ready(process.node)
        if reason:
            raise DriverNotReady(f"error performing sriovmanage operation: {reason}")
        if wanted:
            gpu.create_vfs()
        else:
            gpu.remove_vfs()
    written = await process.replace_status(r.SRIOV_GPU, obj, status_of(gpu, process.node))
    await mig_configurations.follow_card(process, written, gpu)
