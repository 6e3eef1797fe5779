"""Run the molecule scenarios against labs that are started once, and report them one by one.

A scenario's molecule.yml says in `ansible.env` what it begins with: LAB_SCENARIO names the lab's scenario, LAB_VERSIONS
the Harvester versions to run on, LAB_WITH what the lab has besides. Without versions it is about vSphere; with
LAB_PLATFORMS it is about both. There is a lab for vSphere, and one for each era of Harvester and what it has besides.
Scenarios that need two have a pair of their own. `make molecule` runs several of these groups side by side, each by a
process of this program: see suites.py.

LAB_AFTER names a scenario whose outcome is what this one begins with. Where both are run, the lab does not start over
in between: the first is told by LAB_STAYS not to clean up, and the second by LAB_GOES_ON what need not be prepared.
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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import IO

import yaml

from lab.harvester import versions
from lab.lifecycle import up
from lab.rundir import RunDir
from lab.scenarios import scenario as scenarios
from tests.integration import warm_interpreter

CHECKOUT = Path(__file__).resolve().parent.parent
SCENARIOS = CHECKOUT / "extensions/molecule"
BUILD = CHECKOUT / "build/molecule"
SPEED = 50.0
# Between the names of labs that are used together.
BOTH = "+"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
ACTION = re.compile(r" (\w+): Executing$")
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CHANGED = re.compile(r"\bchanged=[1-9]")
# Set when the whole is to end: no further scenario is begun then.
stopping = threading.Event()
starting = threading.Lock()
# Process groups of what runs.
running: set[int] = set()


HARVESTER, VSPHERE = "harvester", "vsphere"


@dataclass(frozen=True)
class Run:
    scenario: str
    begins_with: str
    version: str = ""
    platforms: tuple[str, ...] = (VSPHERE,)
    besides: str = ""
    after: str = ""

    @property
    def title(self) -> str:
        names = {HARVESTER: f"Harvester {self.version}", VSPHERE: "vSphere"}
        return f"{self.scenario} on {' and '.join(names[platform] for platform in self.platforms)}"

    @property
    def labs(self) -> tuple[str, ...]:
        """The names of those that it runs on."""
        era = "mdev" if self.version and self.version < "1.8" else "vfio"
        harvester = "-".join(filter(None, (HARVESTER, era, self.besides)))
        vsphere = VSPHERE if HARVESTER in self.platforms or not self.besides else f"{VSPHERE}-only-{self.besides}"
        return tuple(harvester if platform == HARVESTER else vsphere for platform in self.platforms)

    @property
    def group(self) -> str:
        """The name of the labs that it runs on."""
        return BOTH.join(self.labs)

    def begins_where(self, other: Run) -> bool:
        """Whether it begins with the other's outcome."""
        return (self.after, self.version, self.labs) == (other.scenario, other.version, other.labs)

    @property
    def log(self) -> Path:
        return BUILD / f"{self.scenario}-{self.version or VSPHERE}.log"


def runs(pattern: str) -> list[Run]:
    found = []
    for file in sorted(SCENARIOS.glob("*/molecule.yml")):
        settings = yaml.safe_load(file.read_text())["ansible"]["env"]
        numbers = settings.get("LAB_VERSIONS", "").split()
        platforms = tuple(settings.get("LAB_PLATFORMS", HARVESTER if numbers else VSPHERE).split())
        besides, after = settings.get("LAB_WITH", ""), settings.get("LAB_AFTER", "")
        found += [
            Run(file.parent.name, settings["LAB_SCENARIO"], version, platforms, besides, after)
            for version in numbers or [""]
        ]
    return in_order([run for run in found if fnmatch.fnmatch(run.title, f"*{pattern}*")])


def in_order(found: Sequence[Run]) -> list[Run]:
    """Each right after the one whose outcome it begins with."""

    def line(first: Run) -> list[Run]:
        return [first, *(run for follower in found if follower.begins_where(first) for run in line(follower))]

    return [run for one in found if not any(one.begins_where(other) for other in found) for run in line(one)]


def run_all(wanted: Sequence[Run], labs: Mapping[str, RunDir], *, begun: Run | None = None) -> list[Run]:
    """Those that failed. The lab is at the beginning of `begun`."""
    failed = []
    done: Run | None = None
    for run, following in zip_longest(wanted, wanted[1:]):
        if stopping.is_set():
            break
        started = time.monotonic()
        goes_on = done is not None and run.begins_where(done)
        if not goes_on and run is not begun:
            for name in run.labs:
                begin(labs[name], run)
        environment = {key: value for name in run.labs for key, value in up.environment(labs[name]).items()}
        stays = following is not None and following.begins_where(run)
        environment |= {name: "yes" for name, so in (("LAB_GOES_ON", goes_on), ("LAB_STAYS", stays)) if so}
        problem = molecule(run, environment)
        done = None if problem else run
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


def molecule(run: Run, environment: Mapping[str, str]) -> str:
    """What went wrong, or nothing."""
    memory = run.log.with_suffix(".tmp")
    shutil.rmtree(memory, ignore_errors=True)
    with run.log.open("w") as log:
        code = in_a_group(
            ["molecule", "test", "--scenario-name", run.scenario],
            {**os.environ, **environment, "MOLECULE_EPHEMERAL_DIRECTORY": str(memory)},
            log,
        )
    if code:
        return f"see {run.log.relative_to(CHECKOUT)}"
    return "the second check would change something" if late_changes(run.log.read_text()) else ""


def in_a_group(command: Sequence[str], environment: Mapping[str, str], log: IO[str]) -> int:
    """Run a command with whatever it starts, which all ends when this is stopped."""
    with starting:
        if stopping.is_set():
            return 1
        process = subprocess.Popen(
            command,
            cwd=CHECKOUT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        running.add(process.pid)
    try:
        return process.wait()
    except BaseException:
        stop_groups()
        raise
    finally:
        running.discard(process.pid)


def stop_groups() -> None:
    with starting:
        stopping.set()
    for group in list(running):
        # Ansible's workers have left the group for sessions of their own.
        for process in (*descendants(group), group):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
            children.setdefault(parent, []).append(int(stat.parent.name))
    found = children.get(ancestor, [])
    for process in found:
        found += children.get(process, [])
    return found


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


def start_lab(place: Path, name: str, first: Run) -> RunDir:
    """At the beginning of the first run."""
    platform, *rest = name.split("-")
    up.stop(place)
    return up.start(
        place,
        scenario=first.begins_with,
        harvester_version=first.version or versions.DEFAULT,
        speed=SPEED,
        only=platform,
        extra=rest[1:],
    )


def groups(wanted: Sequence[Run]) -> list[str]:
    """The names of the labs, or of two that belong together, that the runs need."""
    return sorted({run.group for run in wanted})


def places(group: str) -> dict[str, Path]:
    """Where the labs of a group are, by name. No two groups share one, so that they need not wait for each other."""
    names = group.split(BOTH)
    return {name: BUILD / (name if len(names) == 1 else f"{group}/{name}") for name in names}


def run_on(group: str, wanted: Sequence[Run]) -> list[Run]:
    """Those that failed of the runs on one group of labs."""
    mine = [run for run in wanted if run.group == group]
    found = places(group)
    try:
        labs = {name: start_lab(place, name, mine[0]) for name, place in found.items()}
        return run_all(mine, labs, begun=mine[0])
    finally:
        for place in found.values():
            up.stop(place)


def over(*_signal: object) -> None:
    """End, and stop what runs on the way. Whoever ends this may say so twice, and that has to be done."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    sys.exit(1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "pattern", nargs="?", default="", help="only runs whose title contains this, e.g. 'vm on Harvester'"
    )
    parser.add_argument("--on", metavar="LABS", help="only those on these labs, e.g. harvester-vfio")
    chosen = parser.parse_args()
    wanted = [run for run in runs(chosen.pattern) if chosen.on in (None, run.group)]
    if not wanted:
        sys.exit("No scenario matches.")
    BUILD.mkdir(parents=True, exist_ok=True)
    for number in STOPPING:
        signal.signal(number, over)
    with warm_interpreter.started("everything") as warm:
        os.environ.update(warm)
        failed = [run for group in groups(wanted) for run in run_on(group, wanted)]
    for run in failed:
        print(f"\n==> {run.title} <==\n{run.log.read_text()[-6000:]}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
