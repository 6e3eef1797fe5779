"""Repeat a request until it is accepted, as the recorder did."""

from __future__ import annotations

import re
from typing import Any

from lab.replay.compare.bindings import Bindings
from lab.replay.compare.difference import Difference
from lab.replay.observe.api import Answer
from lab.replay.observe.history import WATCHED
from lab.replay.play.environment import MERGE_PATCH, Environment
from lab.replay.read.recording import Step
from lab.replay.read.step_context import StepContext

Json = dict[str, Any]

PAUSE = 0.1
PATIENCE = 60.0
REFUSED_TYPE = re.compile(r"VGPUTypeName (?P<profile>.*) is not a valid profile for vGPU device (?P<device>\S+)")


def repeats(step: Step | None) -> bool:
    """Whether the step repeats a request; its first attempt comes right upon the answer of the step before."""
    result = step.content.get("result") if step else None
    return isinstance(result, dict) and bool({"attempts", "firstRefusal", "acceptedAfterSeconds"} & set(result))


class Repetition:
    def __init__(self, step: Step, context: StepContext, environment: Environment, bindings: Bindings) -> None:
        self._result = step.content["result"]
        self._refusal = self._result.get("firstRefusal") or {}
        refused = REFUSED_TYPE.search(str(self._refusal.get("message", "")))
        self._path = f"{WATCHED['vgpudevices']}/{refused['device'] if refused else context.device}"
        self._body = {"spec": {"enabled": True, "vGPUTypeName": refused["profile"] if refused else context.profile}}
        self._environment = environment
        self._bindings = bindings
        self._first: Answer | None = None

    def begin(self) -> None:
        self._first = self._attempt()

    def finish(self) -> list[Difference]:
        answer = self._first or self._attempt()
        differences = self._first_differences(answer)
        seconds = self._result.get("acceptedAfterSeconds")
        limit = max(PATIENCE, 3 * float(seconds or 0))
        began = self._environment.now
        while not answer.accepted:
            if self._environment.now - began > limit:
                return [*differences, Difference("accepted", f"after {seconds} s", f"never: {answer.message}")]
            self._environment.advance(PAUSE)
            answer = self._attempt()
        self._environment.refresh()
        return differences

    def _attempt(self) -> Answer:
        return self._environment.api.request("PATCH", self._path, self._body, MERGE_PATCH)

    def _first_differences(self, answer: Answer) -> list[Difference]:
        recorded = f"{self._refusal.get('status')} {self._refusal.get('message')}" if self._refusal else "accepted"
        ours = "accepted" if answer.accepted else f"{answer.status} {answer.message}"
        return [] if self._bindings.same_text(recorded, ours) else [Difference("first attempt", recorded, ours)]
