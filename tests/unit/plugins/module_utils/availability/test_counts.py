# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is free, who has the rest, whether machines fit, and what is said if they do not."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import Availability, Count, select_nodes
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.fit import DemandDoesNotFit, FitCheck
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.label_selector import (
    InvalidSelector,
    parse_selector,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.request import read_demand
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import InvalidDemand, NothingSelected
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, Holder, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.availability import NodeCapacity
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import known_profiles

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off, vm

FOUR_Q = "NVIDIA A2-4Q"
POOL = {"pool": "gpu"}


def available(record: Fleet, *nodes: str) -> Availability:
    return Availability(record, select_nodes(record, nodes or None))


def labelled(one: Gpu, name: str, labels: dict[str, str]) -> Gpu:
    """The GPU with labels on the VM of that name."""
    slots = tuple(
        replace(
            slot,
            holders=tuple(replace(holder, labels=labels) if holder.name == name else holder for holder in slot.holders),
        )
        for slot in one.slots
    )
    return replace(one, slots=slots)


def asked(record: Fleet, *entries: dict[str, object]) -> FitCheck:
    defaults = {"surge": 0, "owner": None}
    demands = read_demand([{**defaults, **entry} for entry in entries], known_profiles(record))
    return FitCheck(NodeCapacity(available(record)), demands)


def pool(machines: int, count: int = 1, *, name: str = "pool", profile: str = "A2-4Q", **more: object) -> dict:
    return {"name": name, "machines": machines, "vgpus": [{"profile": profile, "count": count}], **more}


# Counting
def test_running_vms_use_and_stopped_ones_claim_what_is_allocatable():
    found = available(fleet(gpu("n1:a", "4Q 4Q@web 4Q@idle-", vfs=4))).totals[FOUR_Q]
    assert found == Count(allocatable=3, configured=3, in_use=1, claimed=1, free_now=2, free=1, creatable=1)


def test_a_vm_that_is_bound_to_no_node_counts_for_the_profile_only():
    record = fleet(gpu("n1:a", "4Q"), gpu("n2:a", "4Q"), claims=[UnboundRequest(FOUR_Q, 1, vm("idle", running=False))])
    found = available(record)
    assert found.totals[FOUR_Q].claimed == 1
    assert found.totals[FOUR_Q].free == 1
    assert [found.by_node[node][FOUR_Q].free for node in ("n1", "n2")] == [1, 1]


def test_a_running_vm_without_a_note_uses_what_its_node_has():
    record = fleet(gpu("n1:a", "4Q 4Q"), claims=[UnboundRequest(FOUR_Q, 1, vm("web"), node="n1")])
    assert available(record).totals[FOUR_Q].in_use == 1


def test_what_a_running_vm_will_get_at_its_next_start_is_claimed():
    record = fleet(gpu("n1:a", "4Q@web 4Q"), claims=[UnboundRequest(FOUR_Q, 1, vm("web"), node="n1", pending=True)])
    found = available(record).totals[FOUR_Q]
    assert (found.in_use, found.claimed, found.free_now, found.free) == (1, 1, 1, 0)


def test_a_vm_that_is_starting_counts_once_though_it_is_tied_to_a_slot_by_name_as_well():
    record = fleet(gpu("n1:a", "4Q@web 4Q"), claims=[UnboundRequest(FOUR_Q, 1, vm("web"), node="n1")])
    found = available(record).totals[FOUR_Q]
    assert (found.in_use, found.claimed, found.free_now, found.free) == (1, 0, 1, 1)


def test_u1_what_a_vm_runs_without_is_claimed_and_not_in_use():
    late = UnboundRequest(FOUR_Q, 2, vm("trainer"), pending=True)
    found = available(fleet(gpu("n1:a", "4Q 4Q 4Q"), claims=[late])).totals[FOUR_Q]
    assert (found.in_use, found.claimed, found.free_now, found.free) == (0, 2, 3, 1)
    (told,) = asked(fleet(gpu("n1:a", "4Q 4Q"), claims=[late]), pool(1)).results[0].reasons
    assert "2 claimed by default/trainer after a restart" in told
    assert "in use by" not in told


def test_m6_a_vm_counts_for_its_demand_by_its_name_whatever_its_labels():
    record = fleet(gpu("n1:a", "4Q@trainer", vfs=1))
    assert not asked(record, pool(1)).fits
    question = asked(record, pool(1, vms=["default/trainer"]))
    assert question.fits
    assert question.results[0].existing == ("default/trainer",)
    assert not asked(record, pool(1, vms=["other/trainer"])).fits


@pytest.mark.parametrize(("what", "reason"), [("down", "not ready"), ("cordoned", "cordoned")])
def test_nodes_out_of_service_do_not_count(what, reason):
    found = available(fleet(gpu("n1:a", "4Q"), gpu("n2:a", "4Q"), **{what: ["n2"]}))
    assert found.totals[FOUR_Q].allocatable == found.totals[FOUR_Q].free == 1
    assert found.by_node["n2"][FOUR_Q].free == 0
    assert found.node_records()[1] == {"name": "n2", "usable": False, "reason": reason}


def test_creatable_respects_the_instances_of_a_gpu_and_not_the_number_of_its_functions():
    found = available(fleet(gpu("n1:a", "4Q", vfs=16))).totals
    assert found[FOUR_Q].creatable == 3
    assert found["NVIDIA A2-4A"].creatable == 3
    assert "NVIDIA A2-8Q" not in found


def test_nothing_is_creatable_where_sriov_is_off_unless_it_may_be_switched_on():
    found = available(fleet(off("n1:a")))
    assert not found.totals
    assert replace(found, sriov=True).totals[FOUR_Q].creatable == 4


def test_a_device_that_is_advertised_and_not_configured_is_not_free():
    record = fleet(gpu("n1:a", "4Q"))
    ghost = replace(record, nodes=(replace(record.nodes[0], advertised={FOUR_Q: 3, "nvidia.com/GA107GL_A2": 1}),))
    found = available(ghost)
    assert found.totals[FOUR_Q].free == 1
    assert found.totals[FOUR_Q].drift == -2
    assert found.drifts() == ["Node n1 advertises 3 x NVIDIA A2-4Q and has 1 configured."]
    assert "nvidia.com/GA107GL_A2" not in found.totals


def test_each_device_has_the_label_of_the_proposal():
    record = fleet(gpu("n1:a", "2Q 2Q", vfs=2), gpu("n2:a", "2Q 2Q", vfs=2))
    labels = [one["label"] for one in available(record).device_records(catalog.spellings)]
    assert labels[0] == "NVIDIA_A2-2Q (profile: n1:a-00 - allocatable: 4)"
    assert len(labels) == 4


def test_nodes_are_selected_by_name_or_pattern():
    record = fleet(gpu("n1:a", "4Q"), gpu("m1:a", "4Q"))
    assert select_nodes(record, ["n*"]) == {"n1"}
    assert available(record, "n*").totals[FOUR_Q].allocatable == 1
    with pytest.raises(NothingSelected, match="No node matches 'x'"):
        select_nodes(record, ["x"])


# Demands
def test_a_demand_that_fits_tells_where():
    question = asked(fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q")), pool(3))
    assert question.fits
    assert question.exhaustive
    assert question.results[0].as_dict()["nodes"] == [{"node": "n1", "machines": 2}, {"node": "n2", "machines": 1}]
    assert question.suggestions == []
    question.require()


def test_a_surge_needs_room_as_well():
    record = fleet(gpu("n1:a", "4Q 4Q", vfs=2))
    assert asked(record, pool(2)).fits
    assert not asked(record, pool(2, surge=1)).fits
    assert "Set surge to 0 in pool." in asked(record, pool(2, surge=1)).suggestions
    assert "Set surge to 0 in pool." not in asked(record, pool(3, surge=1)).suggestions


def test_demands_are_placed_together():
    record = fleet(gpu("n1:a", "4Q 4Q", vfs=2))
    question = asked(record, pool(2, name="one"), pool(1, name="two"))
    assert not question.fits
    assert asked(record, pool(1, name="one"), pool(1, name="two")).fits
    unmet = next(result for result in question.results if not result.fits)
    assert "It would fit without the other demands." in unmet.reasons[0]


def test_stopped_vms_keep_their_claim_before_a_demand():
    record = fleet(gpu("n1:a", "4Q 4Q", vfs=2), claims=[UnboundRequest(FOUR_Q, 1, vm("idle", running=False))])
    question = asked(record, pool(2))
    assert not question.fits
    assert "Detach the vGPUs of the stopped VM default/idle." in question.suggestions
    assert "1 claimed by stopped default/idle" in question.results[0].reasons[0]


def test_what_the_owners_vms_hold_is_not_counted_twice():
    record = fleet(labelled(gpu("n1:a", "4Q@one 4Q", vfs=2), "one", POOL))
    assert not asked(record, pool(2)).fits
    question = asked(record, pool(2, owner="pool=gpu"))
    assert question.fits
    assert question.results[0].existing == ("default/one",)
    assert question.results[0].as_dict()["placed"] == 1


def test_an_owners_vm_with_other_vgpus_makes_way():
    record = fleet(labelled(gpu("n1:a", "4Q@one 4Q@one", vfs=2), "one", POOL))
    assert asked(record, pool(2, owner="pool=gpu")).fits


def test_a_vm_belongs_to_one_demand_only():
    record = fleet(labelled(gpu("n1:a", "4Q@one", vfs=1), "one", POOL))
    question = asked(record, pool(1, name="one", owner="pool"), pool(1, name="two", owner="pool"))
    assert [result.fits for result in question.results] == [True, False]


def test_a_refusal_says_who_has_what_and_what_would_help():
    record = fleet(gpu("n1:a", "4Q@web 4Q", vfs=4), gpu("n2:a", "4Q", vfs=1), cordoned=["n2"])
    question = asked(record, pool(2))
    with pytest.raises(DemandDoesNotFit) as caught:
        question.require()
    assert caught.value.message == (
        "Demand pool: 1 of 2 more machines fit; each needs 1 x NVIDIA A2-4Q on one node."
        " Free NVIDIA A2-4Q: n1 1; 1 in use by default/web; n2 (cordoned) does not count."
    )
    assert question.suggestions == [
        "Create 1 more NVIDIA A2-4Q on n1.",
        "Uncordon node n2.",
        "Reduce the number of machines: 1 in pool.",
    ]


def test_switching_sriov_on_is_offered_only_if_nothing_milder_creates_enough():
    question = asked(fleet(off("n1:a")), pool(2))
    assert question.suggestions == ["Enable SR-IOV where it is off and create 2 more NVIDIA A2-4Q on n1."]


def test_no_more_is_created_than_is_needed():
    """One more beside the one that is free, rather than two elsewhere."""
    question = asked(fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q")), pool(2, count=2))
    assert question.suggestions[0] == "Create 1 more NVIDIA A2-4Q on n2."


def test_an_offer_counts_each_slot_once():
    """Room for two of either profile is not room for two of both."""
    record = fleet(gpu("n1:a", "4Q 4A", vfs=16))
    question = asked(record, pool(3, name="q"), pool(3, name="a", profile="A2-4A"))
    assert not any(suggestion.startswith("Create") for suggestion in question.suggestions)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (pool(1, count=0), "has count 0"),
        (pool(-1), "has machines -1"),
        (pool(1, surge=-1), "has surge -1"),
        ({"name": "pool", "machines": 1, "vgpus": []}, "names no vGPUs"),
    ],
)
def test_a_demand_that_makes_no_sense_is_refused(entry, said):
    with pytest.raises(InvalidDemand, match=said):
        asked(fleet(gpu("n1:a", "4Q")), entry)


def test_demands_have_names_of_their_own():
    with pytest.raises(InvalidDemand, match="same name"):
        asked(fleet(gpu("n1:a", "4Q")), pool(1), pool(1))


def test_a_large_fleet_is_answered_in_seconds_with_few_words():
    record = fleet(*(gpu(f"n{number:03}:a", "4Q@web 4Q", vfs=16) for number in range(300)))
    begin = time.process_time()
    question = asked(record, *(pool(10, name=f"pool-{number}") for number in range(40)))
    assert not question.fits
    assert "and so on on" in question.suggestions[0]
    assert len(question.suggestions[0]) < 500
    assert time.process_time() - begin < 15


# Owners
@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("pool=gpu", True),
        ("pool==gpu", True),
        ("pool!=gpu", False),
        ("other!=gpu", True),
        ("pool in (cpu, gpu)", True),
        ("pool notin (cpu,gpu)", False),
        ("pool", True),
        ("!pool", False),
        ("pool=gpu,example.com/tier=one", True),
        ("pool=gpu,!example.com/tier", False),
        ("pool in (cpu, gpu),example.com/tier!=two", True),
        ("pool=", False),
    ],
)
def test_owners_are_found_as_kubernetes_does(selector, matches):
    labels = {"pool": "gpu", "example.com/tier": "one"}
    assert parse_selector(selector).matches(labels) is matches


@pytest.mark.parametrize("text", ["pool=gpu,", "=gpu", "pool in cpu", "a b", "pool=gpu=cpu", ""])
def test_a_selector_that_is_none_is_refused(text):
    with pytest.raises(InvalidSelector):
        parse_selector(text)


def test_holders_are_told_apart_by_namespace():
    mine, other = Holder("web", "a", running=True), Holder("web", "b", running=True)
    record = fleet(
        gpu("n1:a", "4Q 4Q"), claims=[UnboundRequest(FOUR_Q, 1, mine, "n1"), UnboundRequest(FOUR_Q, 1, other, "n1")]
    )
    assert sorted(available(record).holdings) == ["a/web", "b/web"]


def test_machines_of_a_demand_are_not_suggested_for_detaching():
    card = gpu("n1:a", "4Q@mine- 4Q@busy", vfs=2)
    question = asked(fleet(labelled(card, "mine", POOL)), pool(2, owner="pool=gpu"))
    assert [result.existing for result in question.results] == [("default/mine",)]
    assert not question.fits
    assert not [text for text in question.suggestions if "Detach" in text]
    both = fleet(labelled(gpu("n1:a", "4Q@mine- 4Q@idle-", vfs=2), "mine", POOL))
    assert "Detach the vGPUs of the stopped VM default/idle." in asked(both, pool(2, owner="pool=gpu")).suggestions


def test_vgpus_that_exist_and_are_not_advertised_are_no_reason_to_create_more():
    """The kubelet or the controller of a node is down: its vGPUs come back, and nobody needs others."""
    record = fleet(gpu("n1:a", "4Q 4Q"))
    hidden = replace(record, nodes=tuple(replace(node, advertised={}) for node in record.nodes))
    question = asked(hidden, pool(2))
    assert not question.fits
    (advice,) = question.suggestions
    assert advice.startswith("Make n1 advertise all vGPUs that are configured there: ")
    assert "create" not in advice
    assert "n1 advertises 0 of 2 NVIDIA A2-4Q" in question.results[0].reasons[0]
    # If the vGPUs that come back do not suffice, only the rest has to be created.
    assert asked(hidden, pool(3)).suggestions[0].endswith(", and create 1 more NVIDIA A2-4Q on n1.")
