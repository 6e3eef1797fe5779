"""What make and the tools below it do with what they find in a checkout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import ansible_runner
import pytest
from _pytest.mark.expression import Expression

from lab.programs import processes
from lab.rundir import RunDir
from tests.integration.playbooks.runs import Runs
from tools import suites as jobs

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


@pytest.mark.parametrize("target", ["demo", "test", "unit", "integration", "molecule", "bench"])
def test_modules_and_tests_leave_nothing_outside_the_checkout(target: str, tmp_path: Path) -> None:
    """Asked of make itself: what the commands of a target are given."""
    (tmp_path / "galaxy.yml").write_text("version: 0.1.0\n")
    show = "--eval=.SHELLFLAGS = -c 'echo $$ANSIBLE_REMOTE_TMP $$PYTEST_DEBUG_TEMPROOT; exit 0'"
    made = ("collections/.staged", "installed/.installed", "venv/.packages", "bench/.packages", "browser/.checked")
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
    words = [sys.executable, "-m", "tools.suites", str(tmp_path), "--", sys.executable, "-c", SUITE]
    suites = subprocess.Popen(["env", "--default-signal=INT,HUP", *words], cwd=CHECKOUT, start_new_session=True)
    until((tmp_path / "begun").exists)
    whom(suites.pid, number)
    assert suites.wait(PATIENCE_SECONDS) == 1
    assert (tmp_path / "labs-stopped").exists()


def test_ctrl_c_is_told_once_and_begins_nothing_more(tmp_path: Path) -> None:
    """A suite that is told twice would leave its labs behind."""
    suite = SUITE + "    time.sleep(1)\n    (folder / 'undisturbed').touch()\n"
    places = [tmp_path / "one", tmp_path / "two", tmp_path / "three"]
    for place in places:
        place.mkdir()
    words = [sys.executable, "-m", "tools.suites", "--at-a-time", "2", *map(str, places), "--"]
    words += [sys.executable, "-c", suite]
    run = subprocess.Popen(["env", "--default-signal=INT", *words], cwd=CHECKOUT, start_new_session=True)
    until(lambda: all((place / "begun").exists() for place in places[:2]))
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(PATIENCE_SECONDS) == 1
    assert all((place / "undisturbed").exists() for place in places[:2])
    assert not (places[2] / "begun").exists()


def test_a_job_that_failed_is_named_after_the_output_of_all(tmp_path: Path) -> None:
    code = "import sys; print('this is', sys.argv[1]); sys.exit(sys.argv[1] == 'bad')"
    words = [sys.executable, "-m", "tools.suites", "--at-a-time", "2", "--beside", "sh -c 'echo beside'", "good", "bad"]
    words += ["--", sys.executable, "-c", code]
    done = subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert {"this is good", "this is bad", "beside"} <= set(done.stdout.splitlines())
    assert done.stdout.splitlines()[-1].endswith("in all")
    assert done.stderr == "failed: bad\n"


def test_each_test_of_a_suite_that_is_split_is_in_exactly_one_part() -> None:
    for parts in [*jobs.SPLIT.values(), ("a", "b or ab", "c")]:
        expressions = jobs.partition(parts)
        words = [word for part in parts for word in part.split(" or ")]
        for name in [*words, "something else", " ".join(words)]:
            matching = [one for one in expressions if _matches(one, name)]
            assert len(matching) == 1, (name, matching)


def _matches(expression: str, name: str) -> bool:
    """As pytest reads -k."""
    return bool(Expression.compile(expression).evaluate(lambda word: word in name))


def test_a_split_suite_is_one_that_there_is() -> None:
    assert set(jobs.SPLIT) <= {path.name for path in (CHECKOUT / "tests/integration").iterdir()}
    whole = jobs.suite_jobs("tests/integration/replay/", ["pytest"], split=False)
    assert [job.command for job in whole] == [("pytest", "tests/integration/replay/")]


def test_a_run_of_a_playbook_leaves_ctrl_c_to_pytest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ansible-runner would take it for itself, and then no suite that runs playbooks could be stopped."""
    monkeypatch.setattr(ansible_runner.Runner, "run", lambda _: None)
    before = signal.getsignal(signal.SIGINT)
    try:
        with suppress(ansible_runner.AnsibleRunnerException):
            Runs(tmp_path, {}, {}).playbook("capacity")
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, before)
