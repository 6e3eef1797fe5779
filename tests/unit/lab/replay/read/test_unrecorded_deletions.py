"""Virtual machines that a recording no longer has without saying so."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from lab.replay.read.recording import Recording, load
from lab.replay.read.unrecorded_deletions import deleted_before

TRACES = Path(__file__).parents[4] / "data" / "traces"


@functools.cache
def recording_of(name: str) -> Recording:
    return load(TRACES / f"{name}.yaml")


def gone(name: str) -> dict[str, set[str]]:
    recording = recording_of(name)
    return {
        recording.steps[index].id: {vm for _, vm in machines} for index, machines in deleted_before(recording).items()
    }


def test_machines_are_gone_before_a_list_that_shows_none() -> None:
    assert {"g1", "plain"} <= gone("v1.8-s08")["s08-47"]


def test_a_title_tells_that_machines_are_gone() -> None:
    assert {"u1", "u2", "other"} <= gone("v1.8-s09")["s09-41"]


def test_a_machine_that_is_spoken_of_later_is_still_there() -> None:
    assert list(gone("v1.8-s09")) == ["s09-41"]


@pytest.mark.parametrize("name", ["v1.7-s13", "v1.8-s13"])
def test_a_machine_that_had_blocked_a_request_is_gone_when_it_is_accepted(name: str) -> None:
    assert gone(name) == {"s13-10": {"u1"}}


def test_a_cleanup_begins_without_machines() -> None:
    assert gone("v1.8-s12") == {"s12-22": {"g2", "u1", "unk"}}


def test_a_machine_whose_deletion_is_recorded_is_left_to_it() -> None:
    assert gone("v1.8-s16") == {}
