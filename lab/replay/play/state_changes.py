"""Watching for a while: the recorded transitions of a state against ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.replay.compare.bindings import Bindings
from lab.replay.compare.difference import Difference, same
from lab.replay.compare.field import Facet, facets_of, flatten
from lab.replay.compare.transition import Change, Span, align, closeness_of, out_of_order, spans
from lab.replay.play.environment import Stage
from lab.replay.read.recording import Recording, Step
from lab.replay.read.step_context import Scene, scene_at

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


class Observation:
    def __init__(self, recording: Recording, step: Step, stage: Stage, bindings: Bindings, marked: int) -> None:
        self.recorded = step.content["observe"]
        self.transitions = self.recorded["transitions"]
        self.stage = stage
        self.bindings = bindings
        self.marked = marked
        scene = scene_at(recording, step.index)
        self.flat = [flatten(one["state"]) for one in self.transitions]
        self.facets = facets_of([one["state"] for one in self.transitions], scene, mdev=recording.mdev)
        self.began = stage.now

    def watch_and_compare(self) -> tuple[list[Difference], list[str]]:
        seconds = float(self.recorded.get("seconds") or self.transitions[-1]["at"])
        self.stage.look()
        while self.stage.now - self.began < seconds - PACE / 2:
            left = self.began + seconds - self.stage.now
            self.stage.advance(min(self.stage.stride(PACE), max(left, PACE)))
        while (differences := self._compare()) and self.stage.now - self.began < seconds + OVERTIME:
            if not self._late():
                break
            self.stage.advance(PACE * 5)
        notes = [f"{facet.name} of the state is not compared" for facet in self.facets if not facet.understood]
        return differences, notes

    def _late(self) -> bool:
        """Whether a last value has not come yet, so that more time may bring it."""
        return any(
            not same(_recorded_value(facet, self.flat[-1]), ours[-1].value, self.bindings.trial())
            for facet in self.facets
            if facet.understood and (ours := self._ours(facet))
        )

    def _compare(self) -> list[Difference]:
        trial = self.bindings.trial()
        found: list[Difference] = []
        changes: list[Change] = []
        for facet in self.facets:
            if not facet.understood:
                continue
            recorded, ours = self._theirs(facet), self._ours(facet)
            pairs = align(recorded, ours, self._equality(facet, trial.trial))
            if pairs is None or not all(
                self._equality(facet, lambda: trial)(recorded[i].value, ours[j].value) for i, j in pairs
            ):
                found.append(Difference(f"transitions of {facet.name}", _told(recorded), _told(ours)))
                continue
            changes += [
                Change(facet.name, recorded[i].value, recorded[i].start, ours[j].start) for i, j in pairs if i > 0
            ]
        closeness = closeness_of([float(one["at"]) for one in self.transitions])
        for first, second in out_of_order(changes, closeness):
            found.append(
                Difference(
                    "order",
                    f"{first.facet} = {first.value} ({first.recorded_at} s) before "
                    f"{second.facet} = {second.value} ({second.recorded_at} s)",
                    f"{second.facet} ({second.ours_at - self.began:.1f} s) before "
                    f"{first.facet} ({first.ours_at - self.began:.1f} s)",
                )
            )
        if not found:
            self.bindings.adopt(trial)
        return found

    def _equality(self, facet: Facet, bindings: Callable[[], Bindings]) -> Callable[[Any, Any], bool]:
        # Once a device plugin has ended, the capacity beside an amount of 0 is the last one or 0 (see agreement).
        of_amount = facet.name.replace("capacity", "allocatable", 1)
        loose = of_amount != facet.name and any(other.name == of_amount for other in self.facets)
        return lambda theirs, mine: same(theirs, mine, bindings()) or (loose and "0" in (theirs, mine))

    def _theirs(self, facet: Facet) -> list[Span]:
        times = [float(one["at"]) for one in self.transitions]
        values = [(at, _recorded_value(facet, flat)) for at, flat in zip(times, self.flat, strict=True)]
        return spans(values, float(self.recorded.get("seconds") or self.transitions[-1]["at"]))

    def _ours(self, facet: Facet) -> list[Span]:
        values: list[tuple[float, Any]]
        if facet.of_sample:
            values = [(sample.at, facet.of_sample(sample)) for sample in self.stage.samples]
        else:
            assert facet.of_world is not None
            values = [(at, facet.of_world(world)) for at, _, world in self.stage.history.moments(self.marked)]
        every = spans(values, self.stage.now, looked_from=self.began)
        return [span for span in every if span.end >= self.began - BEFORE]


def _recorded_value(facet: Facet, flat: dict[str, Any]) -> Any:
    value = flat.get(facet.name)
    if value is None and (facet.name.startswith("allocatable") or facet.name.startswith("capacity")):
        return None if "." in facet.name else "0"
    return value


def _told(values: list[Span]) -> str:
    return " -> ".join(f"{span.value!r} ({span.start:.1f} s)" for span in values)


def state_differences(
    state: Any, scene: Scene, stage: Stage, bindings: Bindings, *, mdev: bool
) -> tuple[list[Difference], list[str]]:
    """A state looked at once."""
    flat = flatten(state)
    facets = facets_of([state], scene, mdev=mdev)
    samples = _samples_of([state])
    sample = stage.sample(samples) if samples else None
    found, notes = [], []
    for facet in facets:
        if facet.of_sample and sample:
            mine = facet.of_sample(sample)
        elif facet.of_world:
            mine = facet.of_world(stage.world)
        else:
            notes.append(f"{facet.name} of the state is not compared")
            continue
        if not same(_recorded_value(facet, flat), mine, bindings):
            found.append(Difference(facet.name, flat.get(facet.name), mine))
    return found, notes
