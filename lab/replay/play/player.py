"""Play one recording step by step, and compare the results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.errors import LabError
from lab.replay.compare.bindings import Bindings
from lab.replay.compare.difference import Difference
from lab.replay.play.environment import Environment, in_waits
from lab.replay.play.host_action import perform
from lab.replay.play.observation import ObservationTracker, ObservedObject, observed_after, observed_object
from lab.replay.play.repetition import Repetition, repeats
from lab.replay.play.request import RequestPlayer
from lab.replay.play.setup import set_up
from lab.replay.play.state_changes import StateObservation, needed_samples, state_differences
from lab.replay.read.condition import parse_condition
from lab.replay.read.initial_state import initial_state_of
from lab.replay.read.recording import Recording, Step
from lab.replay.read.step_context import context_at
from lab.replay.read.unrecorded_deletions import deleted_before

Json = dict[str, Any]
# A step in a form that is not known here must not keep the others from being played.
UNPLAYABLE = (AttributeError, IndexError, KeyError, LabError, OSError, TypeError, ValueError)
# How long our lab may take longer than the recorded cluster.
LEAST_PATIENCE = 90.0


@dataclass
class StepResult:
    step: Step
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        return not self.differences


class Player:
    def __init__(self, recording: Recording, environment: Environment) -> None:
        self.recording = recording
        self.environment = environment
        self.bindings = Bindings()
        self.tracker = ObservationTracker(environment, self.bindings)
        self.request_player = RequestPlayer(environment, self.bindings, self.tracker)
        self.gone = deleted_before(recording)
        self.notes: list[str] = []
        self.repetition: Repetition | None = None

    def play(self) -> list[StepResult]:
        self.notes = set_up(self.recording, initial_state_of(self.recording), self.environment, self.bindings)
        self.tracker.begin()
        return [self._step(step) for step in self.recording.steps]

    def _step(self, step: Step) -> StepResult:
        step_result = StepResult(step)
        self._delete_machines(step)
        if step.pause:
            self.environment.advance(step.pause)
        self.environment.samplers = needed_samples(self.recording, step)
        if not self.environment.samplers:
            self.environment.samples.clear()
        acts: dict[str, Callable[[Step, StepResult], None]] = {
            "request": self._request,
            "wait": self._wait,
            "observe": self._observe,
            "hostAction": self._host_action,
            "result": self._result,
            "object": self._object,
        }
        try:
            if act := acts.get(step.act):
                act(step, step_result)
            self._after(step, step_result)
        except UNPLAYABLE as error:
            step_result.differences.append(Difference("step", step.act, f"failed to play: {error!r}"))
        return step_result

    def _delete_machines(self, step: Step) -> None:
        for namespace, name in self.gone.get(step.index, ()):
            self.environment.api.request(
                "DELETE", f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}"
            )
        if step.index in self.gone:
            self.environment.settle()

    def _request(self, step: Step, step_result: StepResult) -> None:
        if step.request and step.request.writes:
            self.tracker.mark()
        following = next(iter(self.recording.steps[step.index + 1 : step.index + 2]), None)
        if following and repeats(following):
            self.repetition = self._repetition(following)
            step_result.differences += self.request_player.ask(step, at_once=self.repetition.begin)
        else:
            step_result.differences += self.request_player.ask(step)

    def _wait(self, step: Step, step_result: StepResult) -> None:
        wait = step.content["wait"]
        phrase = str(wait.get("until", ""))
        recorded = float(wait.get("seconds", wait.get("secondsSinceRequest", 0)) or 0)
        condition = parse_condition(phrase, step.title, context_at(self.recording, step.index))
        if condition is None:
            step_result.notes.append(f"unknown condition {phrase!r}: waited {recorded} s instead")
            self.environment.advance(recorded)
            return
        expected = bool(wait.get("reached", True))
        if expected:
            limit = max(float(wait.get("timeout", 0)), 3 * recorded, LEAST_PATIENCE)
        else:
            limit = float(wait.get("timeout", recorded))
        reached, seconds = self.environment.wait(condition, limit, in_waits)
        if reached != expected:
            actual = f"after {seconds:.1f} s" if reached else f"not within {seconds:.0f} s"
            step_result.differences.append(Difference(phrase, f"reached: {expected}".lower(), actual))
        elif reached and condition.key and condition.test:
            self.tracker.pin(condition.key, condition.test)

    def _observe(self, step: Step, step_result: StepResult) -> None:
        observation = StateObservation(self.recording, step, self.environment, self.bindings, self.tracker.marked)
        differences, notes = observation.watch_and_compare()
        step_result.differences += differences
        step_result.notes += notes

    def _host_action(self, step: Step, step_result: StepResult) -> None:
        self.tracker.mark()
        context = context_at(self.recording, step.index)
        if not perform(str(step.content["hostAction"]), step.title, context, self.environment):
            step_result.differences.append(Difference("hostAction", step.content["hostAction"], "not understood"))
        self.environment.refresh(from_api=True)

    def _result(self, step: Step, step_result: StepResult) -> None:
        if not repeats(step):
            step_result.notes.append("results of this kind are not compared")
            return
        repetition = self.repetition or self._repetition(step)
        self.repetition = None
        step_result.differences += repetition.finish()

    def _repetition(self, step: Step) -> Repetition:
        return Repetition(step, context_at(self.recording, step.index), self.environment, self.bindings)

    def _object(self, step: Step, step_result: StepResult) -> None:
        shown = step.content["object"]
        if isinstance(shown, dict) and shown.get("kind"):
            step_result.differences += self.tracker.find_all([observed_object(shown)])
            return
        context = context_at(self.recording, step.index)
        differences, notes = state_differences(
            shown, context, self.environment, self.bindings, mdev=self.recording.mdev
        )
        step_result.differences += differences
        step_result.notes += notes

    def _after(self, step: Step, step_result: StepResult) -> None:
        if not step.after:
            return
        if pause := float(step.after.get("seconds") or 0):
            self.environment.advance(pause)
        tracker: list[ObservedObject]
        tracker, notes = observed_after(step.after, self.environment)
        step_result.notes += notes
        step_result.differences += self.tracker.find_all(tracker)
