# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Starting, stopping and locating a VM on a vCenter that is slow, vague or busy."""

from __future__ import annotations

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import tasks
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import VsphereError
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm import power as vm_running
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.model import ON, VmState
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.power import HARD, SOFT
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.find.finder import VmSelector
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.power import NotStarted, PowerControl, VmLocation
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.request import CloneOptions, VmRequest

REQUEST = VmRequest(VmSelector(name="web"), "powered_on", None, None, CloneOptions(), wait_timeout=1)
FIRST, SECOND = "0000:3b:00.0", "0000:3d:00.0"
GPU = "nvidia_a40-8q"


def gpu(address, *vms):
    return SimpleNamespace(pciId=address, vm=[SimpleNamespace(_moId=vm) for vm in vms])


class Thing(SimpleNamespace):
    """A managed object with the properties that it shows."""

    def __hash__(self):
        return hash(self._moId)


class VCenter:
    """A session whose objects are Things. `calls` are the methods that were called."""

    def __init__(self):
        self.calls = []

    def read(self, _subject, references, paths):
        return [(one, {path: one.shows[path] for path in paths if path in one.shows}) for one in references]

    def call(self, _subject, method, *args):
        return method(*args)

    def name_of(self, reference):
        return reference._moId

    @contextmanager
    def reporting(self, _subject):
        yield


@pytest.fixture
def vcenter(monkeypatch):
    """Nothing changes by itself, so waiting ends at once and without what was waited for."""
    clock = [0.0]

    def pause(seconds):
        clock[0] += seconds

    def watch(_session, _subject, reference, _paths, holds, *, timeout):
        pause(max(timeout, 0.1))
        return reference.shows if holds(reference.shows) else None

    monkeypatch.setattr(vm_running.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(vm_running.time, "sleep", pause)
    monkeypatch.setattr(vm_running, "until_holds", watch)
    monkeypatch.setattr(tasks, "run", lambda _session, _subject, method, *args, **_options: method(*args))
    monkeypatch.setattr(tasks, "wait", lambda _session, task, _subject, **_options: ended(task))
    return VCenter()


def ended(task):
    if task.error:
        raise task.error
    return task.result


def host(name="esx1", *gpus, **more):
    return Thing(_moId=f"host-{name}", shows={"name": name, "config.graphicsInfo": list(gpus), **more})


def machine(on_host, power="poweredOff", **methods):
    shows = {"runtime.powerState": power, "runtime.host": on_host, "recentTask": []}
    return Thing(_moId="vm-1", shows=shows, **methods)


def task(error=None, description="VirtualMachine.powerOn"):
    state = "error" if error else "success"
    shows = {"info.descriptionId": description, "info.state": state}
    return Thing(_moId=f"task-{id(error)}", shows=shows, error=error, result=None)


def sighting(vm, datacenter=None):
    return SimpleNamespace(
        reference=vm, machine=VmState("vm-1", "web", power=ON, tools_running=True), datacenter=datacenter
    )


def drs(attempt):
    """A datacenter whose DRS starts VMs like this."""
    return SimpleNamespace(PowerOnMultiVM_Task=lambda vms: attempt(vms[0]))


def answer(attempted=(), not_attempted=(), recommendations=()):
    return SimpleNamespace(attempted=attempted, notAttempted=not_attempted, recommendations=recommendations)


REACH = SimpleNamespace(places_itself=lambda _moid: True)


# Where it runs
def test_the_gpus_that_list_the_vm_are_told(vcenter):
    vm = machine(host("esx1", gpu(FIRST, "vm-2"), gpu(SECOND, "vm-1")))
    assert PowerControl(vcenter, REQUEST).seat(vm, "web", expected=True) == VmLocation("esx1", (SECOND,))


def test_a3_a_gpu_that_lists_the_vm_only_after_a_refresh_is_told(vcenter):
    home = host("esx1", gpu(FIRST))

    def refresh():
        home.shows["config.graphicsInfo"] = [gpu(FIRST, "vm-1")]

    home.shows["configManager.graphicsManager"] = SimpleNamespace(RefreshGraphicsManager=refresh)
    assert PowerControl(vcenter, REQUEST).seat(machine(home), "web", expected=True) == VmLocation("esx1", (FIRST,))


def forbidden():
    raise VsphereError("", code="forbidden")


def missing_method():
    raise AttributeError


@pytest.mark.parametrize("refresh", [forbidden, missing_method])
def test_a3_a_vm_that_no_gpu_lists_is_a_warning_and_refreshing_is_optional(vcenter, refresh):
    manager = SimpleNamespace(RefreshGraphicsManager=refresh)
    home = host("esx1", gpu(FIRST), **{"configManager.graphicsManager": manager})
    seat = PowerControl(vcenter, REQUEST).seat(machine(home), "web", expected=True)
    assert (seat.host, seat.gpus) == ("esx1", ())
    assert "VM web runs on host esx1, and none of the host's GPUs lists it yet" in seat.warnings[0]


def test_a4_a_vm_that_drs_moved_is_looked_for_on_its_new_host(vcenter, monkeypatch):
    monkeypatch.setattr(vm_running, "HOST_SECONDS", 0.2)
    vm = machine(host("esx1", gpu(FIRST)))

    def moves(_session, _subject, _reference, _paths, _holds, *, timeout):
        vm.shows["runtime.host"] = host("esx2", gpu(SECOND, "vm-1"))

    monkeypatch.setattr(vm_running, "until_holds", moves)
    assert PowerControl(vcenter, REQUEST).seat(vm, "web", expected=True) == VmLocation("esx2", (SECOND,))


# Starting by DRS
def test_a4_a_drs_start_without_a_task_is_awaited_on_the_vm_and_its_host_is_read_afterwards(vcenter, monkeypatch):
    vm = machine(host("esx1", gpu(FIRST)))

    def later(_session, _subject, reference, _paths, _holds, *, timeout):
        reference.shows |= {"runtime.powerState": "poweredOn", "runtime.host": host("esx2", gpu(SECOND, "vm-1"))}
        return reference.shows

    monkeypatch.setattr(vm_running, "until_holds", later)
    centre = drs(lambda vm: answer([SimpleNamespace(vm=vm, task=None)]))
    assert PowerControl(vcenter, REQUEST).start(sighting(vm, centre), [GPU], REACH, None) == VmLocation(
        "esx2", (SECOND,)
    )


def test_a4_a_drs_start_that_fails_without_a_named_task_is_told_with_its_reason(vcenter):
    vm = machine(host("esx1", gpu(FIRST)))
    plugin = VsphereError("Could not initialize plugin", code="vm_config")

    def attempt(vm):
        vm.shows["recentTask"] = [task(plugin)]
        return answer([SimpleNamespace(vm=vm, task=None)])

    with pytest.raises(VsphereError, match="Could not initialize plugin"):
        PowerControl(vcenter, REQUEST).start(sighting(vm, drs(attempt)), [GPU], REACH, None)


def test_a4_an_earlier_failure_is_not_taken_for_this_one_and_a_start_that_takes_too_long_is_not_certain(vcenter):
    vm = machine(host("esx1", gpu(FIRST)))
    vm.shows["recentTask"] = [task(VsphereError("yesterday", code="vm_config"))]
    centre = drs(lambda vm: answer([SimpleNamespace(vm=vm, task=None)]))
    with pytest.raises(NotStarted) as caught:
        PowerControl(vcenter, REQUEST).start(sighting(vm, centre), [GPU], REACH, None)
    assert not caught.value.certain


def test_a4_where_drs_only_recommends_a_host_the_vm_is_started_there(vcenter):
    target = host("esx2")
    chosen = []

    def power_on(where=None):
        chosen.append(where)
        vm.shows["runtime.powerState"] = "poweredOn"

    vm = machine(host("esx1"), PowerOnVM_Task=power_on)
    recommendation = SimpleNamespace(action=[SimpleNamespace(targetHost=target)])
    PowerControl(vcenter, REQUEST).start(
        sighting(vm, drs(lambda _vm: answer(recommendations=[recommendation]))), [], REACH, None
    )
    assert chosen == [target]


def test_a3_another_task_on_the_vm_is_waited_for(vcenter):
    busy = VsphereError("", fault="TaskInProgress", code="conflict", retryable=True)
    failures = [busy, busy]

    def power_on():
        if failures:
            raise failures.pop()
        vm.shows["runtime.powerState"] = "poweredOn"

    vm = machine(host("esx1"), PowerOnVM_Task=power_on)
    request = VmRequest(VmSelector(name="web"), "powered_on", None, None, CloneOptions(), wait_timeout=60)
    assert PowerControl(vcenter, request).start(sighting(vm), [], None, None).host == "esx1"
    failures.extend([busy] * 100)
    with pytest.raises(VsphereError) as caught:
        PowerControl(vcenter, REQUEST).start(sighting(vm), [], None, None)
    assert not caught.value.certain


def test_a14_a_vm_that_vcenter_starts_on_another_host_than_the_named_one_is_a_warning(vcenter):
    vm = machine(host("esx2"), PowerOnVM_Task=lambda _host: None)
    request = VmRequest(VmSelector(name="web"), "powered_on", None, None, CloneOptions(esxi_host="esx1"))
    reach = SimpleNamespace(host=lambda name: SimpleNamespace(reference=host(name)))
    seat = PowerControl(vcenter, request).start(sighting(vm), [], reach, "esx1")
    assert seat.host == "esx2"
    assert seat.warnings == ("VM web was to start on host esx1, and vCenter started it on esx2.",)


# Whether it has run
@pytest.mark.parametrize(
    ("shows", "expected"),
    [
        ({}, False),
        ({"runtime.powerState": "poweredOn"}, True),
        ({"runtime.powerState": "suspended"}, True),
        ({"runtime.bootTime": "today"}, True),
        ({"recentTask": [task()]}, True),
        ({"recentTask": [task(VsphereError("refused"))]}, False),
        ({"recentTask": [task(description="VirtualMachine.reconfigure")]}, False),
    ],
)
def test_a3_only_a_vm_that_was_never_on_has_not_run(vcenter, shows, expected):
    vm = machine(host("esx1"))
    vm.shows |= shows
    assert PowerControl(vcenter, REQUEST).has_run(vm, "web") is expected


# Stopping
@pytest.mark.parametrize("how", [SOFT, HARD])
def test_a14_a_vm_that_went_off_meanwhile_is_stopped(vcenter, how):
    refusal = VsphereError("powered off", fault="InvalidPowerState", code="invalid_power_state")

    def refuse():
        raise refusal

    vm = machine(host("esx1"), ShutdownGuest=refuse, PowerOffVM_Task=refuse)
    PowerControl(vcenter, REQUEST).stop(sighting(vm), how)
    vm.shows["runtime.powerState"] = "poweredOn"
    with pytest.raises(VsphereError):
        PowerControl(vcenter, REQUEST).stop(sighting(vm), how)
