"""Machines with passthrough devices on hosts."""

from __future__ import annotations

import itertools
from collections import Counter

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.template.room import machines_that_fit
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.devices import PciRequest
from hypothesis import given, strategies as st

GPU, NIC = (0x10DE, 0x20B5), (0x15B3, 0x101E)


def test_all_devices_of_a_machine_come_from_one_host() -> None:
    pair = [PciRequest(GPU), PciRequest(NIC)]
    assert machines_that_fit({"a": [(GPU, ""), (NIC, "")]}, [(pair, 1)])
    assert not machines_that_fit({"a": [(GPU, "")], "b": [(NIC, "")]}, [(pair, 1)])


def test_a_label_has_to_match_and_unlabelled_requests_leave_labelled_devices_to_others() -> None:
    host = {"a": [(GPU, "fast"), (GPU, "")]}
    assert machines_that_fit(host, [([PciRequest(GPU)], 1), ([PciRequest(GPU, "fast")], 1)])
    assert not machines_that_fit(host, [([PciRequest(GPU, "fast")], 2)])
    assert not machines_that_fit(host, [([PciRequest(GPU, "other")], 1)])


def test_nothing_always_fits() -> None:
    assert machines_that_fit({}, [])
    assert machines_that_fit({}, [([PciRequest(GPU)], 0)])


devices = st.lists(st.sampled_from([GPU, NIC]), max_size=3)


@given(st.lists(devices, max_size=3), st.lists(st.tuples(devices.filter(bool), st.integers(0, 2)), max_size=2))
def test_the_answer_is_that_of_a_search_through_all_placements(
    hosts: list[list[tuple[int, int]]], demands: list[tuple[list[tuple[int, int]], int]]
) -> None:
    machines = [Counter(wanted) for wanted, count in demands for _machine in range(count)]
    free = [Counter(host) for host in hosts]

    def works(places: tuple[int, ...]) -> bool:
        used = [Counter[tuple[int, int]]() for _host in free]
        for place, wanted in zip(places, machines, strict=True):
            used[place] += wanted
        return all(one <= there for one, there in zip(used, free, strict=True))

    expected = any(works(places) for places in itertools.product(range(len(free)), repeat=len(machines)))
    found = machines_that_fit(
        {str(index): [(device, "") for device in host] for index, host in enumerate(hosts)},
        [([PciRequest(device) for device in wanted], count) for wanted, count in demands],
    )
    assert found == (expected or not machines)
