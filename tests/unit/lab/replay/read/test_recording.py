"""Reading recordings."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.replay.read.recording import Recording, Target, load, load_all

TRACES = Path(__file__).parents[4] / "data" / "traces"


@functools.cache
def recording_of(name: str) -> Recording:
    return load(TRACES / f"{name}.yaml")


def test_every_recording_is_read_with_all_its_steps() -> None:
    recordings = load_all(TRACES)
    assert len(recordings) == 33
    assert all(step.id.startswith(recording.scenario) for recording in recordings for step in recording.steps)
    assert {recording.harvester_version for recording in recordings} == {"1.7", "1.8", "1.9"}


def test_a_pattern_chooses_recordings_by_name() -> None:
    assert [recording.name for recording in load_all(TRACES, "v1.8-s0[12]")] == ["v1.8-s01", "v1.8-s02"]
    assert [recording.name for recording in load_all(TRACES, "master-s01.yaml")] == ["master-s01"]


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/api/v1/nodes/gpu-a", Target("", "v1", "nodes", "gpu-a")),
        (
            "/apis/devices.harvesterhci.io/v1beta1/vgpudevices?dryRun=All",
            Target("devices.harvesterhci.io", "v1beta1", "vgpudevices"),
        ),
        (
            "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/u1",
            Target("kubevirt.io", "v1", "virtualmachines", "u1", "default"),
        ),
        (
            "/apis/devices.harvesterhci.io/v1beta1/vgpudevices/x/status",
            Target("devices.harvesterhci.io", "v1beta1", "vgpudevices", "x", None, "status"),
        ),
        ("/version", Target("", "", "")),
        ("/apis/devices.harvesterhci.io", Target("devices.harvesterhci.io", "", "")),
    ],
)
def test_a_path_tells_what_it_is_about(path: str, target: Target) -> None:
    assert Target.of(path) == target


def test_a_title_may_tell_of_a_pause() -> None:
    step = next(step for step in recording_of("v1.8-s05").steps if step.title == "state 6 s later")
    assert step.pause == 6.0


def test_a_file_without_steps_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "v1.8-s99.yaml").write_text("title: nothing\n")
    with pytest.raises(LabError, match=r"v1\.8-s99\.yaml is not a recording"):
        load_all(tmp_path)


def test_an_unknown_version_is_refused_when_it_is_to_be_played(tmp_path: Path) -> None:
    (tmp_path / "v9.9-s01.yaml").write_text("version: v9.9\nsteps: []\n")
    with pytest.raises(LabError, match=r"unknown version v9\.9"):
        _ = load(tmp_path / "v9.9-s01.yaml").harvester_version
