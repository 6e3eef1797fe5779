"""One lab with a Harvester, KubeVirt and a Rancher for all tests here, and the vCenters of the vSphere modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.lifecycle import up
from tests.integration.api import VMIS, VMS
from tests.integration.inventory.inventories import Inventories
from tests.integration.lab_harvester.machines import ALLOCATION, device, machine
from tests.integration.lab_rancher.conftest import vgpus_to_give
from tests.integration.labs import Lab
from tests.integration.ranchers import Rancher
from tests.integration.vsphere_modules.conftest import VCenter, section, start, vcenters

__all__ = ["section", "start", "vcenters"]


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    run = up.start(tmp_path_factory.mktemp("lab-inventory"), speed=50.0, without=["vsphere"], extra=["rancher"])
    yield Lab(run)
    up.stop(run)


# All tests of one version follow each other: to change it, the lab has to start over.
@pytest.fixture(scope="module", params=["1.8", "1.7"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def trainer(running: Lab, version: str) -> Lab:
    """Four A2-4Q on gpu-a and two A2-8Q on gpu-b, with the VMs of `machines_at_work`, in both versions."""
    return running.begin(version=version, arranged=machines_at_work)


def machines_at_work(lab: Lab) -> None:
    """Create a VM that runs with an A2-4Q, one that does not run, and one without vGPUs."""
    vgpus_to_give(lab)
    for vm in (
        gpu_machine(lab, "trainer", run=True, labels={"team": "ml"}),
        gpu_machine(lab, "later"),
        machine("plain", run=True),
    ):
        lab.make(VMS, vm)
    lab.until(lambda: ALLOCATION in (lab.read(f"{VMS}/trainer")["metadata"].get("annotations") or {}))
    lab.until(lambda: ((lab.find(f"{VMIS}/plain") or {}).get("status") or {}).get("phase") == "Running")


def gpu_machine(lab: Lab, name: str, *, run: bool = False, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a VM with an A2-4Q, as the version of the lab writes it."""
    field: Any = {"host_devices" if lab.vfio else "gpus": [device("vgpu-0")]}
    vm: dict[str, Any] = machine(name, run=run, **field)
    vm["metadata"]["labels"] = labels or {}
    return vm


@pytest.fixture
def lab(running: Lab) -> Lab:
    """The same vGPUs on Harvester 1.8, without VMs."""
    return running.begin(version="1.8", arranged=vgpus_to_give)


@pytest.fixture
def rancher(lab: Lab, tmp_path: Path) -> Iterator[Rancher]:
    found = Rancher(lab, tmp_path)
    yield found
    # VMs that tests made beside those of clusters would keep the cleaning waiting.
    for vm in found.vms():
        lab.api.delete(f"{VMS}/{vm['metadata']['name']}")
    found.clean()


@pytest.fixture
def inventories(running: Lab, tmp_path: Path) -> Inventories:
    """Inventories of the lab's Harvester and Rancher."""
    return Inventories(tmp_path, running.env)


@pytest.fixture
def of_vcenter(tmp_path: Path) -> Callable[[VCenter], Inventories]:
    return lambda vcenter: Inventories(tmp_path, vcenter.env)
