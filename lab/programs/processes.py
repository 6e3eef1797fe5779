"""The lab's processes: started so that they outlive the starter, recorded so that they are found again.

A child waits in a shell for a word from its parent before it becomes the program. The parent
says it only after the pid is on disk, and if it dies before, the shell reads end of file and exits:
there is no moment in which a process runs that `stop_all` would not find.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import hints
from lab.errors import LabError
from lab.rundir import RunDir

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.02

_WAIT_THEN_BECOME = 'read -r _ || exit 1; exec "$@" </dev/null'
# Children of this very process have to be reaped by it; everybody else's are init's.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class ProcessStatus:
    name: str
    pid: int
    running: bool
    log: Path


def spawn(
    run: RunDir,
    name: str,
    argv: Sequence[str | Path],
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    grace: float = GRACE_SECONDS,
) -> int:
    """Start a program in its own session; `env` is added to the current environment.

    `grace` is how long it may take to end when asked to, before it is killed.
    """
    log = log or run.log(name)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [str(word) for word in argv]
    with run.editing() as state:
        processes = state.setdefault("processes", [])
        if any(entry["name"] == name and _is_alive(entry) for entry in processes):
            raise LabError(
                f"{name} is already running in {run.path}.", hint=f"Stop it first: {hints.call('down', run)}"
            )
        with log.open("ab") as output:
            child = subprocess.Popen(
                ["/bin/sh", "-c", _WAIT_THEN_BECOME, name, *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        _children[child.pid] = child
        entry = {
            "name": name,
            "pid": child.pid,
            "identity": identity(child.pid),
            "log": str(log),
            "grace": grace,
        }
        _replace_or_append(processes, entry)
    assert child.stdin is not None
    with child.stdin as gate:
        gate.write(b"go\n")
    return child.pid


def _replace_or_append(processes: list[dict[str, Any]], entry: dict[str, Any]) -> None:
    """A restarted process keeps its place, and with it its turn when everything is stopped."""
    for index, other in enumerate(processes):
        if other["name"] == entry["name"]:
            processes[index] = entry
            return
    processes.append(entry)


def status(run: RunDir) -> list[ProcessStatus]:
    """In the order of their start."""
    return [
        ProcessStatus(entry["name"], entry["pid"], _is_alive(entry), Path(entry["log"]))
        for entry in run.read().get("processes", [])
    ]


def is_running(run: RunDir, name: str) -> bool:
    return any(process.name == name and process.running for process in status(run))


def stop(run: RunDir, name: str) -> None:
    """End one process; it stays on record as not running."""
    for entry in run.read().get("processes", []):
        if entry["name"] == name:
            _end(entry)


def stop_all(run: RunDir) -> None:
    """End everything recorded, last started first, and forget it."""
    for entry in reversed(run.read().get("processes", [])):
        _end(entry)
    with run.editing() as state:
        state["processes"] = [entry for entry in state.get("processes", []) if _is_alive(entry)]


def _end(entry: dict[str, Any]) -> None:
    for number, patience in ((signal.SIGTERM, entry["grace"]), (signal.SIGKILL, 10.0)):
        if not _is_alive(entry):
            return
        try:
            os.killpg(entry["pid"], number)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + patience
        while _is_alive(entry) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
    if _is_alive(entry):
        raise LabError(f"{entry['name']} (pid {entry['pid']}) did not exit, even after SIGKILL.")


def _is_alive(entry: dict[str, Any]) -> bool:
    child = _children.get(entry["pid"])
    if child is not None and child.poll() is not None:
        del _children[entry["pid"]]
    return entry["identity"] is not None and identity(entry["pid"]) == entry["identity"]


def identity(pid: int) -> str | None:
    """Something that differs when a pid is used again; None if no such process runs."""
    return _identity_from_proc(pid) if sys.platform == "linux" else _identity_from_ps(pid)


def _identity_from_proc(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in brackets and may contain anything.
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}:{started}"


def _identity_from_ps(pid: int) -> str | None:
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not started or state.startswith("Z") else started.strip()
