"""Playing one recording, step by step, and comparing what comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.errors import LabError
from lab.replay.compare.bindings import Bindings
from lab.replay.compare.difference import Difference
from lab.replay.play.environment import Stage, in_waits
from lab.replay.play.host_action import perform
from lab.replay.play.observation import Sighting, Sightings, sighting_of, sightings_after
from lab.replay.play.repetition import Repetition, repeats
from lab.replay.play.request import Asking
from lab.replay.play.setup import arrange
from lab.replay.play.state_changes import Observation, needed_samples, state_differences
from lab.replay.read.condition import understand
from lab.replay.read.initial_state import beginning_of
from lab.replay.read.recording import Recording, Step
from lab.replay.read.step_context import scene_at
from lab.replay.read.unrecorded_deletions import deleted_before

Json = dict[str, Any]
# A step in a form that is not known here must not keep the others from being played.
UNPLAYABLE = (AttributeError, IndexError, KeyError, LabError, OSError, TypeError, ValueError)
# How long our lab may take longer than the recorded cluster.
LEAST_PATIENCE = 90.0


@dataclass
class Outcome:
    step: Step
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        return not self.differences


class Player:
    def __init__(self, recording: Recording, stage: Stage) -> None:
        self.recording = recording
        self.stage = stage
        self.bindings = Bindings()
        self.sightings = Sightings(stage, self.bindings)
        self.asking = Asking(stage, self.bindings, self.sightings)
        self.gone = deleted_before(recording)
        self.notes: list[str] = []
        self.repetition: Repetition | None = None

    def play(self) -> list[Outcome]:
        self.notes = arrange(self.recording, beginning_of(self.recording), self.stage, self.bindings)
        self.sightings.begin()
        return [self._step(step) for step in self.recording.steps]

    def _step(self, step: Step) -> Outcome:
        outcome = Outcome(step)
        self._delete_machines(step)
        if step.pause:
            self.stage.advance(step.pause)
        self.stage.samplers = needed_samples(self.recording, step)
        if not self.stage.samplers:
            self.stage.samples.clear()
        acts: dict[str, Callable[[Step, Outcome], None]] = {
            "request": self._request,
            "wait": self._wait,
            "observe": self._observe,
            "hostAction": self._host_action,
            "result": self._result,
            "object": self._object,
        }
        try:
            if act := acts.get(step.act):
                act(step, outcome)
            self._after(step, outcome)
        except UNPLAYABLE as error:
            outcome.differences.append(Difference("step", step.act, f"could not be played: {error!r}"))
        return outcome

    def _delete_machines(self, step: Step) -> None:
        for namespace, name in self.gone.get(step.index, ()):
            self.stage.api.request("DELETE", f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}")
        if step.index in self.gone:
            self.stage.settle()

    def _request(self, step: Step, outcome: Outcome) -> None:
        if step.request and step.request.writes:
            self.sightings.mark()
        following = next(iter(self.recording.steps[step.index + 1 : step.index + 2]), None)
        if following and repeats(following):
            self.repetition = self._repetition(following)
            outcome.differences += self.asking.ask(step, at_once=self.repetition.begin)
        else:
            outcome.differences += self.asking.ask(step)

    def _wait(self, step: Step, outcome: Outcome) -> None:
        wait = step.content["wait"]
        phrase = str(wait.get("until", ""))
        recorded = float(wait.get("seconds", wait.get("secondsSinceRequest", 0)) or 0)
        condition = understand(phrase, step.title, scene_at(self.recording, step.index))
        if condition is None:
            outcome.notes.append(f"the phrase {phrase!r} is not understood: {recorded} s pass instead")
            self.stage.advance(recorded)
            return
        expected = bool(wait.get("reached", True))
        if expected:
            limit = max(float(wait.get("timeout", 0)), 3 * recorded, LEAST_PATIENCE)
        else:
            limit = float(wait.get("timeout", recorded))
        reached, seconds = self.stage.wait(condition, limit, in_waits)
        if reached != expected:
            mine = f"after {seconds:.1f} s" if reached else f"not within {seconds:.0f} s"
            outcome.differences.append(Difference(phrase, f"reached: {expected}".lower(), mine))
        elif reached and condition.key and condition.test:
            self.sightings.pin(condition.key, condition.test)

    def _observe(self, step: Step, outcome: Outcome) -> None:
        observation = Observation(self.recording, step, self.stage, self.bindings, self.sightings.marked)
        differences, notes = observation.watch_and_compare()
        outcome.differences += differences
        outcome.notes += notes

    def _host_action(self, step: Step, outcome: Outcome) -> None:
        self.sightings.mark()
        scene = scene_at(self.recording, step.index)
        if not perform(str(step.content["hostAction"]), step.title, scene, self.stage):
            outcome.differences.append(Difference("hostAction", step.content["hostAction"], "not understood"))
        self.stage.look(afresh=True)

    def _result(self, step: Step, outcome: Outcome) -> None:
        if not repeats(step):
            outcome.notes.append("a result of this kind is not compared")
            return
        repetition = self.repetition or self._repetition(step)
        self.repetition = None
        outcome.differences += repetition.finish()

    def _repetition(self, step: Step) -> Repetition:
        return Repetition(step, scene_at(self.recording, step.index), self.stage, self.bindings)

    def _object(self, step: Step, outcome: Outcome) -> None:
        shown = step.content["object"]
        if isinstance(shown, dict) and shown.get("kind"):
            outcome.differences += self.sightings.look_for([sighting_of(shown)])
            return
        scene = scene_at(self.recording, step.index)
        differences, notes = state_differences(shown, scene, self.stage, self.bindings, mdev=self.recording.mdev)
        outcome.differences += differences
        outcome.notes += notes

    def _after(self, step: Step, outcome: Outcome) -> None:
        if not step.after:
            return
        if pause := float(step.after.get("seconds") or 0):
            self.stage.advance(pause)
        sightings: list[Sighting]
        sightings, notes = sightings_after(step.after, self.stage)
        outcome.notes += notes
        outcome.differences += self.sightings.look_for(sightings)
