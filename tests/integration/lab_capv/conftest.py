"""One lab with a vCenter and a management cluster for all tests here, which serves one API version at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.lifecycle import up
from lab.rundir import RunDir
from tests.integration import warm_interpreter
from tests.integration.lab_capv.management import Management
from tests.integration.playbooks.runs import Runs
from tests.integration.warm_interpreter import Warm

SCENARIO = Path(__file__).with_name("lab.yaml")
SPEED = 50.0


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDir]:
    run = up.start(
        tmp_path_factory.mktemp("lab-capv"), scenario=str(SCENARIO), only="vsphere", extra=["capv"], speed=SPEED
    )
    yield run
    up.stop(run)


@pytest.fixture(scope="session")
def serving(running: RunDir) -> Callable[..., Management]:
    """The management cluster in a version, empty. Without guests, machines join clusters that run nothing."""
    at = {"version": "v1beta2", "guests": True}

    def serve(version: str, *, guests: bool = False) -> Management:
        found = Management(running)
        if (at["version"], at["guests"]) != (version, guests) or not found.is_empty():
            found.begin(version=version, guests=guests)
            at.update(version=version, guests=guests)
        found.mark()
        return found

    return serve


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    with warm_interpreter.started("everything") as found:
        yield found


@pytest.fixture
def runs(request: pytest.FixtureRequest, running: RunDir, tmp_path: Path, warm: Warm) -> Runs:
    # A vCenter that starts over has another port and another password.
    if "version" in request.fixturenames:
        request.getfixturevalue("management")
    return Runs(tmp_path, up.environment(running), warm)
