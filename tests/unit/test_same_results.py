"""The comparison of records that `make same-results` makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import same_results


def records(tmp_path: Path, name: str, *results: dict[str, object]) -> dict[str, list[object]]:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "1.jsonl").write_text(json.dumps({"test": "test_a", "results": results}) + "\n")
    return same_results.read_records(folder)


SAME = {"changed": False, "msg": "VM trainer is ready.", "plan": {"steps": [{"slot": "a"}]}}


@pytest.mark.parametrize(
    ("inside", "packed", "expected"),
    [
        ({"changed": True}, {"changed": False}, "[0][0].changed: true in process, false packed"),
        ({"warnings": ["old"]}, {"warnings": ["new"]}, '[0][0].warnings[0]: "old" in process, "new" packed'),
        ({"diff": {}}, {}, "[0][0].diff is missing in the packed run"),
        ({}, {"exception": "..."}, "[0][0].exception is additional in the packed run"),
        ({"vgpus": ["a", "b"]}, {"vgpus": ["a"]}, '[0][0].vgpus: ["a", "b"] in process, ["a"] packed'),
    ],
)
def test_each_difference_is_named(
    tmp_path: Path, inside: dict[str, object], packed: dict[str, object], expected: str
) -> None:
    found = same_results.compare(
        records(tmp_path, "inside", {**SAME, **inside}), records(tmp_path, "packed", {**SAME, **packed})
    )
    assert found == [f"test_a: {expected}"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"task_seconds": 0.12}, {"task_seconds": 0.61}),
        ({"vm": {"resourceVersion": "812"}}, {"vm": {"resourceVersion": "990"}}),
        ({"msg": "ready since 2026-03-01T10:00:00Z"}, {"msg": "ready since 2026-03-01T10:07:21Z"}),
        ({"msg": "https://127.0.0.1:12345/apis"}, {"msg": "https://127.0.0.1:23456/apis"}),
        ({"msg": "Timed out after 31 s."}, {"msg": "Timed out after 30 s."}),
        ({"msg": "a/pytest-of-me/pytest-3/lab/x.yml"}, {"msg": "a/pytest-of-me/pytest-4/lab/x.yml"}),
    ],
)
def test_what_differs_from_run_to_run_is_no_difference(
    tmp_path: Path, one: dict[str, object], other: dict[str, object]
) -> None:
    assert same_results.compare(records(tmp_path, "one", one), records(tmp_path, "other", other)) == []


def test_a_test_that_only_one_run_has_is_a_difference(tmp_path: Path) -> None:
    found = records(tmp_path, "one", SAME)
    assert same_results.compare(found, {}) == ["test_a has no record of the packed run"]
    assert same_results.compare({}, found) == ["test_a has no record of the in-process run"]


def test_of_a_traceback_only_the_exception_is_compared() -> None:
    trace = 'Traceback (most recent call last):\n  File "{0}", line 3, in main\n    act()\nValueError: {1}\n'
    one, other = trace.format("/a/module.py", "x"), trace.format("/tmp/payload.zip/module.py", "x")
    assert same_results.comparable(one) == same_results.comparable(other) == ["ValueError: x"]
    assert same_results.comparable(one) != same_results.comparable(trace.format("/a/module.py", "y"))


def test_names_of_gpus_and_profiles_are_compared() -> None:
    for value in ("gpu-a-000008000", "nvidia_a40-4q", "NVIDIA L40S-1Q", "0000:3b:00.0"):
        assert same_results.comparable(value) == value
