"""A11: how much work a refusal costs on a large vCenter."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.fit import DemandDoesNotFit, FitCheck
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.request import MachineDemand
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.availability import HostsCapacity
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.counts import VsphereAvailability

from tests.unit.plugins.module_utils.vsphere.facts import gpu, host, snapshot, vm

HOSTS, GPUS_PER_HOST, STOPPED = 64, 8, 2000
PROFILES = tuple(catalog.spellings(name)["vsphere"] for name in catalog.type_names("A40"))
KINDS = (
    ("nvidia_a40-8q",),
    ("nvidia_a40-4q",),
    ("nvidia_a40-16q", "nvidia_a40-16q"),
    ("nvidia_a40-12q",),
    ("nvidia_a40-48q",),
    ("nvidia_a40-2b",),
    ("nvidia_a40-8q", "nvidia_a40-4q"),
    ("nvidia_a40-24c", "nvidia_a40-24c", "nvidia_a40-24c"),
)


def large_vcenter():
    """Hosts with running VMs, some of them out of service or not shared direct, and a VDI farm of stopped VMs."""
    hosts, vms = [], []
    for number in range(HOSTS):
        name = f"esx{number:02}"
        running = [vm(f"run-{name}-{index}", KINDS[(number + index) % 4][0], on=name) for index in range(3)]
        gpus = [
            gpu(f"0000:{0x10 + index:02x}:00.0", *([running[index].moid] if index < len(running) else []))
            for index in range(GPUS_PER_HOST)
        ]
        more = {"maintenance": number % 7 == 0, "policy": ("performance", "consolidation")[number % 2]}
        if number % 9 == 1:
            gpus = [gpu(one.address, graphics_type="shared") for one in gpus]
            running = []
        hosts.append(host(name, *gpus, profiles=PROFILES, **more))
        vms += running
    vms += [
        vm(f"vdi{number:04}", *KINDS[number % len(KINDS)], on=f"esx{number % HOSTS:02}", power="poweredOff")
        for number in range(STOPPED)
    ]
    return snapshot(*hosts, vms=tuple(vms))


def test_a_refusal_on_a_large_vcenter_takes_at_most_three_cpu_seconds():
    found = large_vcenter()
    begin = time.process_time()
    counts = VsphereAvailability(found)
    records = counts.profile_records()
    check = FitCheck(
        HostsCapacity(counts),
        [
            MachineDemand("large", 600, {"nvidia_a40-48q": 1}),
            MachineDemand("pairs", 40, {"nvidia_a40-16q": 2}),
            MachineDemand("mixed", 40, {"nvidia_a40-8q": 1, "nvidia_a40-24q": 1}),
        ],
    )
    result = check.as_result()
    seconds = time.process_time() - begin
    assert len(records) == len(PROFILES)
    assert not result["fits"]
    assert all(one["reasons"] for one in result["demand"] if not one["fits"])
    assert seconds < 3
    # Rooms and placements that were computed rather than looked up. CPU time alone depends on the machine.
    assert counts.cache.classes.computed < 5_000


def test_what_if_variants_share_the_rooms_that_were_computed():
    counts = VsphereAvailability(large_vcenter())
    capacity = HostsCapacity(counts)
    stopped = capacity.detachable(["nvidia_a40-8q"])
    assert len(stopped) == len(KINDS)
    assert sum(map(len, stopped)) == STOPPED
    _packed = counts.after_claims
    before = counts.cache.classes.computed
    _packed = capacity.without([stopped[0][0]]).counts.after_claims
    assert counts.cache.classes.computed - before < 500


def out_of_service(number, *, last):
    """Hosts in maintenance with one GPU each, and then `last`."""
    small = [host(f"esx{index:02}", gpu(), profiles=PROFILES, maintenance=True) for index in range(number - 1)]
    return snapshot(*small, last)


def test_a_change_to_a_host_beyond_the_limit_is_not_denied():
    fewest, demand = 12, [MachineDemand("pool", 2, {"nvidia_a40-48q": 1})]
    roomy = [gpu(f"0000:{0x10 + index:02x}:00.0") for index in range(2)]
    last = host("esx99", *[replace(one, graphics_type="shared") for one in roomy], profiles=PROFILES, maintenance=True)
    check = FitCheck(HostsCapacity(VsphereAvailability(out_of_service(fewest, last=last))), demand)
    result = check.as_result()
    assert result["suggestions"] == []
    (left,) = result["not_tried"]
    assert "esx99" in left
    with pytest.raises(DemandDoesNotFit) as refused:
        check.require()
    assert "No single change" not in refused.value.hint
    assert "Not tried: changes to the hosts" in refused.value.hint
    # If all of them together are not enough, none of them is.
    many = [MachineDemand("pool", 600, {"nvidia_a40-48q": 1})]
    check = FitCheck(HostsCapacity(VsphereAvailability(out_of_service(fewest, last=last))), many)
    assert (check.suggestions, check.not_tried) == ([], [])
    with pytest.raises(DemandDoesNotFit) as refused:
        check.require()
    assert refused.value.hint == "No single change would make it fit."
