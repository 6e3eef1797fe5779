# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A3: which unfinished VM is deleted again. And what is said about a VM that was stopped for a change that failed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import tasks
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import FAULT_TEMPLATES, UNCERTAIN, VsphereError
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import BadConnection
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.tasks import TaskTimeout
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm import apply as vm_change
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.apply import Decision, ReconfigureVm
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.clone import CloneVm
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.model import OFF, ON, VmState
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.find.finder import VmSelector
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.find.read import VmUnavailable
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.power import NotStarted, VmLocation
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.request import CloneOptions, VmRequest


@pytest.fixture
def cleaned_up(monkeypatch):
    """The error after the clean-up, and whether the VM was deleted."""

    def clean(error, *, has_run=False, keep_failed=False):
        deleted = []
        monkeypatch.setattr(tasks, "run", lambda _session, _subject, method, **_options: method())
        reference = SimpleNamespace(_moId="vm-7", Destroy_Task=lambda: deleted.append("vm-7"))

        def known(_reference, _name):
            if isinstance(has_run, FleetError):
                raise has_run
            return has_run

        request = VmRequest(VmSelector(name="web"), "powered_on", None, None, CloneOptions(keep_failed=keep_failed))
        change = SimpleNamespace(has_run=known)
        told = CloneVm(None, request, None, None, change)._cleaned_up(reference, error)
        return told, bool(deleted)

    return clean


def refusal(code):
    return VsphereError("refused", code=code)


def test_a_certain_failure_of_a_vm_that_never_ran_leaves_nothing_behind(cleaned_up):
    told, deleted = cleaned_up(refusal("no_room"))
    assert deleted
    assert not told.changed
    assert "was deleted again" in told.message


@pytest.mark.parametrize(
    "error",
    [
        TaskTimeout("slow"),
        NotStarted("slow"),
        BadConnection("cut"),
        VmUnavailable("unreadable"),
        *[refusal(code) for code in sorted(UNCERTAIN)],
    ],
    ids=lambda error: f"{type(error).__name__}-{error.code}",
)
def test_an_uncertain_failure_keeps_the_vm_and_says_so(cleaned_up, error):
    told, deleted = cleaned_up(error)
    assert not deleted
    assert told.changed
    assert "VM web was kept (vm-7), since it is not certain that it failed" in told.message


@pytest.mark.parametrize("certain", [True, False])
def test_a_clone_whose_task_may_still_succeed_counts_as_a_change(monkeypatch, certain):
    error = refusal("forbidden")
    error.certain = certain

    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(tasks, "run", fail)
    monkeypatch.setattr(CloneVm, "_subject", lambda *_args: None)
    request = VmRequest(VmSelector(name="web"), "powered_on", None, None, CloneOptions())
    source = SimpleNamespace(reference=SimpleNamespace(CloneVM_Task=None))
    made = SimpleNamespace(source=source, folder=SimpleNamespace(reference=None), spec=None)
    with pytest.raises(VsphereError) as caught:
        CloneVm(None, request, None, None, None)._cloned(made)
    assert caught.value.changed is not certain


def test_a_vm_that_runs_or_has_run_is_kept_whatever_failed(cleaned_up):
    told, deleted = cleaned_up(refusal("no_room"), has_run=True)
    assert not deleted
    assert "was kept (vm-7), since it runs or has run" in told.message
    told, deleted = cleaned_up(refusal("no_room"), has_run=BadConnection("cut"))
    assert not deleted
    assert "cannot be found out whether it has run" in told.message
    told, deleted = cleaned_up(refusal("no_room"), keep_failed=True)
    assert not deleted
    assert "keep_failed is true" in told.message


def test_every_fault_that_is_retried_is_uncertain():
    retried = {info.code for info in FAULT_TEMPLATES.values() if info.retryable}
    assert retried == {"conflict", "session_ended"}
    assert retried <= UNCERTAIN


# A14: after a change that failed
BEFORE = VmState("vm-1", "web", power=ON, hardware_version=13)


@pytest.fixture
def brought_back(monkeypatch):
    """What the error says after the VM was started again, by what the VM is then."""

    def start(after):
        monkeypatch.setattr(vm_change, "read_vm", lambda *_args: SimpleNamespace(machine=after))
        change = ReconfigureVm(None, VmRequest(VmSelector(name="web"), "present", None, None, CloneOptions()), None)
        change._running = SimpleNamespace(start=lambda *_args: VmLocation("esx1"))
        error = FleetError("The change failed.")
        change._bring_back(SimpleNamespace(machine=BEFORE, reference=None), Decision(None, None), error)
        return error.message

    return start


def test_a14_a_vm_that_runs_again_as_it_was_is_called_so(brought_back):
    after = VmState("vm-1", "web", power=OFF, hardware_version=13, host="host-2", change_version="2")
    assert brought_back(after).endswith("and runs again as it was.")


def test_a14_a_hardware_version_that_was_raised_is_told(brought_back):
    after = VmState("vm-1", "web", power=ON, hardware_version=17)
    assert "runs again, but not as it was: its hardware version was 13 and is 17." in brought_back(after)


def test_a14_whether_a_vm_is_still_off_is_only_said_if_it_is_known():
    request = VmRequest(VmSelector(name="web"), "present", None, None, CloneOptions())
    change = ReconfigureVm(None, request, None)
    power = SimpleNamespace(start=True)
    plan = SimpleNamespace(
        power=power, devices=SimpleNamespace(all_vgpus=[]), reconfigures=True, upgrades=False, machine=BEFORE
    )

    def message(error, state):
        def start(*_args):
            raise error

        change._running = SimpleNamespace(start=start, power=lambda _seen: state)
        with pytest.raises(FleetError) as caught:
            change.finish(SimpleNamespace(reference=None), Decision(plan, None), stopped=True)
        assert caught.value.changed
        return caught.value.message

    assert message(refusal("no_room"), "poweredOff").endswith("is still off.")
    assert message(refusal("no_room"), "").endswith("whether it runs again is not known.")
    assert message(TaskTimeout("slow"), "poweredOff").endswith("whether it runs again is not known.")
