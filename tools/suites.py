"""Run test suites and other checks, several at a time: python -m tools.suites [OPTION ...] [SUITE ...] -- PYTEST ...

A suite computes for about two thirds of its time and waits for the rest, so one more than there are cores keeps them
busy. The jobs that take longest begin first, and the longest suites are split, so that no core is left without work at
the end. The output of several jobs is shown in one piece each, when the job has ended.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

NO_TESTS = 5
# The end of a terminal is told to every process in it. The jobs are to hear of it from here, as of any other end.
DEAF_TO_HANGUPS = ("env", "--ignore-signal=HUP")

# Suites that would be alone at the end: one job for each of these expressions of pytest's -k, and one for all the rest.
# Each starts labs of its own, which is cheap: about ten seconds of one core.
SPLIT: Mapping[str, Sequence[str]] = {
    "playbooks": ("test_reprofile", "test_awx_setup or test_clusters or test_many_clusters"),
    "lab_rancher": ("test_gpu_cluster_role or test_cluster_playbooks or test_awx_workflow",),
    # Each version of Harvester has a lab of its own.
    "replay": ("v1.7",),
    # The ones that need KubeVirt have a lab of their own.
    "modules": ("test_vgpu_vm or test_availability",),
}
# About how long a job takes, in seconds on two cores that it shares: for the order alone.
SECONDS: Mapping[str, int] = {
    "lab_rancher": 270,
    "playbooks": 270,
    "lab_harvester": 290,
    "modules": 240,
    "vsphere_modules": 220,
    "replay": 200,
    "vsphere_lab": 190,
    "molecule": 180,
    "sanity": 90,
}
OTHERS_SECONDS = 70


@dataclass(frozen=True)
class Job:
    title: str
    command: tuple[str, ...]
    suite: bool = False

    @property
    def seconds(self) -> int:
        """About how long it takes."""
        words = self.title.replace("/", " ").split()
        return next((SECONDS[word] for word in words if word in SECONDS), OTHERS_SECONDS)


@dataclass(frozen=True)
class Ended:
    job: Job
    code: int
    output: str
    seconds: float
    cpu_seconds: float

    def __str__(self) -> str:
        return f"{self.job.title} ({self.seconds:.0f} s, {self.cpu_seconds:.0f} s of CPU time)"


@dataclass
class Runner:
    """Runs jobs until it is told to stop."""

    live: bool
    _running: dict[subprocess.Popen[str], Job] = field(default_factory=dict)
    _starting: threading.Lock = field(default_factory=threading.Lock)
    _stopping: bool = False

    def run(self, job: Job) -> Ended:
        began = time.monotonic()
        kept = {} if self.live else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with self._starting:
            if self._stopping:
                return Ended(job, 1, "", 0.0, 0.0)
            if self.live:
                print(job.title, flush=True)
            process = subprocess.Popen([*DEAF_TO_HANGUPS, *job.command], text=True, **kept)  # type: ignore[call-overload]
            self._running[process] = job
        output = process.stdout.read() if process.stdout else ""
        # With the time of all that it has waited for, such as the processes of its labs.
        _pid, status, used = os.wait4(process.pid, 0)
        del self._running[process]
        process.returncode = os.waitstatus_to_exitcode(status)
        return Ended(job, process.returncode, output, time.monotonic() - began, used.ru_utime + used.ru_stime)

    def begin_no_more(self) -> None:
        with self._starting:
            self._stopping = True

    def stop(self) -> None:
        """End a suite as by Ctrl-C, which lets pytest stop its labs, and all others in the usual way."""
        self.begin_no_more()
        for process, job in list(self._running.items()):
            process.send_signal(signal.SIGINT if job.suite else signal.SIGTERM)


def suite_jobs(suite: str, pytest: Sequence[str], *, split: bool) -> list[Job]:
    """The jobs that run a suite, each test in exactly one of them."""
    parts = SPLIT.get(Path(suite).name, ()) if split else ()
    if not parts:
        return [Job(suite, (*pytest, suite), suite=True)]
    return [Job(f"{suite} -k '{part}'", (*pytest, "-k", part, suite), suite=True) for part in partition(parts)]


def partition(parts: Sequence[str]) -> list[str]:
    """Expressions of which every test matches exactly one, whatever it is called."""
    found, before = [], ""
    for part in parts:
        found.append(f"({part}) and not ({before})" if before else part)
        before = f"{before} or {part}" if before else part
    return [*found, f"not ({before})"]


def beside_job(line: str) -> Job:
    command = shlex.split(line)
    return Job(command[-1], tuple(command))


def molecule_jobs(pattern: str) -> list[Job]:
    from tools import molecule

    program = (sys.executable, "-m", "tools.molecule")
    return [
        Job(f"molecule on {group}", (*program, "--on", group, pattern))
        for group in molecule.groups(molecule.runs(pattern))
    ]


def report(ended: Iterable[Ended], seconds: float) -> str:
    done = sorted(ended, key=lambda one: -one.seconds)
    lines = [f"{one.seconds:6.0f} s {one.cpu_seconds:6.0f} s of CPU time  {one.job.title}" for one in done]
    return "\n".join([*lines, f"{seconds:6.0f} s {sum(one.cpu_seconds for one in done):6.0f} s of CPU time  in all"])


def main() -> int:
    words = sys.argv[1:]
    split = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at-a-time", type=int, default=1)
    parser.add_argument("--whole", action="store_true", help="split no suite")
    parser.add_argument("--may-be-empty", action="store_true", help="a suite without a matching test is no failure")
    parser.add_argument("--beside", action="append", default=[], metavar="COMMAND", help="a job besides the suites")
    parser.add_argument("--molecule", metavar="PATTERN", help="also the scenarios of molecule that match")
    parser.add_argument("suites", nargs="*")
    chosen, pytest = parser.parse_args(words[:split]), words[split + 1 :]
    jobs = [job for suite in chosen.suites for job in suite_jobs(suite, pytest, split=not chosen.whole)]
    jobs += map(beside_job, chosen.beside)
    if chosen.molecule is not None:
        jobs += molecule_jobs(chosen.molecule)
    if not jobs:
        sys.exit("Nothing matches.")
    jobs.sort(key=lambda job: -job.seconds)
    runner = Runner(live=chosen.at_a_time == 1 or len(jobs) == 1)

    def stop(*_signal: object) -> None:
        runner.stop()
        sys.exit(1)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    began, done, failed = time.monotonic(), [], []
    pool = ThreadPoolExecutor(chosen.at_a_time)
    try:
        for future in as_completed([pool.submit(runner.run, job) for job in jobs]):
            ended = future.result()
            done.append(ended)
            if not runner.live:
                print(f"{ended}\n{ended.output}", flush=True)
            if ended.code and not (ended.job.suite and ended.code == NO_TESTS and chosen.may_be_empty):
                failed.append(ended.job.title)
    except KeyboardInterrupt:
        # The terminal has told the jobs as well. Whoever is told twice may leave a lab behind.
        runner.begin_no_more()
        return 1
    finally:
        pool.shutdown(cancel_futures=True)
    if len(done) > 1:
        print(report(done, time.monotonic() - began), flush=True)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
