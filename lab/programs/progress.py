"""Estimate and show the progress of a compilation."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

PLAIN_SECONDS = 30.0
# How much the measured times count against this machine's own pace: as if so much of the work had been done at theirs.
WEIGHT_OF_MEASURED = 0.1
MOST = 0.99
PACKAGE = re.compile(rb"^[\w.~/-]+$", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """A program: what has to be compiled for it beyond the programs before it, as it was measured."""

    name: str
    packages: int
    seconds: float


@dataclass(frozen=True)
class State:
    fraction: float
    step: str
    elapsed: float
    remaining: float

    def __str__(self) -> str:
        return f"{self.fraction:.0%}, at {self.step}, {minutes(self.elapsed)} so far, {_left(self.remaining)}"


def state(steps: Sequence[Step], packages: int, elapsed: float, jobs: int) -> State:
    """Where a compilation is that has begun with this many packages.

    Packages differ widely in size, so each program's share of the work is the time that was measured for it.
    """
    total = sum(step.seconds for step in steps)
    done, current, left = 0.0, steps[-1].name, packages
    for step in steps:
        done += step.seconds * min(1.0, left / step.packages)
        if left < step.packages:
            current = step.name
            break
        left -= step.packages
    fraction = min(MOST, done / total)
    whole = (WEIGHT_OF_MEASURED * total / jobs + elapsed) / (WEIGHT_OF_MEASURED + fraction)
    return State(fraction, current, elapsed, whole * (1 - fraction))


def packages_in(log: Path) -> int:
    """How many packages `go build -v` has named."""
    try:
        return len(PACKAGE.findall(log.read_bytes()))
    except FileNotFoundError:
        return 0


def minutes(seconds: float) -> str:
    whole, rest = divmod(round(seconds), 60)
    return f"{whole}:{rest:02d} min"


def _left(seconds: float) -> str:
    return "less than a minute left" if seconds < 50 else f"about {max(1, round(seconds / 60))} min left"


class Line:
    """One line that is renewed on a terminal, a line now and then anywhere else."""

    def __init__(
        self,
        what: str,
        out: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        live: bool | None = None,
    ) -> None:
        self._what = what
        self._out = out or sys.stderr
        self._live = self._out.isatty() if live is None else live
        self._clock = clock
        self._next = clock() + PLAIN_SECONDS

    def show(self, text: object) -> None:
        if self._live:
            self._print(f"\r\x1b[K{self._what}: {text}", end="")
        elif self._clock() >= self._next:
            self._next = self._clock() + PLAIN_SECONDS
            self._print(f"{self._what}: {text}")

    def close(self, text: object = "") -> None:
        """End the line, with a last text that stays."""
        start = "\r\x1b[K" if self._live else ""
        if text:
            self._print(f"{start}{self._what}: {text}")
        elif self._live:
            self._print(start, end="")

    def _print(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self._out, flush=True)
