# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The set of devices is a multiset, and what is not ours stays."""

from __future__ import annotations

from collections import Counter

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.device_groups import GroupDevice, GroupOffer
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.devices import PciRequest, diff
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.model import (
    DeviceGroup,
    GroupMember,
    PciDevice,
    VmState,
)
from hypothesis import given, strategies as st

FOUR, EIGHT = "nvidia_a40-4q", "nvidia_a40-8q"
A100 = (0x10DE, 0x20F1)
NIC = (0x15B3, 0x101D)


def machine(*profiles: str, pci: tuple[PciDevice, ...] = ()) -> VmState:
    devices = tuple(PciDevice(13000 + number, profile=profile) for number, profile in enumerate(profiles))
    return VmState("vm-1", "vm", devices=devices + pci)


def keys(devices):
    return [device.key for device in devices]


@pytest.mark.parametrize(
    ("has", "wanted", "removed", "added"),
    [
        ([], {FOUR: 1}, [], [FOUR]),
        ([FOUR], {FOUR: 1}, [], []),
        ([FOUR], {}, [13000], []),
        ([FOUR], {EIGHT: 1}, [13000], [EIGHT]),
        ([FOUR, EIGHT], {EIGHT: 1, FOUR: 1}, [], []),
        ([FOUR], {FOUR: 3}, [], [FOUR, FOUR]),
        ([FOUR, EIGHT, FOUR], {FOUR: 1}, [13001, 13002], []),
    ],
)
def test_what_goes_and_what_comes(has, wanted, removed, added):
    found = diff(machine(*has), wanted, None)
    assert keys(found.remove) == removed
    assert list(found.add_vgpus) == added
    assert found.vgpu_counts == Counter(wanted)
    assert found.changed == bool(removed or added)


def test_of_equal_devices_the_one_with_the_highest_key_goes():
    assert keys(diff(machine(FOUR, FOUR, FOUR), {FOUR: 2}, None).remove) == [13002]


def test_not_exclusive_takes_nothing_away_and_adds_only_what_is_missing():
    found = diff(machine(FOUR, EIGHT), {FOUR: 2}, None, exclusive=False)
    assert not found.remove
    assert found.add_vgpus == (FOUR,)
    assert found.vgpu_counts == Counter({FOUR: 2, EIGHT: 1})


def test_a_kind_that_is_not_asked_for_is_left_as_it_is():
    pci = (PciDevice(13100, allowed=(A100,)),)
    found = diff(machine(FOUR, pci=pci), None, [])
    assert keys(found.remove) == [13100]
    assert found.vgpus == (FOUR,)
    assert not diff(machine(FOUR, pci=pci), {FOUR: 1}, None).changed


def test_devices_of_a_group_and_of_kinds_that_are_not_ours_are_never_touched():
    foreign = (PciDevice(13050), PciDevice(13051, profile=FOUR, group=7), PciDevice(13052, allowed=(A100,), group=7))
    found = diff(machine(pci=foreign), {FOUR: 1}, [])
    assert not found.remove
    assert found.add_vgpus == (FOUR,)
    assert machine(pci=foreign).foreign_vgpus == Counter({FOUR: 1})


def test_whole_devices_are_an_exact_set_by_ids_and_label():
    has = (
        PciDevice(13000, allowed=(A100,), label="fast"),
        PciDevice(13001, allowed=(A100,)),
        PciDevice(13002, allowed=(NIC,)),
    )
    found = diff(machine(pci=has), None, [PciRequest(A100), PciRequest(A100, "slow")])
    assert keys(found.remove) == [13000, 13002]
    assert found.add_pci == (PciRequest(A100, "slow"),)
    assert found.pci == (PciRequest(A100), PciRequest(A100, "slow"))


def test_a_device_that_allows_several_ids_serves_one_of_them_but_the_precise_one_is_preferred():
    has = (PciDevice(13000, allowed=(NIC, A100)), PciDevice(13001, allowed=(A100,)))
    assert keys(diff(machine(pci=has), None, [PciRequest(A100)]).remove) == [13000]
    assert not diff(machine(pci=has), None, [PciRequest(A100), PciRequest(NIC)]).changed


profiles = st.lists(st.sampled_from([FOUR, EIGHT, "nvidia_a40-12q"]), max_size=6)


@given(profiles, profiles, st.booleans())
def test_whatever_is_there_the_result_is_what_was_asked_for(has, wanted, exclusive):
    vm = machine(*has)
    found = diff(vm, Counter(wanted), None, exclusive=exclusive)
    left = Counter(has) - Counter(device.profile for device in found.remove) + Counter(found.add_vgpus)
    assert left == (Counter(wanted) if exclusive else Counter(has) | Counter(wanted))
    assert found.vgpu_counts == left
    # Never more than needed: no profile is removed and added in one go.
    assert not {device.profile for device in found.remove} & set(found.add_vgpus)
    again = diff(machine(*left.elements()), Counter(wanted), None, exclusive=exclusive)
    assert not again.changed


# Device groups
NVLINK, PAIR = "two@NVLink", "one@NIC"
OFFERS = {
    NVLINK: GroupOffer(
        NVLINK, devices=(GroupDevice("nvidiaVgpu", profile=EIGHT), GroupDevice("nvidiaVgpu", profile=EIGHT))
    ),
    PAIR: GroupOffer(PAIR, devices=(GroupDevice("nvidiaVgpu", profile=EIGHT), GroupDevice("pciPassthru", ids=NIC))),
}


def with_groups(*names: str) -> VmState:
    groups = tuple(
        DeviceGroup(key, name, (GroupMember(14000 + key),), OFFERS[name].vgpus, OFFERS[name].pci)
        for key, name in enumerate(names)
    )
    return VmState("vm-1", "vm", groups=groups)


@given(
    st.lists(st.sampled_from([NVLINK, PAIR]), max_size=4),
    st.none() | st.dictionaries(st.sampled_from([NVLINK, PAIR]), st.integers(1, 3)),
    st.booleans(),
)
def test_groups_are_compared_as_multisets_and_never_in_part(has, wanted, exclusive):
    found = diff(with_groups(*has), None, None, groups=wanted, offers=OFFERS, exclusive=exclusive)
    if wanted is None:
        assert not found.changed
        assert found.groups == Counter(has)
    elif exclusive:
        assert found.groups == Counter(wanted)
    else:
        assert found.groups == Counter(has) | Counter(wanted)
    kept = {group.key for group in found.keep_groups}
    gone = {group.key for group in found.remove_groups}
    assert kept | gone == set(range(len(has)))
    assert not kept & gone
    assert found.changed == bool(found.remove_groups or found.add_groups)
    # What a group needs counts for the VM, and is none of its own vGPUs.
    assert Counter(found.all_vgpus) == Counter({EIGHT: 2 * found.groups[NVLINK] + found.groups[PAIR]})
    assert len(found.all_pci) == found.groups[PAIR]
    assert not found.vgpus
    assert not found.pci
