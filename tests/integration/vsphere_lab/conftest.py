"""vCenters for these tests. Each test starts its own from a scenario section, which takes a fraction of a second."""

from __future__ import annotations

import contextlib
import copy
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyVim.connect import Disconnect, SmartConnect
from pyVmomi import vim, vmodl

from lab.programs import binaries
from lab.vsphere import vcsim

Section = dict[str, Any]

A40 = {"board": "A40", "count": 2}
DEFAULT: Section = {
    "datacenter": "dc1",
    "clusters": [
        {
            "name": "gpu",
            "hosts": [{"name": "esx1", "gpus": [A40]}, {"name": "esx2", "gpus": [A40]}, {"name": "esx3"}],
        }
    ],
    "datastores": ["ds1"],
    "networks": ["VM Network"],
    "templates": [
        {"name": "ubuntu-22.04-efi", "hardware_version": 19, "firmware": "efi"},
        {"name": "old-bios", "hardware_version": 13, "firmware": "bios"},
    ],
    "vms": [{"name": "app-{n}", "count": 3, "host": "esx1"}],
}


class TaskFault(Exception):
    """A task ended in error; the fault is what the server put into task.info.error."""

    def __init__(self, fault: Any) -> None:
        super().__init__(f"{type(fault).__name__}: {fault.msg}")
        self.fault = fault


class VCenter:
    """A running vCenter of the lab as a client sees it, with its control endpoint."""

    def __init__(self, info: vcsim.VsphereInfo) -> None:
        self.info = info
        self.instance = self.login()
        self.content = self.instance.RetrieveContent()

    def login(self, **changes: Any) -> Any:
        options = {
            "host": self.info.host,
            "port": self.info.port,
            "user": self.info.user,
            "pwd": self.info.password,
            "disableSslCertValidation": True,
        }
        return SmartConnect(**(options | changes))

    def control(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.info.control_url}{path}", data=data, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    # Finding

    def all(self, kind: Any) -> list[Any]:
        view = self.content.viewManager.CreateContainerView(self.content.rootFolder, [kind], True)
        try:
            return list(view.view)
        finally:
            view.Destroy()

    def named(self, kind: Any, name: str) -> Any:
        return next(found for found in self.all(kind) if found.name == name)

    def vm(self, name: str) -> Any:
        return self.named(vim.VirtualMachine, name)

    def host(self, name: str) -> Any:
        return self.named(vim.HostSystem, name)

    def cluster(self, name: str = "gpu") -> Any:
        return self.named(vim.ClusterComputeResource, name)

    def datacenter(self) -> Any:
        return self.all(vim.Datacenter)[0]

    # Waiting

    def wait(self, task: Any) -> Any:
        """The result of a task, awaited by the property collector as real clients do."""
        states = self.states(task)
        if states[-1] == "error":
            raise TaskFault(task.info.error)
        return task.info.result

    def states(self, task: Any) -> list[str]:
        """Every state a task goes through, seen by WaitForUpdatesEx."""
        collector = self.content.propertyCollector
        filter_ = collector.CreateFilter(
            vmodl.query.PropertyCollector.FilterSpec(
                objectSet=[vmodl.query.PropertyCollector.ObjectSpec(obj=task)],
                propSet=[vmodl.query.PropertyCollector.PropertySpec(type=vim.Task, pathSet=["info.state"])],
            ),
            True,
        )
        patience = vmodl.query.PropertyCollector.WaitOptions(maxWaitSeconds=20)
        seen: list[str] = []
        version = ""
        try:
            while not seen or seen[-1] not in ("success", "error"):
                update = collector.WaitForUpdatesEx(version, patience)
                assert update is not None, f"the task hangs after {seen}"
                version = update.version
                changes = [change for entry in update.filterSet[0].objectSet for change in entry.changeSet]
                for state in (str(change.val) for change in changes):
                    if not seen or seen[-1] != state:
                        seen.append(state)
        finally:
            filter_.Destroy()
        return seen

    def refused(self, task: Any) -> Any:
        """The fault of a task that must fail."""
        with pytest.raises(TaskFault) as caught:
            self.wait(task)
        return caught.value.fault

    # Doing

    def reconfigure(self, vm: Any, **fields: Any) -> Any:
        return vm.ReconfigVM_Task(vim.vm.ConfigSpec(**fields))

    def give(self, vm: Any, *profiles: str, locked: bool = True, **fields: Any) -> None:
        """Attach vGPUs and reserve the memory."""
        self.wait(
            self.reconfigure(vm, deviceChange=[add(p) for p in profiles], memoryReservationLockedToMax=locked, **fields)
        )

    def running(self, name: str, *profiles: str, template: str = "ubuntu-22.04-efi", **location: Any) -> Any:
        """A new VM with these vGPUs, powered on."""
        vm = self.clone(template, name, **location)
        self.give(vm, *profiles, extraConfig=Specs.mmio(1024))
        self.wait(vm.PowerOnVM_Task())
        return vm

    def clone(self, source: str, name: str, config: Any = None, power_on: bool = False, **location: Any) -> Any:
        return self.wait(self.clone_task(source, name, config, power_on, **location))

    def clone_task(self, source: str, name: str, config: Any = None, power_on: bool = False, **location: Any) -> Any:
        location.setdefault("pool", self.cluster().resourcePool)
        spec = vim.vm.CloneSpec(location=vim.vm.RelocateSpec(**location), config=config, powerOn=power_on)
        return self.vm(source).CloneVM_Task(folder=self.datacenter().vmFolder, name=name, spec=spec)

    def power_on_by_drs(self, *vms: Any) -> Any:
        return self.wait(self.datacenter().PowerOnMultiVM_Task(list(vms)))

    # Seeing

    def vms_per_gpu(self, host: str) -> list[list[str]]:
        return [sorted(vm.name for vm in gpu.vm) for gpu in self.host(host).config.graphicsInfo]


def vgpu(profile: str, key: int = -200) -> Any:
    backing = vim.vm.device.VirtualPCIPassthrough.VmiopBackingInfo(vgpu=profile)
    return vim.vm.device.VirtualPCIPassthrough(key=key, backing=backing)


def add(profile: str) -> Any:
    return vim.vm.device.VirtualDeviceSpec(operation="add", device=vgpu(profile))


class Specs:
    """Short forms of device changes."""

    add = staticmethod(add)
    vgpu = staticmethod(vgpu)

    @staticmethod
    def remove(device: Any) -> Any:
        return vim.vm.device.VirtualDeviceSpec(operation="remove", device=device)

    @staticmethod
    def edit(device: Any) -> Any:
        return vim.vm.device.VirtualDeviceSpec(operation="edit", device=device)

    @staticmethod
    def options(**values: str) -> list[Any]:
        return [vim.option.OptionValue(key=f"pciPassthru.{key}", value=value) for key, value in values.items()]

    @staticmethod
    def mmio(gigabytes: int) -> list[Any]:
        return Specs.options(use64bitMMIO="TRUE", **{"64bitMMIOSizeGB": str(gigabytes)})

    @staticmethod
    def vgpus(vm: Any) -> list[Any]:
        return [d for d in vm.config.hardware.device if isinstance(d, vim.vm.device.VirtualPCIPassthrough)]


@pytest.fixture(scope="session")
def binary() -> Path:
    return binaries.ensure(["vgpu-vcsim"])["vgpu-vcsim"]


@pytest.fixture
def section() -> Section:
    """The default scenario's vSphere, for a test to change before it starts one."""
    return copy.deepcopy(DEFAULT)


@pytest.fixture
def start(binary: Path, tmp_path: Path) -> Iterator[Callable[..., VCenter]]:
    started: list[VCenter] = []

    def start(section: Section, api_version: str = "8.0.3") -> VCenter:
        inventory = vcsim.inventory_from_scenario(section)
        run = tmp_path / str(len(started))
        vcenter = VCenter(vcsim.start(run, inventory, api_version=api_version, binary=binary))
        started.append(vcenter)
        return vcenter

    yield start
    for number, vcenter in enumerate(started):
        with contextlib.suppress(vim.fault.NotAuthenticated, OSError):
            Disconnect(vcenter.instance)
        vcsim.stop(tmp_path / str(number))


@pytest.fixture
def vcenter(start: Callable[..., VCenter], section: Section) -> VCenter:
    return start(section)


@pytest.fixture
def spec() -> type[Specs]:
    return Specs
