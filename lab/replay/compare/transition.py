"""Compare changes over time: the order of the values of one field, and of the fields.

The recorder polled, reading one thing after another, so it missed short-lived values and saw the parts of one
moment a little apart. Seconds differ between runs anyway. What must agree is which values came after which.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# A recorded value seen this shortly may have lain between two of ours.
GLIMPSE = 0.65
# A value of ours this short may have lain between two polls, at the recorded system's own pace.
TRANSIENT = 3.0
# How far apart two of our changes may be the other way round.
SIMULTANEOUS = 0.5
CLOSEST, FARTHEST = 0.45, 1.0


@dataclass(frozen=True)
class Span:
    """A value, and the time span in which it could be observed."""

    value: Any
    start: float
    end: float
    observed_from: float = float("-inf")

    @property
    def length(self) -> float:
        return self.end - max(self.start, self.observed_from)


@dataclass(frozen=True)
class Change:
    state_field: str
    value: Any
    recorded_at: float
    ours_at: float


def spans(values: Sequence[tuple[float, Any]], end: float, observed_from: float = float("-inf")) -> list[Span]:
    """Merge successive values into spans of equal value."""
    distinct: list[tuple[float, Any]] = []
    for at, value in values:
        if not distinct or distinct[-1][1] != value:
            distinct.append((at, value))
    closed = [*distinct[1:], (end, None)]
    return [Span(value, at, until, observed_from) for (at, value), (until, _) in zip(distinct, closed, strict=True)]


def align(
    recorded: Sequence[Span], ours: Sequence[Span], equal: Callable[[Any, Any], bool]
) -> list[tuple[int, int]] | None:
    """Pair equal values in the same order, up to the last of both. Return None if that is impossible."""
    agree = functools.cache(lambda i, j: equal(recorded[i].value, ours[j].value))

    @functools.cache
    def rest(i: int, j: int) -> tuple[tuple[int, int], ...] | None:
        if i == len(recorded) and j == len(ours):
            return ()
        if i < len(recorded) and j < len(ours) and agree(i, j):
            pairs = rest(i + 1, j + 1)
            if pairs is not None:
                return ((i, j), *pairs)
        if j < len(ours):
            passing = j < len(ours) - 1 and ours[j].length <= TRANSIENT
            if passing or (i > 0 and agree(i - 1, j)):
                pairs = rest(i, j + 1)
                if pairs is not None:
                    return pairs
        if i < len(recorded):
            passing = i < len(recorded) - 1 and (
                recorded[i].length <= GLIMPSE or (0 < j < len(ours) and _between(ours[j - 1], recorded[i], ours[j]))
            )
            if passing or (j > 0 and agree(i, j - 1)):
                return rest(i + 1, j)
        return None

    pairs = rest(0, 0)
    return None if pairs is None else list(pairs)


def _between(before: Span, seen: Span, after: Span) -> bool:
    """Return whether an amount or list lies between two values of the lab."""
    values = (before.value, seen.value, after.value)
    if all(isinstance(value, list) for value in values):
        less, middle, more = (set(map(str, value)) for value in values)
        return less <= middle <= more or more <= middle <= less
    amounts = [0 if value is None else value for value in values]
    if all(isinstance(amount, int) or str(amount).isdigit() for amount in amounts):
        first, halfway, last = (int(amount) for amount in amounts)
        return min(first, last) < halfway < max(first, last)
    return False


def out_of_order(changes: Sequence[Change], closeness: float) -> list[tuple[Change, Change]]:
    """Return pairs of changes whose order in the lab clearly differs from the recording."""
    return [
        (first, second)
        for first in changes
        for second in changes
        if first.state_field != second.state_field
        and first.recorded_at + closeness < second.recorded_at
        and first.ours_at > second.ours_at + SIMULTANEOUS
    ]


def closeness_of(times: Sequence[float]) -> float:
    """What counts as one moment in a recording: half as long again as its polls were apart, as far as one can tell."""
    gaps = [later - earlier for earlier, later in itertools.pairwise(times) if later > earlier]
    return min(FARTHEST, max(CLOSEST, 1.5 * min(gaps))) if gaps else CLOSEST
