"""One lab with a Harvester, KubeVirt and a Rancher for all tests here, and the vCenters of the vSphere modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.lifecycle import up
from tests.integration.api import VMS
from tests.integration.inventory.inventories import Inventories
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


@pytest.fixture(params=["1.8", "1.7"])
def harvester(request: pytest.FixtureRequest, running: Lab) -> Lab:
    """Four A2-4Q on gpu-a and two A2-8Q on gpu-b, in both eras."""
    return running.begin(version=request.param, arranged=vgpus_to_give)


@pytest.fixture
def lab(running: Lab) -> Lab:
    """The same on Harvester 1.8."""
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
