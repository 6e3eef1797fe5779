# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs in MIG mode in plans and counts: what is cut, what is left alone, and what is said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import Availability, select_nodes
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import MIG, Fleet, Gpu
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off
from tests.unit.plugins.module_utils.planning.test_plan_effort import calls

CUT = Policy(enable_mig=True)


def h100(name: str = "n1:a", contents: str = "", **instances: int) -> Gpu:
    """A GPU in MIG mode: h100(_3_40C=1) has one instance of 3g.40gb. Without vGPUs its slots offer nothing."""
    named = {f"NVIDIA H100-{key.strip('_').replace('_', '-')}": count for key, count in instances.items()}
    one = replace(gpu(name, contents, board="H100"), mode=MIG, max_instances=named)
    offered = tuple(named)
    return replace(one, slots=tuple(replace(slot, offered=offered) if slot.empty else slot for slot in one.slots))


def ask(profile: str, count: int, **more: object) -> Demand:
    return Demand(f"NVIDIA H100-{profile}", count, **more)  # type: ignore[arg-type]


def done(record: Fleet, *demands: Demand, policy: Policy = CUT) -> list[str]:
    return [str(step) for step in plan(record, demands, policy).steps]


def refusal(record: Fleet, *demands: Demand, policy: Policy = CUT) -> DoesNotFit:
    with pytest.raises(DoesNotFit) as caught:
        plan(record, demands, policy)
    return caught.value


def test_a_gpu_is_cut_into_the_instances_that_are_needed_and_no_others() -> None:
    assert done(fleet(h100()), ask("3-40C", 1), ask("1-10C", 2)) == [
        "cut GPU n1:a into 1 x 3g.40gb, 2 x 1g.10gb",
        "enable NVIDIA H100-1-10C on n1:a-00 of GPU n1:a",
        "enable NVIDIA H100-1-10C on n1:a-01 of GPU n1:a",
        "enable NVIDIA H100-3-40C on n1:a-02 of GPU n1:a",
    ]


def test_vgpus_that_have_no_virtual_function_after_a_new_cut_do_not_come_back() -> None:
    # Five instances fit on the board, and four functions serve them.
    full = h100(contents="1-10C 1-10C 1-10C 1-10C", _1_10C=4)
    few = replace(full, slots=full.slots[:4])
    policy = Policy(reprofile=True, enable_mig=True)
    steps = done(fleet(few), ask("3-40C", 1), policy=policy)
    assert steps[4:] == [
        "cut GPU n1:a into 1 x 3g.40gb, 4 x 1g.10gb",
        "enable NVIDIA H100-1-10C on n1:a-00 of GPU n1:a",
        "enable NVIDIA H100-1-10C on n1:a-01 of GPU n1:a",
        "enable NVIDIA H100-1-10C on n1:a-02 of GPU n1:a",
        "enable NVIDIA H100-3-40C on n1:a-03 of GPU n1:a",
    ]
    # With more functions all of them come back.
    assert len(done(fleet(full), ask("3-40C", 1), policy=policy)) == len(steps) + 1


def test_instances_that_are_there_are_used_and_nothing_is_cut() -> None:
    steps = done(fleet(h100(_3_40C=2)), ask("3-40C", 2))
    assert len(steps) == 2
    assert all(step.startswith("enable") for step in steps)
    assert len(done(fleet(h100(_3_40C=1, _1_10C=2)), ask("3-40C", 1), ask("1-10C", 2), policy=Policy())) == 3


def test_a_gpu_without_vgpus_gets_more_instances_beside_those_it_has() -> None:
    assert done(fleet(h100(_3_40C=1)), ask("1-10C", 1))[0] == "cut GPU n1:a into 1 x 3g.40gb, 1 x 1g.10gb"
    # Four slices are left beside it, and only giving it up would make room for more.
    assert "reprofile: true" in refusal(fleet(h100(_3_40C=1)), ask("1-10C", 5)).hint
    steps = done(fleet(h100(_3_40C=1)), ask("1-10C", 5), policy=replace(CUT, reprofile=True))
    assert steps[0] == "cut GPU n1:a into 5 x 1g.10gb"


def test_instances_do_not_change_under_a_vgpu_that_a_vm_has() -> None:
    held = fleet(h100("n1:a", "3-40C@web", _3_40C=1))
    error = refusal(held, ask("1-10C", 1), policy=replace(CUT, reprofile=True))
    assert "they change only while it has no vGPUs, but it has 1 x NVIDIA H100-3-40C, held by VM default/web" in str(
        error
    )


def test_vgpus_that_nobody_has_come_back_on_the_new_instances() -> None:
    record = fleet(h100("n1:a", "3-40C", _3_40C=1))
    assert "reprofile: true" in refusal(record, ask("1-10C", 1)).hint
    assert done(record, ask("1-10C", 1), policy=replace(CUT, reprofile=True)) == [
        "disable NVIDIA H100-3-40C on n1:a-00 of GPU n1:a",
        "cut GPU n1:a into 1 x 3g.40gb, 1 x 1g.10gb",
        "enable NVIDIA H100-1-10C on n1:a-01 of GPU n1:a",
        "enable NVIDIA H100-3-40C on n1:a-02 of GPU n1:a",
    ]


def test_sriov_is_switched_on_before_a_gpu_is_cut() -> None:
    record = fleet(replace(off("n1:a", board="H100"), mode=MIG))
    steps = done(record, ask("7-80C", 1), policy=replace(CUT, enable_sriov=True))
    assert steps == [
        "switch SR-IOV on for GPU n1:a",
        "cut GPU n1:a into 1 x 7g.80gb",
        "enable NVIDIA H100-7-80C on a new vGPU of GPU n1:a",
    ]


def test_without_leave_to_cut_the_task_that_would_do_it_is_named() -> None:
    record = fleet(h100("n1:a"), h100("n2:a"))
    error = refusal(record, ask("3-40C", 4), policy=Policy())
    said = "(or first vgpu.fleet.harvester_mig: instances 2 x 3g.40gb on GPU n1:a, n2:a)"
    assert error.hint == f"It would fit with enable_mig: true {said}."
    assert error.as_dict()["suggestions"][0]["tasks"] == [
        {
            "gpus": ["n1:a", "n2:a"],
            "layout": "2 x 3g.40gb",
            "instances": [{"profile": "3g.40gb", "count": 2}],
            "relayout": False,
            "enable_sriov": False,
        }
    ]


def test_what_no_cut_serves_does_not_fit_and_the_slices_are_the_reason() -> None:
    error = refusal(fleet(h100()), ask("4-40C", 2))
    assert "1 of 2 NVIDIA H100-4-40C do not fit" in str(error)
    assert "count: 1 for NVIDIA H100-4-40C" in error.hint


def test_time_sliced_and_mig_profiles_do_not_meet_on_one_gpu() -> None:
    error = refusal(fleet(h100()), ask("10C", 1))
    assert "it is in MIG mode, and NVIDIA H100-10C is not a MIG profile" in str(error)
    error = refusal(fleet(gpu("n1:a", board="H100")), ask("1-10C", 1))
    assert "it is not in MIG mode, and NVIDIA H100-1-10C is a MIG profile" in str(error)
    mixed = fleet(h100("n1:a"), gpu("n2:a", board="H100"))
    steps = done(mixed, ask("10C", 1), ask("1-10C", 1))
    assert [step.rsplit(" ", 1)[-1] for step in steps] == ["1g.10gb", "n1:a", "n2:a"]


def test_different_profiles_share_a_gpu_if_some_cut_has_both_and_take_two_if_not() -> None:
    record = fleet(h100("n1:a"), h100("n2:a"))
    assert plan(record, [ask("4-40C", 1), ask("3-40C", 1)], CUT).touched == ("n1:a",)
    assert plan(record, [ask("4-40C", 1), ask("3-40C", 2)], CUT).touched == ("n1:a", "n2:a")


def test_no_more_vgpus_are_planned_than_there_are_virtual_functions() -> None:
    def with_functions(one: Gpu, count: int) -> Fleet:
        return fleet(replace(one, slots=one.slots[:count]))

    both = [ask("3-40C", 1), ask("1-10C", 2)]
    for one in (h100(_3_40C=1, _1_10C=2), h100()):
        assert len(plan(with_functions(one, 3), both, CUT).after.gpus[0].slots) == 3
        refusal(with_functions(one, 2), *both)


def test_a_thousand_gpus_are_cut_with_little_effort() -> None:
    record = fleet(*(h100(f"n{number // 8:03}:{number % 8}") for number in range(400)))
    demands = [ask("3-40C", 300), ask("1-10C", 500), ask("2-20C", 1, per="node", nodes=("n00*",))]
    found = plan(record, demands, CUT)
    assert sum(step.action == "enable" for step in found.steps) == 810
    assert calls(lambda: plan(record, demands, CUT)) < 1_000_000
    every = [ask("1-10C", 7, per="gpu")]
    assert len(plan(record, every, CUT).touched) == 400
    assert calls(lambda: plan(record, every, CUT)) < 1_000_000


def test_few_gpus_are_cut_on_a_fleet_that_is_too_large_to_try_everything() -> None:
    record = fleet(*(h100(f"n{number:03}:a") for number in range(100)))
    # Ten with one large and four small ones, ten with two large ones.
    assert len(plan(record, [ask("3-40C", 30), ask("1-10C", 40)], CUT).touched) == 20
    found = plan(record, [ask("2-20C", 19), ask("1-20C", 36)], CUT)
    assert (len(found.touched), found.optimal) == (14, True)


def creatable(record: Fleet, *, sriov: bool = False) -> dict[str, int]:
    found = Availability(record, select_nodes(record, None), sriov=sriov)
    return {name.split("H100-")[1]: count.creatable for name, count in found.totals.items() if count.creatable}


def test_availability_counts_what_could_be_made_of_free_instances_and_free_slices() -> None:
    whole = {"1-10C": 7, "1-10CME": 1, "1-20C": 4, "2-20C": 3, "3-40C": 2, "4-40C": 1, "7-80C": 1}
    assert creatable(fleet(h100())) == whole
    beside = {"1-10C": 4, "1-10CME": 1, "1-20C": 2, "2-20C": 2, "3-40C": 2, "4-40C": 1}
    assert creatable(fleet(h100(_3_40C=1))) == beside
    # With a vGPU on it the cut cannot change: only instances that are free count.
    assert creatable(fleet(h100("n1:a", "3-40C", _3_40C=2, _1_10C=0))) == {"3-40C": 1}
    uncut = fleet(replace(off("n1:a", board="H100"), mode=MIG))
    assert creatable(uncut) == {}
    assert creatable(uncut, sriov=True) == whole


def test_what_every_gpu_is_to_have_leaves_room_for_what_any_may_have() -> None:
    record = fleet(*(h100(f"n{number // 8:03}:{number % 8}") for number in range(50)))
    found = plan(record, [ask("1-10C", 1, per="gpu"), ask("3-40C", 25)], CUT)
    assert sum(step.action == "enable" for step in found.steps) == 75
    assert len(found.touched) == 50


PRO = "RTX Pro 6000 Blackwell DC"
SMALL, WHOLE = f"NVIDIA {PRO}-1-8Q", f"NVIDIA {PRO}-1-24Q"


def graphics(contents: str, instances: int) -> Gpu:
    """An RTX PRO 6000 with instances of one slice, each of which serves three of 8Q or one of 24Q."""
    served = {SMALL: 3 * instances, WHOLE: instances}
    named = {"1g.24gb+gfx": instances, "1g.24gb": 0}
    return gpu("n1:a", contents, board=PRO, mode=MIG, max_instances=served, instances=named)


def test_unused_vgpus_are_packed_anew_where_nobody_knows_which_instances_they_are_on() -> None:
    record = fleet(graphics("1-8Q 1-8Q 1-8Q", 4))
    demands = [Demand(SMALL, 3), Demand(WHOLE, 3)]
    found = plan(record, demands, Policy(reprofile=True, exclusive=True))
    assert [step.action for step in found.steps] == ["disable"] * 3 + ["enable"] * 6
    # One more is certain to fit: three vGPUs are on three instances at most.
    found = plan(record, [Demand(SMALL, 3), Demand(WHOLE, 1)], Policy(reprofile=True, exclusive=True))
    assert [step.action for step in found.steps] == ["enable"]


def test_vgpus_in_use_are_assumed_to_be_packed_and_the_plan_claims_nothing() -> None:
    found = plan(fleet(graphics("1-8Q@a 1-8Q@b 1-8Q@c", 4)), [Demand(WHOLE, 3)])
    assert [step.action for step in found.steps] == ["enable"] * 3
    assert not found.optimal
    with pytest.raises(DoesNotFit, match="its MIG instances are taken"):
        plan(fleet(graphics("1-8Q@a 1-8Q@b 1-8Q@c 1-8Q@d", 1 + 1)), [Demand(WHOLE, 1)])
