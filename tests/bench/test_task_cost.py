"""What a task costs that has nothing to change, in CPU seconds, compared with `ansible.builtin.ping` in the same run.

Run by `make bench`. Numbers are printed; the promises are asserted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.lifecycle import up
from lab.programs import binaries
from lab.vsphere import vcsim
from tests.bench import test_harvester_vgpu, test_vsphere_vgpu
from tests.bench.cpu import PING, Runs
from tests.integration.labs import Lab
from tests.integration.modules.playbooks import Playbooks
from tests.integration.vsphere_modules.conftest import VCenter

IN_PLACE = 1.0
EMPTY = 0.4
# Of a run without any task of this collection.
MOST_SECONDS_FOR_OTHERS = 0.010
EMPTY_VCENTER = {"datacenter": "dc1", "clusters": [{"name": "gpu", "hosts": [{"name": "esx1"}]}], "datastores": ["ds1"]}


def report(text: str) -> None:
    print(f"\n  {text}")


def compared(what: str, runs: Runs, task: dict[str, Any]) -> float:
    """Return how many times a ping the task costs."""
    our, ping = runs.per_task(task, PING)
    report(f"{what}: {1000 * our:.0f} ms of CPU time, {our / ping:.2f} times a ping ({1000 * ping:.0f} ms)")
    return our / ping


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[dict[str, Any]], VCenter]]:
    binary = binaries.ensure(["vgpu-vcsim"])["vgpu-vcsim"]
    running: list[VCenter] = []

    def start(section: dict[str, Any]) -> VCenter:
        run = tmp_path_factory.mktemp("vcenter")
        running.append(VCenter(vcsim.start(run, vcsim.inventory_from_scenario(section), binary=binary), run))
        return running[-1]

    yield start
    for vcenter in running:
        vcenter.stop()


def test_a_vm_that_has_its_vgpu_among_a_thousand_vms(
    vcenter: Callable[[dict[str, Any]], VCenter], tmp_path: Path
) -> None:
    runs = Runs(tmp_path, vcenter(test_vsphere_vgpu.SCENARIO).env)
    vm = {"name": "gpu-1", "folder": "/dc1/vm", "vgpus": [{"profile": test_vsphere_vgpu.PROFILE}]}
    assert compared("a VM among 1,000 that has its vGPU", runs, {"vgpu.fleet.vsphere_vgpu_vm": vm}) <= IN_PLACE
    assert compared("all vGPUs of 1,000 VMs", runs, {"vgpu.fleet.vsphere_gpu_info": {}}) <= IN_PLACE


def test_a_vcenter_without_gpus(vcenter: Callable[[dict[str, Any]], VCenter], tmp_path: Path) -> None:
    runs = Runs(tmp_path, vcenter(EMPTY_VCENTER).env)
    assert compared("a vCenter without GPUs", runs, {"vgpu.fleet.vsphere_gpu_info": {}}) <= EMPTY


@pytest.fixture(scope="module")
def empty_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("bench")
    run = up.start(folder / "lab", scenario="bare", without=["kubevirt", "vsphere"])
    yield Lab(run)
    up.stop(run)


lab = test_harvester_vgpu.lab
playbooks = test_harvester_vgpu.playbooks


def test_a_fleet_with_a_thousand_devices(lab: Lab, playbooks: Playbooks, tmp_path: Path) -> None:
    made = playbooks.task("harvester_vgpu", **test_harvester_vgpu.ASKED, wait_timeout=1800)
    assert not made.failed, made.message
    runs = Runs(tmp_path, lab.env)
    task = {"vgpu.fleet.harvester_vgpu": test_harvester_vgpu.ASKED}
    assert compared(f"{test_harvester_vgpu.TOTAL} vGPUs in place", runs, task) <= IN_PLACE


def test_an_empty_fleet(empty_lab: Lab, tmp_path: Path) -> None:
    runs = Runs(tmp_path, empty_lab.env)
    assert compared("a Harvester without GPUs", runs, {"vgpu.fleet.harvester_gpu_info": {}}) <= EMPTY


def test_runs_without_a_task_of_this_collection_pay_nothing(tmp_path: Path) -> None:
    """The same run with the collection and without."""
    elsewhere = tmp_path / "none"
    elsewhere.mkdir()
    with_it, without = (Runs(tmp_path, {"ANSIBLE_COLLECTIONS_PATH": path}) for path in (installed(), str(elsewhere)))
    measured = [(with_it.seconds([PING]), without.seconds([PING])) for _round in range(10)]
    extra = min(one for one, _other in measured) - min(other for _one, other in measured)
    report(f"a run without a task of this collection: {1000 * extra:+.0f} ms of CPU time")
    assert extra < MOST_SECONDS_FOR_OTHERS


def installed() -> str:
    return os.environ["ANSIBLE_COLLECTIONS_PATH"]
