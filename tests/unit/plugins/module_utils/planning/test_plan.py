# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import InvalidDemand, NothingSelected
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Node, Slot, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile_resolver import UnknownProfile
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import Plan, plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.problem import Problem
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, NoSuitableGpu, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.surplus import CountInUse

from tests.unit.plugins.module_utils.fleets import contents, fleet, gpu, off, vm

REPROFILE = Policy(reprofile=True)
EXCLUSIVE = Policy(exclusive=True)
SRIOV = Policy(enable_sriov=True)
SPREAD = Policy(placement="spread")


def ask(profile: str, count: int, per: str = "fleet", **where: tuple[str, ...]) -> Demand:
    return Demand(f"A2-{profile}", count, per, **where)


def after(record: Fleet, *demands: Demand, policy: Policy | None = None) -> dict[str, str]:
    return contents(plan(record, demands, policy).after)


def said(found: Plan) -> list[str]:
    return [str(step) for step in found.steps]


def test_empty_slots_are_enabled_in_the_order_of_their_addresses() -> None:
    found = plan(fleet(gpu("n1:a")), [ask("4Q", 2)])
    assert said(found) == [
        "enable NVIDIA A2-4Q on n1:a-00 of GPU n1:a",
        "enable NVIDIA A2-4Q on n1:a-01 of GPU n1:a",
    ]
    assert found.steps[0].as_dict() == {
        "action": "enable",
        "node": "n1",
        "gpu": "n1:a",
        "slot": "n1:a-00",
        "before": None,
        "after": "NVIDIA A2-4Q",
    }


def test_what_is_configured_already_counts_held_or_not() -> None:
    record = fleet(gpu("n1:a", "4Q@web 4Q"), gpu("n2:a", "4Q@db-"))
    assert not plan(record, [ask("4Q", 3)]).changed
    assert after(record, ask("4Q", 4)) == {"n1:a": "4Q 4Q 4Q", "n2:a": "4Q"}


def test_a_lower_count_disables_unused_vgpus_of_that_profile_and_no_others() -> None:
    record = fleet(gpu("n1:a", "4Q 4Q@web 4Q 4A"), gpu("n2:a", "8Q 8Q"))
    assert said(plan(record, [ask("4Q", 2)])) == ["disable NVIDIA A2-4Q on n1:a-02 of GPU n1:a"]
    assert after(record, ask("4Q", 1)) == {"n1:a": "4A 4Q", "n2:a": "8Q 8Q"}
    assert after(record, ask("8Q", 0)) == {"n1:a": "4A 4Q 4Q 4Q", "n2:a": ""}


def test_a_lower_count_concerns_the_selection_only() -> None:
    record = fleet(gpu("n1:a", "4Q 4Q"), gpu("n1:b", "4Q"), gpu("n2:a", "4Q 4Q"))
    assert after(record, ask("4Q", 0, gpus=("n1:a",))) == {"n1:a": "", "n1:b": "4Q", "n2:a": "4Q 4Q"}
    assert after(record, ask("4Q", 1, "node")) == {"n1:a": "4Q", "n1:b": "", "n2:a": "4Q"}


def test_a_count_that_vms_exceed_is_refused_and_names_them() -> None:
    record = fleet(gpu("n1:a", "4Q@web 4Q@db- 4Q"))
    with pytest.raises(CountInUse, match=r"VMs hold 2 of them.* held by VM default/db \(stopped\)\.") as caught:
        plan(record, [ask("4Q", 1)])
    assert caught.value.as_dict()["code"] == "device_in_use"
    stopped = fleet(gpu("n1:a", "4Q 4Q"), claims=[UnboundRequest("NVIDIA A2-4Q", 2, vm("db", running=False))])
    with pytest.raises(CountInUse, match="default/db"):
        plan(stopped, [ask("4Q", 1)])


def test_a_lower_count_keeps_as_many_as_stopped_vms_ask_for_on_whichever_nodes() -> None:
    def asked(name: str, profile: str, count: int = 1) -> UnboundRequest:
        return UnboundRequest(f"NVIDIA A2-{profile}", count, vm(name, running=False))

    nodes = gpu("n1:a", "4Q"), gpu("n2:a", "4Q@vm1- 4Q 4Q"), gpu("n3:a", "4Q")
    named = fleet(*nodes, claims=[asked("vm1", "4Q"), asked("vm2", "4Q", 2)])
    with pytest.raises(CountInUse, match="VMs hold 4 of them"):
        plan(named, [ask("4Q", 3)])
    assert len(plan(named, [ask("4Q", 4)]).steps) == 1
    nodes = gpu("n1:a", "4Q"), gpu("n2:a", "4Q 4Q 4C"), gpu("n3:a", "4Q")
    unnamed = fleet(*nodes, claims=[asked("vm1", "4Q"), asked("vm1", "4C"), asked("vm2", "4Q", 2)])
    with pytest.raises(CountInUse, match="VMs hold 3 of them"):
        plan(unnamed, [ask("4Q", 2)])
    # A request for a certain node has no other choice.
    late = replace(asked("vm2", "4Q"), node="n2")
    with pytest.raises(CountInUse, match="VMs hold 3 of them"):
        plan(fleet(gpu("n1:a", "4Q"), gpu("n2:a", "4Q 4Q"), claims=[asked("vm1", "4Q", 2), late]), [ask("4Q", 2)])


def test_vgpus_that_a_lower_count_removes_make_room_for_others() -> None:
    record = fleet(gpu("n1:a", "4Q@web 4Q"), gpu("n2:a", "4Q 4Q"))
    assert after(record, ask("4Q", 2), ask("8Q", 2)) == {"n1:a": "4Q 4Q", "n2:a": "8Q 8Q"}


def test_vgpus_that_are_not_allocatable_go_first_when_a_count_is_lowered() -> None:
    assert said(plan(fleet(gpu("n1:a", "?4Q 4Q")), [ask("4Q", 1)])) == ["disable NVIDIA A2-4Q on n1:a-00 of GPU n1:a"]


def test_vgpus_on_a_node_that_is_down_count_and_stay() -> None:
    record = fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q"), down=["n2"])
    assert after(record, ask("4Q", 1)) == {"n1:a": "", "n2:a": "4Q"}
    assert after(record, ask("4Q", 0)) == {"n1:a": "", "n2:a": "4Q"}


@pytest.mark.parametrize("policy", [Policy(), EXCLUSIVE])
def test_surplus_that_has_to_stay_is_told_with_the_reason(policy: Policy) -> None:
    record = fleet(gpu("n1:a", vfs=1), gpu("n2:a", "4Q 4Q"), down=["n2"])
    found = plan(record, [ask("4Q", 1)], policy)
    (stuck,) = found.stuck
    assert (found.steps, found.optimal) == ((), False)
    assert stuck.as_dict() in found.as_dict()["stuck"]
    assert (stuck.gpu, stuck.profile, stuck.reason) == ("n2:a", "NVIDIA A2-4Q", "node n2 is not ready")
    enough = plan(record, [ask("4Q", 2)], policy)
    assert (enough.stuck, enough.optimal) == ((), True)


def test_surplus_on_a_gpu_that_is_passed_through_is_told() -> None:
    record = fleet(replace(gpu("n1:a", "4Q"), blocked="claimed for passthrough"))
    found = plan(record, [ask("4Q", 0)])
    assert [(one.slot, one.reason) for one in found.stuck] == [("n1:a-00", "claimed for passthrough")]


def test_an_exclusive_plan_tells_other_profiles_that_have_to_stay() -> None:
    record = fleet(gpu("n1:a", "4Q"), gpu("n2:a", "4A 4A@web"), down=["n2"])
    assert [one.profile for one in plan(record, [ask("4Q", 1)], EXCLUSIVE).stuck] == ["NVIDIA A2-4A"]
    assert plan(record, [ask("4Q", 1)]).stuck == ()
    assert plan(record, [ask("4Q", 1, nodes=("n1",))], EXCLUSIVE).stuck == ()


def test_overlapping_demands_keep_the_vgpus_that_vms_hold() -> None:
    record = fleet(gpu("n1:a", "4Q 4Q@web"), gpu("n2:a", "4Q@db"))
    demands = [ask("4Q", 1, nodes=("n1", "n2")), ask("4Q", 1, nodes=("n1",))]
    assert after(record, *demands) == {"n1:a": "4Q", "n2:a": "4Q"}
    assert {slot.name for _gpu, slot in plan(record, demands).after.slots() if slot.profile} == {
        "n1:a-01",
        "n2:a-00",
    }


def test_an_empty_selection_selects_nothing() -> None:
    """H2: a filter that found nothing does not stand for the whole fleet."""
    record = fleet(gpu("n1:a", "4Q"))
    for where in ({"nodes": ()}, {"gpus": ()}, {"nodes": ("*",), "gpus": ()}):
        for policy in (None, EXCLUSIVE):
            with pytest.raises(NothingSelected, match="is an empty list"):
                plan(record, [ask("4Q", 0, **where)], policy)


def test_a_slot_that_is_under_way_counts_and_is_waited_for() -> None:
    found = plan(fleet(gpu("n1:a", "?4Q")), [ask("4Q", 1)])
    assert not found.changed
    assert found.waiting == ("n1:a-00",)


def test_any_spelling_is_planned_with_the_name_that_the_system_has() -> None:
    record = fleet(gpu("n1:a", "4Q"))
    for spelling in ("A2-4Q", "nvidia.com/NVIDIA_A2-4Q", "nvidia_a2-4q"):
        assert plan(record, [Demand(spelling, 2)]).steps[0].after == "NVIDIA A2-4Q"
    with pytest.raises(UnknownProfile):
        plan(record, [Demand("A2-5Q", 2)])


def test_a_gpu_that_is_partly_filled_is_filled_up_before_an_empty_one_is_begun() -> None:
    record = fleet(gpu("n1:a"), gpu("n1:b", "4Q@web 4Q"))
    assert after(record, ask("4Q", 4)) == {"n1:a": "", "n1:b": "4Q 4Q 4Q 4Q"}


def test_the_fewest_gpus_are_touched() -> None:
    record = fleet(gpu("n1:a", "4Q@w 4Q 4Q"), gpu("n1:b", "4Q@w 4Q 4Q"), gpu("n2:a"))
    found = plan(record, [ask("4Q", 9)])
    assert found.touched == ("n2:a",)
    assert found.optimal


def test_series_of_the_same_size_share_a_gpu_and_sizes_do_not() -> None:
    record = fleet(gpu("n1:a"), gpu("n1:b"))
    assert after(record, ask("4Q", 2), ask("4A", 2)) == {"n1:a": "4A 4A 4Q 4Q", "n1:b": ""}
    assert after(record, ask("4Q", 1), ask("8Q", 1)) == {"n1:a": "4Q", "n1:b": "8Q"}


def test_demands_are_planned_together_so_that_a_choosy_one_is_not_shut_out() -> None:
    record = fleet(gpu("n1:a"), gpu("n2:a"))
    assert after(record, ask("4Q", 1), ask("8Q", 1, gpus=("n1:a",))) == {"n1:a": "8Q", "n2:a": "4Q"}


def test_demands_for_the_same_profile_add_up() -> None:
    record = fleet(gpu("n1:a", "4Q"), gpu("n2:a"))
    assert after(record, ask("4Q", 2, nodes=("n1",)), ask("4Q", 1)) == {"n1:a": "4Q 4Q 4Q", "n2:a": ""}


def test_a_count_is_for_the_fleet_or_for_each_node_or_for_each_gpu() -> None:
    record = fleet(gpu("n1:a"), gpu("n1:b"), gpu("n2:a"))
    assert after(record, ask("4Q", 2)) == {"n1:a": "4Q 4Q", "n1:b": "", "n2:a": ""}
    assert after(record, ask("4Q", 2, "node")) == {"n1:a": "4Q 4Q", "n1:b": "", "n2:a": "4Q 4Q"}
    assert after(record, ask("4Q", 2, "gpu")) == {"n1:a": "4Q 4Q", "n1:b": "4Q 4Q", "n2:a": "4Q 4Q"}


def test_nodes_and_gpus_are_selected_by_name_or_pattern_and_both_have_to_match() -> None:
    record = fleet(gpu("n1:a"), gpu("n1:b"), gpu("n2:a"), gpu("m1:a"))
    assert after(record, ask("4Q", 1, "gpu", nodes=("n*",), gpus=("*:a",))) == {
        "m1:a": "",
        "n1:a": "4Q",
        "n1:b": "",
        "n2:a": "4Q",
    }


def test_a_selection_that_matches_nothing_is_an_error_that_lists_what_there_is() -> None:
    record = fleet(gpu("gpu-a:x"), gpu("gpu-b:x"))
    with pytest.raises(NothingSelected, match=r"No node matches 'gpu-c'.*gpu-a, gpu-b"):
        plan(record, [ask("4Q", 1, nodes=("gpu-c",))])
    with pytest.raises(NothingSelected, match="No GPU matches 'y'"):
        plan(record, [ask("4Q", 1, gpus=("y",))])
    with pytest.raises(NothingSelected, match="no GPU on nodes gpu-a that matches gpu-b:x"):
        plan(record, [ask("4Q", 1, nodes=("gpu-a",), gpus=("gpu-b:x",))])


def test_a_demand_only_concerns_gpus_of_its_board() -> None:
    record = fleet(gpu("n1:a"), gpu("n1:b", board="L40S", vfs=32), gpu("n2:a", board="L40S", vfs=32))
    assert after(record, ask("4Q", 1, "node")) == {"n1:a": "4Q", "n1:b": "", "n2:a": ""}
    with pytest.raises(NoSuitableGpu, match=r"No GPU on node n2 can have a NVIDIA A2-4Q.*L40S"):
        plan(record, [ask("4Q", 1, "node", nodes=("n1", "n2"))])
    with pytest.raises(NoSuitableGpu, match="boards selected are: A2, L40S"):
        plan(record, [Demand("GRID A100-4C", 1)])


def test_counts_and_scopes_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InvalidDemand):
        ask("4Q", -1)
    with pytest.raises(InvalidDemand):
        ask("4Q", 1, "rack")
    with pytest.raises(InvalidDemand):
        Policy(placement="anywhere")


def test_unused_vgpus_are_only_removed_with_reprofile_and_only_if_it_does_not_go_without() -> None:
    record = fleet(gpu("n1:a", "8Q 8Q"), gpu("n2:a", "8Q@web"), gpu("n3:a"))
    with pytest.raises(DoesNotFit):
        plan(record, [ask("4Q", 5)])
    found = plan(record, [ask("4Q", 5)], REPROFILE)
    assert contents(found.after) == {"n1:a": "4Q", "n2:a": "8Q", "n3:a": "4Q 4Q 4Q 4Q"}
    assert [step.action for step in found.steps if step.gpu == "n1:a"] == ["disable", "disable", "enable"]
    assert after(record, ask("4Q", 4), policy=REPROFILE)["n1:a"] == "8Q 8Q"


def test_no_more_is_removed_than_has_to_go() -> None:
    record = fleet(gpu("n1:a", "4A 4A 4A 4A@web"))
    assert after(record, ask("4Q", 1), policy=REPROFILE) == {"n1:a": "4A 4A 4A 4Q"}
    assert after(record, ask("4Q", 1), ask("4A", 3), policy=REPROFILE) == {"n1:a": "4A 4A 4A 4Q"}


def test_a_slot_just_disabled_is_the_last_to_be_enabled_again() -> None:
    found = plan(fleet(gpu("n1:a", "8Q", vfs=3)), [ask("4Q", 3)], REPROFILE)
    assert [step.slot for step in found.steps] == ["n1:a-00", "n1:a-01", "n1:a-02", "n1:a-00"]


def test_nothing_that_a_vm_holds_is_touched_running_or_not() -> None:
    record = fleet(gpu("n1:a", "8Q@web 8Q"), gpu("n2:a", "8Q@db-"))
    with pytest.raises(DoesNotFit):
        plan(record, [ask("4Q", 1)], REPROFILE)


def test_slots_that_stopped_vms_will_take_are_kept_though_nobody_knows_which() -> None:
    claims = [UnboundRequest("NVIDIA A2-8Q", 1, vm("late", running=False))]
    record = fleet(gpu("n1:a", "8Q"), gpu("n2:a", "8Q"), claims=claims)
    assert after(record, ask("4Q", 1), policy=REPROFILE) == {"n1:a": "8Q", "n2:a": "4Q"}
    with pytest.raises(DoesNotFit):
        plan(record, [ask("4Q", 5)], REPROFILE)


def test_sriov_is_switched_on_only_if_allowed_and_needed() -> None:
    record = fleet(off("n1:a"), gpu("n2:a"))
    assert plan(record, [ask("4Q", 4)], SRIOV).touched == ("n2:a",)
    with pytest.raises(DoesNotFit):
        plan(record, [ask("4Q", 5)])
    found = plan(record, [ask("4Q", 5)], SRIOV)
    assert said(found)[:2] == [
        "switch SR-IOV on for GPU n1:a",
        "enable NVIDIA A2-4Q on a new vGPU of GPU n1:a",
    ]


def test_switching_a_gpu_on_comes_before_removing_vgpus() -> None:
    record = fleet(off("n1:a"), gpu("n2:a", "8Q"))
    found = plan(record, [ask("4Q", 1)], Policy(enable_sriov=True, reprofile=True))
    assert found.touched == ("n1:a",)


def test_a_gpu_that_may_be_one_of_two_boards_can_be_switched_on_for_either() -> None:
    either = replace(off("n1:a"), boards=("A2", "A16"))
    assert plan(fleet(either), [Demand("A16-4Q", 1)], SRIOV).touched == ("n1:a",)


def test_exclusive_disables_what_nobody_asked_for_in_the_selection() -> None:
    record = fleet(gpu("n1:a", "4Q 4Q 4A"), gpu("n1:b", "8Q", board="A2"), gpu("n2:a", "8Q"))
    assert after(record, ask("4Q", 1, nodes=("n1",)), policy=EXCLUSIVE) == {"n1:a": "4Q", "n1:b": "", "n2:a": "8Q"}


def test_exclusive_also_concerns_other_boards_of_the_selection() -> None:
    record = fleet(gpu("n1:a", "4Q"), gpu("n1:b", "8Q", board="L40S", vfs=32))
    assert after(record, ask("4Q", 1), policy=EXCLUSIVE) == {"n1:a": "4Q", "n1:b": ""}


def test_exclusive_with_a_count_of_zero_clears_the_selection() -> None:
    assert after(fleet(gpu("n1:a", "4Q 4A")), ask("4Q", 0), policy=EXCLUSIVE) == {"n1:a": ""}


def test_exclusive_makes_room_for_what_is_asked_in_the_same_plan() -> None:
    assert after(fleet(gpu("n1:a", "8Q 8Q")), ask("4Q", 4), policy=EXCLUSIVE) == {"n1:a": "4Q 4Q 4Q 4Q"}


def test_exclusive_keeps_what_is_allocatable_rather_than_what_is_not() -> None:
    one = gpu("n1:a", "4Q 4Q")
    slow = replace(one, slots=(replace(one.slots[0], allocatable=False), *one.slots[1:]))
    found = plan(fleet(slow), [ask("4Q", 1)], EXCLUSIVE)
    assert said(found) == ["disable NVIDIA A2-4Q on n1:a-00 of GPU n1:a"]


def test_exclusive_changes_nothing_where_all_is_as_asked() -> None:
    record = fleet(gpu("n1:a", "4Q@web 4Q"), gpu("n2:a", "8Q"))
    assert not plan(record, [ask("4Q", 2, nodes=("n1",)), ask("8Q", 1)], EXCLUSIVE).changed


def test_a_node_that_is_down_is_left_as_it_is_and_counted() -> None:
    record = fleet(gpu("n1:a", "4Q 4A"), gpu("n2:a"), down=["n1"])
    assert after(record, ask("4Q", 1)) == {"n1:a": "4Q 4A".replace("4Q 4A", "4A 4Q"), "n2:a": ""}
    assert after(record, ask("4Q", 2)) == {"n1:a": "4A 4Q", "n2:a": "4Q"}
    assert after(record, ask("4Q", 1), policy=EXCLUSIVE) == {"n1:a": "4A 4Q", "n2:a": ""}


def test_a_cordoned_node_is_provisioned_when_no_other_has_room() -> None:
    record = fleet(gpu("n1:a"), gpu("n2:a"), cordoned=["n1"])
    assert plan(record, [ask("4Q", 1)]).touched == ("n2:a",)
    assert plan(record, [ask("4Q", 5)]).touched == ("n1:a", "n2:a")


def test_a_silent_mismatch_is_not_counted_and_reported() -> None:
    record = fleet(gpu("n1:a", "4Q~8Q 4Q"))
    found = plan(record, [ask("4Q", 1)])
    assert not found.changed
    assert found.drifted == ("n1:a-00",)
    assert plan(record, [ask("4Q", 2)]).drifted == ("n1:a-00",)


def test_a_silent_mismatch_is_repaired_with_reprofile_by_disabling_first() -> None:
    record = fleet(gpu("n1:a", "4Q~8Q"))
    found = plan(record, [ask("8Q", 1)], REPROFILE)
    assert said(found) == [
        "disable NVIDIA A2-4Q on n1:a-00 of GPU n1:a",
        "enable NVIDIA A2-8Q on n1:a-00 of GPU n1:a",
    ]
    assert found.drifted == ()
    full = fleet(gpu("n1:a", "4Q~8Q 4Q 4Q 4Q"))
    with pytest.raises(DoesNotFit, match="reprofile: true"):
        plan(full, [ask("4Q", 4)])
    assert contents(plan(full, [ask("4Q", 4)], REPROFILE).after) == {"n1:a": "4Q 4Q 4Q 4Q"}


def test_a_mismatch_that_a_vm_holds_counts_as_what_the_vm_has() -> None:
    found = plan(fleet(gpu("n1:a", "4Q~8Q@web")), [ask("4Q", 1)], REPROFILE)
    assert not found.changed
    assert found.drifted == ("n1:a-00",)


def test_a_slot_asked_to_be_nonsense_is_set_right_with_reprofile() -> None:
    one = gpu("n1:a", vfs=1)
    stuck = replace(one, slots=(replace(one.slots[0], wanted="nonsense"),))
    with pytest.raises(DoesNotFit, match="virtual functions"):
        plan(fleet(stuck), [ask("4Q", 1)])
    assert after(fleet(stuck), ask("4Q", 1), policy=REPROFILE) == {"n1:a": "4Q"}


def test_spreading_levels_the_load_over_gpus_and_over_nodes_first() -> None:
    record = fleet(gpu("n1:a"), gpu("n1:b"), gpu("n2:a"))
    assert after(record, ask("4Q", 2), policy=SPREAD) == {"n1:a": "4Q", "n1:b": "", "n2:a": "4Q"}
    assert after(record, ask("4Q", 7), policy=SPREAD) == {"n1:a": "4Q 4Q 4Q", "n1:b": "4Q 4Q", "n2:a": "4Q 4Q"}


def test_spreading_counts_what_is_there_and_moves_nothing() -> None:
    record = fleet(gpu("n1:a", "4Q@w 4Q"), gpu("n2:a"))
    assert after(record, ask("4Q", 4), policy=SPREAD) == {"n1:a": "4Q 4Q", "n2:a": "4Q 4Q"}


def test_spreading_gives_every_demand_its_share_of_the_empty_gpus() -> None:
    record = fleet(*(gpu(f"n{number}:a") for number in range(1, 5)))
    spread = after(record, ask("4Q", 4), ask("8Q", 2), policy=SPREAD)
    assert sorted(spread.values()) == ["4Q 4Q", "4Q 4Q", "8Q", "8Q"]


def test_spreading_never_switches_on_or_removes_more_than_consolidating() -> None:
    record = fleet(gpu("n1:a"), off("n2:a"), gpu("n3:a", "8Q"))
    policy = Policy(placement="spread", enable_sriov=True, reprofile=True)
    assert after(record, ask("4Q", 4), policy=policy) == {"n1:a": "4Q 4Q 4Q 4Q", "n2:a": "", "n3:a": "8Q"}


def test_the_same_input_in_another_order_gives_the_same_plan() -> None:
    gpus = [gpu("n1:a", "4Q"), gpu("n1:b"), gpu("n2:a", "8Q@w"), gpu("n2:b")]
    record = fleet(*gpus)
    turned = Fleet(tuple(replace(node, gpus=node.gpus[::-1]) for node in fleet(*gpus[::-1]).nodes[::-1]))
    asked = [ask("4Q", 6), ask("8Q", 2)]
    assert plan(record, asked).steps == plan(turned, asked).steps


def test_steps_are_grouped_by_gpu_since_these_can_go_side_by_side() -> None:
    found = plan(fleet(gpu("n1:a"), gpu("n2:a")), [ask("4Q", 1, "gpu")])
    assert [(name, len(list(steps))) for name, steps in groupby(found.steps, key=lambda step: step.gpu)] == [
        ("n1:a", 1),
        ("n2:a", 1),
    ]
    assert found.as_dict()["optimal"] is True


def test_a_mig_profile_goes_to_the_instances_there_are() -> None:
    cut = replace(gpu("n1:a", board="A100", vfs=7), mode="mig", max_instances={"NVIDIA A100-3-20C": 2})
    record = fleet(gpu("n0:a", board="A100", vfs=7), cut)
    assert plan(record, [Demand("A100-3-20C", 2)]).touched == ("n1:a",)
    with pytest.raises(DoesNotFit, match="MIG"):
        plan(record, [Demand("A100-3-20C", 3)])


def test_an_empty_fleet_has_no_gpu_to_select() -> None:
    with pytest.raises(NothingSelected):
        plan(Fleet((Node("n1"),)), [ask("4Q", 1)])


def test_a_question_for_more_than_there_is_does_not_count_what_is_there() -> None:
    host = fleet(replace(gpu("h1:a", "48Q@web", board="A40", vfs=1), platform="vsphere"))
    asked = [Demand("NVIDIA A40-48Q", 1)]
    assert Problem(host, asked, Policy()).layout.fits
    assert not Problem(host, asked, Policy(), in_addition=True).layout.fits
    half = fleet(replace(gpu("h1:a", "24Q@web", board="A40", vfs=1), platform="vsphere"))
    assert Problem(half, [Demand("NVIDIA A40-24Q", 1)], Policy(), in_addition=True).layout.fits
    assert not Problem(half, [Demand("NVIDIA A40-24Q", 2)], Policy(), in_addition=True).layout.fits


def test_places_that_are_free_are_used_before_others_are_made_free() -> None:
    record = fleet(gpu("n1:a", "4A 4A 4A 4A@web"), gpu("n2:a", "4A@db"))
    assert after(record, ask("4Q", 4), policy=REPROFILE) == {"n1:a": "4A 4A 4A 4Q", "n2:a": "4A 4Q 4Q 4Q"}


def test_a_name_is_taken_as_it_is_before_it_is_taken_for_a_pattern() -> None:
    record = fleet(gpu("n[1]:a"), gpu("n1:a"))
    assert after(record, ask("4Q", 1, nodes=("n[1]",))) == {"n[1]:a": "4Q", "n1:a": ""}


def test_a_gpu_of_unknown_board_is_known_by_what_its_slots_show() -> None:
    record = fleet(replace(gpu("n1:a", "4Q"), boards=()), replace(gpu("n2:a"), boards=()))
    assert after(record, ask("4Q", 2)) == {"n1:a": "4Q 4Q", "n2:a": ""}
    with pytest.raises(NoSuitableGpu):
        plan(fleet(replace(gpu("n2:a"), boards=())), [ask("4Q", 1)])


def test_exclusive_never_switches_a_gpu_on_for_nothing() -> None:
    assert not plan(
        fleet(off("n1:a"), gpu("n2:a", "4Q")), [ask("4Q", 1)], Policy(exclusive=True, enable_sriov=True)
    ).changed


def test_exclusive_counts_what_vms_hold_towards_what_is_asked() -> None:
    assert after(fleet(gpu("n1:a", "4Q@web 4Q 4Q 4Q")), ask("4Q", 2), policy=EXCLUSIVE) == {"n1:a": "4Q 4Q"}


def test_exclusive_removes_what_is_not_what_it_was_asked_to_be() -> None:
    assert after(fleet(gpu("n1:a", "4Q 4Q~8Q")), ask("4Q", 1), policy=EXCLUSIVE) == {"n1:a": "4Q"}


def test_exclusive_refuses_what_a_vm_holds_and_nobody_can_name() -> None:
    strange = Slot("n1:a-00", profile="garbage", wanted="garbage", holders=(vm("web"),))
    record = fleet(replace(gpu("n1:a"), slots=(strange, *gpu("n1:a").slots[1:])))
    with pytest.raises(DoesNotFit, match="default/web"):
        plan(record, [ask("4Q", 0)], EXCLUSIVE)


def test_exclusive_uses_the_gpus_that_it_has_to_touch_anyway() -> None:
    found = plan(fleet(gpu("n1:a"), gpu("n2:a", "8Q")), [ask("4Q", 1)], EXCLUSIVE)
    assert found.touched == ("n2:a",)


def test_exclusive_uses_the_gpus_that_it_has_to_touch_anyway_wherever_they_are() -> None:
    cordoned = fleet(gpu("n1:a"), gpu("n2:a", "8Q"), cordoned=["n2"])
    assert plan(cordoned, [ask("4Q", 1)], EXCLUSIVE).touched == ("n2:a",)
    astray = fleet(gpu("n1:a"), gpu("n2:a", "8Q~4Q"))
    assert plan(astray, [ask("4Q", 1)], EXCLUSIVE).touched == ("n2:a",)
    # Two that have to be touched are better than one that need not be.
    small = fleet(gpu("n1:a", "8Q", vfs=2), gpu("n2:a", "8Q", vfs=2), gpu("n3:a"))
    assert plan(small, [ask("4Q", 4)], EXCLUSIVE).touched == ("n1:a", "n2:a")
    beside = fleet(gpu("n1:a", vfs=2), gpu("n2:a", vfs=2), gpu("n2:b", vfs=3), gpu("n3:a", "8Q", vfs=1))
    assert plan(beside, [ask("4A", 3), ask("4A", 1, nodes=("n2",))], EXCLUSIVE).touched == ("n2:b", "n3:a")
    many = fleet(*(gpu(f"n{number:02}:a") for number in range(90)), gpu("z:a", "8Q"), cordoned=["z"])
    assert plan(many, [ask("4Q", 1)], EXCLUSIVE).touched == ("z:a",)
    nothing_else = fleet(gpu("n1:a", "8Q"), gpu("n2:a", "8Q"))
    assert after(nothing_else, ask("4Q", 5), policy=EXCLUSIVE) == {"n1:a": "4Q 4Q 4Q 4Q", "n2:a": "4Q"}


def test_exclusive_takes_what_is_too_much_from_as_few_gpus_as_possible() -> None:
    assert plan(fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q")), [ask("4Q", 1)], EXCLUSIVE).touched == ("n1:a",)
    assert plan(fleet(gpu("n1:a", "4Q 8Q~4Q"), gpu("n2:a", "4Q")), [ask("4Q", 1)], EXCLUSIVE).touched == ("n1:a",)


def test_what_is_touched_in_any_case_leaves_no_doubt_on_a_large_fleet() -> None:
    unasked = fleet(*(gpu(f"n{number}:a", "8Q") for number in range(100)))
    assert plan(unasked, [ask("4Q", 150)], EXCLUSIVE).optimal
    empty = fleet(*(gpu(f"n{number:02}:a") for number in range(100)))
    found = plan(empty, [ask("4Q", 1, "gpu", nodes=("n[0-4]?",)), ask("4C", 160)])
    assert found.optimal
    assert len(found.touched) == 53


def test_a_gpu_in_use_is_taken_before_an_empty_one_with_the_same_room() -> None:
    assert plan(fleet(gpu("n1:a", vfs=3), gpu("n2:a", "4Q")), [ask("4Q", 4)]).touched == ("n2:a",)


def test_a_profile_of_which_none_is_asked_for_limits_nobody() -> None:
    record = fleet(replace(gpu("n1:a"), max_instances={"NVIDIA A2-4Q": 4, "NVIDIA A2-4C": 2}))
    assert after(record, ask("4Q", 4), ask("4C", 0)) == {"n1:a": "4Q 4Q 4Q 4Q"}


def test_what_nobody_asked_for_makes_room_before_what_is_asked_for() -> None:
    full = fleet(gpu("n1:a", "4Q 4Q 4A 4A"))
    assert after(full, ask("4Q", 3), policy=REPROFILE) == {"n1:a": "4A 4Q 4Q 4Q"}
    assert after(full, ask("4Q", 2), ask("4C", 1), policy=REPROFILE) == {"n1:a": "4A 4C 4Q 4Q"}


def test_a_mismatch_takes_room_and_serves_nobody() -> None:
    with pytest.raises(DoesNotFit):
        plan(fleet(gpu("n1:a", "4Q~8Q")), [ask("4Q", 4)])


def test_empty_slots_that_offer_something_and_that_no_vm_names_come_first() -> None:
    silent = Slot("n1:a-00", "0", offered=())
    named = Slot("n1:a-01", "1", offered=("NVIDIA A2-4Q",), holders=(vm("web", running=False),))
    free = Slot("n1:a-02", "2", offered=("NVIDIA A2-4Q",))
    record = fleet(replace(gpu("n1:a"), slots=(silent, named, free)))
    assert [step.slot for step in plan(record, [ask("4Q", 2)]).steps] == ["n1:a-02", "n1:a-01"]


def test_no_more_gpus_are_switched_on_than_are_needed() -> None:
    record = fleet(off("n1:a"), off("n2:a"), gpu("n3:a"), gpu("n4:a"))
    found = plan(record, [ask("4Q", 1), ask("8Q", 1), ask("2Q", 1)], SRIOV)
    assert len(found.touched) == 3
    assert sum(step.action == "enable_sriov" for step in found.steps) == 1


def test_a_gpu_that_a_later_choice_made_superfluous_is_left_alone() -> None:
    record = fleet(off("n1:a", vfs=2), off("n2:a", vfs=2), off("n2:b", vfs=3))
    found = plan(record, [ask("4A", 2), ask("4A", 1, nodes=("n2",))], SRIOV)
    assert found.touched == ("n2:b",)


def test_that_is_so_on_fleets_that_are_too_large_to_try_everything() -> None:
    spare = [gpu(f"c{number:02}:a", vfs=2) for number in range(90)]
    record = fleet(gpu("n1:a", vfs=1), gpu("n2:a", vfs=3), *spare, cordoned=[one.node for one in spare])
    found = plan(record, [ask("4Q", 1, nodes=("n1", "n2")), ask("4Q", 2, nodes=("n2", "c*"))])
    assert (found.touched, found.optimal) == (("n2:a",), True)


def test_a_gpu_that_alone_can_meet_a_demand_is_never_superfluous() -> None:
    record = fleet(*(gpu(name) for name in ("n1:a", "n1:b", "n2:a", "n2:b", "n3:a")))
    anywhere = [ask("4C", 1, nodes=("n1",)), ask("4C", 1, nodes=("n2",)), ask("4C", 1)]
    assert "4Q" in after(record, ask("4Q", 1, gpus=("n3:a",)), *anywhere)["n3:a"]


def test_of_gpus_that_suffice_the_one_with_the_least_to_spare_is_taken() -> None:
    record = fleet(gpu("n1:a", "2A", vfs=4), gpu("n2:a", "2A 2A 2A 2A 2A 2A"))
    assert plan(record, [ask("2Q", 2)]).touched == ("n2:a",)


def test_spreading_does_not_mix_sizes() -> None:
    record = fleet(gpu("n1:a"), gpu("n1:b", vfs=4))
    assert after(record, ask("4A", 3), ask("2Q", 1), policy=SPREAD) == {"n1:a": "4A 4A 4A", "n1:b": "2Q"}
