"""Finding again in our history what a recording saw."""

from __future__ import annotations

from typing import Any

import pytest

from lab.replay.compare.bindings import Bindings
from lab.replay.observe.history import History, Snapshot
from lab.replay.play.observation import (
    AHEAD,
    BEHIND,
    ObservationTracker,
    ObservedCount,
    observed_after,
    observed_object,
)

KEY = ("vgpudevices", "gpu-a-000008004")


class Environment:
    """A stage whose future is written down."""

    def __init__(self, future: dict[float, list[dict[str, Any]]]) -> None:
        self.history = History()
        self.snapshot = Snapshot({})
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
        self.refresh()

    def refresh(self, *, from_api: bool = False) -> Snapshot:
        self.snapshot = self.history.snapshot()
        return self.snapshot


def vgpu(state: str, name: str = KEY[1], **status: Any) -> dict[str, Any]:
    return {"kind": "VGPUDevice", "metadata": {"name": name}, "spec": {"state": state}, "status": status}


def seen(state: str, **status: Any) -> Any:
    return observed_object(
        {"kind": "VGPUDevice", "metadata": {"name": KEY[1]}, "spec": {"state": state}, "status": status}
    )


def tracker(future: dict[float, list[dict[str, Any]]]) -> tuple[Environment, ObservationTracker]:
    environment = Environment(future)
    return environment, ObservationTracker(environment, Bindings())  # type: ignore[arg-type]


def test_the_present_and_the_recent_past_are_seen_without_waiting() -> None:
    environment, looking = tracker({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    environment.advance(2.0)
    assert looking.find_all([seen("b")]) == []
    environment, looking = tracker({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    environment.advance(2.0)
    assert looking.find_all([seen("a")]) == []
    assert environment.now == 2.0


def test_what_is_still_to_come_is_waited_for() -> None:
    environment, looking = tracker({0.0: [vgpu("a")], 3.0: [vgpu("b")]})
    assert looking.find_all([seen("b")]) == []
    assert environment.now == pytest.approx(3.0)


def test_what_neither_was_nor_comes_is_a_difference() -> None:
    environment, looking = tracker({0.0: [vgpu("a")]})
    assert [difference.place for difference in looking.find_all([seen("b")])] == [
        "VGPUDevice/gpu-a-000008004.spec.state"
    ]
    assert environment.now == pytest.approx(BEHIND, abs=0.3)


def test_the_distant_past_does_not_count() -> None:
    environment, looking = tracker({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    environment.advance(1.0)
    environment.advance(AHEAD + 1)
    assert looking.find_all([seen("a")])


def test_nothing_is_seen_again_that_came_before_what_was_already_seen() -> None:
    environment, looking = tracker({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    environment.advance(2.0)
    assert looking.find_all([seen("b")]) == []
    assert looking.find_all([seen("a")])


def test_after_a_condition_was_met_nothing_from_before_counts() -> None:
    environment, looking = tracker({0.0: [vgpu("a")], 1.0: [vgpu("b")]})
    environment.advance(2.0)
    looking.pin(KEY, lambda found: bool(found) and found["spec"]["state"] == "b")
    assert looking.find_all([seen("a")])


def test_each_object_of_a_snapshot_has_its_own_moment() -> None:
    environment, _ = tracker(
        {0.0: [vgpu("a"), vgpu("a", "gpu-a-000008005")], 1.0: [vgpu("b")], 2.0: [vgpu("b", "gpu-a-000008005")]}
    )
    environment.advance(3.0)
    after = {
        "VGPUDevice/gpu-a-000008004": {"spec": {"state": "b"}},
        "VGPUDevice/gpu-a-000008005": {"spec": {"state": "a"}},
    }
    found, notes = observed_after(after, environment)  # type: ignore[arg-type]
    assert ObservationTracker(environment, Bindings()).find_all(found) == []  # type: ignore[arg-type]
    assert notes == []


def test_a_device_that_a_group_does_not_show_must_be_absent() -> None:
    environment, looking = tracker({0.0: [vgpu("a")]})
    found, _ = observed_after({"VGPUDevices of gpu-a": []}, environment)  # type: ignore[arg-type]
    assert [difference.recorded for difference in looking.find_all(found)] == ["not found"]


def test_a_count_may_have_been_passed_through() -> None:
    environment, looking = tracker(
        {0.0: [vgpu("a")], 1.0: [vgpu("a", "gpu-a-000008005")], 1.5: [vgpu("a", "gpu-a-000008006")]}
    )
    environment.advance(2.0)
    assert looking.find_all([ObservedCount("vgpudevices", "gpu-a", 2)]) == []
    assert looking.find_all([ObservedCount("vgpudevices", "gpu-a", 5)])


def test_a_configured_vgpu_may_still_list_what_it_listed_lately() -> None:
    configured = {"vGPUStatus": "vGPUConfigured"}
    future = {
        0.0: [vgpu("off", availableTypes={"x": "1"})],
        1.0: [vgpu("off", availableTypes={"y": "1"})],
        2.0: [vgpu("on", **configured)],
    }
    environment, looking = tracker(future)
    environment.advance(3.0)
    assert looking.find_all([seen("on", availableTypes={"x": "1"}, **configured)]) == []
    assert looking.find_all([seen("on", availableTypes={"z": "1"}, **configured)])


def test_something_else_beside_the_objects_is_noted_and_not_compared() -> None:
    environment, _ = tracker({})
    found, notes = observed_after({"temperature of gpu-a": 40, "seconds": 2}, environment)  # type: ignore[arg-type]
    assert found == []
    assert notes == ["temperature of gpu-a is not compared"]
