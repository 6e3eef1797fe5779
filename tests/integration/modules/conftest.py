"""One lab whose clock runs, for modules that wait: each test gets it at a known beginning, in the era it asks for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import up
from lab.rundir import RunDir
from tests.integration.labs import Lab
from tests.integration.modules.playbooks import Playbooks

SPEED = 50.0
VERSIONS = {"mdev": "1.7", "vfio": "1.8"}


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab of our own, or the one in MODULES_LAB, which then starts over."""
    given = os.environ.get("MODULES_LAB")
    run = RunDir(given) if given else None
    if run is None:
        run = up.start(tmp_path_factory.mktemp("lab-modules"), speed=SPEED, without=["kubevirt", "vsphere"])
    lab = Lab(run)
    lab.control.interfered = bool(given)
    yield lab
    if not given:
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
