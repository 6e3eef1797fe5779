"""What a replay prints, and what it lets pass."""

from __future__ import annotations

import functools
from pathlib import Path

from lab.replay.compare.difference import Difference
from lab.replay.play.player import StepResult
from lab.replay.read.recording import Recording, load, load_all
from lab.replay.report.known import Expected, expected, reason_for
from lab.replay.report.report import Report

TRACES = Path(__file__).parents[4] / "data" / "traces"


@functools.cache
def recording_of(name: str) -> Recording:
    return load(TRACES / f"{name}.yaml")


RECORDING = recording_of("v1.8-s13")
WRONG = Difference("status", 200, 500)


def lines(report: Report, step_results: list[StepResult]) -> list[str]:
    said: list[str] = []
    report.say = said.append
    report.add(RECORDING, step_results, [], 1.0)
    report.conclude()
    return said


def test_each_disagreement_is_shown_as_recorded_and_ours_and_the_end_counts_the_steps() -> None:
    report = Report()
    said = lines(report, [StepResult(RECORDING.steps[0]), StepResult(RECORDING.steps[1], [WRONG])])
    assert said[-1] == "1 of 2 steps agree"
    assert "      recorded: 200" in said
    assert "      lab:      500" in said
    assert not report.success


def test_a_disagreement_that_is_expected_does_not_fail_the_replay_but_does_not_count_as_agreement() -> None:
    report = Report(known=[Expected("v1.8-*", RECORDING.steps[0].title, ("status",), "a limit")])
    said = lines(report, [StepResult(RECORDING.steps[0], [WRONG])])
    assert said[-1] == "0 of 1 steps agree"
    assert any("as expected: a limit" in line for line in said)
    assert report.success


def test_one_difference_without_a_reason_makes_the_step_unexpected() -> None:
    entries = [Expected("v1.8-*", "*", ("status",), "a limit")]
    assert reason_for(RECORDING.steps[0], [WRONG, Difference("message", "a", "b")], entries) is None


def test_the_same_difference_on_many_devices_is_told_once() -> None:
    differing = [Difference(f"VGPUDevice/gpu-a-00000800{digit}.enabled", True, False) for digit in (4, 5, 6)]
    said = lines(Report(), [StepResult(RECORDING.steps[0], differing)])
    assert "    VGPUDevice/gpu-a-000008004 (and 2 more).enabled" in said


def test_every_expectation_has_a_reason_and_a_step_that_it_is_about() -> None:
    recordings = load_all(TRACES)
    for entry in expected():
        assert entry.reason
        difference = Difference(entry.differences[0].replace("*", ""), "", "")
        covered = [step for recording in recordings for step in recording.steps if entry.covers(step, difference)]
        assert covered, entry
