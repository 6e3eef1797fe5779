"""Run the molecule scenarios against labs that are started once, and report them one by one.

A scenario's molecule.yml says in `ansible.env` what it begins with: LAB_SCENARIO names the lab's scenario, LAB_VERSIONS
the Harvester versions to run on. Without versions it is about vSphere. The two platforms run side by side.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import yaml

from lab import scenario as scenarios, up
from lab.rundir import RunDir

CHECKOUT = Path(__file__).resolve().parent.parent
SCENARIOS = CHECKOUT / "extensions/molecule"
BUILD = CHECKOUT / "build/molecule"
SPEED = 50.0
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ACTION = re.compile(r" (\w+): Executing$")
CHANGED = re.compile(r"\bchanged=[1-9]")
# Set when the whole is to end: no further scenario is begun then.
stopping = threading.Event()


@dataclass(frozen=True)
class Run:
    scenario: str
    begins_with: str
    version: str

    @property
    def title(self) -> str:
        return f"{self.scenario} on {f'Harvester {self.version}' if self.version else 'vSphere'}"

    @property
    def log(self) -> Path:
        return BUILD / f"{self.scenario}-{self.version or 'vsphere'}.log"


def runs(pattern: str) -> list[Run]:
    found = []
    for file in sorted(SCENARIOS.glob("*/molecule.yml")):
        settings = yaml.safe_load(file.read_text())["ansible"]["env"]
        versions = settings.get("LAB_VERSIONS", "").split() or [""]
        found += [Run(file.parent.name, settings["LAB_SCENARIO"], version) for version in versions]
    return [run for run in found if fnmatch.fnmatch(run.title, f"*{pattern}*")]


def run_all(wanted: Iterable[Run], lab: RunDir) -> list[Run]:
    """Those that failed."""
    failed = []
    for run in wanted:
        if stopping.is_set():
            break
        begin(lab, run)
        started = time.monotonic()
        problem = molecule(run, up.environment(lab))
        seconds = time.monotonic() - started
        print(f"{'FAILED' if problem else 'ok':7} {run.title:45} {seconds:4.0f} s  {problem}", flush=True)
        if problem:
            failed.append(run)
    return failed


def begin(lab: RunDir, run: Run) -> None:
    with lab.editing() as state:
        state["settings"] |= {"scenario": str(scenarios.find(run.begins_with).absolute())}
        if run.version:
            state["settings"] |= {"harvester_version": run.version}
    up.reset(lab)


def molecule(run: Run, environment: dict[str, str]) -> str:
    """What went wrong, or nothing."""
    memory = BUILD / f"{run.scenario}.tmp"
    shutil.rmtree(memory, ignore_errors=True)
    with run.log.open("w") as log:
        finished = subprocess.run(
            ["molecule", "test", "--scenario-name", run.scenario],
            cwd=CHECKOUT,
            env=os.environ | environment | {"MOLECULE_EPHEMERAL_DIRECTORY": str(memory)},
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    if finished.returncode:
        return f"see {run.log.relative_to(CHECKOUT)}"
    return "the second check would change something" if late_changes(run.log.read_text()) else ""


def late_changes(output: str) -> bool:
    """Whether a dry run after converging predicts a change, which molecule does not look at itself."""
    late, action = False, ""
    for line in COLOUR.sub("", output).splitlines():
        if started := ACTION.search(line):
            late |= action == "idempotence"
            action = started[1]
        elif late and action == "check" and CHANGED.search(line):
            return True
    return False


def start_lab(name: str, **options: object) -> RunDir:
    up.stop(BUILD / name)
    return up.start(BUILD / name, speed=SPEED, **options)  # type: ignore[arg-type]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "pattern", nargs="?", default="", help="only runs whose title contains this, e.g. 'vm on Harvester'"
    )
    wanted = runs(parser.parse_args().pattern)
    if not wanted:
        sys.exit("No scenario matches.")
    BUILD.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    harvester, vsphere = [run for run in wanted if run.version], [run for run in wanted if not run.version]
    labs = []
    try:
        with ThreadPoolExecutor() as pool:
            platforms = []
            if vsphere:
                labs.append(start_lab("vcenter", only="vsphere"))
                platforms.append(pool.submit(run_all, vsphere, labs[-1]))
            if harvester:
                labs.append(start_lab("harvester", only="harvester"))
                platforms.append(pool.submit(run_all, harvester, labs[-1]))
            try:
                failed = [run for platform in platforms for run in platform.result()]
            except BaseException:
                stopping.set()
                raise
    finally:
        for lab in labs:
            up.stop(lab)
    for run in failed:
        print(f"\n==> {run.title} <==\n{run.log.read_text()[-6000:]}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
