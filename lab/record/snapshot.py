"""The first steps of every recording: the hardware and the state of the cluster."""

from __future__ import annotations

from typing import Any

from lab.errors import LabError
from lab.gpu.boards import VENDOR_ID, load as load_boards
from lab.record.recorder import Recorder
from lab.record.redaction import shown
from lab.replay.observe.api import Api

Json = dict[str, Any]

PARENT_LABEL = "harvesterhci.io/parentSRIOVGPUDevice"
DEVICES_GROUP = "devices.harvesterhci.io"
DEVICES = f"/apis/{DEVICES_GROUP}/v1beta1"
GPUS = f"{DEVICES}/sriovgpudevices"
PCI_DEVICES = f"{DEVICES}/pcidevices"
LISTS = ("sriovgpudevices", "vgpudevices", "pcideviceclaims", "migconfigurations")
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
VERSION = "/apis/harvesterhci.io/v1beta1/settings/server-version"
KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/kubevirt"


def gpus_of(api: Api) -> list[Json]:
    answer = api.request("GET", GPUS)
    if not answer.accepted:
        raise LabError(
            f"Cannot list the GPUs of the cluster: {answer.status} {answer.message}",
            hint="The cluster needs the addon pcidevices-controller, and the user permission to list its devices.",
        )
    return list((answer.object or {}).get("items") or [])


def version_of(api: Api) -> str:
    """Return the version as in the names of recordings: v1.8, or master for unreleased versions."""
    value = str((api.get(VERSION) or {}).get("value") or "")
    if not value.startswith("v"):
        return "master"
    return ".".join(value.split("-", maxsplit=1)[0].split(".")[:2])


def nodes_of(gpus: list[Json]) -> tuple[str, ...]:
    return tuple(sorted({gpu["spec"]["nodeName"] for gpu in gpus}))


def host_of(api: Api, gpus: list[Json]) -> Json:
    """Return the hardware as far as the API shows it."""
    cards: dict[str, list[Json]] = {}
    for gpu in sorted(gpus, key=lambda item: str(item["metadata"]["name"])):
        name, spec = gpu["metadata"]["name"], gpu["spec"]
        device = (api.get(f"{PCI_DEVICES}/{name}") or {}).get("status") or {}
        card = {
            "address": spec["address"],
            "board": _board(api, name, device),
            "description": device.get("description"),
        }
        cards.setdefault(spec["nodeName"], []).append({key: value for key, value in card.items() if value})
    return {"nodes": list(nodes_of(gpus)), "gpus": cards}


def _board(api: Api, gpu: str, device: Json) -> str | None:
    """Return the name of the board. Boards that share a device id are told apart by their types."""
    candidates = [load_board for load_board in load_boards().values() if load_board.device_id == device.get("deviceId")]
    vgpus = (api.get(f"{DEVICES}/vgpudevices?labelSelector={PARENT_LABEL}%3D{gpu}") or {}).get("items") or []
    prefixes = {
        name.rpartition("-")[0] for vgpu in vgpus for name in (vgpu.get("status") or {}).get("availableTypes") or {}
    }
    candidates.sort(key=lambda board: board.prefix not in prefixes)
    return candidates[0].name if candidates else None


def take(recorder: Recorder) -> None:
    for plural in LISTS:
        recorder.ask(f"list {plural}", f"{DEVICES}/{plural}")
    _pci_devices(recorder)
    for node in recorder.environment.nodes:
        recorder.ask(f"core node {node}", f"/api/v1/nodes/{node}")
    for plural in (*LISTS, "pcidevices"):
        recorder.ask(f"CRD {plural}", f"{DEFINITIONS}/{plural}.{DEVICES_GROUP}")
    for kind in ("validating", "mutating"):
        name = f"pcidevices-{'validator' if kind == 'validating' else 'mutator'}"
        recorder.ask(f"{kind} webhook rules", f"{WEBHOOKS}/{kind}webhookconfigurations/{name}")
    recorder.ask("KubeVirt CR", KUBEVIRT)


def _pci_devices(recorder: Recorder) -> None:
    """Record the PCI devices of GPUs only, and therefore not as a request."""
    listed = recorder.environment.api.get(PCI_DEVICES) or {}
    functions = [item for item in listed.get("items") or [] if (item.get("status") or {}).get("vendorId") == VENDOR_ID]
    after = {
        f"PCIDevice/{function['metadata']['name']}": shown({"kind": "PCIDevice", **function})
        for function in sorted(functions, key=lambda item: str(item["metadata"]["name"]))
    }
    recorder.add("PCIDevices of the GPUs", {"note": f"{len(after)} functions", "after": after})
