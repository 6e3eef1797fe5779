"""One lab whose clock runs, for modules that wait: each test gets it at a known beginning, in the era it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import up
from tests.integration.labs import Lab
from tests.integration.modules.playbooks import Playbooks

SPEED = 50.0
VERSIONS = {"mdev": "1.7", "vfio": "1.8"}


_running: list[Lab] = []


@pytest.fixture
def vm_lab(labs: Callable[[str], Lab]) -> Lab:
    """A lab with a real KubeVirt, as its last test left it. The clock of the other one stands meanwhile."""
    for other in _running:
        if not other.stepped:
            other.run_clock(0)
    return labs("vm")


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Started by the first test that asks for it."""
    run = up.start(tmp_path_factory.mktemp("lab-modules"), speed=SPEED, without=["kubevirt", "vsphere"])
    lab = Lab(run)
    _running.append(lab)
    yield lab
    _running.clear()
    up.stop(run)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "arranged(how, scenario): what a test's lab begins with")


def _begin(lab: Lab, version: str, request: pytest.FixtureRequest) -> Lab:
    marker = request.node.get_closest_marker("arranged")
    how, scenario = marker.args if marker else (None, "default")
    return lab.begin(version=version, arranged=how, scenario=scenario)


@pytest.fixture
def lab(running: Lab, era: str, request: pytest.FixtureRequest) -> Lab:
    """Two nodes with one A2 each, nothing enabled, unless the test is `arranged`; it runs once per era."""
    return _begin(running, VERSIONS[era], request)


@pytest.fixture
def lab_vfio(running: Lab, request: pytest.FixtureRequest) -> Lab:
    """The same, only from 1.8 on."""
    return _begin(running, "1.8", request)


@pytest.fixture
def lab_mdev(running: Lab, request: pytest.FixtureRequest) -> Lab:
    """The same, only up to 1.7."""
    return _begin(running, "1.7", request)


@pytest.fixture
def playbooks(running: Lab, tmp_path: Path) -> Playbooks:
    return Playbooks(tmp_path, running.env)
