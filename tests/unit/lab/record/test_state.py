"""What an observation tells of a span of history."""

from __future__ import annotations

from typing import Any

from lab.record.state import transitions
from lab.replay.observe.history import History


def vgpu(name: str, revision: int, **status: str) -> dict[str, Any]:
    return {
        "kind": "VGPUDevice",
        "metadata": {"name": name, "resourceVersion": str(revision)},
        "spec": {"enabled": bool(status)},
        "status": status,
    }


def history_of(*versions: tuple[float, dict[str, Any]]) -> History:
    history = History()
    for at, found in versions:
        history.now = at
        history.record("vgpudevices", "MODIFIED", found)
    return history


FIRST, SECOND = "gpu-a-000008004", "gpu-a-000008005"
STORY = history_of(
    (0.0, vgpu(FIRST, 1)),
    (0.0, vgpu(SECOND, 2)),
    (3.0, vgpu(FIRST, 3, vGPUStatus="vGPUConfigured")),
    (4.0, vgpu("gpu-a-000008006", 4)),
)


def test_devices_that_changed_are_told_with_the_times_of_their_states():
    told = transitions(STORY, [], since=2)
    assert told == [{"at": 0.0, "state": {FIRST: "False||"}}, {"at": 3.0, "state": {FIRST: "True|vGPUConfigured|"}}]


def test_what_it_is_about_is_told_although_it_stayed_the_same():
    told = transitions(STORY, ["gpu-a"], since=2, until=2, about={SECOND, "gpu-a"})
    assert [transition["at"] for transition in told] == [0.0]
    assert told[0]["state"][SECOND] == "False||"
    assert told[0]["state"]["vgpudevices of gpu-a"] == 2


def test_a_device_that_appears_shows_in_their_number():
    told = transitions(STORY, ["gpu-a"], since=3)
    assert [transition["state"] for transition in told] == [{"vgpudevices of gpu-a": 2}, {"vgpudevices of gpu-a": 3}]
