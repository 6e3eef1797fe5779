"""Things that happen to a lab, with pictures taken on the way. Tests look at the pictures and at the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.integration.api import CLAIMS, KUBEVIRT, NODES, PCI_DEVICES, SRIOV_GPUS, VGPUS, Json
from tests.integration.history import Change
from tests.integration.lab_harvester.beginnings import GPU_A, GPU_B, four_vgpus
from tests.integration.labs import Lab

FIRST, SECOND, THIRD = "gpu-a-000008004", "gpu-a-000008005", "gpu-a-000008006"
WATCHED = (SRIOV_GPUS, VGPUS, PCI_DEVICES, CLAIMS, NODES, KUBEVIRT.rpartition("/")[0])


@dataclass(frozen=True)
class Picture:
    """Everything there is to see at one moment."""

    at: float
    gpus: dict[str, Json]
    vgpus: dict[str, Json]
    pci_devices: dict[str, Json]
    claims: dict[str, Json]
    nodes: dict[str, Json]
    permitted: Json
    hardware: Json

    def status(self, vgpu: str) -> Json:
        return dict(self.vgpus[vgpu].get("status") or {})

    def types(self, vgpu: str) -> set[str]:
        """Suffixes of the types a vGPU may become: 4Q, 8C, ..."""
        return {name.rpartition("-")[2] for name in self.status(vgpu).get("availableTypes") or {}}

    def amounts(self, node: str, kind: str) -> dict[str, int]:
        listed = self.nodes[node]["status"].get(kind) or {}
        return {name: int(amount) for name, amount in listed.items() if name.startswith("nvidia.com/")}

    def allocatable(self, node: str) -> dict[str, int]:
        return self.amounts(node, "allocatable")

    def capacity(self, node: str) -> dict[str, int]:
        return self.amounts(node, "capacity")

    def type_ids(self, node: str) -> dict[str, str]:
        """What the driver of a node really has, by address of the function."""
        return {
            address: type_id
            for card in self.hardware[node].values()
            for address, type_id in card["vfs"].items()
            if type_id is not None
        }


@dataclass(frozen=True)
class Story:
    pictures: dict[str, Picture] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)

    def __getitem__(self, moment: str) -> Picture:
        return self.pictures[moment]


def picture(lab: Lab) -> Picture:
    def named(path: str) -> dict[str, Json]:
        return {thing["metadata"]["name"]: thing for thing in lab.items(path)}

    nodes = named(NODES)
    configuration: Json = lab.read(KUBEVIRT)["spec"]["configuration"]
    return Picture(
        at=lab.control.now(),
        gpus=named(SRIOV_GPUS),
        vgpus=named(VGPUS),
        pci_devices=named(PCI_DEVICES),
        claims=named(CLAIMS),
        nodes=nodes,
        permitted=configuration.get("permittedHostDevices") or {},
        hardware={node: lab.control.hardware(node) for node in nodes},
    )


def switch(lab: Lab, vgpu: str, type_name: str | None) -> Json:
    """One request: enabled with a type, or disabled."""
    spec: dict[str, Any] = {"enabled": True, "vGPUTypeName": type_name} if type_name else {"enabled": False}
    return lab.write(f"{VGPUS}/{vgpu}", {"spec": spec})


def offered_by_free_ones(lab: Lab) -> set[int]:
    """How many types the disabled vGPUs of gpu-a offer."""
    free = [vgpu for vgpu in lab.vgpus(GPU_A) if not vgpu["spec"]["enabled"]]
    return {len((vgpu.get("status") or {}).get("availableTypes") or {}) for vgpu in free}


def life_of_a_vgpu(lab: Lab) -> Story:
    """A card is split, one vGPU gets a type, and loses it again. Each act waits for all consequences of the last."""
    since, pictures = lab.point(), {"before": picture(lab)}
    lab.enable_gpus(GPU_A)
    pictures["split"] = picture(lab)
    switch(lab, FIRST, "NVIDIA A2-4Q")
    lab.until(lambda: sum(lab.amounts("gpu-a").values()) and offered_by_free_ones(lab) == {3})
    pictures["configured"] = picture(lab)
    switch(lab, FIRST, None)
    lab.until(lambda: "vGPUStatus" not in lab.status(FIRST))
    pictures["cleared"] = picture(lab)
    lab.until(lambda: lab.claim(FIRST) is None and offered_by_free_ones(lab) == {15})
    lab.until(lambda: lab.amounts("gpu-a") == {"nvidia.com/NVIDIA_A2-4Q": 0})
    pictures["after"] = picture(lab)
    # The last consequence of a disable comes with the next scan, wherever the story has ended before it.
    lab.advance(40)
    pictures["scanned"] = picture(lab)
    return Story(pictures, lab.changes(since, *WATCHED))


def card_filled(lab: Lab) -> Story:
    """Two halves of a split card are given away, as different series, and come back one by one."""
    pictures = {"empty": picture(lab)}
    for moment, vgpu, type_name in (("half", FIRST, "NVIDIA A2-8Q"), ("full", SECOND, "NVIDIA A2-8C")):
        lab.enable_vgpus({vgpu: type_name})
        lab.advance(10)
        pictures[moment] = picture(lab)
    for moment, vgpu in (("half again", FIRST), ("empty again", SECOND)):
        lab.disable_vgpus([vgpu])
        lab.advance(10)
        pictures[moment] = picture(lab)
    return Story(pictures)


def enabled_again(lab: Lab) -> Story:
    """One of two vGPUs of a type is disabled and enabled again; later the node's process is restarted."""
    lab.disable_vgpus([FIRST])
    lab.advance(20)
    switch(lab, FIRST, "NVIDIA A2-4Q")
    lab.until(lambda: lab.status(FIRST).get("configureVGPUTypeName"))
    lab.advance(30)
    pictures = {"again": picture(lab)}
    lab.control.process("gpu-a", "kill")
    lab.advance(8)
    pictures["process down"] = picture(lab)
    lab.control.process("gpu-a", "start")
    lab.advance(60)
    pictures["process up"] = picture(lab)
    return Story(pictures)


def rebooted(lab: Lab) -> Story:
    """Types of two out of three vGPUs are changed while they are enabled; then their node is rebooted."""
    lab.enable_vgpus({THIRD: "NVIDIA A2-4Q"})
    pictures = {"before": picture(lab)}
    lab.write(f"{VGPUS}/{FIRST}", {"spec": {"vGPUTypeName": "NVIDIA A2-4C"}})
    lab.write(f"{VGPUS}/{SECOND}", {"spec": {"vGPUTypeName": "nonsense"}})
    lab.advance(60)
    pictures["changed"] = picture(lab)
    lab.control.reboot("gpu-a")
    lab.control.settle()
    pictures["down"] = picture(lab)
    lab.advance(5)
    pictures["functions are back"] = picture(lab)
    lab.advance(120)
    pictures["after"] = picture(lab)
    return Story(pictures)


def card_taken_away(lab: Lab) -> Story:
    """SR-IOV of gpu-b is switched off under two vGPUs that nobody uses."""
    since = lab.point()
    lab.write(f"{SRIOV_GPUS}/{GPU_B}", {"spec": {"enabled": False}})
    lab.advance(1)
    pictures = {"at once": picture(lab)}
    lab.advance(90)
    pictures["after"] = picture(lab)
    return Story(pictures, lab.changes(since, *WATCHED))


def first_steps(lab: Lab) -> dict[str, Story]:
    """Two stories that follow each other on one card."""
    return {story.__name__: story(lab) for story in (life_of_a_vgpu, card_filled)}


def long_run(lab: Lab) -> dict[str, Story]:
    """Three stories that begin with four vGPUs. The first leaves them as they were; the others ruin a node each."""
    four_vgpus(lab)
    return {story.__name__: story(lab) for story in (enabled_again, rebooted, card_taken_away)}
