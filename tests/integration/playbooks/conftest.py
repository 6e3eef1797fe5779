"""One lab with both platforms for all playbooks: each test gets it at a known beginning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.lifecycle import up
from tests.integration import warm_interpreter
from tests.integration.labs import Lab
from tests.integration.playbooks.reprofiling import in_use
from tests.integration.playbooks.runs import Runs
from tests.integration.warm_interpreter import Warm

SPEED = 50.0


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    run = up.start(tmp_path_factory.mktemp("lab-playbooks"), speed=SPEED)
    yield Lab(run)
    up.stop(run)


@pytest.fixture
def lab(running: Lab) -> Lab:
    """Harvester 1.8 with KubeVirt, and a vCenter: the default scenario, nothing enabled."""
    return running.begin()


@pytest.fixture
def bare(running: Lab) -> Lab:
    """Both as they come: no addon is on."""
    return running.begin(scenario="demo/lab.yaml")


@pytest.fixture
def used(running: Lab) -> Lab:
    """The default scenario with a GPU that a running VM uses."""
    return running.begin(arranged=in_use)


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    with warm_interpreter.started("everything") as found:
        yield found


@pytest.fixture
def runs(running: Lab, tmp_path: Path, warm: Warm) -> Runs:
    return Runs(tmp_path, running.env, warm)
