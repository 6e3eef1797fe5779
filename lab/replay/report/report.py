"""Print each difference as recorded and in the lab, and the number of steps that agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lab.replay.compare.difference import Difference, brief
from lab.replay.play.player import StepResult
from lab.replay.read.recording import Recording
from lab.replay.read.step_context import DEVICE
from lab.replay.report.known import Expected, reason_for

Print = Callable[[str], None]


@dataclass
class Report:
    verbose: bool = False
    known: list[Expected] = field(default_factory=list)
    steps: int = 0
    agreeing: int = 0
    expected: int = 0
    say: Print = print

    def add(self, recording: Recording, step_results: list[StepResult], notes: list[str], seconds: float) -> None:
        agreeing = sum(1 for step_result in step_results if step_result.agrees)
        self.steps += len(step_results)
        self.agreeing += agreeing
        self.say(
            f"{recording.name}: {agreeing} of {len(step_results)} steps agree ({recording.title}; {seconds:.0f} s)"
        )
        if self.verbose:
            for note in notes:
                self.say(f"    note: {note}")
        for step_result in step_results:
            self._step_result(step_result)

    def _step_result(self, step_result: StepResult) -> None:
        title = f"  {step_result.step.id} {step_result.step.title}"
        if step_result.agrees:
            if self.verbose:
                self.say(f"{title}: agrees")
        else:
            reason = reason_for(step_result.step, step_result.differences, self.known)
            self.expected += reason is not None
            self.say(f"{title}: disagrees" + (f", as expected: {reason}" if reason else ""))
            for difference in gathered(step_result.differences):
                self.say(f"    {difference.place or 'answer'}")
                self.say(f"      recorded: {brief(difference.recorded, 2000)}")
                self.say(f"      lab:      {brief(difference.ours, 2000)}")
        if self.verbose:
            for note in step_result.notes:
                self.say(f"    note: {note}")

    @property
    def success(self) -> bool:
        return self.agreeing + self.expected == self.steps

    def conclude(self) -> int:
        if self.expected:
            self.say(f"{self.expected} steps disagree as expected, because of limits of the recorded hardware")
        self.say(f"{self.agreeing} of {self.steps} steps agree")
        return 0 if self.success else 1


def gathered(differences: list[Difference]) -> list[Difference]:
    """Merge equal differences of several devices."""
    places: dict[tuple[str, str, str], list[str]] = {}
    for difference in differences:
        device = DEVICE.search(difference.place)
        pattern = DEVICE.sub("{}", difference.place, count=1)
        key = (pattern, brief(difference.recorded, 2000), brief(difference.ours, 2000))
        places.setdefault(key, []).append(device.group(1) if device else "")
    return [
        Difference(
            pattern.replace("{}", names[0] + (f" (and {len(names) - 1} more)" if len(names) > 1 else ""), 1),
            recorded,
            ours,
        )
        for (pattern, recorded, ours), names in places.items()
    ]
