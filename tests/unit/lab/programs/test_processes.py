"""Processes which outlive their starter and are always found again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab.errors import LabError
from lab.programs import processes
from lab.rundir import RunDir

ROOT = Path(__file__).resolve().parents[4]
SLEEP = ["sleep", "300"]
STUBBORN = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done"]


@pytest.fixture
def run(tmp_path):
    run = RunDir(tmp_path / "run").create()
    yield run
    processes.stop_all(run)


def eventually(condition) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


def start_from_another_process(run: RunDir, then: str) -> subprocess.Popen[bytes]:
    program = (
        f"from lab import rundir\nfrom lab.programs import processes\nrun = rundir.RunDir({str(run.path)!r})\n{then}"
    )
    return subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_a_started_process_is_listed_with_its_log(run):
    pid = processes.spawn(run, "one", SLEEP)
    assert processes.status(run) == [processes.ProcessStatus("one", pid, True, run.log("one"))]


def test_output_goes_to_the_log_and_the_environment_is_extended(run):
    processes.spawn(run, "talker", ["sh", "-c", 'echo "$WORD $HOME"'], env={"WORD": "hello"})
    assert eventually(lambda: run.log("talker").read_text() == f"hello {os.environ['HOME']}\n")


def test_arguments_reach_the_program_unchanged(run):
    processes.spawn(run, "printer", ["printf", "%s|", "a b", "*", '"$HOME"'])
    assert eventually(lambda: run.log("printer").read_text() == 'a b|*|"$HOME"|')


def test_an_ended_process_stays_on_record_as_not_running(run):
    processes.spawn(run, "short", ["true"])
    assert eventually(lambda: not processes.is_running(run, "short"))
    assert [process.name for process in processes.status(run)] == ["short"]


def test_a_name_runs_once(run):
    processes.spawn(run, "one", SLEEP)
    with pytest.raises(LabError, match="one is already running"):
        processes.spawn(run, "one", SLEEP)


def test_stopping_all_ends_the_last_started_first_and_forgets_them(run, tmp_path):
    order = tmp_path / "order"
    for name in ("first", "second"):
        script = f"trap 'echo {name} >> {order}; exit' TERM; echo ready; while :; do sleep 0.02; done"
        processes.spawn(run, name, ["sh", "-c", script])
        assert eventually(lambda name=name: "ready" in run.log(name).read_text())
    processes.stop_all(run)
    assert order.read_text().split() == ["second", "first"]
    assert processes.status(run) == []


def test_a_restarted_process_keeps_its_place(run):
    for name in ("first", "second"):
        processes.spawn(run, name, SLEEP)
    processes.stop(run, "first")
    assert [process.running for process in processes.status(run)] == [False, True]
    processes.spawn(run, "first", SLEEP)
    assert [process.name for process in processes.status(run)] == ["first", "second"]


def test_who_ignores_the_request_is_killed_after_the_grace(run):
    pid = processes.spawn(run, "stubborn", STUBBORN, grace=0.2)
    assert eventually(lambda: "ready" in run.log("stubborn").read_text())
    processes.stop_all(run)
    assert processes.identity(pid) is None


def test_a_pid_that_belongs_to_somebody_else_by_now_is_left_alone(run):
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        # A pid comes round again later, not within the tick in which its first owner started.
        time.sleep(2 / os.sysconf("SC_CLK_TCK"))
        processes.spawn(run, "ours", ["true"])
        with run.editing() as state:
            state["processes"][0]["pid"] = stranger.pid
        assert not processes.is_running(run, "ours")
        processes.stop_all(run)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_processes_outlive_a_killed_starter_and_are_stopped_by_another(run):
    starter = start_from_another_process(
        run, f"processes.spawn(run, 'child', {SLEEP!r})\nimport time\nprint('up', flush=True)\ntime.sleep(300)"
    )
    assert eventually(lambda: processes.is_running(run, "child"))
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    (child,) = processes.status(run)
    assert child.running
    processes.stop_all(run)
    assert processes.identity(child.pid) is None


def test_a_starter_that_dies_before_the_pid_is_recorded_leaves_no_process(run):
    """The child waits for a word that only comes after the record is on disk."""
    starter = start_from_another_process(
        run,
        "import os\n"
        "def die(pid):\n"
        f"    open({str(run.path / 'pid')!r}, 'w').write(str(pid))\n"
        "    os._exit(9)\n"
        "processes.identity = die\n"
        f"processes.spawn(run, 'child', {SLEEP!r})",
    )
    assert starter.wait() == 9
    pid = int((run.path / "pid").read_text())
    assert eventually(lambda: processes.identity(pid) is None)
    assert processes.status(run) == []
