"""Replay recordings of real controllers on a lab, and report where the lab differs."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.errors import LabError
from lab.replay.play.runner import Runner
from lab.replay.read.recording import load_all
from lab.replay.report.known import expected
from lab.replay.report.report import Report


def main(traces: Path, only: str | None = None, verbose: bool = False, run_root: Path = Path(".lab")) -> int:
    recordings = load_all(traces, only)
    if not recordings:
        raise LabError(f"{traces} contains no recordings{f' that match {only}' if only else ''}.")
    report = Report(verbose=verbose, known=expected())
    with Runner(run_root) as runner, _ending_cleanly():
        for recording in sorted(recordings, key=lambda item: (item.harvester_version, item.name)):
            report.add(recording, *runner.play(recording))
    return report.conclude()


@contextmanager
def _ending_cleanly() -> Iterator[None]:
    """Stop the lab when the replay is terminated."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
