"""Labs for all integration tests: each is started once, when the first test asks for it.

A test gets its lab at a known beginning. Which one it was and what a test left behind do not matter: see labs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lab.lifecycle import up
from tests.integration.labs import Lab

# Without KubeVirt VMs are stored but not run. The clock of these labs stands; tests step it.
STEPPED = {"speed": 0.0, "without": ["kubevirt", "vsphere"]}
PLANS = {
    "vfio": {"harvester_version": "1.8", **STEPPED},
    "mdev": {"harvester_version": "1.7", **STEPPED},
    # KubeVirt runs in real time, so here simulated time runs as well.
    "vm": {"harvester_version": "1.8", "speed": 50.0, "without": ["vsphere"]},
}


@pytest.fixture(scope="session")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Lab]]:
    """A lab by the name of its plan, still as its last test left it."""
    running: dict[str, Lab] = {}

    def get(plan: str) -> Lab:
        if plan not in running:
            running[plan] = Lab(up.start(tmp_path_factory.mktemp(f"lab-{plan}"), **PLANS[plan]))
        return running[plan]

    yield get
    for lab in running.values():
        up.stop(lab.run)


@pytest.fixture
def lab_vfio(labs: Callable[[str], Lab]) -> Lab:
    """Harvester 1.8, two nodes with one A2 each, nothing enabled."""
    return labs("vfio").begin()


@pytest.fixture
def lab_mdev(labs: Callable[[str], Lab]) -> Lab:
    """Harvester 1.7, two nodes with one A2 each, nothing enabled."""
    return labs("mdev").begin()


@pytest.fixture
def lab_vm(labs: Callable[[str], Lab]) -> Lab:
    """Harvester 1.8 with a real KubeVirt and a clock that runs."""
    return labs("vm").begin()


@pytest.fixture(scope="session", params=["mdev", "vfio"])
def era(request: pytest.FixtureRequest) -> str:
    """Both eras of vGPUs on Harvester: up to 1.7 and from 1.8 on."""
    return str(request.param)


@pytest.fixture
def lab(labs: Callable[[str], Lab], era: str) -> Lab:
    """Two nodes with one A2 each, nothing enabled; the test runs once per era."""
    return labs(era).begin()
