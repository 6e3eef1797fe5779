"""Observe a state for a while, and compare its transitions with the recorded ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.replay.compare.bindings import Bindings
from lab.replay.compare.difference import Difference, same
from lab.replay.compare.field import StateField, fields_of, flatten
from lab.replay.compare.transition import Change, Span, align, closeness_of, out_of_order, spans
from lab.replay.play.environment import Environment
from lab.replay.read.recording import Recording, Step
from lab.replay.read.step_context import StepContext, context_at

PACE = 0.2
# How far back a value of ours may lie that the recording still saw when it began to look.
BEFORE = 10.0
# How long after the recorded span the last values may still come.
OVERTIME = 15.0
SAMPLES = {"hardware": "hardware", "instances": "hardware", "processes": "processes"}


def needed_samples(recording: Recording, step: Step) -> tuple[str, ...]:
    """What to ask the hosts for at each moment of this step, since an observation at hand speaks of it."""
    for later in recording.steps[step.index :]:
        if later.act == "observe":
            states = [transition["state"] for transition in later.content["observe"]["transitions"]]
            return _samples_of(states)
        if later.index > step.index and (later.act == "hostAction" or (later.request and later.request.writes)):
            return ()
    return ()


def _samples_of(states: list[Any]) -> tuple[str, ...]:
    names = {name.partition(".")[0] for state in states for name in flatten(state)}
    wanted = {SAMPLES[name] for name in names if name in SAMPLES}
    if any(name.startswith("webhook") for name in names):
        wanted.add("webhook")
    return tuple(sorted(wanted))


class StateObservation:
    def __init__(
        self, recording: Recording, step: Step, environment: Environment, bindings: Bindings, marked: int
    ) -> None:
        self.recorded = step.content["observe"]
        self.transitions = self.recorded["transitions"]
        self.environment = environment
        self.bindings = bindings
        self.marked = marked
        context = context_at(recording, step.index)
        self.flat = [flatten(transition["state"]) for transition in self.transitions]
        self.state_fields = fields_of(
            [transition["state"] for transition in self.transitions], context, mdev=recording.mdev
        )
        self.began = environment.now

    def watch_and_compare(self) -> tuple[list[Difference], list[str]]:
        seconds = float(self.recorded.get("seconds") or self.transitions[-1]["at"])
        self.environment.refresh()
        while self.environment.now - self.began < seconds - PACE / 2:
            left = self.began + seconds - self.environment.now
            self.environment.advance(min(self.environment.stride(PACE), max(left, PACE)))
        while (differences := self._compare()) and self.environment.now - self.began < seconds + OVERTIME:
            if not self._late():
                break
            self.environment.advance(PACE * 5)
        notes = [
            f"{state_field.name} of the state is not compared"
            for state_field in self.state_fields
            if not state_field.supported
        ]
        return differences, notes

    def _late(self) -> bool:
        """Return whether a last value is still missing, so that more time may help."""
        return any(
            not same(_recorded_value(state_field, self.flat[-1]), ours[-1].value, self.bindings.trial())
            for state_field in self.state_fields
            if state_field.supported and (ours := self._lab_spans(state_field))
        )

    def _compare(self) -> list[Difference]:
        trial = self.bindings.trial()
        different: list[Difference] = []
        changes: list[Change] = []
        for state_field in self.state_fields:
            if not state_field.supported:
                continue
            recorded, ours = self._recorded_spans(state_field), self._lab_spans(state_field)
            pairs = align(recorded, ours, self._equality(state_field, trial.trial))
            if pairs is None or not all(
                self._equality(state_field, lambda: trial)(recorded[i].value, ours[j].value) for i, j in pairs
            ):
                different.append(Difference(f"transitions of {state_field.name}", _describe(recorded), _describe(ours)))
                continue
            changes += [
                Change(state_field.name, recorded[i].value, recorded[i].start, ours[j].start) for i, j in pairs if i > 0
            ]
        closeness = closeness_of([float(transition["at"]) for transition in self.transitions])
        for first, second in out_of_order(changes, closeness):
            different.append(
                Difference(
                    "order",
                    f"{first.state_field} = {first.value} ({first.recorded_at} s) before "
                    f"{second.state_field} = {second.value} ({second.recorded_at} s)",
                    f"{second.state_field} ({second.ours_at - self.began:.1f} s) before "
                    f"{first.state_field} ({first.ours_at - self.began:.1f} s)",
                )
            )
        if not different:
            self.bindings.adopt(trial)
        return different

    def _equality(self, state_field: StateField, bindings: Callable[[], Bindings]) -> Callable[[Any, Any], bool]:
        # Once a device plugin has ended, the capacity beside an amount of 0 is the last one or 0 (see agreement).
        of_amount = state_field.name.replace("capacity", "allocatable", 1)
        loose = of_amount != state_field.name and any(other.name == of_amount for other in self.state_fields)
        return lambda expected, actual: same(expected, actual, bindings()) or (loose and "0" in (expected, actual))

    def _recorded_spans(self, state_field: StateField) -> list[Span]:
        times = [float(transition["at"]) for transition in self.transitions]
        values = [(at, _recorded_value(state_field, flat)) for at, flat in zip(times, self.flat, strict=True)]
        return spans(values, float(self.recorded.get("seconds") or self.transitions[-1]["at"]))

    def _lab_spans(self, state_field: StateField) -> list[Span]:
        values: list[tuple[float, Any]]
        if state_field.of_sample:
            values = [(sample.at, state_field.of_sample(sample)) for sample in self.environment.samples]
        else:
            assert state_field.of_snapshot is not None
            values = [
                (at, state_field.of_snapshot(snapshot))
                for at, _, snapshot in self.environment.history.moments(self.marked)
            ]
        every = spans(values, self.environment.now, observed_from=self.began)
        return [span for span in every if span.end >= self.began - BEFORE]


def _recorded_value(state_field: StateField, flat: dict[str, Any]) -> Any:
    value = flat.get(state_field.name)
    if value is None and (state_field.name.startswith("allocatable") or state_field.name.startswith("capacity")):
        return None if "." in state_field.name else "0"
    return value


def _describe(values: list[Span]) -> str:
    return " -> ".join(f"{span.value!r} ({span.start:.1f} s)" for span in values)


def state_differences(
    state: Any, context: StepContext, environment: Environment, bindings: Bindings, *, mdev: bool
) -> tuple[list[Difference], list[str]]:
    """Compare a state at one moment."""
    flat = flatten(state)
    state_fields = fields_of([state], context, mdev=mdev)
    samples = _samples_of([state])
    sample = environment.sample(samples) if samples else None
    different, notes = [], []
    for state_field in state_fields:
        if state_field.of_sample and sample:
            actual = state_field.of_sample(sample)
        elif state_field.of_snapshot:
            actual = state_field.of_snapshot(environment.snapshot)
        else:
            notes.append(f"{state_field.name} of the state is not compared")
            continue
        if not same(_recorded_value(state_field, flat), actual, bindings):
            different.append(Difference(state_field.name, flat.get(state_field.name), actual))
    return different, notes
