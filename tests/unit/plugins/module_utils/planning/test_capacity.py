# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import MIG, VSPHERE, Gpu, Node, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.capacity import (
    AllowedChanges,
    Blocker,
    GpuCapacity,
    capacity_for,
    classify_slots,
    group_of,
)

from tests.unit.plugins.module_utils.fleets import gpu, off

EVICT = AllowedChanges(evict=True)


def room(one: Gpu, *profiles: str, means: AllowedChanges = EVICT, node: Node | None = None) -> GpuCapacity | Blocker:
    wanted = {parse(name).key: name for name in profiles}
    return capacity_for(classify_slots(one, node), group_of(next(iter(wanted))), wanted, means)


def places(one: Gpu, *profiles: str, means: AllowedChanges = AllowedChanges()) -> int:  # noqa: B008
    found = room(one, *profiles, means=means)
    assert isinstance(found, GpuCapacity), found
    return sum(count for _keys, count in found.lanes)


def obstacle(one: Gpu, *profiles: str, means: AllowedChanges = AllowedChanges(), node: Node | None = None) -> Blocker:  # noqa: B008
    found = room(one, *profiles, means=means, node=node)
    assert isinstance(found, Blocker), found
    return found


def offering(one: Gpu, *names: str) -> Gpu:
    return replace(one, slots=tuple(replace(slot, offered=names) if slot.empty else slot for slot in one.slots))


@pytest.mark.parametrize(
    ("contents", "profile", "count"),
    [("", "A2-4Q", 4), ("4Q", "A2-4Q", 3), ("4Q 4A", "A2-4C", 2), ("", "A2-1Q", 16), ("16Q", "A2-4Q", None)],
)
def test_a_gpu_takes_vgpus_of_one_size_of_any_series_up_to_its_most(
    contents: str, profile: str, count: int | None
) -> None:
    found = room(gpu("n:a", contents), f"NVIDIA {profile}", means=AllowedChanges())
    assert (sum(lane[1] for lane in found.lanes) if isinstance(found, GpuCapacity) else None) == count


def test_another_size_is_in_the_way_and_who_holds_it_is_said() -> None:
    found = obstacle(gpu("n:a", "8Q@web 8Q"), "NVIDIA A2-4Q")
    assert found.rule == "size"
    assert "2 x NVIDIA A2-8Q" in found.detail
    assert "VM default/web" in found.detail
    assert [holder.path for holder in found.holders] == ["default/web"]


def test_what_nobody_holds_makes_room_if_it_may_and_what_is_held_never_does() -> None:
    assert places(gpu("n:a", "8Q 8Q"), "NVIDIA A2-4Q", means=EVICT) == 4
    assert obstacle(gpu("n:a", "8Q@web 8Q"), "NVIDIA A2-4Q", means=EVICT).rule == "size"
    assert places(gpu("n:a", "4A@web 4A 4A 4A"), "NVIDIA A2-4Q", means=EVICT) == 3


def test_a_full_gpu_says_how_many_it_takes() -> None:
    found = obstacle(gpu("n:a", "4Q 4Q 4Q 4Q"), "NVIDIA A2-4Q")
    assert found.rule == "instances"
    assert "it takes 4 of this size" in found.detail
    assert "held by nobody" in found.detail


def test_each_vgpu_needs_a_virtual_function() -> None:
    assert places(gpu("n:a", "4Q", vfs=2), "NVIDIA A2-4Q") == 1
    assert obstacle(gpu("n:a", "4Q 4Q", vfs=2), "NVIDIA A2-4Q").rule == "functions"
    assert places(gpu("n:a", "8Q 8Q", vfs=3), "NVIDIA A2-4Q", means=EVICT) == 3
    assert places(gpu("n:a", "1Q@a 1Q@b 1Q", vfs=3), "NVIDIA A2-1Q", means=EVICT) == 1


def test_the_live_system_wins_over_the_catalogue_on_the_most_per_gpu() -> None:
    assert places(replace(gpu("n:a"), max_instances={"NVIDIA A2-4Q": 3}), "NVIDIA A2-4Q") == 3


def test_of_profiles_with_different_limits_the_least_counts() -> None:
    assert places(gpu("n:a", board="RTX8000P", vfs=32), "GRID RTX8000P-4Q") == 12
    assert places(gpu("n:a", board="RTX8000P", vfs=32), "GRID RTX8000P-4Q", "GRID RTX8000P-4C") == 8


def test_a_gpu_with_sriov_off_takes_nothing_unless_it_may_be_switched_on() -> None:
    assert obstacle(off("n:a"), "NVIDIA A2-4Q").rule == "sriov_off"
    assert places(off("n:a"), "NVIDIA A2-4Q", means=AllowedChanges(sriov=True)) == 4
    assert places(off("n:a", vfs=3), "NVIDIA A2-4Q", means=AllowedChanges(sriov=True)) == 3
    unknown = replace(off("n:a", board="L40S"), vf_capacity=None)
    assert places(unknown, "NVIDIA L40S-1Q", means=AllowedChanges(sriov=True)) == 32
    # Of boards that it may be, the one with the fewest functions counts.
    either = replace(unknown, boards=("A2", "L40S"))
    assert places(either, "NVIDIA L40S-1Q", means=AllowedChanges(sriov=True)) == 16


def test_a_type_that_the_driver_does_not_offer_is_not_planned() -> None:
    one = offering(gpu("n:a"), "NVIDIA A2-4Q", "NVIDIA A2-4A")
    assert places(one, "NVIDIA A2-4Q") == 4
    assert obstacle(one, "NVIDIA A2-4C").rule == "not_offered"
    beside = offering(gpu("n:a", "4Q"), "NVIDIA A2-4Q", "NVIDIA A2-4A")
    assert obstacle(beside, "NVIDIA A2-4C", means=EVICT).rule == "not_offered"
    assert places(beside, "NVIDIA A2-4A", means=EVICT) == 4


def test_only_what_every_empty_slot_offers_is_planned() -> None:
    less, more = ("NVIDIA A2-4Q",), ("NVIDIA A2-4Q", "NVIDIA A2-4C")
    one = replace(gpu("n:a", vfs=2), slots=(Slot("a", offered=less), Slot("b", offered=more)))
    assert places(one, "NVIDIA A2-4Q") == 2
    assert obstacle(one, "NVIDIA A2-4C").rule == "not_offered"


def test_what_is_offered_beside_another_size_does_not_tell_what_the_empty_gpu_offers() -> None:
    one = offering(gpu("n:a", "8Q"), "NVIDIA A2-8Q")
    assert places(one, "NVIDIA A2-4Q", means=EVICT) == 4


def test_a_slot_that_offers_nothing_takes_nothing_whatever_the_catalogue_says() -> None:
    assert obstacle(offering(gpu("n:a", "4Q 4Q")), "NVIDIA A2-4Q").rule == "functions"
    assert obstacle(offering(gpu("n:a")), "NVIDIA A2-4Q", means=EVICT).rule == "functions"


def test_a_node_that_is_down_or_a_blocked_gpu_is_left_alone() -> None:
    down = obstacle(gpu("n:a"), "NVIDIA A2-4Q", node=Node("n", ready=False), means=EVICT)
    assert (down.rule, down.detail) == ("unusable", "node n is not ready")
    blocked = replace(gpu("n:a"), blocked="it is passed through as a whole")
    assert obstacle(blocked, "NVIDIA A2-4Q").detail == "it is passed through as a whole"


def test_a_slot_under_way_counts_and_one_asked_for_nonsense_takes_only_its_function() -> None:
    assert places(gpu("n:a", "?4Q"), "NVIDIA A2-4Q") == 3
    nonsense = Slot("x", wanted="garbage")
    one = replace(gpu("n:a", vfs=4), slots=(nonsense, *gpu("n:a", vfs=3).slots))
    assert places(one, "NVIDIA A2-4Q") == 3
    assert places(one, "NVIDIA A2-4Q", means=EVICT) == 4


def test_a_drifted_slot_is_what_it_is_and_not_what_it_was_asked_to_be() -> None:
    assert places(gpu("n:a", "4Q~8Q"), "NVIDIA A2-4Q") == 3
    assert obstacle(gpu("n:a", "4Q~8Q"), "NVIDIA A2-8Q").rule == "size"
    assert places(gpu("n:a", "4Q~8Q"), "NVIDIA A2-8Q", means=EVICT) == 2


def mig(contents: str = "", **instances: int) -> Gpu:
    named = {f"GRID A100-{name[1:].replace('_', '-')}": count for name, count in instances.items()}
    return replace(gpu("n:a", contents, board="A100", vfs=7), mode=MIG, max_instances=named)


def test_mig_and_time_sliced_profiles_do_not_meet_on_one_gpu() -> None:
    assert obstacle(mig(_3_20C=2), "GRID A100-4C").rule == "mode"
    assert obstacle(gpu("n:a", board="A100"), "GRID A100-3-20C").rule == "mode"


def test_a_mig_gpu_serves_each_type_from_the_instances_it_has() -> None:
    one = mig("3-20C", _3_20C=2, _1_5C=1)
    assert places(one, "GRID A100-3-20C") == 1
    assert places(one, "GRID A100-3-20C", "GRID A100-1-5C") == 2
    assert obstacle(mig("3-20C@web 3-20C", _3_20C=2), "GRID A100-3-20C").rule == "instances"
    assert obstacle(mig(), "GRID A100-3-20C").rule == "mig_layout"


def test_a_mig_gpu_needs_a_virtual_function_for_each_vgpu_of_any_type() -> None:
    one = mig(_1_5C=7)
    few = replace(one, slots=one.slots[:2])
    assert places(few, "GRID A100-1-5C") == 2
    both = replace(mig(_1_5C=2, _2_10C=2), slots=one.slots[:3])
    assert places(both, "GRID A100-1-5C", "GRID A100-2-10C") == 3


def test_a_mig_type_that_is_offered_without_a_count_has_one_instance_at_least() -> None:
    assert places(offering(mig(), "GRID A100-1-5C"), "GRID A100-1-5C") == 1


def test_on_vsphere_a_slot_comes_to_be_with_its_vm() -> None:
    host = replace(gpu("h:a", "4Q@a 4Q@b", board="A40", vfs=2), platform=VSPHERE)
    assert places(host, "NVIDIA A40-4Q") == 10
    assert obstacle(host, "NVIDIA A40-8Q").rule == "size"
