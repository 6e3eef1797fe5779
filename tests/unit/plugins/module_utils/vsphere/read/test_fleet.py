"""From what vCenter shows to the fleet."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.counts import VsphereAvailability
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.inventory import ConfiguredGraphics, ProfileFacts
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.mig import instances
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.result.findings import findings
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.apply import HostCache
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.model import VmState

from tests.unit.plugins.module_utils.vsphere.facts import (
    A40,
    A100,
    FIRST,
    MIG_PROFILES,
    SECOND,
    gpu,
    host,
    old_host,
    snapshot,
    vm,
)


def only(found, address=FIRST):
    return next(one for one in found.fleet.gpus if one.address == address)


def mig_gpu(*vms, **more):
    return gpu(FIRST, *vms, device=A100, vgpu_mode="multiInstanceGpu", **more)


def mig_host(*gpus, **more):
    details = tuple(ProfileFacts(name, A100, mig=True) for name in MIG_PROFILES)
    return host("esx1", *(gpus or (mig_gpu(),)), **({"profiles": MIG_PROFILES, "details": details} | more))


def test_a_gpu_has_a_slot_for_each_running_vgpu_and_one_for_what_is_offered():
    found = snapshot(host("esx1", gpu(FIRST, "a")), vms=(vm("a", "nvidia_a40-8q"),))
    taken, free = only(found).ordered_slots
    assert (taken.profile, taken.state, taken.holders[0].name) == ("nvidia_a40-8q", "allocatable", "a")
    assert (free.profile, free.state) == (None, "empty")
    assert "nvidia_a40-16q" in free.offered
    assert only(found).board == "A40"


def test_without_details_the_board_is_told_by_pci_id_and_names():
    found = snapshot(old_host())
    assert only(found).boards == ("A40",)
    assert only(found).framebuffer_mib == 48 * 1024


def test_the_framebuffer_is_the_hosts_word():
    assert only(snapshot(host(framebuffers={A40: 46 * 1024}))).framebuffer_mib == 46 * 1024


def test_profiles_of_another_board_in_the_same_host_are_not_offered():
    t4 = 0x1EB8 << 16 | 0x10DE
    details = (ProfileFacts("nvidia_a40-8q", A40, mig=False), ProfileFacts("grid_t4-8q", t4, mig=False))
    mixed = host("esx1", gpu(), gpu(SECOND, device=t4), profiles=("nvidia_a40-8q", "grid_t4-8q"), details=details)
    found = snapshot(mixed)
    assert [one.ordered_slots[-1].offered for one in found.fleet.gpus] == [("nvidia_a40-8q",), ("grid_t4-8q",)]
    old = snapshot(old_host("esx1", *mixed.gpus, profiles=mixed.profiles))
    assert [one.ordered_slots[-1].offered for one in old.fleet.gpus] == [("nvidia_a40-8q",), ("grid_t4-8q",)]


def test_vms_that_are_off_or_suspended_claim_and_templates_do_not():
    found = snapshot(
        host(),
        vms=(
            vm("off", "nvidia_a40-8q", "nvidia_a40-8q", power="poweredOff"),
            vm("asleep", "nvidia_a40-4q", power="suspended"),
            vm("golden", "nvidia_a40-8q", power="poweredOff", template=True),
        ),
    )
    assert [(claim.holder.name, claim.count, claim.node) for claim in found.fleet.ordered_claims] == [
        ("asleep", 1, None),
        ("off", 2, None),
    ]


def test_a_running_vm_that_no_gpu_lists_is_a_claim_on_its_host_and_a_doubt():
    found = snapshot(host(), vms=(vm("lagging", "nvidia_a40-8q"),))
    (claim,) = found.fleet.claims
    assert (claim.node, claim.holder.running) == ("esx1", True)
    assert all("lagging" in notes[0] for notes in found.notes.values())


def test_a_vm_that_the_host_does_not_have_is_a_doubt():
    found = snapshot(host("esx1", gpu(FIRST, "vm-99"), gpu(SECOND)))
    assert "vm-99" in found.notes["esx1-00003b000"][0]
    assert not found.notes["esx1-00003d000"]


def test_the_fleet_without_a_vm_offers_what_it_held_back():
    pinned = snapshot(old_host("esx1", gpu(FIRST, "a", vgpu_mode=None)), vms=(vm("a", "nvidia_a40-8q"),))
    assert only(pinned).ordered_slots[-1].offered == ("nvidia_a40-8q",)
    (freed,) = pinned.fleet_without("a").gpus
    assert len(freed.slots) == 1
    assert "nvidia_a40-16q" in freed.slots[0].offered


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (host(connected=False), "host esx1 is not connected"),
        (host(maintenance=True), "host esx1 is in maintenance mode"),
        (host("esx1", gpu(graphics_type="direct")), "it is given away whole (DirectPath I/O)"),
        (host("esx1", gpu(graphics_type="shared")), "it is not shared direct"),
        (
            host("esx1", gpu(graphics_type="shared"), configured={FIRST: ConfiguredGraphics("sharedDirect")}),
            "it will be shared direct only after a restart of Xorg or of the host",
        ),
    ],
)
def test_why_a_gpu_serves_nothing(facts, reason):
    assert only(snapshot(facts)).blocked == reason
    assert all(slot.profile for slot in only(snapshot(facts)).slots)


def test_a_gpu_without_profiles_lacks_its_driver():
    assert "driver" in only(snapshot(host(profiles=()))).blocked


def test_mig_is_told_by_the_mode_or_by_profiles_that_are_all_of_that_kind():
    assert only(snapshot(mig_host())).mode == "mig"
    assert only(snapshot(mig_host(mig_gpu(), version="7.0.3"))).mode == "mig"
    older = old_host("esx1", gpu(FIRST, device=A100, vgpu_mode=None), profiles=MIG_PROFILES)
    assert only(snapshot(older)).mode == "mig"


def test_both_kinds_of_profiles_and_no_mode_are_a_doubt():
    both = old_host("esx1", gpu(FIRST, device=A100, vgpu_mode=None), profiles=(*MIG_PROFILES, "grid_a100-10c"))
    found = snapshot(both)
    assert only(found).mode == "time_sliced"
    assert "MIG" in found.notes["esx1-00003b000"][0]


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ([], {"grid_a100-1-5c": 7, "grid_a100-2-10c": 3, "grid_a100-3-20c": 2, "grid_a100-7-40c": 1}),
        (
            ["grid_a100-3-20c"],
            {"grid_a100-1-5c": 4, "grid_a100-2-10c": 2, "grid_a100-3-20c": 2, "grid_a100-7-40c": 0},
        ),
        (["grid_a100-7-40c"], {"grid_a100-1-5c": 0, "grid_a100-2-10c": 0, "grid_a100-3-20c": 0, "grid_a100-7-40c": 1}),
    ],
)
def test_mig_instances_follow_the_guide(present, expected):
    assert instances(("A100",), MIG_PROFILES, present) == expected


def test_names_that_occur_twice_are_told_apart_by_id():
    twins = [replace(vm(moid, "nvidia_a40-8q"), name="same") for moid in ("vm-1", "vm-2")]
    found = snapshot(host("esx1", gpu(FIRST, "vm-1", "vm-2")), vms=(*twins, vm("other")))
    assert [holder.path for holder in found.holders.values()] == ["vm-1/same", "vm-2/same", "other"]


def test_a_spelling_finds_the_hosts_own_name():
    assert snapshot(host()).known.resolve("A40-8Q") == "nvidia_a40-8q"
    assert snapshot(host()).known.resolve("NVIDIA A40-8Q") == "nvidia_a40-8q"


def twins():
    """Two clusters of one name. The one of dc1 has a GPU less than its stopped VMs need; dc2 is empty."""
    one = host("a1", gpu(), datacenter="dc1", resource="domain-c1")
    other = host("b1", gpu(), datacenter="dc2", resource="domain-c2")
    stopped = [vm(name, "nvidia_a40-48q", on="a1", power="poweredOff") for name in ("v1", "v2")]
    return snapshot(one, other, vms=tuple(stopped))


def test_a12_clusters_of_one_name_are_two_records_and_stopped_vms_stay_in_their_own():
    record = next(one for one in VsphereAvailability(twins()).profile_records() if one["profile"] == "nvidia_a40-48q")
    shown = [(one["cluster"], one["datacenter"], one["claimed"], one["free"]) for one in record["clusters"]]
    assert shown == [("gpu", "dc1", 2, 0), ("gpu", "dc2", 0, 1)]


def test_a12_a_vm_is_changed_among_the_hosts_of_its_own_cluster():
    hosts = HostCache(None)
    hosts.all = [
        host("a1", datacenter="dc1", resource="domain-c1"),
        # The same names once more, in a datacenter of that name in another folder.
        host("a2", datacenter="dc1", resource="domain-c2"),
        host("a3", datacenter="dc1", resource="domain-c1"),
    ]
    around = hosts.around(VmState("vm-1", "web", host="host-a1"))
    assert [one.name for one in around.hosts] == ["a1", "a3"]


def test_a14_a_vm_that_moved_out_of_the_selection_or_has_no_host_is_no_finding():
    moved, lost = vm("moved", "nvidia_a40-8q", on="esx9"), replace(vm("lost", "nvidia_a40-8q"), host="")
    found = findings(snapshot(host(default_type="sharedDirect"), vms=(moved, lost)))
    assert found == []


def test_a12_a_profile_of_a_cluster_of_the_same_name_elsewhere_is_not_on_offer():
    shared = {"default_type": "sharedDirect"}
    one = host("a1", profiles=("nvidia_a40-4q",), datacenter="dc1", resource="domain-c1", **shared)
    other = host("b1", datacenter="dc2", resource="domain-c2", **shared)
    (found,) = findings(snapshot(one, other, vms=(vm("v1", "nvidia_a40-8q", on="a1", power="poweredOff"),)))
    assert found.kind == "profile_not_offered"
