"""vGPUs of Harvester up to 1.7: mediated devices with a UUID, advertised by a device plugin for vGPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.harvester import resources as r
from lab.harvester.hardware import Gpu, Vf
from lab.harvester.node.device_plugins import DevicePlugin
from lab.harvester.pcidevices import permitted_devices
from lab.harvester.pcidevices.vgpu_types import CONFIGURED, chosen_type
from lab.kubernetes.client import Json

if TYPE_CHECKING:
    from lab.harvester.pcidevices.process import NodeProcess


# Duration of the registration of a device plugin at the kubelet.
PLUGIN_SECONDS = 0.05


def type_value(type_id: str) -> str:
    return f"nvidia-{type_id}"


def identifier(vf: Vf) -> str:
    return vf.uuid


def type_name(vf: Vf) -> Json:
    return {"configureVGPUTypeName": vf.type.name} if vf.type else {}


async def enable(process: NodeProcess, obj: Json, gpu: Gpu, vf: Vf) -> Json:
    gpu.configure(vf, chosen_type(obj).removeprefix("nvidia-"))
    # The next event sets the type name: until then the status is half filled (harvester.md 6.3).
    status = (obj.get("status") or {}) | {"vGPUStatus": CONFIGURED, "uuid": vf.uuid}
    return await process.replace_status(r.VGPU, obj, status)


async def disable(process: NodeProcess, obj: Json, gpu: Gpu, vf: Vf) -> Json:
    status = dict(obj.get("status") or {})
    # The uuid in the status identifies the mediated device: an object without the uuid removes nothing.
    if status.get("uuid") == vf.uuid:
        gpu.release(vf)
    # The name in the status identifies the plugin; a disable before the name is set never reaches the plugin.
    resource = process.cluster.vgpu_resource(status.pop("configureVGPUTypeName", ""))
    async with process.plugin_turn:
        plugin = process.plugins.get(resource)
        if plugin is not None:
            plugin.remove(status.get("uuid", ""))
            if not plugin.healthy_count:
                plugin.stop()
                del process.plugins[resource]
    for key in ("vGPUStatus", "uuid"):
        status.pop(key, None)
    return await process.replace_status(r.VGPU, obj, status)


async def after_reconcile(process: NodeProcess, obj: Json, vf: Vf) -> None:
    if not obj["spec"].get("enabled") or vf.type is None:
        return
    resource = process.cluster.vgpu_resource(vf.type.name)
    async with process.plugin_turn:
        await _permit(process, vf.type.name, resource)
        plugin = process.plugins.get(resource)
        if plugin is None:
            plugin = process.plugins[resource] = DevicePlugin(process.devices, resource)
        plugin.add((obj.get("status") or {}).get("uuid", ""))
        # Longer than siblings wait in the queue: they get their new types before the type name is set.
        await process.cluster.clock.sleep(PLUGIN_SECONDS)


async def _permit(process: NodeProcess, type_name: str, resource: str) -> None:
    await process.throttle.take()
    kubevirt = process.cluster[r.KUBEVIRT].get("kubevirt", r.HARVESTER_NAMESPACE)
    if kubevirt is not None:
        changed = permitted_devices.permit_mediated(kubevirt, type_name, resource)
        if changed is not None and process.cluster.loses_permits:
            changed = permitted_devices.without_lost(kubevirt, changed, process.cluster.lost_permits)
        if changed is not None:
            await process.replace(r.KUBEVIRT, changed)
