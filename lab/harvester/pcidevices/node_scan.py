"""Node scan, which creates objects for the hardware every 30 seconds (harvester.md 4.2). An error ends the pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.harvester import resources as r
from lab.harvester.hardware import Gpu, PciFunction, Vf
from lab.harvester.pcidevices import vgpus
from lab.kubernetes.client import Json

if TYPE_CHECKING:
    from lab.harvester.pcidevices.process import NodeProcess

PERIOD = 30.0


async def reconcile(process: NodeProcess, ticket: Json) -> None:
    process.scanning = True
    try:
        await _pci_devices(process)
        reserved = _is_reserved(process)
        await _cards(process, reserved)
        await _vgpus(process, reserved)
        await _node_label(process)
    finally:
        process.scanning = False
    process.enqueue(r.DEVICE_NODE, ticket["metadata"]["name"], after=PERIOD)


async def _pci_devices(process: NodeProcess) -> None:
    functions = {r.device_name(process.node, f.address): f for f in process.host.pci_functions()}
    for name, function in functions.items():
        await process.throttle.take()
        device = process.cluster[r.PCI_DEVICE].get(name)
        if device is None:
            device = await process.create(r.PCI_DEVICE, _new_pci_device(process, name, function))
        status = function.status(process.node)
        override = (device["metadata"].get("annotations") or {}).get(r.OVERRIDE_ANNOTATION)
        if override:
            status["resourceName"] = override
        await process.replace_status(r.PCI_DEVICE, device, status)
    for device in process.cluster[r.PCI_DEVICE].labelled(r.NODENAME_LABEL, process.node):
        if device["metadata"]["name"] not in functions:
            await process.delete(r.PCI_DEVICE, device["metadata"]["name"])


def _new_pci_device(process: NodeProcess, name: str, function: PciFunction) -> Json:
    labels = {r.NODENAME_LABEL: process.node}
    if function.parent and process.cluster.version.vendor_vfio:
        labels[r.PARENT_LABEL] = r.device_name(process.node, function.parent)
    return {
        "metadata": {"name": name, "labels": labels, "annotations": {r.ORIGINAL_DRIVER_ANNOTATION: ""}},
        "spec": {},
    }


def _is_reserved(process: NodeProcess) -> bool:
    """Return whether a label reserves the node's GPUs for containers, from 1.9 on (harvester.md 2.8)."""
    node = process.cluster[r.NODE].get(process.node) or {}
    labels = (node.get("metadata") or {}).get("labels") or {}
    return process.cluster.version.baremetal_label and labels.get(r.BARE_METAL_LABEL) == "true"


async def _cards(process: NodeProcess, reserved: bool) -> None:
    gpus = [] if reserved else [gpu for gpu in process.host.gpus if gpu.sriov_capable]
    cards = {r.device_name(process.node, gpu.address): gpu for gpu in gpus}
    for name, gpu in cards.items():
        # A GPU that is passed through as a whole has a claim of the same name, and no SRIOVGPUDevice.
        if process.cluster[r.CLAIM].get(name) is None and process.cluster[r.SRIOV_GPU].get(name) is None:
            await process.create(r.SRIOV_GPU, _new_card(process, name, gpu))
    for obj in process.cluster[r.SRIOV_GPU].labelled(r.NODENAME_LABEL, process.node):
        if obj["metadata"]["name"] not in cards:
            await process.delete(r.SRIOV_GPU, obj["metadata"]["name"])


def _new_card(process: NodeProcess, name: str, gpu: Gpu) -> Json:
    return {
        "metadata": {"name": name, "labels": {r.NODENAME_LABEL: process.node}},
        "spec": {"address": gpu.address, "nodeName": process.node, "enabled": bool(gpu.vfs)},
    }


async def _vgpus(process: NodeProcess, reserved: bool) -> None:
    # One unreadable function ends the scan of all functions of the node (harvester.md 4.2).
    process.host.check_readable(*(vf.address for gpu in process.host.gpus for vf in gpu.vfs))
    functions = {
        r.device_name(process.node, vf.address): (gpu, vf)
        for gpu in process.host.gpus
        for vf in sorted(gpu.vfs, key=lambda vf: vf.address)
        if not reserved
    }
    # By label, not by name: creating an object that lost its label again fails (harvester.md 4.3).
    known = {obj["metadata"]["name"]: obj for obj in process.cluster[r.VGPU].labelled(r.NODENAME_LABEL, process.node)}
    # Read all functions before the first write: a vGPU that is configured meanwhile does not restrict the others,
    # and an object that changed since then causes a conflict, which ends the pass.
    discovered = {name: vgpus.discovered(process, gpu, vf) for name, (gpu, vf) in functions.items()}
    for name, (gpu, vf) in functions.items():
        if name not in known:
            await process.create(r.VGPU, _new_vgpu(process, name, gpu, vf))
        else:
            obj = known[name]
            status = vgpus.status_after(process, discovered[name], obj.get("status") or {})
            if status != (obj.get("status") or {}):
                await process.replace_status(r.VGPU, obj, status)
    for name, obj in known.items():
        parent = r.device_name(process.node, obj["spec"].get("parentGPUDeviceAddress", ""))
        card = process.cluster[r.SRIOV_GPU].get(parent)
        # vGPUs of an enabled GPU stay, because its functions return after a reboot.
        if name not in functions and not (card and card["spec"].get("enabled")):
            await process.delete(r.VGPU, name)


def _new_vgpu(process: NodeProcess, name: str, gpu: Gpu, vf: Vf) -> Json:
    parent = r.device_name(process.node, gpu.address)
    # Existing mediated devices are adopted; a bare type id cannot be adopted (harvester.md 6.1).
    adopted = vf.type is not None and process.cluster.version.mdev
    return {
        "metadata": {"name": name, "labels": {r.NODENAME_LABEL: process.node, r.PARENT_LABEL: parent}},
        "spec": {
            "address": vf.address,
            "nodeName": process.node,
            "parentGPUDeviceAddress": gpu.address,
            "enabled": adopted,
            "vGPUTypeName": "",
        },
    }


async def _node_label(process: NodeProcess) -> None:
    node = process.cluster[r.NODE].get(process.node)
    if node is None:
        return
    has_cards = bool(process.cluster[r.SRIOV_GPU].labelled(r.NODENAME_LABEL, process.node))
    labels = dict(node["metadata"].get("labels") or {})
    if has_cards == (r.DRIVER_NEEDED_LABEL in labels):
        return
    if has_cards:
        labels[r.DRIVER_NEEDED_LABEL] = "true"
    else:
        del labels[r.DRIVER_NEEDED_LABEL]
    await process.throttle.take()
    await process.cluster[r.NODE].replace(node | {"metadata": node["metadata"] | {"labels": labels}})
