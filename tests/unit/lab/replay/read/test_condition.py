"""The phrases after which recordings wait."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from lab.replay.observe.history import Snapshot
from lab.replay.read.condition import parse_condition
from lab.replay.read.recording import Recording, Request, load, load_all
from lab.replay.read.step_context import StepContext, context_at, resource_of

TRACES = Path(__file__).parents[4] / "data" / "traces"


@functools.cache
def recording_of(name: str) -> Recording:
    return load(TRACES / f"{name}.yaml")


DEVICES = "/apis/devices.harvesterhci.io/v1beta1"
ALL = {
    f"NVIDIA A2-{size}": "1"
    for size in ["16A", "16C", "16Q", "1A", "1B", "1Q", "2A", "2B", "2Q", "4A", "4C", "4Q", "8A", "8C", "8Q"]
}
FOUR = {name: ALL[name] for name in ("NVIDIA A2-4A", "NVIDIA A2-4C", "NVIDIA A2-4Q")}


@dataclass
class ClusterState:
    snapshot: Snapshot
    refuses: bool = False
    alive: dict[str, bool] = field(default_factory=lambda: {"gpu-a": True, "gpu-b": True})

    def webhook_refuses(self) -> bool:
        return self.refuses

    def processes(self) -> Mapping[str, bool]:
        return self.alive


def vgpu(types: Mapping[str, str] | None = None, *, enabled: bool = False, **status: str) -> dict[str, Any]:
    offers = {"availableTypes": dict(types)} if types else {}
    return {
        "metadata": {"labels": {}},
        "spec": {"enabled": enabled, "vGPUTypeName": "NVIDIA A2-4Q"},
        "status": {**offers, **status},
    }


def node(allocatable: str, *labels: str) -> dict[str, Any]:
    amounts = {"nvidia.com/NVIDIA_A2-4Q": allocatable, "cpu": "8"}
    return {
        "metadata": {"labels": dict.fromkeys(labels, "true")},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def context(*requests: Request) -> StepContext:
    asked = requests or (Request("PATCH", f"{DEVICES}/vgpudevices/gpu-a-000008004", {"spec": {"enabled": True}}),)
    target = asked[-1].target
    assert target.name
    return StepContext(
        ("gpu-a", "gpu-b"), "gpu-a", (target.plural, target.name), requests=list(asked), touched=["gpu-a-000008004"]
    )


PF = Request("PATCH", f"{DEVICES}/sriovgpudevices/gpu-a-000008000", {"spec": {"enabled": True}})
FIRST = ("vgpudevices", "gpu-a-000008004")
SECOND = ("vgpudevices", "gpu-a-000008005")
CONFIGURED = {"vGPUStatus": "vGPUConfigured", "configureVGPUTypeName": "NVIDIA A2-4Q"}
CLAIM = {("pcideviceclaims", "gpu-a-000008004"): {"metadata": {}, "status": {"passthroughEnabled": True}}}
MIG = ("migconfigurations", "gpu-a-000008000")

MEANINGS: list[tuple[str, str, dict[tuple[str, str], Any], dict[tuple[str, str], Any]]] = [
    # phrase, title, a world where it holds, one where it does not
    ("status.vGPUStatus == vGPUConfigured", "", {FIRST: vgpu(**CONFIGURED)}, {FIRST: vgpu(ALL)}),
    (
        "status.vGPUStatus == vGPUConfigured (configureVGPUTypeName not awaited)",
        "",
        {FIRST: vgpu(**CONFIGURED)},
        {FIRST: vgpu(ALL)},
    ),
    (
        "gpu-a-000008005 status.vGPUStatus == vGPUConfigured",
        "",
        {SECOND: vgpu(**CONFIGURED)},
        {FIRST: vgpu(**CONFIGURED)},
    ),
    (
        "gpu-a-000008004 status.configureVGPUTypeName == spec.vGPUTypeName",
        "",
        {FIRST: vgpu(**CONFIGURED)},
        {FIRST: vgpu(vGPUStatus="vGPUConfigured")},
    ),
    ("status.vGPUStatus empty again", "", {FIRST: vgpu(ALL)}, {FIRST: vgpu(vGPUStatus="nonsense")}),
    ("availableTypes not empty", "", {FIRST: vgpu(FOUR)}, {FIRST: vgpu()}),
    ("configured", "", {FIRST: vgpu(**CONFIGURED)}, {FIRST: vgpu(ALL)}),
    ("gpu-a-000008004 lists 15 availableTypes", "", {FIRST: vgpu(ALL)}, {FIRST: vgpu(FOUR)}),
    ("all 2 VFs list 15 types", "", {FIRST: vgpu(ALL), SECOND: vgpu(ALL)}, {FIRST: vgpu(ALL), SECOND: vgpu(FOUR)}),
    ("other 1 VFs list 3 types", "", {FIRST: vgpu(), SECOND: vgpu(FOUR)}, {FIRST: vgpu(FOUR), SECOND: vgpu(ALL)}),
    ("1 disabled VFs list no types", "", {FIRST: vgpu(enabled=True), SECOND: vgpu()}, {FIRST: vgpu(), SECOND: vgpu()}),
    (
        "first VF (enabled) lists no availableTypes",
        "",
        {FIRST: vgpu(), SECOND: vgpu(ALL)},
        {FIRST: vgpu(ALL), SECOND: vgpu()},
    ),
    ("gpu-a all types", "", {FIRST: vgpu(ALL)}, {FIRST: vgpu(FOUR)}),
    ("2 with types", "", {FIRST: vgpu(ALL), SECOND: vgpu(enabled=True)}, {FIRST: vgpu(ALL), SECOND: vgpu()}),
    (
        "2 VGPUDevices of gpu-a with availableTypes (or enabled)",
        "",
        {FIRST: vgpu(ALL), SECOND: vgpu(enabled=True)},
        {FIRST: vgpu(ALL)},
    ),
    ("any VGPUDevice of gpu-a exists", "", {FIRST: vgpu()}, {}),
    ("2 VGPUDevices of gpu-a exist", "", {FIRST: vgpu(), SECOND: vgpu()}, {FIRST: vgpu()}),
    ("none of gpu-a", "VGPUDevices gone", {("vgpudevices", "gpu-b-000008004"): vgpu()}, {FIRST: vgpu()}),
    ("2", "VGPUDevices back", {FIRST: vgpu(), SECOND: vgpu()}, {FIRST: vgpu()}),
    ("2", "allocatable", {("nodes", "gpu-a"): node("2")}, {("nodes", "gpu-a"): node("1")}),
    (
        "gpu-a allocatable nvidia.com/NVIDIA_A2-4Q == 1",
        "",
        {("nodes", "gpu-a"): node("1")},
        {("nodes", "gpu-a"): node("2")},
    ),
    (
        "gpu-a 4Q == 2, gpu-b 4Q == 1",
        "",
        {("nodes", "gpu-a"): node("2"), ("nodes", "gpu-b"): node("1")},
        {("nodes", "gpu-a"): node("2"), ("nodes", "gpu-b"): node("0")},
    ),
    ("gpu-b allocatable 4Q >= 1", "", {("nodes", "gpu-b"): node("3")}, {("nodes", "gpu-b"): node("0")}),
    ("no claims", "clean", {}, CLAIM),
    ("1 claims", "", CLAIM, {}),
    ("PCIDeviceClaim gpu-a-000008004 status.passthroughEnabled", "", CLAIM, {}),
    ("PCIDeviceClaim gpu-a-000008004 gone", "", {FIRST: vgpu()}, CLAIM),
    ("claim gone", "", {FIRST: vgpu()}, CLAIM),
    ("404", "claim gone", {FIRST: vgpu()}, CLAIM),
    ("object gone", "", {}, {FIRST: vgpu()}),
    ("exists again with types", "", {FIRST: vgpu(ALL)}, {FIRST: vgpu()}),
    ("status of gpu-a-000008004 cleared, no claims left", "", {FIRST: vgpu()}, {FIRST: vgpu(), **CLAIM}),
    (
        "status of gpu-a-000008004, gpu-a-000008005 cleared, no claims left, availableTypes listed again",
        "",
        {FIRST: vgpu(ALL), SECOND: vgpu(FOUR)},
        {FIRST: vgpu(ALL), SECOND: vgpu()},
    ),
    (
        "sriovgpu.harvesterhci.io/driver-needed back",
        "",
        {("nodes", "gpu-a"): node("0", "sriovgpu.harvesterhci.io/driver-needed")},
        {("nodes", "gpu-a"): node("0")},
    ),
]


@pytest.mark.parametrize(
    ("phrase", "title", "held", "not_held"), MEANINGS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_phrase_says_when_the_wait_is_over(phrase: str, title: str, held: Any, not_held: Any) -> None:
    condition = parse_condition(phrase, title, context())
    assert condition
    assert condition.holds(ClusterState(Snapshot(held)))
    assert not condition.holds(ClusterState(Snapshot(not_held)))


@pytest.mark.parametrize(
    ("phrase", "title", "key"),
    [
        ("status.vfAddresses not empty", "PF status filled", ("sriovgpudevices", "gpu-a-000008000")),
        ("MigConfiguration exists", "MigConfiguration appears", MIG),
        ("exists with profileStatus", "MigConfiguration appears", MIG),
        ("status.profileStatus not empty", "profileStatus filled", MIG),
        ("synced", "", MIG),
        ("404", "MigConfiguration gone", MIG),
        ("SRIOVGPUDevice exists again", "object back", ("sriovgpudevices", "gpu-a-000008000")),
    ],
)
def test_a_phrase_without_a_name_speaks_of_the_object_last_asked_for(
    phrase: str, title: str, key: tuple[str, str]
) -> None:
    condition = parse_condition(phrase, title, context(PF))
    assert condition
    assert condition.key == key


def test_the_webhook_answers_when_it_refuses_a_bad_type() -> None:
    for phrase in ("webhook answers", "a dry-run enable with a bad type is refused"):
        condition = parse_condition(phrase, "", context())
        assert condition
        assert condition.holds(ClusterState(Snapshot({}), refuses=True))
        assert not condition.holds(ClusterState(Snapshot({}), refuses=False))


def test_an_unknown_phrase_is_not_understood_rather_than_misread() -> None:
    assert parse_condition("the moon is full", "", context()) is None
    assert parse_condition("3 users", "", context()) is None


@pytest.mark.parametrize("name", [recording.name for recording in load_all(TRACES)])
def test_every_phrase_of_a_recording_is_understood(name: str) -> None:
    recording = recording_of(name)
    for step in recording.steps:
        if step.act == "wait":
            assert parse_condition(step.content["wait"]["until"], step.title, context_at(recording, step.index)), (
                step.id
            )


def test_the_node_last_mentioned_is_the_one_a_step_speaks_of() -> None:
    recording = recording_of("v1.8-s02")
    contexts = {step.id: context_at(recording, step.index).node for step in recording.steps}
    assert (contexts["s02-03"], contexts["s02-07"], contexts["s02-11"]) == ("gpu-b", "gpu-a", "gpu-b")


@pytest.mark.parametrize("spelling", ["4Q", "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q"])
def test_a_profile_has_one_resource_in_every_spelling(spelling: str) -> None:
    assert resource_of(spelling) == "nvidia.com/NVIDIA_A2-4Q"
