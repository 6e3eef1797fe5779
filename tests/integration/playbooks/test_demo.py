"""The demo ends when it is told to, and leaves nothing running."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from lab.lifecycle import running, up
from lab.programs import binaries
from lab.rundir import RunDir
from tests.integration.browser import demo_fleet
from tests.integration.playbooks.runs import CHECKOUT

# What it says when it has got so far; each has its lab.
MOMENTS = {
    "vSphere: a lab with two ESXi hosts": "vsphere",
    "Harvester: a lab with two nodes": "harvester",
    "Configure the vGPUs and wait until they are allocatable": "harvester",
}
WHILE_A_LAB_STARTS = "a lab with"
PATIENCE_SECONDS = 300


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    runs = {platform: RunDir(tmp_path / "lab" / platform) for platform in ("vsphere", "harvester", "capv")}

    def start(**settings: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "DEMO_RUN_DIR": str(tmp_path / "lab"), "PYTHONUNBUFFERED": "1", **settings}
        # Whoever runs the tests in the background may ignore Ctrl-C, and that would be inherited.
        command = ["env", "--default-signal=INT", "demo/run.sh"]
        return subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    yield Demo(start, runs)
    for run in runs.values():
        up.stop(run)


@dataclass
class Demo:
    start: Callable[..., subprocess.Popen[str]]
    runs: dict[str, RunDir]

    def running(self) -> list[str]:
        """What still runs of its labs."""
        return [one.name for run in self.runs.values() for one in running.all_processes(run) if one.running]


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_at_any_moment_leaves_nothing_running(demo: Demo, moment: str) -> None:
    process = demo.start()
    assert process.stdout
    for line in process.stdout:
        if moment in line:
            break
    if WHILE_A_LAB_STARTS in moment:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not running.all_processes(demo.runs[MOMENTS[moment]]) and time.monotonic() < deadline:
            time.sleep(0.05)
    # As a terminal does it: everything in the foreground gets it.
    os.killpg(process.pid, signal.SIGINT)
    process.stdout.read()
    assert process.wait(PATIENCE_SECONDS) == 130
    assert not demo.running()
    assert not members(process.pid)


def test_a_playbook_that_fails_ends_it_and_leaves_nothing_running(demo: Demo, tmp_path: Path) -> None:
    wrong = tmp_path / "cluster.yml"
    said = yaml.safe_load((CHECKOUT / "demo/cluster.yml").read_text())
    wrong.write_text(yaml.safe_dump(said | {"harvester_gpu_node_layout": [], "harvester_gpu_node_count": 2}))
    process = demo.start(DEMO_CLUSTER=str(wrong))
    assert process.stdout
    shown = process.stdout.read()
    assert process.wait(PATIENCE_SECONDS) != 0
    assert "Set harvester_gpu_node_profile and harvester_gpu_node_count together." in shown
    assert "Harvester once more" not in shown
    assert not demo.running()
    assert not members(process.pid)


def test_it_ends_with_the_map_of_both_clusters_and_with_the_plan_of_a_dry_run(demo: Demo, tmp_path: Path) -> None:
    """What the docs show in pictures is what the demo ends with."""
    fleet, plan = tmp_path / "fleet.html", tmp_path / "plan.html"
    process = demo.start(DEMO_MAP=str(fleet), DEMO_PLAN=str(plan))
    assert process.stdout
    shown = process.stdout.read()
    assert process.wait(PATIENCE_SECONDS) == 0, shown
    assert f"The map of both clusters:  file://{fleet}\n" in shown
    by_cluster_api = shown.partition("vSphere: shared direct graphics, a cluster by Cluster API")[2]
    assert by_cluster_api.count(": Test PASSED on 1 GPU") == 2, by_cluster_api
    assert f"The plan of the dry run:   file://{plan}\n" in shown
    drawn, stored = demo_fleet.data_of(fleet)["clusters"], demo_fleet.clusters()
    assert demo_fleet.in_numbers(drawn) == demo_fleet.in_numbers(stored)
    (planned,) = demo_fleet.data_of(plan)["plans"]
    assert planned["summary"] == demo_fleet.plans()[0]["summary"]
    assert planned["steps"] == demo_fleet.plans()[0]["steps"]
    assert not demo.running()


def test_vsphere_is_shown_before_anything_of_kubernetes_is_needed(demo: Demo, tmp_path: Path) -> None:
    """With a cache that holds the vCenter's program alone and without a compiler that could make others."""
    (program,) = binaries.ensure(["vgpu-vcsim"]).values()
    cache = tmp_path / "cache" / "vgpu-fleet"
    (cache / "bin").mkdir(parents=True)
    (cache / "bin" / program.parent.name).symlink_to(program.parent)
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text('#!/bin/sh\n[ "$1" = env ] && echo go9.9 && exit\necho "the compiler is not there"; exit 1\n')
    go.chmod(0o755)
    process = demo.start(XDG_CACHE_HOME=str(tmp_path / "cache"), PATH=f"{go.parent}:{os.environ['PATH']}")
    assert process.stdout
    shown = process.stdout.read()
    assert process.wait(PATIENCE_SECONDS) != 0
    vsphere, _, harvester = shown.partition("Harvester: a lab with two nodes")
    assert "worker-1" in vsphere
    assert "A40-24C" in vsphere.partition("what there is now")[2]
    assert "PLAY" not in harvester
    assert not demo.running()


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
