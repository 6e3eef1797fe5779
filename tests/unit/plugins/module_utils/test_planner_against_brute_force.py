# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On fleets small enough to try everything, the planner gives the answer that trying everything gives."""

from __future__ import annotations

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import Fleet, Gpu
from ansible_collections.vgpu.fleet.plugins.module_utils.planner import Plan, plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.demand import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit
from hypothesis import HealthCheck, event, given, settings, strategies as st

from tests.unit.plugins.module_utils.fleets import Driver, fewest_by_trying, fleet, gpu, off, satisfied

SIZES = {4: ["4Q", "4A"], 8: ["8Q", "8C"], 16: ["16Q"]}
MOST = {4: 4, 8: 2, 16: 1}
NAMES = [["n1:a"], ["n1:a", "n1:b"], ["n1:a", "n2:a"], ["n1:a", "n1:b", "n2:a"]]
PROFILES = [f"NVIDIA A2-{word}" for words in SIZES.values() for word in words]
THOROUGH = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))

Problem = tuple[Fleet, list[Demand], Policy]


@st.composite
def gpus(draw: st.DrawFn, name: str) -> Gpu:
    vfs = draw(st.integers(1, 4))
    if draw(st.sampled_from([False] * 6 + [True])):
        return off(name, vfs=vfs)
    size = draw(st.sampled_from(sorted(SIZES)))
    words = draw(st.lists(st.sampled_from(SIZES[size]), max_size=min(vfs, MOST[size])))
    held = draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    return gpu(name, " ".join(f"{word}@vm" if hold else word for word, hold in zip(words, held, strict=True)), vfs=vfs)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    names = draw(st.sampled_from(NAMES))
    record = fleet(*(draw(gpus(name)) for name in names), down=draw(st.sampled_from([(), (), (), ("n2",)])))
    where: list[dict[str, tuple[str, ...]]] = [{}, {}, {}, {"nodes": (names[-1].split(":")[0],)}]
    where += [{"gpus": (name,)} for name in names]
    demands = [
        Demand(
            draw(st.sampled_from(PROFILES)),
            draw(st.sampled_from([1, 1, 2, 2, 3, 4, 0])),
            draw(st.sampled_from(["fleet", "fleet", "node", "gpu"])),
            **draw(st.sampled_from(where)),
        )
        for _number in range(draw(st.integers(1, 3)))
    ]
    policy = Policy(
        exclusive=draw(st.sampled_from([False, False, True])),
        reprofile=draw(st.booleans()),
        enable_sriov=draw(st.booleans()),
        placement=draw(st.sampled_from(["consolidate", "spread"])),
    )
    return record, demands, policy


def planned(problem: Problem) -> Plan | None:
    try:
        found = plan(*problem)
    except DoesNotFit as error:
        event(f"does not fit, changes that would help: {len(error.changes)}")
        return None
    event(f"fits, {min(len(found.touched), 2)} GPUs touched")
    return found


@THOROUGH
@given(problems())
def test_it_fits_exactly_if_some_layout_does_and_touches_as_few_gpus_as_any(problem: Problem) -> None:
    fewest = fewest_by_trying(*problem)
    found = planned(problem)
    assert (found is None) == (fewest is None)
    if found is not None and fewest is not None:
        assert found.proven
        consolidating = problem[2].placement == "consolidate"
        assert len(found.touched) == fewest if consolidating else len(found.touched) >= fewest


@THOROUGH
@given(problems())
def test_the_driver_takes_all_steps_in_order_and_then_the_demands_are_met(problem: Problem) -> None:
    record, demands, policy = problem
    found = planned(problem)
    if found is None:
        return
    driver = Driver(record)
    for step in found.steps:
        # It refuses a second size, one too many, and whatever is in use.
        driver.do(step)
    assert satisfied(record, demands, policy, driver.supply())


@settings(THOROUGH, max_examples=100)
@given(problems())
def test_the_same_input_gives_the_same_plan_and_its_outcome_needs_no_other(problem: Problem) -> None:
    found = planned(problem)
    if found is not None:
        assert plan(*problem) == found
        assert not plan(found.outcome(), *problem[1:]).changed


@settings(THOROUGH, max_examples=100)
@given(problems())
def test_each_change_that_is_proposed_does_make_it_fit(problem: Problem) -> None:
    record, demands, policy = problem
    try:
        plan(record, demands, policy)
    except DoesNotFit as error:
        proposals = [change.as_dict() for change in error.changes]
    else:
        return
    for proposal in proposals:
        if proposal["change"] == "count":
            number, count = proposal["demand"], proposal["count"]
            assert fewest_by_trying(record, with_count(demands, number, count), policy) is not None
            assert fewest_by_trying(record, with_count(demands, number, count + 1), policy) is None
        elif "options" in proposal:
            allowed = Policy(**{**vars(policy), **proposal["options"]})
            assert fewest_by_trying(record, demands, allowed) is not None
        event(proposal["change"])


def with_count(demands: list[Demand], number: int, count: int) -> list[Demand]:
    return [
        Demand(**{**vars(demand), "count": count}) if index == number else demand
        for index, demand in enumerate(demands)
    ]
