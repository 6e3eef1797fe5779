"""Servers of the stock simulator: a vCenter with GPU hosts from a saved model, and an ESXi host."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyVim.connect import Disconnect, SmartConnect
from pyVmomi import vim, vmodl

from lab.programs import binaries
from lab.vsphere import stock
from tests.integration.modules.playbooks import Playbooks
from tests.integration.vsphere_stock import saved_model


class Server:
    """A running server with a client for arranging and looking."""

    def __init__(self, info: stock.StockServer) -> None:
        self.env = info.env
        self.instance = SmartConnect(
            host=info.host, port=info.port, user=info.user, pwd=info.password, disableSslCertValidation=True
        )
        self.content = self.instance.RetrieveContent()

    def all(self, kind: Any) -> list[Any]:
        view = self.content.viewManager.CreateContainerView(self.content.rootFolder, [kind], True)
        try:
            return list(view.view)
        finally:
            view.Destroy()

    def vm(self, name: str) -> Any:
        return next(found for found in self.all(vim.VirtualMachine) if found.name == name)

    @property
    def vm_names(self) -> set[str]:
        return {found.name for found in self.all(vim.VirtualMachine)}

    def power(self, name: str) -> str:
        """Return the power state alone: pyVmomi cannot parse everything that this server says about a VM."""
        query = vmodl.query.PropertyCollector
        wanted = query.FilterSpec(
            objectSet=[query.ObjectSpec(obj=self.vm(name))],
            propSet=[query.PropertySpec(type=vim.VirtualMachine, pathSet=["runtime.powerState"])],
        )
        (found,) = self.content.propertyCollector.RetrieveContents([wanted])
        return str(found.propSet[0].val)

    def vgpus(self, name: str) -> list[str]:
        passthrough = vim.vm.device.VirtualPCIPassthrough
        devices = self.vm(name).config.hardware.device
        return [device.backing.vgpu for device in devices if isinstance(device, passthrough)]


@pytest.fixture(scope="session")
def binary() -> Path:
    return binaries.ensure(["stock-vcsim"])["stock-vcsim"]


@pytest.fixture(scope="session")
def model(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model: DC0, and DC1 in a folder F0, each with a cluster of three hosts with two A40 each."""
    run, directory = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("saved") / "model"
    try:
        saved_model.save(stock.start(run, binary=binary, datacenters=2, folders=1), directory)
    finally:
        stock.stop(run)
    return directory


@pytest.fixture
def start(binary: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    started: list[tuple[Path, Server]] = []

    def start(**options: Any) -> Server:
        run = tmp_path / f"server-{len(started)}"
        started.append((run, Server(stock.start(run, binary=binary, **options))))
        return started[-1][1]

    yield start
    for run, server in started:
        with contextlib.suppress(vim.fault.NotAuthenticated, OSError):
            Disconnect(server.instance)
        stock.stop(run)


@pytest.fixture
def vcenter(start: Callable[..., Server], model: Path) -> Server:
    return start(load=model)


@pytest.fixture
def vcenter_without_upgrades(start: Callable[..., Server], model: Path, tmp_path: Path) -> Server:
    """A vCenter that refuses every upgrade of the hardware version, with a fault that pyVmomi does not know."""
    ignored = shutil.ignore_patterns(f"{saved_model.HARDWARE_VERSIONS}.xml")
    return start(load=Path(shutil.copytree(model, tmp_path / "model", ignore=ignored)))


@pytest.fixture
def esxi(start: Callable[..., Server]) -> Server:
    return start(esx=True)


@pytest.fixture
def playbooks(tmp_path: Path) -> Callable[[Server], Playbooks]:
    made: list[Playbooks] = []

    def against(server: Server) -> Playbooks:
        folder = tmp_path / f"plays-{len(made)}"
        folder.mkdir()
        made.append(Playbooks(folder, server.env))
        return made[-1]

    return against
