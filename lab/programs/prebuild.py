"""Compile the lab's programs in the background, beside the installation of the Python packages.

It takes nothing but Python itself, and ends with the process that it works for.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from lab.errors import LabError
from lab.programs import binaries, compiler, processes

# What is in the foreground comes first.
NICE = 10


class NobodyWaits(LabError):
    pass


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="lab.programs.prebuild", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--begin-for", type=int, metavar="PID", help="start building in the background; stop when this process exits"
    )
    what.add_argument(
        "--build-for", type=int, metavar="PID", help="build in the foreground; stop when this process exits"
    )
    what.add_argument("--status", action="store_true", help="print the progress of a running compilation")
    chosen = parser.parse_args(arguments)
    if chosen.status:
        if compiling := binaries.status():
            print(f"({compiling})")
    elif chosen.begin_for:
        _begin(chosen.begin_for)
    else:
        return _build(chosen.build_for)
    return 0


def _begin(pid: int) -> None:
    if not binaries.missing():
        return
    log = compiler.cache_dir() / "logs" / "prebuild.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        subprocess.Popen(
            [sys.executable, "-m", "lab.programs.prebuild", "--build-for", str(pid)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=Path(__file__).resolve().parents[2],
        )
    print("Compiling the lab's programs in the background (only once).", file=sys.stderr)


def _build(pid: int) -> int:
    os.nice(NICE)
    try:
        binaries.ensure(binaries.BINARIES, while_building=ends_with(pid))
    except LabError as error:
        # Whoever needs the programs builds what is missing, and reports the same failure.
        print(error, file=sys.stderr)
        return 1
    return 0


def ends_with(pid: int) -> Callable[[], None]:
    """A tick that raises once the process is gone."""
    identity = processes.identity(pid)

    def tick() -> None:
        if identity is None or processes.identity(pid) != identity:
            raise NobodyWaits("The process that the programs were compiled for has ended.")

    return tick


if __name__ == "__main__":
    sys.exit(main())
