"""The fields of recorded states."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from lab.replay.compare.field import address_of, fields_of, flatten
from lab.replay.observe.history import Snapshot
from lab.replay.observe.host_state import Sample, instances_of, type_on
from lab.replay.play.state_changes import needed_samples
from lab.replay.read.recording import Recording, load, load_all
from lab.replay.read.step_context import context_at

TRACES = Path(__file__).parents[4] / "data" / "traces"


@functools.cache
def recording_of(name: str) -> Recording:
    return load(TRACES / f"{name}.yaml")


OBSERVED = [
    (recording.name, step.id) for recording in load_all(TRACES) for step in recording.steps if step.act == "observe"
]


@pytest.mark.parametrize(("name", "step_id"), OBSERVED)
def test_every_field_of_an_observed_state_is_supported(name: str, step_id: str) -> None:
    recording = recording_of(name)
    step = next(step for step in recording.steps if step.id == step_id)
    states = [transition["state"] for transition in step.content["observe"]["transitions"]]
    state_fields = fields_of(states, context_at(recording, step.index), mdev=recording.mdev)
    assert state_fields
    assert all(state_field.supported for state_field in state_fields)


def value(name: str, step_id: str, field_name: str, objects: dict[tuple[str, str], Any]) -> Any:
    recording = recording_of(name)
    step = next(step for step in recording.steps if step.id == step_id)
    shown = step.content.get("observe", {}).get("transitions") or [{"state": step.content.get("object")}]
    state_fields = fields_of(
        [transition["state"] for transition in shown], context_at(recording, step.index), mdev=recording.mdev
    )
    state_field = next(state_field for state_field in state_fields if state_field.name == field_name)
    assert state_field.of_snapshot
    return state_field.of_snapshot(Snapshot(objects))


def vgpu(**status: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": {"enabled": True}, "status": status}


CLAIM = {"metadata": {"name": "gpu-a-000008006", "deletionTimestamp": "now"}}


@pytest.mark.parametrize(
    ("name", "step", "state_field", "objects", "expected"),
    [
        ("v1.8-s05", "s05-03", "typesOfIt", {("vgpudevices", "gpu-a-000008004"): vgpu(availableTypes={"a": "1"})}, 1),
        ("v1.8-s05", "s05-03", "typesOfLast", {("vgpudevices", "gpu-a-000008023"): vgpu(availableTypes={"a": "1"})}, 1),
        ("v1.8-s05", "s05-03", "claim", {("pcideviceclaims", "gpu-a-000008004"): CLAIM}, "yes"),
        ("v1.8-s05", "s05-11", "claim", {("pcideviceclaims", "gpu-a-000008006"): CLAIM}, "deleting"),
        (
            "v1.8-s05",
            "s05-11",
            "allocatable4C",
            {("nodes", "gpu-a"): {"status": {"allocatable": {"nvidia.com/NVIDIA_A2-4C": "1"}}}},
            "1",
        ),
        (
            "v1.8-s06",
            "s06-17",
            "status.gpu-a-000008004",
            {("vgpudevices", "gpu-a-000008004"): vgpu(vGPUStatus="s", uuid="746", configureVGPUTypeName="t")},
            "t|s|746",
        ),
        (
            "v1.8-s06",
            "s06-17",
            "allocatable.(others)",
            {("nodes", "gpu-a"): {"status": {"allocatable": {"nvidia.com/x": "1", "nvidia.com/y": "0"}}}},
            ["nvidia.com/x"],
        ),
        (
            "v1.8-s06",
            "s06-15",
            "[0]",
            {("vgpudevices", "gpu-a-000008004"): vgpu(vGPUStatus="s", configureVGPUTypeName="t")},
            "t s",
        ),
        ("v1.8-s11", "s11-12", "object", {}, "absent"),
        ("v1.8-s11", "s11-12", "object", {("vgpudevices", "gpu-a-000008004"): vgpu()}, "enabled=True  "),
        (
            "v1.8-s12",
            "s12-16",
            "gpu-a-000008011",
            {("vgpudevices", "gpu-a-000008011"): vgpu(vGPUStatus="s", configureVGPUTypeName="t")},
            "True|s|t",
        ),
        (
            "v1.8-s15",
            "s15-01",
            "configuredCount4Q",
            {("vgpudevices", "gpu-a-000008004"): vgpu(configureVGPUTypeName="NVIDIA A2-4Q")},
            1,
        ),
        (
            "v1.8-s10",
            "s10-21",
            "profiles",
            {
                ("migconfigurations", "gpu-b-000008000"): vgpu(
                    profileStatus=[{"name": "MIG 1g.5gb", "available": 2, "total": 7, "vGPUID": ["11", "12"]}]
                )
            },
            ["MIG 1g.5gb 2/7 ['11', '12']"],
        ),
        (
            "v1.7-s14",
            "s14-22",
            "nodeName",
            {("vgpudevices", "gpu-a-000008007"): {"spec": {"nodeName": "gpu-b"}}},
            "gpu-b",
        ),
        (
            "v1.7-s14",
            "s14-22",
            "unknownNode",
            {("vgpudevices", "gpu-a-000008012"): {"spec": {"nodeName": "nowhere"}}},
            "nowhere",
        ),
        ("v1.7-s14", "s14-22", "vgpuLabels", {("vgpudevices", "gpu-a-000008006"): {"metadata": {"labels": {}}}}, None),
    ],
)
def test_a_state_field_is_read_from_the_objects(
    name: str, step: str, state_field: str, objects: dict[tuple[str, str], Any], expected: Any
) -> None:
    assert value(name, step, state_field, objects) == expected


def test_an_unknown_state_field_is_left_uncompared() -> None:
    recording = recording_of("v1.8-s05")
    state_fields = fields_of([{"temperature": 40}], context_at(recording, 3), mdev=False)
    assert [state_field.supported for state_field in state_fields] == [False]


def test_what_only_the_hosts_know() -> None:
    vfio = {
        "0000:08:00.0": {
            "vfs": {"0000:08:00.4": "746", "0000:08:00.5": None},
            "mig_instances": [{"id": 11, "profile_id": 19, "profile": "MIG 1g.5gb"}],
        }
    }
    assert [type_on(vfio, f"0000:08:00.{function}", mdev=False) for function in (4, 5, 6)] == ["746", "0", "no VF"]
    assert type_on(vfio, "0000:08:00.4", mdev=True) == "nvidia-746"
    assert instances_of(vfio) == ["11 19 1g.5gb"]
    assert Sample(0.0).webhook_refuses is None


def test_the_address_is_the_end_of_a_devices_name() -> None:
    assert address_of("gpu-a-000008014") == "0000:08:01.4"
    assert address_of("node.with.dots-000104002") == "0001:04:00.2"


def test_the_hosts_are_asked_from_the_request_before_an_observation_on() -> None:
    recording = recording_of("v1.8-s05")
    needed = {step.id: needed_samples(recording, step) for step in recording.steps}
    assert needed["s05-10"] == needed["s05-11"] == ("hardware",)
    assert needed["s05-03"] == ()


def test_a_list_of_one_state_per_device_is_flattened_by_its_places() -> None:
    assert flatten(["NVIDIA A2-4Q vGPUConfigured", "NVIDIA A2-4Q vGPUConfigured"]).keys() == {"[0]", "[1]"}
    assert flatten(["11 0 7g.40gb"]) == {"instances": ["11 0 7g.40gb"]}
