"""The demo ends when it is told to, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import running, up
from lab.rundir import RunDir
from tests.integration.playbooks.runs import CHECKOUT

# What it says when it has got so far.
MOMENTS = ["A lab: two Harvester nodes", "The profiles are set and allocatable"]
PATIENCE_SECONDS = 300


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], RunDir]]]:
    run = RunDir(tmp_path / "lab")

    def start(**settings: str) -> tuple[subprocess.Popen[str], RunDir]:
        environment = {**os.environ, "DEMO_RUN_DIR": str(run.path), "PYTHONUNBUFFERED": "1", **settings}
        # Whoever runs the tests in the background may ignore Ctrl-C, and that would be inherited.
        command = ["env", "--default-signal=INT", "demo/run.sh"]
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        return process, run

    yield start
    up.stop(run)


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment_leaves_nothing_running(
    demo: Callable[..., tuple[subprocess.Popen[str], RunDir]], moment: str
) -> None:
    process, run = demo()
    assert process.stdout
    for line in process.stdout:
        if moment in line:
            break
    if moment == MOMENTS[0]:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not running.all_processes(run) and time.monotonic() < deadline:
            time.sleep(0.05)
    # As a terminal does it: everything in the foreground gets it.
    os.killpg(process.pid, signal.SIGINT)
    process.stdout.read()
    assert process.wait(PATIENCE_SECONDS) == 130
    assert not [one for one in running.all_processes(run) if one.running]
    assert not members(process.pid)


def test_a_playbook_that_fails_ends_it_and_leaves_nothing_running(
    demo: Callable[..., tuple[subprocess.Popen[str], RunDir]], tmp_path: Path
) -> None:
    wrong = tmp_path / "cluster.yml"
    wrong.write_text("harvester_gpu_node_count: 2\n")
    process, run = demo(DEMO_CLUSTER=str(wrong))
    assert process.stdout
    shown = process.stdout.read()
    assert process.wait(PATIENCE_SECONDS) != 0
    assert "harvester_gpu_node_profile and harvester_gpu_node_count are given together" in shown
    assert "vSphere: shared direct" not in shown
    assert not [one for one in running.all_processes(run) if one.running]
    assert not members(process.pid)


def members(group: int) -> list[str]:
    """The command lines of what is left of a process group or mentions the lab."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(stat.with_name("cmdline").read_bytes().decode().replace("\0", " "))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
