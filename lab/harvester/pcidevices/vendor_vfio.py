"""vGPUs of Harvester from 1.8 on: a type id on the function, advertised as a PCI device through a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.harvester import resources as r
from lab.harvester.hardware import Gpu, Vf
from lab.harvester.pcidevices.vgpu_types import CONFIGURED, chosen_type
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.resource import Resource

if TYPE_CHECKING:
    from lab.harvester.pcidevices.process import NodeProcess


# Time from the status of a vGPU to the name of its type, where the name follows.
NAME_SECONDS = 0.1


def type_value(type_id: str) -> str:
    return type_id


def identifier(vf: Vf) -> str:
    return vf.type.id if vf.type else ""


def type_name(vf: Vf) -> Json:
    """Return no type name, because the driver only knows type ids."""
    return {}


async def enable(process: NodeProcess, obj: Json, gpu: Gpu, vf: Vf) -> Json:
    type_id = chosen_type(obj)
    name = obj["metadata"]["name"]
    type_name = obj["spec"]["vGPUTypeName"]
    parent = r.device_name(process.node, gpu.address)
    resource = process.cluster.vgpu_resource(type_name)
    device = process.cluster[r.PCI_DEVICE].get(name)
    if device is None:
        raise LookupError(f"no PCIDevice {name} yet")
    device = await process.replace(
        r.PCI_DEVICE, _annotated(device, {r.OVERRIDE_ANNOTATION: resource}, {r.PARENT_LABEL: parent})
    )
    await process.replace_status(r.PCI_DEVICE, device, (device.get("status") or {}) | {"resourceName": resource})
    await _claim(process, obj, device, parent, resource)
    gpu.configure(vf, type_id)
    status = (obj.get("status") or {}) | {"vGPUStatus": CONFIGURED, "uuid": type_id}
    if not process.cluster.version.name_follows_status:
        status["configureVGPUTypeName"] = type_name
    return await process.replace_status(r.VGPU, obj, status)


async def name_type(process: NodeProcess, obj: Json) -> Json | None:
    """Write the name of a configured vGPU's type, from 1.9 on. A name that is there stays (harvester.md 6.7).

    Return None if there is nothing to write.
    """
    status = obj.get("status") or {}
    waits = status.get("vGPUStatus") == CONFIGURED and "configureVGPUTypeName" not in status
    if not process.cluster.version.name_follows_status or not waits:
        return None
    named = status | {"configureVGPUTypeName": obj["spec"].get("vGPUTypeName", "")}
    return await process.replace_status(r.VGPU, obj, named)


async def _claim(process: NodeProcess, obj: Json, device: Json, parent: str, resource: str) -> None:
    body = {
        "metadata": {
            "name": obj["metadata"]["name"],
            "labels": {r.PARENT_LABEL: parent},
            "annotations": {r.SKIP_VFIO_ANNOTATION: "true", r.OVERRIDE_ANNOTATION: resource},
            "ownerReferences": [_owner(device, r.PCI_DEVICE), _owner(obj, r.VGPU)],
        },
        "spec": {"address": obj["spec"]["address"], "nodeName": process.node, "userName": "admin"},
    }
    try:
        await process.create(r.CLAIM, body)
    except ApiError as error:
        # The controller uses an existing claim, even if it is being deleted or advertises another type.
        if error.reason != "AlreadyExists":
            raise


def _owner(obj: Json, resource: Resource) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": obj["metadata"]["name"],
        "uid": obj["metadata"]["uid"],
    }


async def disable(process: NodeProcess, obj: Json, gpu: Gpu, vf: Vf) -> Json:
    name = obj["metadata"]["name"]
    await process.delete(r.CLAIM, name)
    device = process.cluster[r.PCI_DEVICE].get(name)
    if device is not None:
        # The device's status names the old resource until the next scan.
        await process.replace(r.PCI_DEVICE, _annotated(device, {r.OVERRIDE_ANNOTATION: None}, {r.PARENT_LABEL: None}))
    gpu.release(vf)
    # A disable before the name is set does not know the name that follows, and leaves it behind (harvester.md 6.3).
    named = await name_type(process, obj)
    removed = ("vGPUStatus", "uuid", *(() if named else ("configureVGPUTypeName",)))
    obj = named or obj
    status = {key: value for key, value in (obj.get("status") or {}).items() if key not in removed}
    return await process.replace_status(r.VGPU, obj, status)


async def after_reconcile(process: NodeProcess, obj: Json, vf: Vf) -> None:
    """Wait until the name of the type follows, from 1.9 on. The reconcile of the claim starts the device plugin."""
    status = obj.get("status") or {}
    follows = process.cluster.version.name_follows_status and "configureVGPUTypeName" not in status
    if follows and status.get("vGPUStatus") == CONFIGURED:
        await process.cluster.clock.sleep(NAME_SECONDS)


def _annotated(device: Json, annotations: dict[str, str | None], labels: dict[str, str | None]) -> Json:
    def merged(current: dict[str, str] | None, changes: dict[str, str | None]) -> dict[str, str]:
        result = {**(current or {}), **{key: value for key, value in changes.items() if value is not None}}
        return {key: value for key, value in result.items() if changes.get(key, value) is not None}

    metadata = device["metadata"]
    return device | {
        "metadata": metadata
        | {
            "annotations": merged(metadata.get("annotations"), annotations),
            "labels": merged(metadata.get("labels"), labels),
        }
    }
