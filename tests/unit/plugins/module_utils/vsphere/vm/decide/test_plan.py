# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The whole of a change, computed before any of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide import plan as vm_plan
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.mark import OWNER, STAGE, Mark
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.model import PciDevice, VmState
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.plan import DesiredVm
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.power import PowerCycleRequired
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.requirements import NeedsEfi

FOUR, WHOLE = "nvidia_a40-4q", "nvidia_a40-48q"
PLAIN = VmState("vm-1", "web", hardware_version=19, firmware="efi", cpus=2, memory_mb=4096)
EQUIPPED = replace(PLAIN, memory_locked=True, devices=(PciDevice(13000, profile=FOUR),))


def plan(machine, state="present", *, creates=False, **wish):
    return vm_plan.plan(machine, DesiredVm(state=state, **wish), (8, 0, 3, 0), creates=creates)


def test_nothing_asked_for_is_nothing_to_do():
    for machine in (PLAIN, EQUIPPED, replace(EQUIPPED, memory_locked=False, power="on")):
        found = plan(machine)
        assert not found.changed
        assert found.diff() == {"before": {}, "after": {}}


def test_devices_and_what_they_need_are_one_change():
    found = plan(PLAIN, vgpus={WHOLE: 1})
    assert found.reconfigures
    assert not found.upgrades
    assert found.diff() == {
        "before": {
            "memory_reservation_locked": False,
            "mmio_64bit": False,
            "mmio_size_gb": None,
            "vgpus": {},
            "pci_devices": [],
        },
        "after": {
            "memory_reservation_locked": True,
            "mmio_64bit": True,
            "mmio_size_gb": 128,
            "vgpus": {WHOLE: 1},
            "pci_devices": [],
        },
    }


def test_removing_the_last_vgpu_gives_nothing_back_unasked():
    found = plan(EQUIPPED, vgpus={})
    assert found.devices.changed
    assert not found.preparation.changed


def test_settings_alone_do_not_stop_a_running_vm_but_an_upgrade_does():
    drifted = replace(EQUIPPED, memory_locked=False, power="on")
    assert not plan(drifted, vgpus={FOUR: 1}).power.changed
    with pytest.raises(PowerCycleRequired, match="vmx-17"):
        plan(replace(EQUIPPED, hardware_version=13, power="on"), vgpus={FOUR: 1})


@pytest.mark.parametrize(
    ("hot", "wanted", "stops"),
    [
        ({}, {"cpus": 4}, True),
        ({"cpu_hot_add": True}, {"cpus": 4}, False),
        ({"cpu_hot_add": True}, {"cpus": 1}, True),
        ({"memory_hot_add": True}, {"memory_mb": 8192}, False),
        ({"memory_hot_add": True, "devices": EQUIPPED.devices}, {"memory_mb": 8192}, True),
        ({}, {"annotation": "new"}, False),
    ],
)
def test_what_can_grow_at_run_time_does(hot, wanted, stops):
    found = plan(replace(PLAIN, power="on", **hot), power_cycle="soft", **wanted)
    assert found.reconfigures
    assert bool(found.power.stop) is stops
    assert found.diff()["after"].items() >= wanted.items()


def test_what_is_not_prepared_is_told():
    found = plan(PLAIN, vgpus={WHOLE: 1}, prepare=False)
    assert not found.preparation.changed
    assert any("128 GB" in words for words in found.lacking)


def test_a_clone_is_compared_with_what_its_template_carries():
    same = plan(EQUIPPED, "powered_on", creates=True, vgpus={FOUR: 1})
    assert not same.devices.changed
    assert same.changed
    assert same.power.start
    other = plan(EQUIPPED, creates=True, vgpus={WHOLE: 1})
    assert [device.key for device in other.devices.remove] == [13000]
    assert not other.power.start
    shown = other.diff("trainer", {"template": "web"})
    assert shown["before"] == {}
    assert shown["after"].items() >= {"name": "trainer", "template": "web", "vgpus": {WHOLE: 1}, "power": "off"}.items()


def test_firmware_stands_in_the_way_of_new_devices_only():
    bios = replace(PLAIN, firmware="bios")
    with pytest.raises(NeedsEfi):
        plan(bios, vgpus={WHOLE: 1})
    has_it = replace(bios, devices=(PciDevice(13000, profile=WHOLE),))
    assert not plan(has_it, vgpus={WHOLE: 1}).devices.changed
    assert plan(has_it, vgpus={}).devices.changed


def test_deleting_shows_what_is_lost():
    found = plan(EQUIPPED, "absent", vgpus={WHOLE: 1})
    assert found.deletes
    assert found.changed
    assert found.diff()["before"]["vgpus"] == {FOUR: 1}
    assert found.diff()["after"] == {}


def test_a8_ending_a_creation_is_one_change_that_shows_the_stage_and_no_secret():
    cut_off = replace(PLAIN, extra_config={OWNER: "team-a", STAGE: "cloned"}, mark=Mark("team-a", "cloned"))
    found = plan(cut_off, options={STAGE: "complete", OWNER: "team-a", "guestinfo.userdata": "c2VjcmV0"}, cpus=4)
    assert found.reconfigures
    assert found.options == {STAGE: "complete", "guestinfo.userdata": "c2VjcmV0"}
    assert found.diff() == {"before": {"cpus": 2, "stage": "cloned"}, "after": {"cpus": 4, "stage": "complete"}}
    assert "c2VjcmV0" not in repr(found)


def test_a1_adopting_a_running_vm_does_not_stop_it():
    found = plan(replace(EQUIPPED, power="on"), options={OWNER: "team-a"})
    assert found.changed
    assert not found.power.changed
    assert found.diff() == {"before": {"owner": None}, "after": {"owner": "team-a"}}


def test_more_memory_enlarges_the_mmio_region_for_the_vgpus_that_a_vm_has_already():
    grown = plan(EQUIPPED, memory_mb=64 * 1024).preparation.extra_config
    assert grown == {"pciPassthru.use64bitMMIO": "TRUE", "pciPassthru.64bitMMIOSizeGB": "128"}
    assert not plan(EQUIPPED, memory_mb=8192).preparation.extra_config


def test_more_memory_is_refused_if_the_vgpus_would_need_efi():
    with pytest.raises(NeedsEfi, match="128 GB of MMIO space"):
        plan(replace(EQUIPPED, firmware="bios"), memory_mb=64 * 1024)
