# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""On fleets small enough to try everything, the planner gives the answer that trying everything gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import MIG, Fleet, Gpu, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import Plan, plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.surplus import CountInUse
from hypothesis import HealthCheck, event, given, settings, strategies as st

from tests.unit.plugins.module_utils.fleet.test_mig import PLACEMENTS
from tests.unit.plugins.module_utils.fleets import (
    Driver,
    Refused,
    States,
    fewest_by_trying,
    fleet,
    gpu,
    off,
    satisfied,
    surplus,
    time_sliced,
    vgpus,
    vm,
)
from tests.unit.plugins.module_utils.mig_fleets import (
    MOST_VFS,
    SHARED_BOARD,
    SHARED_TYPES,
    TYPES,
    MigDriver,
    SharedDriver,
    cut_anew,
    placeable,
    served,
    share_anew,
    shared_gpu,
)

SIZES = {4: ["4Q", "4A"], 8: ["8Q", "8C"], 16: ["16Q"]}
MOST = {4: 4, 8: 2, 16: 1}
NAMES = [["n1:a"], ["n1:a", "n1:b"], ["n1:a", "n2:a"], ["n1:a", "n1:b", "n2:a"]]
PROFILES = [f"NVIDIA A2-{word}" for words in SIZES.values() for word in words]
THOROUGH = settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Problem:
    fleet: Fleet
    demands: list[Demand]
    policy: Policy
    states: States

    @property
    def surplus(self) -> Counter[str]:
        """vGPUs that have to go for the counts to be exact. An exclusive plan does not tell them from others."""
        return Counter() if self.policy.exclusive else surplus(self.fleet, self.demands)

    @property
    def estimated(self) -> bool:
        """Whether several vGPUs may share a MIG instance, so that nobody knows how many instances are empty."""
        return any(one.boards == (SHARED_BOARD,) and len(vgpus(one)) for one in self.fleet.gpus)

    def fewest(self, demands: list[Demand] | None = None, policy: Policy | None = None) -> int | None:
        return fewest_by_trying(self.fleet, demands or self.demands, policy or self.policy, self.states)

    def planned(self) -> Plan | None:
        try:
            found = plan(self.fleet, self.demands, self.policy)
        except DoesNotFit as error:
            event(f"does not fit, suggestions: {len(error.suggestions)}")
            return None
        except CountInUse:
            event("VMs hold more than was asked for")
            assert self.surplus
            return None
        event(f"fits, {min(len(found.touched), 2)} GPUs touched")
        return found


@dataclass(frozen=True)
class World:
    """A sort of fleets, and the driver that its GPUs have."""

    problems: Callable[[], st.SearchStrategy[Problem]]
    driver: type[Driver] | type[MigDriver] | type[SharedDriver]


@st.composite
def demands(draw: st.DrawFn, names: Sequence[str], profiles: Sequence[str]) -> list[Demand]:
    where: list[dict[str, tuple[str, ...]]] = [{}, {}, {}, {"nodes": (names[-1].split(":")[0],)}]
    where += [{"gpus": (name,)} for name in names]
    return [
        Demand(
            draw(st.sampled_from(profiles)),
            draw(st.sampled_from([1, 1, 2, 2, 3, 4, 7, 0])),
            draw(st.sampled_from(["fleet", "fleet", "node", "gpu"])),
            **draw(st.sampled_from(where)),
        )
        for _number in range(draw(st.integers(1, 3)))
    ]


@st.composite
def policies(draw: st.DrawFn, *, mig: bool) -> Policy:
    return Policy(
        exclusive=draw(st.sampled_from([False, False, True])),
        reprofile=draw(st.booleans()),
        enable_sriov=draw(st.booleans()),
        enable_mig=mig and draw(st.sampled_from([True, True, True, False])),
        placement=draw(st.sampled_from(["consolidate", "consolidate", "spread"])),
    )


@st.composite
def shared_gpus(draw: st.DrawFn, name: str) -> Gpu:
    vfs = draw(st.integers(1, 4))
    if draw(st.sampled_from([False] * 6 + [True])):
        return off(name, vfs=vfs)
    size = draw(st.sampled_from(sorted(SIZES)))
    words = draw(st.lists(st.sampled_from(SIZES[size]), max_size=min(vfs, MOST[size])))
    held = draw(st.lists(st.booleans(), min_size=len(words), max_size=len(words)))
    return gpu(name, " ".join(f"{word}@vm" if hold else word for word, hold in zip(words, held, strict=True)), vfs=vfs)


@st.composite
def sharing(draw: st.DrawFn) -> Problem:
    names = draw(st.sampled_from(NAMES))
    record = fleet(*(draw(shared_gpus(name)) for name in names), down=draw(st.sampled_from([(), (), (), ("n2",)])))
    return Problem(record, draw(demands(names, PROFILES)), draw(policies(mig=False)), time_sliced)


@st.composite
def cuts(draw: st.DrawFn, board: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in draw(st.lists(st.sampled_from(sorted(PLACEMENTS[board])), max_size=5)):
        if placeable(board, found + Counter({name: 1})):
            found[name] += 1
    return found


@st.composite
def cut_gpus(draw: st.DrawFn, name: str, board: str) -> Gpu:
    node = name.split(":", maxsplit=1)[0]
    base = Gpu(name, node, address=name, boards=(board,), mode=MIG)
    # Real boards have more functions than instances, unless something else takes them.
    vfs = draw(st.sampled_from([1, 2, 3, 5, MOST_VFS, MOST_VFS]))
    if draw(st.sampled_from([False] * 5 + [True])):
        return replace(base, sharing=False, vf_capacity=vfs)
    cut = draw(cuts(board))
    instances = [served(board, one) for one, count in sorted(cut.items()) for _number in range(count)]
    filled = draw(st.lists(st.sampled_from("..vVh"), min_size=len(instances), max_size=len(instances)))
    slots = []
    for number, (type_name, state) in enumerate(zip(instances, filled, strict=True)):
        if state != "." and len(slots) < vfs:
            holders = (vm("web"),) if state == "h" else ()
            slots.append(Slot(f"{name}-{number:02}", f"{number:02}", type_name, type_name, True, holders))
    slots += [Slot(f"{name}-{place:02}", f"{place:02}") for place in range(len(slots) + 20, vfs + 20)]
    return replace(base, slots=tuple(slots), max_instances=Counter(instances))


@st.composite
def cutting(draw: st.DrawFn) -> Problem:
    board = draw(st.sampled_from(["A30", "A100", "H100"]))
    names = draw(st.sampled_from(NAMES if board == "A30" else NAMES[:3]))
    record = fleet(*(draw(cut_gpus(name, board)) for name in names))
    wanted = draw(st.lists(st.sampled_from(sorted(TYPES[board])), min_size=1, max_size=2, unique=True))
    return Problem(record, draw(demands(names, wanted)), draw(policies(mig=True)), cut_anew)


@st.composite
def shared_instances_gpus(draw: st.DrawFn, name: str) -> Gpu:
    node = name.split(":", maxsplit=1)[0]
    base = Gpu(name, node, address=name, boards=(SHARED_BOARD,), mode=MIG)
    if draw(st.sampled_from([False] * 5 + [True])):
        return replace(base, sharing=False, vf_capacity=MOST_VFS)
    ones, twos = draw(st.sampled_from([(0, 0), (1, 0), (2, 0), (0, 1), (2, 0), (0, 1)]))
    slots: list[Slot] = []
    for kind in draw(st.lists(st.sampled_from(sorted(SHARED_TYPES)), max_size=4)):
        slot = Slot(f"{name}-{len(slots):02}", f"{len(slots):02}", kind, kind, True)
        holders = (vm("web"),) if draw(st.sampled_from([False, False, True])) else ()
        try:
            SharedDriver(fleet(shared_gpu(base, ones, twos, [*slots, slot])))
        except Refused:
            continue
        slots.append(replace(slot, holders=holders))
    slots += [Slot(f"{name}-{place:02}", f"{place:02}") for place in range(len(slots), MOST_VFS)]
    return shared_gpu(base, ones, twos, slots)


@st.composite
def sharing_instances(draw: st.DrawFn) -> Problem:
    names = draw(st.sampled_from(NAMES[:3]))
    record = fleet(*(draw(shared_instances_gpus(name)) for name in names))
    wanted = draw(st.lists(st.sampled_from(sorted(SHARED_TYPES)), min_size=1, max_size=2, unique=True))
    return Problem(record, draw(demands(names, wanted)), draw(policies(mig=True)), share_anew)


WORLDS = {
    "time-sliced": World(sharing, Driver),
    "MIG": World(cutting, MigDriver),
    "MIG with shared instances": World(sharing_instances, SharedDriver),
}
in_each_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)


@in_each_world
@THOROUGH
@given(data=st.data())
def test_it_fits_exactly_if_some_layout_does_and_touches_as_few_gpus_as_any(world: World, data: st.DataObject) -> None:
    problem = data.draw(world.problems())
    if problem.surplus:
        # Which of the vGPUs go is decided first, so the plan may not be the best one, and does not claim to be.
        return
    fewest = problem.fewest()
    found = problem.planned()
    assert (found is None) == (fewest is None)
    if found is not None and fewest is not None:
        # Nothing is claimed of a plan after which there is still too much, or if it rests on an estimate.
        assert found.optimal is not bool(found.stuck) or (problem.estimated and not found.optimal)
        consolidating = problem.policy.placement == "consolidate"
        assert len(found.touched) == fewest if consolidating else len(found.touched) >= fewest


@in_each_world
@THOROUGH
@given(data=st.data())
def test_the_driver_takes_all_steps_in_order_and_then_the_demands_are_met(world: World, data: st.DataObject) -> None:
    problem = data.draw(world.problems())
    found = problem.planned()
    if found is None:
        return
    extra = problem.surplus
    assert not (extra and found.optimal)
    stays = Counter(one.profile for one in found.stuck)
    frozen = {node.name for node in problem.fleet.nodes if not node.ready}
    assert {one.node for one in found.stuck} <= frozen
    if not problem.policy.exclusive and not problem.policy.reprofile:
        # What is too much goes, or is told if it cannot.
        assert Counter(step.before for step in found.steps if step.action == "disable") + stays == extra
    driver = world.driver(problem.fleet)
    for step in found.steps:
        # It refuses a second size, one too many, what no instance is there for, and whatever is in use.
        driver.do(step)
    assert satisfied(problem.fleet, problem.demands, problem.policy, driver.supply())


@in_each_world
@settings(THOROUGH, max_examples=100)
@given(data=st.data())
def test_the_same_input_gives_the_same_plan_and_its_outcome_needs_no_other(world: World, data: st.DataObject) -> None:
    problem = data.draw(world.problems())
    found = problem.planned()
    if found is not None:
        assert problem.planned() == found
        assert not plan(found.after, problem.demands, problem.policy).changed


@in_each_world
@settings(THOROUGH, max_examples=100)
@given(data=st.data())
def test_each_change_that_is_proposed_does_make_it_fit(world: World, data: st.DataObject) -> None:
    problem = data.draw(world.problems())
    if problem.surplus:
        return
    try:
        plan(problem.fleet, problem.demands, problem.policy)
    except DoesNotFit as error:
        proposals = [suggestion.as_dict() for suggestion in error.suggestions]
    else:
        return
    for proposal in proposals:
        if proposal["change"] == "count":
            number, count = proposal["demand"], proposal["count"]
            lowered = with_count(problem.demands, number, count)
            if not problem.policy.exclusive and surplus(problem.fleet, lowered):
                plan(problem.fleet, lowered, problem.policy)
                continue
            assert problem.fewest(with_count(problem.demands, number, count)) is not None
            assert problem.fewest(with_count(problem.demands, number, count + 1)) is None
        elif "options" in proposal:
            assert problem.fewest(policy=Policy(**{**vars(problem.policy), **proposal["options"]})) is not None
        event(proposal["change"])


def with_count(demands: list[Demand], number: int, count: int) -> list[Demand]:
    return [replace(demand, count=count) if index == number else demand for index, demand in enumerate(demands)]
