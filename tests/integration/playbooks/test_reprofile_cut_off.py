"""Reprofile runs that are killed in the middle, met by others, or lose a VM. All points are tried in the unit tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.integration.api import VMS
from tests.integration.labs import Lab
from tests.integration.playbooks.reprofiling import (
    BEFORE,
    CHANGE,
    ENTRY,
    GPU,
    LARGE,
    NAMES,
    changed,
    entries,
    has,
    hold_up,
    journals,
    layout,
    let_go,
    machine,
    owners,
    runs_with,
    vm,
)
from tests.integration.playbooks.runs import Runs, kill_all

TAGS = ("--tags", "reprofile")
OTHER = {**CHANGE, "vgpu_reprofile_layout": [{"profile": "A2-4C", "count": 4}]}


def killed_once(lab: Lab, runs: Runs, reached: Callable[[], bool]) -> None:
    run = runs.started("reprofile", CHANGE, options=TAGS)
    lab.until(reached, real=True)
    kill_all(run)


def stopped(lab: Lab) -> bool:
    return bool(vm(lab)["spec"].get("runStrategy") == "Halted")


def done(lab: Lab) -> bool:
    return (
        runs_with(lab) == [LARGE]
        and sorted(layout(lab).values()) == ["NVIDIA A2-8Q"] * 2
        and entries(lab) == [{**ENTRY, "deviceName": LARGE}]
        and vm(lab)["spec"]["runStrategy"] == "Always"
        and journals(lab) == {}
        and list(owners(lab).values()) == ["blue", "blue"]
    )


def test_r1_a_run_that_was_killed_without_vgpus_in_the_vm_is_finished_by_the_next(used: Lab, runs: Runs) -> None:
    killed_once(used, runs, lambda: stopped(used) and has(used) == [])
    assert journals(used)["trainer"]["before"]["devices"]["hostDevices"] == [ENTRY]
    rehearsal = changed(runs, CHANGE, check=True)
    assert f"Finish run {journals(used)['trainer']['run']}, started " in rehearsal.shown
    again = changed(runs, CHANGE)
    assert again.status == "successful", again.shown
    assert used.until(lambda: done(used), real=True)


def test_r1_a_run_that_was_killed_after_the_vms_were_stopped_is_undone_by_another(used: Lab, runs: Runs) -> None:
    killed_once(used, runs, lambda: stopped(used))
    refused = changed(runs, OTHER)
    assert f"{GPU}, VM default/trainer belong to run {journals(used)['trainer']['run']}" in refused.failure
    # It is undone before the other layout is found not to have room for the VM.
    refused = changed(runs, {**OTHER, "vgpu_reprofile_take_over": True})
    assert "default/trainer would not find" in refused.failure, refused.failure
    assert layout(used) == BEFORE
    assert used.until(lambda: runs_with(used) == ["nvidia.com/NVIDIA_A2-4Q"], real=True)
    assert (entries(used), journals(used)) == ([ENTRY], {})
    assert owners(used) == dict.fromkeys(BEFORE, "blue")


def test_r4_of_two_at_the_same_time_the_second_is_refused_and_the_first_is_done(used: Lab, runs: Runs) -> None:
    """The first one loses its ansible-playbook: what that has started goes on, and the same run waits for it."""
    hold_up(used)
    first = runs.started("reprofile", CHANGE, options=TAGS)
    used.until(lambda: stopped(used), real=True)
    refused = changed(runs, OTHER)
    assert f"belong to run {journals(used)['trainer']['run']}" in refused.failure, refused.failure
    os.kill(first.pid, signal.SIGKILL)
    again = runs.started("reprofile", CHANGE, options=TAGS)
    let_go(used)
    said, _nothing = again.communicate()
    first.communicate()
    assert again.returncode == 0, said
    assert used.until(lambda: done(used), real=True)


def test_r2_a_vm_that_is_deleted_meanwhile_is_left_out(used: Lab, runs: Runs) -> None:
    used.make(VMS, machine("other", runStrategy="Always"))
    used.until(lambda: runs_with(used, "other") == ["nvidia.com/NVIDIA_A2-4Q"], real=True)
    vms = [*CHANGE["vgpu_reprofile_vms"], {"name": "other", "vgpus": [{"profile": "A2-8Q"}]}]
    run = runs.started("reprofile", {**CHANGE, "vgpu_reprofile_vms": vms}, options=TAGS)
    used.until(lambda: vm(used, "other")["spec"].get("runStrategy") == "Halted", real=True)
    used.api.delete(f"{VMS}/other")
    said, _nothing = run.communicate()
    assert run.returncode == 0, said
    assert "VM default/other is gone" in said
    assert used.until(lambda: done(used), real=True)
    assert set(layout(used)) <= set(NAMES)
