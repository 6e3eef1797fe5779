"""What the processes of a lab take: memory now, processor time over a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lab.programs import processes
from lab.rundir import RunDir

TICKS = os.sysconf("SC_CLK_TCK")
MIB = 2**20


def memory_mib(run: RunDir) -> dict[str, float]:
    """Each process with what it has for itself and its share of what it has with others."""
    return {one.name: _proportional(one.pid) / MIB for one in processes.status(run) if one.running}


def cores(run: RunDir, seconds: float) -> dict[str, float]:
    """Each process with the cores it keeps busy, on average over so many seconds."""
    before = _ticks(run)
    time.sleep(seconds)
    return {name: (ticks - before[name]) / TICKS / seconds for name, ticks in _ticks(run).items() if name in before}


def _proportional(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _ticks(run: RunDir) -> dict[str, int]:
    found = {}
    for one in processes.status(run):
        if one.running:
            fields = Path(f"/proc/{one.pid}/stat").read_text().rpartition(")")[2].split()
            found[one.name] = int(fields[11]) + int(fields[12])
    return found
