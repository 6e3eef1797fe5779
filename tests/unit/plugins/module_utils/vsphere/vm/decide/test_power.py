# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A running VM is only stopped when a change needs it and the task allows it."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.model import VmState
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.power import (
    PowerCycleRequired,
    PowerPlan,
    SuspendedVm,
    power_plan,
)

CHANGE = ["add 1 x nvidia_a40-4q"]


def plan(power, state, reasons=(), **options):
    return power_plan(VmState("vm-1", "web", power=power), state, reasons, **options)


@pytest.mark.parametrize(
    ("power", "state", "reasons", "expected"),
    [
        ("off", "present", [], PowerPlan(after="off")),
        ("off", "present", CHANGE, PowerPlan(after="off")),
        ("off", "powered_on", [], PowerPlan(start=True, after="on")),
        ("off", "powered_on", CHANGE, PowerPlan(start=True, after="on")),
        ("off", "powered_off", CHANGE, PowerPlan(after="off")),
        ("off", "absent", [], PowerPlan(after="off")),
        ("on", "present", [], PowerPlan(after="on")),
        ("on", "powered_on", [], PowerPlan(after="on")),
        ("on", "powered_off", [], PowerPlan(stop="soft", after="off")),
        ("on", "powered_off", CHANGE, PowerPlan(stop="soft", after="off")),
        ("suspended", "present", [], PowerPlan(after="suspended")),
        ("suspended", "powered_on", [], PowerPlan(start=True, after="on")),
    ],
)
def test_without_permission_to_cycle(power, state, reasons, expected):
    assert plan(power, state, reasons) == expected


@pytest.mark.parametrize("how", ["soft", "hard"])
@pytest.mark.parametrize("state", ["present", "powered_on"])
def test_a_running_vm_comes_back_after_a_change_that_needs_it_off(how, state):
    assert plan("on", state, CHANGE, power_cycle=how) == PowerPlan(stop=how, start=True, after="on")


@pytest.mark.parametrize("how", ["soft", "hard"])
def test_permission_alone_stops_nothing(how):
    assert not plan("on", "present", [], power_cycle=how).changed


@pytest.mark.parametrize("state", ["present", "powered_on"])
def test_never_fails_and_says_what_would_need_it(state):
    with pytest.raises(PowerCycleRequired, match=r"web runs .* add 1 x nvidia_a40-4q") as caught:
        plan("on", state, CHANGE)
    assert "power_cycle: soft" in caught.value.hint


def test_a_running_vm_is_not_deleted_without_permission_to_stop_it():
    with pytest.raises(PowerCycleRequired, match="to be deleted"):
        plan("on", "absent")
    assert plan("on", "absent", power_cycle="hard") == PowerPlan(stop="hard", after="off")


@pytest.mark.parametrize(("state", "reasons"), [("present", CHANGE), ("powered_off", []), ("absent", [])])
def test_a_suspended_vm_needs_an_option_of_its_own(state, reasons):
    for how in ("never", "soft", "hard"):
        with pytest.raises(SuspendedVm, match="discard_suspended"):
            plan("suspended", state, reasons, power_cycle=how)
    assert plan("suspended", state, reasons, discard_suspended=True) == PowerPlan(stop="hard", after="off")


def test_a_suspended_vm_that_is_changed_starts_only_if_asked_to():
    found = plan("suspended", "powered_on", CHANGE, discard_suspended=True)
    assert found == PowerPlan(stop="hard", start=True, after="on")
