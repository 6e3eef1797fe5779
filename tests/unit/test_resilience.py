"""The harness of `make resilience`: it knows every fault of the lab, and notices what it looks for."""

from __future__ import annotations

import pytest

from lab.faults import FAULTS
from tests.resilience import cells, faults, jobs, modules, stage, table, vsphere

WRITING = {
    "harvester_addon",
    "harvester_mig",
    "harvester_repair",
    "harvester_reprofile",
    "harvester_sriov_gpu",
    "harvester_vgpu",
    "harvester_vgpu_vm",
    "vsphere_gpu_host",
    "vsphere_vgpu_vm",
}


def test_each_fault_of_the_lab_is_in_the_matrix() -> None:
    assert {fault.fault or fault.name for fault in faults.HARVESTER} == set(FAULTS)


def test_each_module_that_writes_to_a_platform_is_in_the_matrix() -> None:
    """The modules for Rancher and Cluster API need labs of their own, and are not part of it."""
    assert {job.module for job in jobs.JOBS} | {job.module for job in vsphere.JOBS} == WRITING


TICK, HELD, GOES_ON = modules.TICK, modules.HELD, modules.GOES_ON


@pytest.mark.parametrize(
    ("told", "silence"),
    [
        (TICK * 3 + b"a line\n" + TICK * 2, 3),
        (b"a line\n" + TICK * 5, 5),
        # A run that is held from outside cannot say anything.
        (TICK + HELD + TICK * 40 + GOES_ON + TICK * 2 + b"a line\n", 2),
    ],
)
def test_the_silence_of_a_run_is_measured_in_beats_of_its_own_clock(told: bytes, silence: int) -> None:
    assert modules._signs(told)[0] == silence


def look(**changes: dict[str, object]) -> dict[str, dict[str, object]]:
    vgpu = {"enabled": True, "type": "NVIDIA A2-4Q"}
    vm = {"run": "Always", "status": "Running", "devices": {"hostDevices": ["one"]}}
    return {"vgpus": {"a": vgpu}, "vms": {"trainer": vm}, **changes}


def test_differences_and_losses_are_found() -> None:
    assert stage.difference(look(), look()) == set()
    assert stage.difference(look(), look(vgpus={})) == {"vgpus/a"}
    assert stage.kept(look(), look()) == []
    assert stage.kept(look(), look(vgpus={})) == ["vGPU a is None"]
    assert stage.kept(look(), look(vms={})) == ["VM trainer is gone"]
    halted = {"trainer": {"run": "Halted", "status": "Stopped", "devices": {"hostDevices": ["one"]}}}
    assert stage.kept(look(), look(vms=halted)) == ["VM trainer has the run strategy Halted"]


def record(**changes: object) -> dict[str, object]:
    found = cells.Record("api-conflict", "vgpu", "harvester_vgpu", cells.BEFORE, first=cells.OK)
    for name, value in changes.items():
        setattr(found, name, value)
    return found.as_dict()


def test_a_table_shows_each_moment_and_counts_only_what_is_as_promised() -> None:
    named = record(moment=cells.MIDDLE, first=cells.NAMED)
    unnamed = record(moment=cells.AFTER, first=cells.UNNAMED)
    assert not unnamed["good"]
    assert not record(lost=["VM trainer is gone"])["good"]
    shown = table.cells_table([record(), named, unnamed], ["api-conflict", "token-expired"], ["vgpu", "vm"])
    assert shown.splitlines() == ["| Fault | vgpu |", "|---|---|", "| `api-conflict` | ✓ n ✗ |"]
    content = {"commit": "0123456789", "cells": [record(), named, unnamed], "kills": [], "meetings": []}
    assert "| cells of the matrix | 3 | 2 |" in table.render(content, ["api-conflict"], ["vgpu"])
