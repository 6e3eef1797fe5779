"""vCenters for the vSphere modules: one for each scenario and version, started anew once something has changed."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyVim.connect import Disconnect
from pyVmomi import vim

from lab.programs import binaries
from lab.scenarios import scenario
from lab.vsphere import vcsim
from tests.integration.modules.playbooks import Playbooks
from tests.integration.vsphere_lab.conftest import VCenter as Client

Section = dict[str, Any]
Json = dict[str, Any]

VERSIONS = ("8.0.3", "7.0.3", "6.7")
# The oldest is stopped then: each takes memory, and hardly any test comes back to one of long ago.
MOST_RUNNING = 6


class VCenter(Client):
    """A running vCenter: a client of it for arranging and looking, and what its users export."""

    def __init__(self, info: vcsim.VsphereInfo, run: Path) -> None:
        super().__init__(info)
        self.run = run
        self.touched = False
        self.control("DELETE", "/rpc")

    @property
    def env(self) -> dict[str, str]:
        return vcsim.env(self.info)

    def control(self, method: str, path: str, body: Any = None) -> Any:
        if method == "PUT" or path == "/sessions":
            self.touched = True
        answer = super().control(method, path, body)
        if path == "/rpc":
            self.touched |= bool(answer["writes"])
        return answer

    def mark(self) -> None:
        """From here on counts for `calls` and `writes`."""
        self.control("DELETE", "/rpc")

    @property
    def calls(self) -> dict[str, int]:
        return dict(self.control("GET", "/rpc")["methods"])

    @property
    def writes(self) -> int:
        return int(self.control("GET", "/rpc")["writes"])

    @property
    def books(self) -> dict[str, list[Json]]:
        """What really is on the GPUs, by host, which the API shows only in part."""
        return dict(self.control("GET", "/gpus"))

    def order_fault(self, method: str, fault: str, *, form: str = "soap", **rule: Any) -> None:
        self.control("PUT", "/faults", [{"method": method, "fault": fault, "as": form, **rule}])

    def changed(self) -> bool:
        self.control("GET", "/rpc")
        return self.touched

    def stop(self) -> None:
        with contextlib.suppress(vim.fault.NotAuthenticated, OSError):
            Disconnect(self.instance)
        vcsim.stop(self.run)


class VCenters:
    """The running ones, by what they were started with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._binary = binaries.ensure(["vgpu-vcsim"])["vgpu-vcsim"]
        self._running: dict[str, VCenter] = {}
        self._number = 0

    def get(self, section: Section, version: str) -> VCenter:
        key = f"{version} {json.dumps(section, sort_keys=True)}"
        known = self._running.get(key)
        if known and not known.changed():
            known.mark()
            return known
        if known:
            self._running.pop(key).stop()
        if len(self._running) >= MOST_RUNNING:
            self._running.pop(next(iter(self._running))).stop()
        self._number += 1
        run = self._folder / str(self._number)
        inventory = vcsim.inventory_from_scenario(copy.deepcopy(section))
        info = vcsim.start(run, inventory, api_version=version, binary=self._binary)
        self._running[key] = VCenter(info, run)
        return self._running[key]

    def stop(self) -> None:
        for vcenter in self._running.values():
            vcenter.stop()


@pytest.fixture(scope="session")
def vcenters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VCenters]:
    running = VCenters(tmp_path_factory.mktemp("vcenters"))
    yield running
    running.stop()


@pytest.fixture
def section() -> Section:
    """The vSphere of the default scenario, for a test to change before it starts one."""
    return copy.deepcopy(dict(scenario.load("default").vsphere))


@pytest.fixture
def start(vcenters: VCenters) -> Callable[..., VCenter]:
    def start(section: Section, version: str = VERSIONS[0]) -> VCenter:
        return vcenters.get(section, version)

    return start


@pytest.fixture
def vcenter(start: Callable[..., VCenter], section: Section) -> VCenter:
    """dc1 with cluster gpu: esx1 and esx2 with two A40 each, esx3 without a GPU; nothing has a vGPU."""
    return start(section)


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def playbooks(tmp_path: Path) -> Callable[[VCenter], Playbooks]:
    """Runs tasks against a vCenter, with the environment that a user of it has."""
    made: list[Playbooks] = []

    def against(vcenter: VCenter) -> Playbooks:
        folder = tmp_path / f"plays-{len(made)}"
        folder.mkdir()
        made.append(Playbooks(folder, vcenter.env))
        return made[-1]

    return against
