"""What may be said with a fault."""

from __future__ import annotations

import re

import pytest

from lab.errors import LabError
from lab.faults import FAULTS, Options, checked, describe_all


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("nosuch", Options(), "There is no fault 'nosuch'"),
        ("webhook-down", Options(node="gpu-a"), "does not take --node"),
        (
            "driver-missing",
            Options(every=2),
            r"driver-missing does not take --every. Usage: driver-missing \[--node NODE\]",
        ),
        ("webhook-slow", Options(every=5), "does not take --every"),
        ("api-conflict", Options(seconds=4), "does not take --seconds"),
        ("apiserver-restart", Options(seconds=4), "does not take --seconds"),
        ("api-conflict", Options(every=0), "at least 1"),
        ("webhook-slow", Options(seconds=-3), "greater than 0"),
        ("webhook-slow", Options(seconds=0), "greater than 0"),
        ("webhook-slow", Options(seconds=float("nan")), "greater than 0"),
        ("node-gone", Options(), "needs a node"),
    ],
)
def test_what_means_nothing_is_refused(name: str, options: Options, words: str) -> None:
    with pytest.raises(LabError, match=words):
        checked(name, True, options)


@pytest.mark.parametrize("name", [fault.name for fault in FAULTS.values() if fault.once])
def test_what_is_over_at_once_cannot_be_switched_off(name: str) -> None:
    with pytest.raises(LabError, match="cannot be switched off"):
        checked(name, False, Options())


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_takes_what_its_usage_says(name: str) -> None:
    said = {option: {"node": "gpu-a", "every": 2, "seconds": 1.5}[option] for option in FAULTS[name].takes}
    assert checked(name, True, Options(**said)).name == name


def test_the_list_marks_what_may_be_left_out() -> None:
    lines = {line.split()[0]: re.split("  +", line.strip())[0] for line in describe_all().splitlines()}
    assert lines["node-gone"] == "node-gone --node NODE"
    assert lines["process-down"] == "process-down [--node NODE]"
    assert lines["api-conflict"] == "api-conflict [--every N]"
    assert lines["webhook-slow"] == "webhook-slow [--seconds S]"
