# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off

REPROFILE = Policy(reprofile=True)


def ask(profile: str, count: int, per: str = "fleet", **where: tuple[str, ...]) -> Demand:
    return Demand(f"A2-{profile}", count, per, **where)


def refusal(record: Fleet, *demands: Demand, policy: Policy | None = None) -> DoesNotFit:
    with pytest.raises(DoesNotFit) as caught:
        plan(record, demands, policy)
    return caught.value


def rules(error: DoesNotFit) -> dict[str, str]:
    return {name: reason.rule for one in error.shortfalls for reason in one.reasons for name in reason.gpus}


def suggestions(error: DoesNotFit) -> list[str]:
    return [suggestion.text for suggestion in error.suggestions]


def test_each_gpu_is_named_with_the_rule_that_it_says_no_by() -> None:
    record = fleet(
        gpu("n1:a", "8Q@web"),
        gpu("n2:a", "4Q@a 4Q@b 4Q@c 4Q@d"),
        off("n3:a"),
        gpu("n4:a"),
        gpu("n5:a", "4Q 4Q", vfs=2),
        down=["n4"],
    )
    error = refusal(record, ask("4Q", 20))
    assert rules(error) == {
        "n1:a": "size",
        "n2:a": "instances",
        "n3:a": "sriov_off",
        "n4:a": "unusable",
        "n5:a": "functions",
    }
    (short,) = error.shortfalls
    assert (short.demand, short.profile, short.count, short.missing) == (0, "NVIDIA A2-4Q", 20, 14)
    assert "14 of 20 NVIDIA A2-4Q do not fit" in error.message


def test_the_vms_in_the_way_are_named() -> None:
    error = refusal(fleet(gpu("n1:a", "8Q@web 8Q@db-")), ask("4Q", 1))
    assert "2 x NVIDIA A2-8Q, held by VM default/db (stopped), VM default/web" in error.message
    assert error.shortfalls[0].reasons[0].holders == ("default/web", "default/db")


def test_a_need_on_a_node_or_gpu_says_where() -> None:
    record = fleet(gpu("n1:a"), gpu("n2:a", "8Q@web"))
    assert "1 of 1 NVIDIA A2-4Q do not fit on node n2" in refusal(record, ask("4Q", 1, "node")).message
    assert "on GPU n2:a" in refusal(record, ask("4Q", 1, "gpu")).message


def test_a_gpu_filled_by_the_plan_itself_says_with_what() -> None:
    error = refusal(fleet(gpu("n1:a"), gpu("n2:a")), ask("4Q", 4), ask("8Q", 2), ask("16Q", 1))
    assert "n1:a: this plan fills it with 4 x NVIDIA A2-4Q" in error.message
    assert rules(error)["n2:a"] == "taken"


def test_a_mismatch_in_the_way_says_what_it_is_and_what_it_was_asked_to_be() -> None:
    error = refusal(fleet(gpu("n1:a", "4Q~8Q 4Q 4Q 4Q")), ask("4Q", 4))
    assert "1 x NVIDIA A2-4Q (asked to be NVIDIA A2-8Q)" in error.message


def test_switching_sriov_on_is_proposed_if_that_would_do() -> None:
    error = refusal(fleet(off("n1:a"), gpu("n2:a", "8Q@web")), ask("4Q", 4))
    assert suggestions(error) == ["enable_sriov: true"]
    assert "It would fit with enable_sriov: true." in error.hint


def test_reprofile_is_proposed_if_that_would_do() -> None:
    error = refusal(fleet(gpu("n1:a", "8Q"), gpu("n2:a", "8Q@web")), ask("4Q", 4))
    assert suggestions(error) == ["reprofile: true"]


def test_either_is_proposed_if_either_would_do_and_both_only_if_neither_does_alone() -> None:
    assert suggestions(refusal(fleet(gpu("n1:a", "8Q"), off("n2:a")), ask("4Q", 4))) == [
        "enable_sriov: true",
        "reprofile: true",
    ]
    assert suggestions(refusal(fleet(gpu("n1:a", "8Q"), off("n2:a")), ask("4Q", 5))) == [
        "enable_sriov: true and reprofile: true"
    ]


def test_the_highest_count_that_fits_is_proposed() -> None:
    error = refusal(fleet(gpu("n1:a"), gpu("n2:a", "4Q")), ask("4Q", 100))
    assert suggestions(error) == ["count: 8 for NVIDIA A2-4Q"]
    assert error.suggestions[0].as_dict() == {
        "change": "count",
        "text": "count: 8 for NVIDIA A2-4Q",
        "demand": 0,
        "profile": "NVIDIA A2-4Q",
        "count": 8,
    }
    per_node = refusal(fleet(gpu("n1:a"), gpu("n2:a", vfs=3)), ask("4Q", 4, "node"))
    assert suggestions(per_node) == ["count: 3 for NVIDIA A2-4Q"]


def test_a_demand_that_shuts_another_out_can_be_left_out() -> None:
    error = refusal(fleet(gpu("n1:a")), ask("4Q", 1), ask("8Q", 1))
    assert any(text.startswith("no NVIDIA A2-") for text in suggestions(error))


def test_the_fewest_vms_that_would_have_to_let_go_are_proposed() -> None:
    record = fleet(gpu("n1:a", "8Q@web 8Q@db"), gpu("n2:a", "8Q@app 8Q"))
    assert suggestions(refusal(record, ask("4Q", 1))) == ["the vGPUs of default/app detached and reprofile: true"]
    error = refusal(record, ask("4Q", 1), policy=REPROFILE)
    assert error.suggestions[0].as_dict()["vms"] == ["default/app"]
    assert suggestions(error) == ["the vGPUs of default/app detached"]


def test_nothing_is_proposed_that_would_not_do() -> None:
    error = refusal(fleet(gpu("n1:a", "8Q@a"), gpu("n2:a", "8Q@b")), ask("4Q", 8))
    assert suggestions(error) == []
    assert error.hint == "No single change would make it fit."


def test_exclusive_refuses_to_take_a_vgpu_from_a_vm_and_names_both() -> None:
    error = refusal(fleet(gpu("n1:a", "8Q@web 8Q")), ask("4Q", 0), policy=Policy(exclusive=True))
    assert error.message == "n1:a: n1:a-00 is held by VM default/web, and nobody asked for it."
    assert rules(error) == {"n1:a": "in_use"}
    assert suggestions(error) == ["the vGPUs of default/web detached"]


def test_exclusive_with_a_count_of_zero_does_not_take_from_a_vm_either() -> None:
    error = refusal(fleet(gpu("n1:a", "4Q@web")), ask("4Q", 0), policy=Policy(exclusive=True))
    assert "default/web" in error.message
    assert "nobody asked for it" in error.message


def test_exclusive_refuses_if_vms_hold_more_than_is_asked_for() -> None:
    error = refusal(fleet(gpu("n1:a", "4Q@web 4Q@db")), ask("4Q", 1), policy=Policy(exclusive=True))
    assert rules(error) == {"n1:a": "in_use"}


def test_the_error_is_data_too() -> None:
    error = refusal(fleet(gpu("n1:a", "8Q@web")), ask("4Q", 1))
    record = json.loads(json.dumps(error.as_dict()))
    assert record["code"] == "does_not_fit"
    assert record["exhaustive"] is True
    assert record["shortfalls"][0]["reasons"][0]["gpus"] == ["n1:a"]
    assert record["suggestions"][0]["change"] == "detach"


def test_a_hundred_gpus_are_not_a_hundred_sentences() -> None:
    error = refusal(fleet(*(off(f"n{number:03}:a") for number in range(100))), ask("4Q", 1))
    assert len(error.message) < 300
    assert "and 97 more" in error.message


def test_an_answer_that_is_not_certain_says_so() -> None:
    assert "a layout that fits may exist" in str(DoesNotFit([], [], exhaustive=False))
    assert "may exist" not in str(DoesNotFit([], []))
