"""Commands of the lab for messages, ready to be copied into a terminal."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from lab.rundir import RunDir


def default_run_dir() -> Path:
    return Path(os.environ.get("LAB_RUN_DIR") or "build/lab")


def call(command: str, run: RunDir | None = None) -> str:
    """Return the command line for a lab command, with --run-dir if it is not the default."""
    if run is not None and run.path != RunDir(default_run_dir()).path:
        command += f" --run-dir {shlex.quote(str(run.path))}"
    return f"make -s lab ARGS={shlex.quote(command)}"


def start(run: RunDir) -> str:
    return f"Start a lab: {call('up', run)}"
