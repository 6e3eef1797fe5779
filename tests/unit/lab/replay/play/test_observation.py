"""Finding again in our history what a recording saw."""

from __future__ import annotations

from typing import Any

import pytest

from lab.replay.compare.bindings import Bindings
from lab.replay.observe.history import History, World
from lab.replay.play.observation import AHEAD, BEHIND, Count, Sightings, sighting_of, sightings_after

KEY = ("vgpudevices", "gpu-a-000008004")


class Stage:
    """A stage whose future is written down."""

    def __init__(self, future: dict[float, list[dict[str, Any]]]) -> None:
        self.history = History()
        self.world = World({})
        self._future = future
        self._revision = 0
        self.advance(0.0)
        self.history.base = self._revision

    @property
    def now(self) -> float:
        return self.history.now

    def stride(self, pace: float) -> float:
        return pace

    def advance(self, seconds: float) -> None:
        self.history.now += seconds
        for at in sorted(self._future):
            if at <= self.now + 1e-9:
                for found in self._future.pop(at):
                    self._revision += 1
                    found["metadata"]["resourceVersion"] = str(self._revision)
                    self.history.record("vgpudevices", "DELETED" if found.get("gone") else "MODIFIED", found)
        self.look()

    def look(self, *, afresh: bool = False) -> World:
        self.world = self.history.world()
        return self.world


def vgpu(state: str, name: str = KEY[1], **status: Any) -> dict[str, Any]:
    return {"kind": "VGPUDevice", "metadata": {"name": name}, "spec": {"state": state}, "status": status}


def seen(state: str, **status: Any) -> Any:
    return sighting_of({"kind": "VGPUDevice", "metadata": {"name": KEY[1]}, "spec": {"state": state}, "status": status})


def sightings(future: dict[float, list[dict[str, Any]]]) -> tuple[Stage, Sightings]:
    stage = Stage(future)
    return stage, Sightings(stage, Bindings())  # type: ignore[arg-type]


def test_the_present_and_the_recent_past_are_seen_without_waiting() -> None:
    stage, looking = sightings({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    stage.advance(2.0)
    assert looking.look_for([seen("b")]) == []
    stage, looking = sightings({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    stage.advance(2.0)
    assert looking.look_for([seen("a")]) == []
    assert stage.now == 2.0


def test_what_is_still_to_come_is_waited_for() -> None:
    stage, looking = sightings({0.0: [vgpu("a")], 3.0: [vgpu("b")]})
    assert looking.look_for([seen("b")]) == []
    assert stage.now == pytest.approx(3.0)


def test_what_neither_was_nor_comes_is_a_difference() -> None:
    stage, looking = sightings({0.0: [vgpu("a")]})
    assert [difference.place for difference in looking.look_for([seen("b")])] == [
        "VGPUDevice/gpu-a-000008004.spec.state"
    ]
    assert stage.now == pytest.approx(BEHIND, abs=0.3)


def test_the_distant_past_does_not_count() -> None:
    stage, looking = sightings({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    stage.advance(1.0)
    stage.advance(AHEAD + 1)
    assert looking.look_for([seen("a")])


def test_nothing_is_seen_again_that_came_before_what_was_already_seen() -> None:
    stage, looking = sightings({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    stage.advance(2.0)
    assert looking.look_for([seen("b")]) == []
    assert looking.look_for([seen("a")])


def test_after_a_condition_was_met_nothing_from_before_counts() -> None:
    stage, looking = sightings({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    stage.advance(2.0)
    looking.pin(KEY, lambda found: bool(found) and found["spec"]["state"] == "b")
    assert looking.look_for([seen("a")])


def test_each_object_of_a_snapshot_has_its_own_moment() -> None:
    stage, _ = sightings(
        {0.0: [vgpu("a"), vgpu("a", "gpu-a-000008005")], 1.0: [vgpu("b")], 2.0: [vgpu("b", "gpu-a-000008005")]}
    )
    stage.advance(3.0)
    after = {
        "VGPUDevice/gpu-a-000008004": {"spec": {"state": "b"}},
        "VGPUDevice/gpu-a-000008005": {"spec": {"state": "a"}},
    }
    found, notes = sightings_after(after, stage)  # type: ignore[arg-type]
    assert Sightings(stage, Bindings()).look_for(found) == []  # type: ignore[arg-type]
    assert notes == []


def test_a_device_that_a_group_does_not_show_must_be_absent() -> None:
    stage, looking = sightings({0.0: [vgpu("a")]})
    found, _ = sightings_after({"VGPUDevices of gpu-a": []}, stage)  # type: ignore[arg-type]
    assert [difference.recorded for difference in looking.look_for(found)] == ["not found"]


def test_a_count_may_have_been_passed_through() -> None:
    stage, looking = sightings(
        {0.0: [vgpu("a")], 1.0: [vgpu("a", "gpu-a-000008005")], 1.5: [vgpu("a", "gpu-a-000008006")]}
    )
    stage.advance(2.0)
    assert looking.look_for([Count("vgpudevices", "gpu-a", 2)]) == []
    assert looking.look_for([Count("vgpudevices", "gpu-a", 5)])


def test_a_configured_vgpu_may_still_list_what_it_listed_lately() -> None:
    configured = {"vGPUStatus": "vGPUConfigured"}
    future = {
        0.0: [vgpu("off", availableTypes={"x": "1"})],
        1.0: [vgpu("off", availableTypes={"y": "1"})],
        2.0: [vgpu("on", **configured)],
    }
    stage, looking = sightings(future)
    stage.advance(3.0)
    assert looking.look_for([seen("on", availableTypes={"x": "1"}, **configured)]) == []
    assert looking.look_for([seen("on", availableTypes={"z": "1"}, **configured)])


def test_something_else_beside_the_objects_is_noted_and_not_compared() -> None:
    stage, _ = sightings({})
    found, notes = sightings_after({"temperature of gpu-a": 40, "seconds": 2}, stage)  # type: ignore[arg-type]
    assert found == []
    assert notes == ["temperature of gpu-a is not compared"]
