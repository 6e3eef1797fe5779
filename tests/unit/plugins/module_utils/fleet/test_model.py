# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import (
    Fleet,
    Gpu,
    Holder,
    Node,
    Slot,
    UnboundRequest,
)

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off, vm


def test_a_slot_is_empty_then_wanted_then_configured_then_allocatable() -> None:
    assert Slot("s").state == "empty"
    assert Slot("s", wanted="NVIDIA A2-4Q").state == "requested"
    assert Slot("s", profile="NVIDIA A2-4Q", wanted="NVIDIA A2-4Q").state == "configured"
    assert Slot("s", profile="NVIDIA A2-4Q", wanted="NVIDIA A2-4Q", allocatable=True).state == "allocatable"


def test_a_slot_drifted_if_it_has_another_type_than_it_was_asked_to_have() -> None:
    assert Slot("s", profile="NVIDIA A2-4Q", wanted="NVIDIA A2-8Q").drifted
    assert not Slot("s", profile="NVIDIA A2-4Q", wanted="NVIDIA A2-4Q").drifted
    assert not Slot("s", wanted="NVIDIA A2-8Q").drifted
    assert not Slot("s", profile="NVIDIA A2-4Q").drifted


def test_running_vms_use_a_slot_and_stopped_ones_claim_it() -> None:
    running, stopped = vm("a"), vm("b", running=False)
    used = Slot("s", profile="NVIDIA A2-4Q", holders=(stopped, running))
    claimed = Slot("s", profile="NVIDIA A2-4Q", holders=(stopped,))
    assert (used.in_use, used.claimed) == (True, False)
    assert (claimed.in_use, claimed.claimed) == (False, True)


def test_the_record_is_the_same_json_in_whatever_order_it_was_read() -> None:
    gpus = [gpu("n1:b", "4Q@z"), gpu("n1:a", "8Q"), gpu("n2:a")]
    claims = [UnboundRequest("NVIDIA A2-4Q", 1, vm("z")), UnboundRequest("NVIDIA A2-4Q", 2, vm("y"), "n1")]
    one = fleet(*gpus, claims=claims)
    turned = [Gpu(**{**vars(each), "slots": each.slots[::-1]}) for each in gpus[::-1]]
    other = fleet(*turned, claims=claims[::-1])
    assert json.dumps(one.as_dict()) == json.dumps(other.as_dict())
    names = [node["name"] for node in one.as_dict()["nodes"]]
    assert names == sorted(names)


def test_the_record_says_who_holds_what() -> None:
    holder = Holder("web", "default", running=True, labels={"b": "2", "a": "1"})
    slot = Slot("s", "0000:08:00.4", "NVIDIA A2-4Q", "NVIDIA A2-4Q", allocatable=True, holders=(holder,))
    record = Fleet((Node("n", gpus=(Gpu("g", "n", boards=("A2", "A16"), slots=(slot,)),)),)).as_dict()
    shown = record["nodes"][0]["gpus"][0]
    assert shown["board"] is None
    assert shown["possible_boards"] == ["A16", "A2"]
    assert shown["slots"][0] == {
        "name": "s",
        "address": "0000:08:00.4",
        "profile": "NVIDIA A2-4Q",
        "requested": "NVIDIA A2-4Q",
        "state": "allocatable",
        "hardware": None,
        "owner": None,
        "drifted": False,
        "holders": [
            {
                "kind": "VM",
                "namespace": "default",
                "name": "web",
                "running": True,
                "labels": {"a": "1", "b": "2"},
            }
        ],
        "available_profiles": None,
    }


def test_all_type_names_seen_are_known_also_those_only_offered_or_counted() -> None:
    shown = Gpu(
        "g",
        "n",
        slots=(Slot("a", profile="NVIDIA A2-4Q"), Slot("b", offered=("NVIDIA A2-4A", "NVIDIA A2-4Q"))),
        max_instances={"NVIDIA A2-4C": 4},
    )
    bare = Gpu("h", "n", max_instances={"NVIDIA A2-8C": 2})
    names = Fleet((Node("n", gpus=(shown, bare)),)).type_names()
    assert names == ["NVIDIA A2-4A", "NVIDIA A2-4C", "NVIDIA A2-4Q", "NVIDIA A2-8C"]


def test_claims_are_bound_to_free_slots_of_one_node_beside_those_held_anyway() -> None:
    record = fleet(
        gpu("n1:a", "4Q"),
        gpu("n2:a", "4Q 4Q"),
        gpu("n2:b", "4Q@web 4Q 4Q 4Q~8Q"),
        claims=[UnboundRequest("NVIDIA A2-4Q", 2, vm("late", running=False))],
    )
    bound = record.assign_unbound()
    held = [slot.name for _gpu, slot in bound.slots() if any(holder.name == "late" for holder in slot.holders)]
    assert held == ["n2:b-01", "n2:b-02"]
    assert bound.claims == ()


def test_the_rest_of_a_vm_is_bound_on_the_node_of_the_slots_that_it_names() -> None:
    # A VM cannot start with one vGPU of each node.
    record = fleet(
        gpu("n1:a", "4Q"),
        gpu("n2:a", "4Q@late 4Q"),
        claims=[UnboundRequest("NVIDIA A2-4Q", 1, vm("late", running=False))],
    )
    held = [gpu.node for gpu, slot in record.assign_unbound().slots() if slot.holders]
    assert held == ["n2", "n2"]


def test_vgpus_of_several_profiles_are_bound_on_the_node_that_has_all_of_them() -> None:
    wanted = [UnboundRequest(f"NVIDIA A2-{name}", 1, vm("late", running=False)) for name in ("4C", "4Q")]
    for one, other in (("4C", "4Q"), ("4Q", "4C")):
        record = fleet(gpu("n1:a", one), gpu("n2:a", one), gpu("n2:b", other), claims=wanted)
        held = [gpu.node for gpu, slot in record.assign_unbound().slots() if slot.holders]
        assert held == ["n2", "n2"]


def test_as_many_slots_are_bound_as_vms_ask_for_even_if_no_node_has_them() -> None:
    asked = {"one": 1, "two": 2}
    wanted = [UnboundRequest("NVIDIA A2-4Q", count, vm(name, running=False)) for name, count in asked.items()]
    record = fleet(gpu("n1:a", "4Q"), gpu("n2:a", "4Q@one- 4Q 4Q"), gpu("n3:a", "4Q"), claims=wanted)
    bound = record.assign_unbound()
    held = {slot.name: slot.holders[0].name for _gpu, slot in bound.slots() if slot.holders}
    assert held == {"n1:a-00": "two", "n2:a-00": "one", "n2:a-01": "one", "n2:a-02": "two"}
    assert bound.claims == ()
    # What does not fit on one node can be asked for as well.
    assert [claim.count for claim in record.assign_unbound(across_nodes=False).claims] == [1]


def test_the_rest_of_a_vm_takes_no_slot_of_another_vm_on_its_node() -> None:
    wanted = [UnboundRequest("NVIDIA A2-4Q", count, vm(name, running=False)) for name, count in (("a", 3), ("b", 1))]
    record = fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q@b- 4Q"), gpu("n3:a", "4Q"), claims=wanted)
    held = {slot.name: slot.holders[0].name for _gpu, slot in record.assign_unbound().slots() if slot.holders}
    assert held == {"n1:a-00": "a", "n1:a-01": "a", "n2:a-00": "b", "n2:a-01": "b", "n3:a-00": "a"}


def test_claims_that_find_no_slot_stay_claims_and_a_node_is_kept_to() -> None:
    record = fleet(
        gpu("n1:a", "4Q"),
        gpu("n2:a", "4Q 4Q"),
        claims=[
            UnboundRequest("NVIDIA A2-4Q", 3, vm("big")),
            UnboundRequest("NVIDIA A2-4Q", 1, vm("there"), node="n2"),
        ],
    )
    bound = record.assign_unbound()
    assert [(claim.holder.name, claim.count) for claim in bound.claims] == [("big", 1)]
    held = [(gpu.node, slot.holders[0].name) for gpu, slot in bound.slots() if slot.holders]
    assert held == [("n1", "big"), ("n2", "there"), ("n2", "big")]


def test_a_fleet_is_the_same_after_a_round_trip_through_its_record() -> None:
    gpus = [gpu("n1:b", "4Q@z 4Q~8Q ?2Q"), gpu("n1:a", "8Q", max_instances={"NVIDIA A2-8Q": 2}), off("n2:a")]
    slot = Slot("s", offered=("NVIDIA A2-4Q",))
    claims = [
        UnboundRequest("NVIDIA A2-4Q", 1, vm("z", labels={"a": "1"})),
        UnboundRequest("NVIDIA A2-4Q", 2, vm("y"), "n1"),
    ]
    one = fleet(*gpus, Gpu("n3:a", "n3", boards=("A2", "A16"), slots=(slot,)), claims=claims, down=["n1"])
    record = json.loads(json.dumps(one.as_dict()))
    assert Fleet.from_dict(record).as_dict() == record
    assert Fleet.from_dict(record).gpus[-1].slots == (slot,)
