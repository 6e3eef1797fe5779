"""One lab whose clock runs, for modules that wait: each test gets it at a known beginning, in the era it asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab.lifecycle import up
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import begin, beginning
from tests.integration.modules.moments import SPEED
from tests.integration.modules.playbooks import Playbooks

HERE = Path(__file__).parent
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
    config.addinivalue_line("markers", "arranged(how, scenario, stays): what a test's lab begins with")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with the same beginning follow each other, those that leave it as it was first: starting over takes time.

    Every test gets its beginning in any order; this one is only the quickest.
    """
    places = [place for place, item in enumerate(items) if item.path.parent == HERE]
    for place, item in zip(places, sorted((items[place] for place in places), key=_order), strict=True):
        items[place] = item


def _order(item: pytest.Item) -> tuple[str, ...]:
    fixtures = getattr(item, "fixturenames", ())
    params = item.callspec.params if hasattr(item, "callspec") else {}
    era = params.get("era") or next((name[4:] for name in fixtures if name[4:] in VERSIONS), "")
    version = params.get("mig_version") or VERSIONS.get(era, "")
    how, scenario, stays = beginning(item)
    arrangement = how.__qualname__ if how else ""
    return ("b" if "vm_lab" in fixtures else "a", version, scenario, arrangement, "" if stays else "changed")


@pytest.fixture
def lab(running: Lab, era: str, request: pytest.FixtureRequest) -> Lab:
    """Two nodes with one A2 each, nothing enabled, unless the test is `arranged`; it runs once per era."""
    return begin(running, VERSIONS[era], request)


@pytest.fixture
def lab_vfio(running: Lab, request: pytest.FixtureRequest) -> Lab:
    """The same, only from 1.8 on."""
    return begin(running, "1.8", request)


@pytest.fixture
def lab_mdev(running: Lab, request: pytest.FixtureRequest) -> Lab:
    """The same, only up to 1.7."""
    return begin(running, "1.7", request)


@pytest.fixture
def playbooks(running: Lab, tmp_path: Path) -> Playbooks:
    return Playbooks(tmp_path, running.env)
