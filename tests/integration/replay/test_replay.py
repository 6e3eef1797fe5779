"""Recordings of the real controllers, played on the lab."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.replay.play.player import StepResult
from lab.replay.play.runner import Runner
from lab.replay.read.recording import Recording, load
from lab.replay.report.known import expected, reason_for

TRACES = Path(__file__).parents[2] / "data" / "traces"
# By version, each of which has a lab of its own.
RECORDINGS = sorted(path.stem for path in TRACES.glob("*-s*.yaml"))

Play = Callable[[Recording], list[StepResult]]


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """One lab per version, at its beginning for each recording."""
    with Runner(tmp_path_factory.mktemp("replay") / "lab") as runner:
        yield lambda recording: runner.play(recording)[0]


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_lab_answers_as_recorded(play: Play, name: str) -> None:
    known = expected()
    wrong = {
        f"{step_result.step.id} {step_result.step.title}": [str(difference) for difference in step_result.differences]
        for step_result in play(load(TRACES / f"{name}.yaml"))
        if not step_result.agrees and reason_for(step_result.step, step_result.differences, known) is None
    }
    assert not wrong


def test_a_recording_that_was_tampered_with_disagrees_where_it_was(play: Play) -> None:
    """What the comparison is worth: each kind of step, with one thing changed that the lab does not do."""
    recording = load(TRACES / "v1.8-s05.yaml")
    changes: dict[str, Callable[[dict[str, Any]], None]] = {
        "s05-01": lambda step: step["after"]["PCIDeviceClaims of gpu-a"][0].update(override="nvidia.com/NVIDIA_A2-4C"),
        "s05-02": lambda step: step["response"]["object"]["spec"].update(vGPUTypeName=""),
        "s05-03": _swap_claim_and_allocatable,
        "s05-05": lambda step: step["wait"].update(
            until="gpu-a-000008004 status.configureVGPUTypeName == NVIDIA A2-4A"
        ),
        "s05-06": lambda step: step["after"]["Node/gpu-a"]["allocatable"].update({"nvidia.com/NVIDIA_A2-4Q": "2"}),
        "s05-08": lambda step: step["after"]["PCIDevice/gpu-a-000008005"]["status"].update(resourceName="nvidia.com/x"),
        "s05-10": lambda step: step["result"]["firstRefusal"].update(status=422),
        "s05-16": lambda step: step["response"]["object"]["status"]["capacity"].pop("nvidia.com/NVIDIA_A2-4C"),
        "s05-22": lambda step: step["wait"].update(reached=False, timeout=20),
    }
    steps = []
    for step in recording.steps:
        content = copy.deepcopy(step.content)
        changes.get(step.id, lambda _: None)(content)
        steps.append(replace(step, content=content))
    step_results = play(replace(recording, steps=tuple(steps)))
    assert {step_result.step.id for step_result in step_results if not step_result.agrees} == set(changes)


def _swap_claim_and_allocatable(step: dict[str, Any]) -> None:
    """The claim gone first, the node's amount lowered last."""
    states = [transition["state"] for transition in step["observe"]["transitions"]]
    for state in states[1:]:
        state["claim"] = "no"
    for state in states[:-1]:
        state["allocatable4Q"] = "2"
