"""Expected differences, each with the limit of the recorded hardware that explains it."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from lab.replay.compare.difference import Difference
from lab.replay.read.recording import Step

KNOWN = Path(__file__).with_name("known.yaml")


@dataclass(frozen=True)
class Expected:
    """Shell patterns: of the recording, of the step's title, and of the places where it may differ."""

    recording: str
    title: str
    differences: tuple[str, ...]
    reason: str

    def covers(self, step: Step, difference: Difference) -> bool:
        return (
            fnmatch.fnmatchcase(step.recording, self.recording)
            and fnmatch.fnmatchcase(step.title, self.title)
            and any(fnmatch.fnmatchcase(difference.place, pattern) for pattern in self.differences)
        )


def expected(path: Path = KNOWN) -> list[Expected]:
    entries = yaml.safe_load(path.read_text()) or []
    return [Expected(**{**entry, "differences": tuple(entry["differences"])}) for entry in entries]


def reason_for(step: Step, differences: Iterable[Difference], entries: list[Expected]) -> str | None:
    """Return the reason if all differences of the step are expected."""
    reasons = []
    for difference in differences:
        reason = next((entry.reason for entry in entries if entry.covers(step, difference)), None)
        if reason is None:
            return None
        reasons.append(reason)
    return " ".join(dict.fromkeys(reasons)) or None
