"""How the recorded system stood at the beginning."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from lab.replay.read.initial_state import Amounts, InitialState, initial_state_of
from lab.replay.read.recording import Recording, load

TRACES = Path(__file__).parents[4] / "data" / "traces"


@functools.cache
def recording_of(name: str) -> Recording:
    return load(TRACES / f"{name}.yaml")


def start(name: str) -> InitialState:
    return initial_state_of(recording_of(name))


def enabled(initial_state: InitialState) -> dict[str, str]:
    return {name[-9:]: vgpu.profile[-2:] for name, vgpu in initial_state.vgpus.items() if vgpu.enabled}


@pytest.mark.parametrize(
    ("name", "on"),
    [
        ("v1.8-s01", False),
        ("v1.8-s02", False),
        ("v1.8-s03", True),
        ("v1.8-s17", True),
        ("v1.7-s17", False),
        ("v1.8-s16", True),
    ],
)
def test_the_first_sight_of_a_gpu_tells_whether_it_was_on(name: str, on: bool) -> None:
    assert start(name).gpus["gpu-a"] is on


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v1.8-s03", {}),
        ("v1.8-s05", {"000008004": "4Q", "000008005": "4A", "000008006": "4C", "000008007": "4Q"}),
        ("v1.8-s09", {"000008004": "4Q", "000008005": "4Q"}),
        ("v1.7-s12", {"000008004": "4Q", "000008005": "4Q"}),
        ("v1.8-s11", {}),
    ],
)
def test_a_vgpu_that_answers_a_write_with_a_configured_status_was_on(name: str, expected: dict[str, str]) -> None:
    assert enabled(start(name)) == expected


def test_a_device_that_a_recording_begins_by_cleaning_up_was_on() -> None:
    assert set(enabled(start("v1.8-s10"))) == {"000008004", "000008005"}


def test_lingering_amounts_are_those_of_types_that_nothing_had_enabled_yet() -> None:
    assert start("v1.8-s04").amounts == {"gpu-a": {"nvidia.com/NVIDIA_A2-4Q": Amounts(1, 0)}}
    assert start("v1.8-s06").amounts["gpu-a"] == {
        f"nvidia.com/NVIDIA_A2-{size}": Amounts(1, 0) for size in ("4A", "4C", "8Q")
    }
    assert start("v1.8-s08").amounts == {"gpu-a": {}, "gpu-b": {}}


def test_amounts_seen_while_processes_are_down_tell_the_capacity_only() -> None:
    assert start("v1.8-s12").amounts["gpu-a"] == {"nvidia.com/NVIDIA_A2-4Q": Amounts(3, None)}


def test_a_state_before_the_first_request_tells_amounts_too() -> None:
    assert start("v1.8-s15").amounts == {"gpu-a": {"nvidia.com/NVIDIA_A2-4Q": Amounts(2, 2)}}


def test_what_earlier_scenarios_wrote_on_devices_is_found() -> None:
    vgpus = start("v1.7-s12").vgpus
    assert vgpus["gpu-a-000008007"].labels == {"team": "x"}
    assert vgpus["gpu-a-000008007"].annotations == {"note": "y"}
    assert vgpus["gpu-a-000008014"].profile == "NVIDIA A2-4Q"


def test_offers_show_that_something_unseen_had_fixed_the_size() -> None:
    assert len(start("v1.8-s17").offered["gpu-a"]) == 3
    assert len(start("v1.8-s08").offered["gpu-a"]) == 15


def test_a_device_written_before_has_another_owner_for_server_side_apply() -> None:
    assert start("v1.7-s03").written == {"gpu-a-000008004"}
    assert start("v1.8-s03").written == set()


def test_a_device_moved_to_another_node_shows_what_that_node_offered() -> None:
    assert start("v1.7-s14").offered["gpu-b"] == ["NVIDIA A2-4A", "NVIDIA A2-4C", "NVIDIA A2-4Q"]
