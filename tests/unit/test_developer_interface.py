"""What make and the tools below it do with what they find in a checkout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lab import processes
from lab.rundir import RunDir

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 120


def make(*words: str, cwd: Path) -> str:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(CHECKOUT),
        "MAKEFLAGS": "",
    }
    command = ["make", "-f", str(CHECKOUT / "Makefile"), *words]
    return subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True).stdout


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("place", ["lab", "molecule/harvester-vfio", "tmp/pytest-of-me/pytest-1/lab-vfio0"])
def test_clean_stops_labs_wherever_they_are_in_build(tmp_path: Path, place: str) -> None:
    (tmp_path / "galaxy.yml").write_text("version: 0.1.0\n")
    run = RunDir(tmp_path / "build" / place).create()
    # What tests leave is no lab.
    foreign = tmp_path / "build/tmp/zzz/zzz/zzz/zzz/zzz/state.json"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("[1]")
    pid = processes.spawn(run, "sleeper", ["sleep", "600"])
    try:
        make("clean", cwd=tmp_path)
        assert processes.identity(pid) is None
        assert not (tmp_path / "build").exists()
    finally:
        # Nothing is on record any more.
        if processes.identity(pid):
            os.killpg(pid, signal.SIGKILL)


def test_clean_has_nothing_to_do_without_a_build(tmp_path: Path) -> None:
    (tmp_path / "galaxy.yml").write_text("version: 0.1.0\n")
    assert "No such file" not in make("clean", cwd=tmp_path)


@pytest.mark.parametrize("target", ["demo", "unit", "integration", "molecule", "bench"])
def test_modules_and_tests_leave_nothing_outside_the_checkout(target: str, tmp_path: Path) -> None:
    """Asked of make itself: what the commands of a target are given."""
    (tmp_path / "galaxy.yml").write_text("version: 0.1.0\n")
    show = "--eval=.SHELLFLAGS = -c 'echo $$ANSIBLE_REMOTE_TMP $$PYTEST_DEBUG_TEMPROOT; exit 0'"
    made = ("collections/.staged", "installed/.installed", "venv/.packages", "bench/.packages")
    untouched = [f"--old-file=build/{name}" for name in (*made, "dist/vgpu-fleet-0.1.0.tar.gz")]
    said = make("--ignore-errors", *untouched, show, target, cwd=tmp_path).split()
    assert str(tmp_path / "build/ansible-tmp") in said
    assert str(tmp_path / "build/tmp") in said


SUITE = """
import pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
try:
    (folder / "begun").touch()
    time.sleep(600)
except KeyboardInterrupt:
    (folder / "labs-stopped").touch()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_suite_stops_its_labs_when_all_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    # As with a terminal that is closed: everything in it is told.
    whom = os.killpg if number == signal.SIGHUP else os.kill
    words = [sys.executable, str(CHECKOUT / "tools/suites.py"), str(tmp_path), "--", sys.executable, "-c", SUITE]
    suites = subprocess.Popen(["env", "--default-signal=INT,HUP", *words], start_new_session=True)
    until((tmp_path / "begun").exists)
    whom(suites.pid, number)
    assert suites.wait(PATIENCE_SECONDS) == 1
    assert (tmp_path / "labs-stopped").exists()
