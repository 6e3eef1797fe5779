# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs in MIG mode: the planner cuts them exactly if some cut helps, and the driver takes every step of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product

from ansible_collections.vgpu.fleet.plugins.module_utils.catalog import boards
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import MIG, Fleet, Gpu, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.planner import Plan, plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.demand import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step
from hypothesis import HealthCheck, event, given, settings, strategies as st

from lab.mig import GEOMETRIES, MigCard, NoRoom
from tests.unit.plugins.module_utils.fleets import _selected, fleet, satisfied, vm
from tests.unit.plugins.module_utils.test_mig import PLACEMENTS, can_be_placed

THOROUGH = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
NAMES = [["n1:a"], ["n1:a", "n2:a"], ["n1:a", "n1:b"], ["n1:a", "n1:b", "n2:a"]]
MOST_VFS = 16

Problem = tuple[Fleet, list[Demand], Policy]


def served(board: str, instance: str) -> str:
    """The vGPU type of an instance: 1g.5gb+me serves 1-5CME."""
    plain = instance.removesuffix("+me")
    slices, gib = plain.removesuffix("gb").split("g.")
    return f"{boards()[board].type_prefix}{slices}-{gib}C" + ("ME" if plain != instance else "")


TYPES = {board: {served(board, name): name for name in table} for board, table in PLACEMENTS.items()}


def placeable(board: str, instances: Counter[str]) -> bool:
    return can_be_placed(board, tuple(instances[name] for name in PLACEMENTS[board]))


@st.composite
def cuts(draw: st.DrawFn, board: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for name in draw(st.lists(st.sampled_from(sorted(PLACEMENTS[board])), max_size=5)):
        if placeable(board, found + Counter({name: 1})):
            found[name] += 1
    return found


@st.composite
def gpus(draw: st.DrawFn, name: str, board: str) -> Gpu:
    node = name.split(":", maxsplit=1)[0]
    base = Gpu(name, node, address=name, boards=(board,), mode=MIG)
    if draw(st.sampled_from([False] * 5 + [True])):
        return replace(base, sharing=False, vf_capacity=MOST_VFS)
    cut = draw(cuts(board))
    instances = [served(board, one) for one, count in sorted(cut.items()) for _number in range(count)]
    filled = draw(st.lists(st.sampled_from("..vVh"), min_size=len(instances), max_size=len(instances)))
    slots = []
    for number, (type_name, state) in enumerate(zip(instances, filled, strict=True)):
        if state != ".":
            holders = (vm("web"),) if state == "h" else ()
            slots.append(Slot(f"{name}-{number:02}", f"{number:02}", type_name, type_name, True, holders))
    slots += [Slot(f"{name}-{place:02}", f"{place:02}") for place in range(len(slots) + 20, MOST_VFS + 20)]
    return replace(base, slots=tuple(slots), max_instances=Counter(instances))


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    board = draw(st.sampled_from(["A30", "A100", "H100"]))
    names = draw(st.sampled_from(NAMES if board == "A30" else NAMES[:3]))
    record = fleet(*(draw(gpus(name, board)) for name in names))
    wanted = draw(st.lists(st.sampled_from(sorted(TYPES[board])), min_size=1, max_size=2, unique=True))
    where: list[dict[str, tuple[str, ...]]] = [{}, {}, {}, *({"gpus": (name,)} for name in names)]
    demands = [
        Demand(
            draw(st.sampled_from(wanted)),
            draw(st.sampled_from([1, 1, 2, 2, 3, 4, 7, 0])),
            draw(st.sampled_from(["fleet", "fleet", "node", "gpu"])),
            **draw(st.sampled_from(where)),
        )
        for _number in range(draw(st.integers(1, 3)))
    ]
    policy = Policy(
        exclusive=draw(st.sampled_from([False, False, True])),
        reprofile=draw(st.booleans()),
        enable_sriov=draw(st.booleans()),
        enable_mig=draw(st.sampled_from([True, True, True, False])),
        placement=draw(st.sampled_from(["consolidate", "consolidate", "spread"])),
    )
    return record, demands, policy


def fewest_by_trying(record: Fleet, demands: Sequence[Demand], policy: Policy) -> int | None:
    """The fewest GPUs that have to be touched, by the mildest means that do: (SR-IOV, removing, cutting)."""
    rungs = [(False, policy.exclusive, False)]
    if policy.enable_mig:
        rungs.append((False, policy.exclusive, True))
    if policy.enable_sriov:
        rungs.append((True, policy.exclusive, policy.enable_mig))
    if policy.reprofile and not policy.exclusive:
        rungs.append((policy.enable_sriov, True, policy.enable_mig))
    for sriov, evict, mig in rungs:
        found = _fewest(record, demands, policy, sriov=sriov, evict=evict, mig=mig)
        if found is not None:
            return found
    return None


def _fewest(
    record: Fleet, demands: Sequence[Demand], policy: Policy, *, sriov: bool, evict: bool, mig: bool
) -> int | None:
    profiles = sorted({demand.profile for demand in demands})
    now = {one.name: vgpus(one) for one in record.gpus}
    chosen = {one.name for one in record.gpus if any(_selected(one, demand) for demand in demands)}
    options = {
        one.name: list(states(one, profiles, sriov=sriov, evict=evict, mig=mig))
        for one in record.gpus
        if one.name in chosen
    }
    for touched in range(len(options) + 1):
        for names in combinations(sorted(options), touched):
            for found in product(*(options[name] for name in names)):
                if satisfied(record, demands, policy, {**now, **dict(zip(names, found, strict=True))}):
                    return touched
    return None


def vgpus(one: Gpu) -> Counter[str]:
    return Counter(slot.profile for slot in one.slots if slot.profile)


def states(one: Gpu, profiles: Sequence[str], *, sriov: bool, evict: bool, mig: bool) -> Iterator[Counter[str]]:
    """Every set of vGPUs that the GPU could have instead of its own."""
    if not one.sharing and not sriov:
        return
    board, now = one.boards[0], vgpus(one)
    held = Counter(slot.profile for slot in one.slots if slot.profile and slot.holders)
    kinds = sorted({*profiles, *now})
    for counts in product(*(range(held[kind] if evict else now[kind], 8) for kind in kinds)):
        state = Counter({kind: count for kind, count in zip(kinds, counts, strict=True) if count})
        if state == now:
            continue
        as_it_is = all(one.max_instances.get(kind, 0) >= count for kind, count in state.items())
        cut_anew = mig and not held and (evict or not now) and placeable(board, needed(one, state, evict=evict))
        if as_it_is or cut_anew:
            yield state


def needed(one: Gpu, state: Counter[str], *, evict: bool) -> Counter[str]:
    kept = Counter() if evict else Counter(one.max_instances)
    table = TYPES[one.boards[0]]
    return Counter({table[kind]: max(state[kind], kept[kind]) for kind in {*state, *kept}})


class Refused(Exception):
    pass


class Driver:
    """The lab's card: instances are made one after the other on an empty card, each serves one vGPU of its own type."""

    def __init__(self, record: Fleet) -> None:
        self.gpus = {one.name: one for one in record.gpus}
        self.slots = {one.name: {slot.name: slot for slot in one.slots} for one in record.gpus}
        self.instances = {one.name: Counter(one.max_instances) for one in record.gpus}
        self.sharing = {one.name: one.sharing for one in record.gpus}

    def do(self, step: Step) -> None:
        slots, board = self.slots[step.gpu], self.gpus[step.gpu].boards[0]
        if step.action == "share":
            self.sharing[step.gpu] = True
            slots.update({f"{step.gpu}-{place:02}": Slot(f"{step.gpu}-{place:02}") for place in range(MOST_VFS)})
            return
        if not self.sharing[step.gpu]:
            raise Refused("SR-IOV is off")
        if step.action == "partition":
            if any(not slot.empty for slot in slots.values()):
                raise Refused("a vGPU is enabled")
            self.instances[step.gpu] = cut(board, step)
            return
        name = step.slot or next(name for name, slot in sorted(slots.items()) if slot.empty)
        if slots[name].holders:
            raise Refused(f"{name} is in use")
        if step.action == "disable":
            if slots[name].empty:
                raise Refused(f"{name} is empty")
            slots[name] = Slot(name)
            return
        assert step.action == "enable"
        assert step.after
        taken = self.supply()[step.gpu][step.after]
        if not slots[name].empty or taken >= self.instances[step.gpu][step.after]:
            raise Refused(f"no instance for {step.after}")
        slots[name] = Slot(name, profile=step.after, wanted=step.after)

    def supply(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(one.profile for one in slots.values() if one.profile) for name, slots in self.slots.items()
        }


def cut(board: str, step: Step) -> Counter[str]:
    card = MigCard(GEOMETRIES[board])
    numbers = {profile.name: profile.id for profile in card.geometry.profiles}
    made: Counter[str] = Counter()
    for name, count in step.instances:
        for _number in range(count):
            try:
                card.create(numbers[name])
            except NoRoom as error:
                raise Refused(f"{name} does not fit") from error
            made[served(board, name)] += 1
    return made


def planned(problem: Problem) -> Plan | None:
    try:
        found = plan(*problem)
    except DoesNotFit as error:
        event(f"does not fit, changes: {sorted(change.change for change in error.changes)}")
        return None
    event(f"fits, {len(found.touched)} touched, {sum(step.action == 'partition' for step in found.steps)} cut")
    return found


@THOROUGH
@given(problems())
def test_it_fits_exactly_if_some_cut_does_and_touches_as_few_gpus_as_any(problem: Problem) -> None:
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
        driver.do(step)
    assert satisfied(record, demands, policy, driver.supply())


@settings(THOROUGH, max_examples=80)
@given(problems())
def test_the_same_input_gives_the_same_plan_and_its_outcome_needs_no_other(problem: Problem) -> None:
    found = planned(problem)
    if found is not None:
        assert plan(*problem) == found
        assert not plan(found.outcome(), *problem[1:]).changed


@settings(THOROUGH, max_examples=80)
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
        if "options" in proposal:
            allowed = Policy(**{**vars(policy), **proposal["options"]})
            assert fewest_by_trying(record, demands, allowed) is not None
        event(proposal["change"])
