# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts with room for all vGPUs of a VM, and the reasons of those without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, Holder, Node, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.devices import DeviceDiff, PciRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.placement import (
    NoRoom,
    refuse_without_room,
    rooms,
    without_devices,
    without_groups,
)

FOUR, EIGHT, WHOLE = "nvidia_a40-4q", "nvidia_a40-8q", "nvidia_a40-48q"


def gpu(host, number, *held, **more):
    name = f"{host}-{number}"
    slots = [
        Slot(f"{name}-{index}", profile=profile, wanted=profile, allocatable=True, holders=(Holder(vm, running=True),))
        for index, (vm, profile) in enumerate(held)
    ]
    free = Slot(f"{name}-free", offered=(FOUR, EIGHT, "nvidia_a40-12q", "nvidia_a40-16q", WHOLE))
    options = {"boards": ("A40",), "framebuffer_mib": 48 * 1024, "platform": "vsphere", **more}
    return Gpu(name, host, address=name, slots=(*slots, free), **options)


def host(name, *gpus, **more):
    return Node(name, gpus=gpus, **more)


EMPTY = host("esx1", gpu("esx1", 0), gpu("esx1", 1))
USED = host("esx2", gpu("esx2", 0, ("a", FOUR)), gpu("esx2", 1))
OTHER_SIZE = host("esx3", gpu("esx3", 0, ("b", EIGHT)), gpu("esx3", 1, ("c", EIGHT)))
BARE = host("esx4")


def test_hosts_whose_gpus_are_in_use_come_before_fresh_ones_and_the_own_host_before_all():
    fleet = Fleet((EMPTY, USED))
    assert rooms(fleet, {FOUR: 1}).fitting == ("esx2", "esx1")
    assert rooms(fleet, {FOUR: 1}, current="esx1").best == "esx1"


def test_all_vgpus_of_a_vm_must_fit_on_one_host():
    assert rooms(Fleet((EMPTY, USED)), {FOUR: 24}).fitting == ("esx1",)
    assert rooms(Fleet((EMPTY, USED)), {FOUR: 23}, current="esx2").best == "esx2"
    assert rooms(Fleet((EMPTY, USED)), {FOUR: 25}).best is None


def test_sizes_are_kept_apart():
    assert rooms(Fleet((USED,)), {WHOLE: 1}).best == "esx2"
    assert rooms(Fleet((USED,)), {WHOLE: 2}).best is None
    assert rooms(Fleet((USED,)), {FOUR: 2, WHOLE: 1}).best == "esx2"


def test_each_host_without_room_has_its_reason():
    offline = host("esx5", gpu("esx5", 0), ready=False)
    maintained = host("esx6", gpu("esx6", 0), schedulable=False)
    shared = host("esx7", gpu("esx7", 0, blocked="it is not shared direct"))
    found = rooms(Fleet((OTHER_SIZE, BARE, offline, maintained, shared)), {FOUR: 1})
    assert found.best is None
    assert "1 x nvidia_a40-8q, held by VM b" in found.reasons["esx3"]
    assert found.reasons["esx4"] == "it has no GPU"
    assert "not connected" in found.reasons["esx5"]
    assert "maintenance" in found.reasons["esx6"]
    assert "not shared direct" in found.reasons["esx7"]
    with pytest.raises(NoRoom, match=r"VM web with 1 x nvidia_a40-4q .*esx4: it has no GPU"):
        refuse_without_room("web", DeviceDiff(vgpus=(FOUR,)), found)


def test_another_board_is_no_room():
    found = rooms(Fleet((EMPTY,)), {"nvidia_l40s-8q": 1})
    assert found.best is None
    assert found.reasons["esx1"] == "its GPUs do not offer nvidia_l40s-8q"


def test_where_only_the_driver_knows_a_host_is_not_ruled_out():
    mixed = host("esx8", gpu("esx8", 0, ("a", "nvidia_a40-8q"), ("b", "nvidia_a40-8q"), mode="mixed_size"))
    found = rooms(Fleet((mixed,)), {"nvidia_a40-16q": 1})
    assert (found.fitting, found.unsure) == ((), ("esx8",))
    refuse_without_room("web", DeviceDiff(vgpus=("nvidia_a40-16q",)), found)


def test_b_a_mixed_size_gpu_that_cannot_take_a_vgpu_in_any_arrangement_is_ruled_out():
    mixed = host("esx8", gpu("esx8", 0, ("a", "nvidia_a40-24q"), ("b", "nvidia_a40-16q"), mode="mixed_size"))
    assert rooms(Fleet((mixed,)), {"nvidia_a40-12q": 1}).best is None
    assert rooms(Fleet((mixed,)), {"nvidia_a40-8q": 1}).fitting == ("esx8",)


A100 = PciRequest((0x10DE, 0x20F1))
FREE = {"esx1": [], "esx2": [(A100.ids, "fast")], "esx4": [(A100.ids, ""), (A100.ids, "fast")]}


def test_whole_devices_come_from_one_host_that_still_has_them():
    fleet = Fleet((EMPTY, USED, BARE))
    both = rooms(fleet, {}, lacking=without_devices([A100, A100], FREE))
    assert both.fitting == ("esx4",)
    assert both.reasons["esx2"] == "it has not 2 x PCI device 10de:20f1 to give"
    labelled = rooms(fleet, {}, lacking=without_devices([PciRequest(A100.ids, "fast")], FREE))
    assert labelled.fitting == ("esx2", "esx4")


def test_a_host_with_room_for_vgpus_and_without_the_device_is_no_room():
    lacking = without_devices([A100], {**FREE, "esx2": []})
    found = rooms(Fleet((EMPTY, USED, BARE)), {FOUR: 1}, lacking=lacking)
    assert found.best is None
    assert found.reasons["esx4"] == "it has no GPU"
    with pytest.raises(NoRoom, match=r"with 1 x nvidia_a40-4q, 1 x PCI device 10de:20f1 .*esx1: it has not"):
        refuse_without_room("web", DeviceDiff(vgpus=(FOUR,), pci=(A100,)), found)


SLICES = ("grid_a100-1-5c", "grid_a100-3-20c", "grid_a100-4-20c")


def test_mig_instances_of_a_vm_must_fit_beside_each_other():
    free = Slot("free", offered=SLICES)
    most = {"grid_a100-1-5c": 7, "grid_a100-3-20c": 2, "grid_a100-4-20c": 1}
    card = Gpu("a", "esx9", address="a", slots=(free,), boards=("A100",), mode="mig", platform="vsphere", sharing=True)
    fleet = Fleet((host("esx9", replace(card, framebuffer_mib=40 * 1024, max_instances=most)),))
    assert rooms(fleet, {"grid_a100-3-20c": 1, "grid_a100-4-20c": 1}).fitting == ("esx9",)
    assert rooms(fleet, {"grid_a100-4-20c": 1, "grid_a100-1-5c": 3}).fitting == ("esx9",)
    # Slices decide, whoever is asked: nobody has the last word about these.
    assert rooms(fleet, {"grid_a100-4-20c": 1, "grid_a100-1-5c": 4}).best is None
    assert rooms(fleet, {"grid_a100-3-20c": 2, "grid_a100-1-5c": 1}).best is None


def test_a_large_demand_that_does_not_fit_is_answered_at_once():
    many = host("esx1", *(gpu("esx1", number) for number in range(8)))
    assert rooms(Fleet((many,)), {FOUR: 96}).best == "esx1"
    assert rooms(Fleet((many,)), {FOUR: 97}).best is None


# The numbers of vCenter 9
def test_the_capacity_that_vcenter_reports_takes_precedence_and_a_difference_is_a_warning():
    fleet = Fleet((EMPTY, OTHER_SIZE))
    agreed = rooms(fleet, {WHOLE: 2}, reported={"esx1": {WHOLE: 2}, "esx3": {WHOLE: 0}})
    assert agreed.fitting == ("esx1",)
    assert agreed.warnings == ()
    fewer = rooms(fleet, {WHOLE: 2}, reported={"esx1": {WHOLE: 1}, "esx3": {WHOLE: 0}})
    assert fewer.best is None
    assert "vCenter reports only 1" in fewer.reasons["esx1"]
    assert "the own count has room" in fewer.warnings[0]
    more = rooms(fleet, {WHOLE: 1}, reported={"esx1": {WHOLE: 0}, "esx3": {WHOLE: 1}})
    assert more.fitting == ("esx3",)
    assert len(more.warnings) == 2


def test_the_capacity_of_single_profiles_cannot_confirm_a_combination():
    told = {"esx3": {WHOLE: 1, FOUR: 1}}
    assert rooms(Fleet((OTHER_SIZE,)), {WHOLE: 1, FOUR: 1}, reported=told).best is None
    assert rooms(Fleet((EMPTY,)), {WHOLE: 1, FOUR: 1}, reported={"esx1": {WHOLE: 2, FOUR: 0}}).best is None


def test_a_host_in_maintenance_stays_out_whatever_vcenter_reports():
    away = replace(EMPTY, schedulable=False)
    assert rooms(Fleet((away,)), {WHOLE: 1}, reported={"esx1": {WHOLE: 2}}).best is None


def test_mixed_sizes_that_only_the_driver_knows_are_known_to_vcenter():
    mixed = host("esx5", gpu("esx5", 0, ("a", EIGHT), ("b", EIGHT), mode="mixed_size"))
    assert rooms(Fleet((mixed,)), {"nvidia_a40-16q": 2}).unsure == ("esx5",)
    assert rooms(Fleet((mixed,)), {"nvidia_a40-16q": 2}, reported={"esx5": {"nvidia_a40-16q": 1}}).best is None
    assert rooms(Fleet((mixed,)), {"nvidia_a40-16q": 2}, reported={"esx5": {"nvidia_a40-16q": 2}}).fitting == ("esx5",)


def test_hosts_without_the_device_groups_say_so():
    offers = {"esx1": ["NVLink"], "esx2": ["NVLink", "NIC"], "esx3": []}
    assert without_groups({"NVLink": 1}, offers, {}) == {"esx3": "it has no device group NVLink"}
    told = {"esx1": {"NVLink": 1}, "esx2": {"NVLink": 2}}
    assert without_groups({"NVLink": 2}, offers, told) == {
        "esx1": "it has only 1 free of 2 x device group NVLink",
        "esx3": "it has no device group NVLink",
    }
