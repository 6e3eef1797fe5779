# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleets in one line each, a driver to try steps on, and an answer by trying everything."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import combinations, product

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import (
    Fleet,
    Gpu,
    Holder,
    Node,
    Slot,
    UnboundRequest,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step

# The most of each size on one A2, written down a second time so that the catalogue is not its own witness.
MOST_ON_A2 = {1: 16, 2: 8, 3: 5, 4: 4, 8: 2, 16: 1}


def vm(name: str, *, running: bool = True, labels: dict[str, str] | None = None) -> Holder:
    return Holder(name, "default", running=running, labels=labels or {})


def gpu(name: str, contents: str = "", *, vfs: int = 16, board: str = "A2", **more: object) -> Gpu:
    """A GPU from words such as `4Q`, `4Q@web` (held by VM web), `4Q@web-` (stopped), `4Q~8Q` (has 4Q, asked to be 8Q),
    `?4Q` (asked for and not there yet) and `.` (empty). Empty slots follow up to `vfs`."""
    node = name.split(":", maxsplit=1)[0]
    words = contents.split()
    slots = tuple(
        _slot(f"{name}-{number:02}", word, board) for number, word in enumerate(words + ["."] * (vfs - len(words)))
    )
    base = Gpu(name, node, address=name, boards=(board,), slots=slots)
    return replace(base, **more)  # type: ignore[arg-type]


def _slot(name: str, word: str, board: str) -> Slot:
    if word == ".":
        return Slot(name, name)
    word, _at, holder = word.partition("@")
    holders = (vm(holder.rstrip("-"), running=not holder.endswith("-")),) if holder else ()
    if word.startswith("?"):
        return Slot(name, name, wanted=f"NVIDIA {board}-{word[1:]}", holders=holders)
    has, _drift, asked = word.partition("~")
    profile = f"NVIDIA {board}-{has}"
    wanted = f"NVIDIA {board}-{asked}" if asked else profile
    return Slot(name, name, profile=profile, wanted=wanted, allocatable=not asked, holders=holders)


def off(name: str, *, vfs: int = 16, board: str = "A2") -> Gpu:
    """A GPU whose SR-IOV is off."""
    return replace(gpu(name, vfs=0, board=board), sharing=False, vf_capacity=vfs)


def fleet(
    *gpus: Gpu, down: Iterable[str] = (), cordoned: Iterable[str] = (), claims: Sequence[UnboundRequest] = ()
) -> Fleet:
    """GPUs are on the node that their name begins with: `n1:a`."""
    by_node: dict[str, list[Gpu]] = {}
    for one in gpus:
        by_node.setdefault(one.node, []).append(one)
    nodes = tuple(
        Node(name, ready=name not in set(down), schedulable=name not in set(cordoned), gpus=tuple(members))
        for name, members in by_node.items()
    )
    return Fleet(nodes, tuple(claims))


def contents(record: Fleet) -> dict[str, str]:
    """What each GPU has, as words; empty slots left out."""
    return {
        one.name: " ".join(sorted(slot.profile.split("-", 1)[1] for slot in one.slots if slot.profile))
        for one in record.gpus
    }


def gib(type_name: str) -> int:
    found = re.search(r"-(\d+)[A-Z]", type_name)
    assert found
    return int(found[1])


class Refused(Exception):
    pass


class Driver:
    """What a host's driver does with steps: one size per GPU, so many instances of it, nothing in use goes away."""

    def __init__(self, record: Fleet) -> None:
        self.gpus = {one.name: one for one in record.gpus}
        self.slots = {one.name: {slot.name: slot for slot in one.slots} for one in record.gpus}
        self.sharing = {one.name: one.sharing for one in record.gpus}

    def do(self, step: Step) -> None:
        slots = self.slots[step.gpu]
        if step.action == "enable_sriov":
            if self.sharing[step.gpu]:
                raise Refused("is on already")
            self.sharing[step.gpu] = True
            for number in range(self.gpus[step.gpu].vf_capacity or 0):
                slots[f"{step.gpu}-{number:02}"] = Slot(f"{step.gpu}-{number:02}")
            return
        name = step.slot or next(name for name, slot in sorted(slots.items()) if slot.empty)
        slot = slots[name]
        if slot.holders:
            raise Refused(f"{name} is in use")
        if step.action == "disable":
            if slot.empty:
                raise Refused(f"{name} is empty")
            slots[name] = Slot(name, slot.address)
            return
        if not slot.empty:
            raise Refused(f"{name} has a vGPU")
        assert step.after
        others = [one.profile or one.wanted or "" for one in slots.values() if not one.empty]
        if any(gib(other) != gib(step.after) for other in others):
            raise Refused(f"{step.gpu} has another size")
        if len(others) >= MOST_ON_A2[gib(step.after)]:
            raise Refused(f"{step.gpu} is full")
        slots[name] = Slot(name, slot.address, profile=step.after, wanted=step.after)

    def supply(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(slot.profile or slot.wanted or "" for slot in slots.values() if not slot.empty)
            for name, slots in self.slots.items()
        }


@dataclass(frozen=True)
class _Need:
    profile: str
    count: int
    gpus: frozenset[str]


def _needs(record: Fleet, demands: Iterable[Demand]) -> list[_Need]:
    needs = []
    for demand in demands:
        chosen = [one for one in record.gpus if _selected(one, demand)]
        if demand.per == "gpu":
            parts = [{one.name} for one in chosen]
        elif demand.per == "node":
            parts = [{one.name for one in chosen if one.node == node} for node in {one.node for one in chosen}]
        else:
            parts = [{one.name for one in chosen}]
        needs += [_Need(demand.profile, demand.count, frozenset(part)) for part in parts]
    return needs


def _selected(one: Gpu, demand: Demand) -> bool:
    return (not demand.nodes or any(fnmatchcase(one.node, pattern) for pattern in demand.nodes)) and (
        not demand.gpus or any(fnmatchcase(one.name, pattern) for pattern in demand.gpus)
    )


def satisfied(record: Fleet, demands: Sequence[Demand], policy: Policy, supply: dict[str, Counter[str]]) -> bool:
    """By Hall's condition: no set of needs asks for more than its GPUs have, and no set of GPUs has too much.

    The reverse holds for the profiles that were asked for, and with `exclusive` for all others as well.
    """
    by_profile: dict[str, list[_Need]] = {}
    for need in _needs(record, demands):
        by_profile.setdefault(need.profile, []).append(need)
    for profile, needs in by_profile.items():
        for some in _subsets(needs):
            gpus = frozenset().union(*(need.gpus for need in some))
            if sum(need.count for need in some) > sum(supply[name][profile] for name in gpus):
                return False
    down = {node.name for node in record.nodes if not node.ready}
    up = [one for one in record.gpus if one.node not in down]
    for profile in {profile for one in up for profile in supply[one.name]}:
        needs = by_profile.get(profile, [])
        counting = [demand for demand in demands if policy.exclusive or demand.profile == profile]
        selected = [one.name for one in up if any(_selected(one, demand) for demand in counting)]
        for names in _subsets(selected):
            asked = sum(need.count for need in needs if not need.gpus.isdisjoint(names))
            if sum(supply[name][profile] for name in names) > asked:
                return False
    return True


def surplus(record: Fleet, demands: Sequence[Demand]) -> Counter[str]:
    """How many vGPUs of each profile that was asked for serve no need, by the theorem of max flow and min cut."""
    found: Counter[str] = Counter()
    now = {one.name: vgpus(one) for one in record.gpus}
    for profile in {demand.profile for demand in demands}:
        mine = [demand for demand in demands if demand.profile == profile]
        needs = _needs(record, mine)
        there = sum(now[one.name][profile] for one in record.gpus if any(_selected(one, demand) for demand in mine))
        serving = min(
            sum(need.count for number, need in enumerate(needs) if number not in some)
            + sum(now[name][profile] for name in frozenset().union(*(needs[number].gpus for number in some)))
            for some in ((), *_subsets(range(len(needs))))
        )
        if there > serving:
            found[profile] = there - serving
    return found


def _subsets(items: Sequence) -> Iterator[tuple]:
    for size in range(1, len(items) + 1):
        yield from combinations(items, size)


# Everything that a GPU could have instead of what it has, by given means: (GPU, profiles, SR-IOV, removing, cutting).
States = Callable[[Gpu, Sequence[str], bool, bool, bool], Iterator[Counter[str]]]


def fewest_by_trying(record: Fleet, demands: Sequence[Demand], policy: Policy, states: States) -> int | None:
    """The fewest GPUs that have to be touched, or None if nothing fits: by the mildest means that do."""
    rungs = [(False, policy.exclusive, False)]
    if policy.enable_mig:
        rungs.append((False, policy.exclusive, True))
    if policy.enable_sriov:
        rungs.append((True, policy.exclusive, policy.enable_mig))
    if policy.reprofile and not policy.exclusive:
        rungs.append((policy.enable_sriov, True, policy.enable_mig))
    for means in rungs:
        found = _fewest(record, demands, policy, lambda one, profiles, means=means: states(one, profiles, *means))
        if found is not None:
            return found
    return None


def _fewest(
    record: Fleet,
    demands: Sequence[Demand],
    policy: Policy,
    states: Callable[[Gpu, Sequence[str]], Iterator[Counter[str]]],
) -> int | None:
    profiles = sorted({demand.profile for demand in demands})
    down = {node.name for node in record.nodes if not node.ready}
    now = {one.name: vgpus(one) for one in record.gpus}
    options = {
        one.name: list(states(one, profiles))
        for one in record.gpus
        if one.node not in down and any(_selected(one, demand) for demand in demands)
    }
    for touched in range(len(options) + 1):
        for names in combinations(sorted(options), touched):
            for found in product(*(options[name] for name in names)):
                if satisfied(record, demands, policy, {**now, **dict(zip(names, found, strict=True))}):
                    return touched
    return None


def vgpus(one: Gpu, *, held: bool = False) -> Counter[str]:
    return Counter(slot.profile for slot in one.slots if slot.profile and (slot.holders or not held))


def time_sliced(one: Gpu, profiles: Sequence[str], sriov: bool, evict: bool, _mig: bool) -> Iterator[Counter[str]]:
    """One size, and no more of it than an A2 takes."""
    if not one.sharing and not sriov:
        return
    places = len(one.slots) if one.sharing else one.vf_capacity or 0
    now = vgpus(one)
    fixed = vgpus(one, held=evict)
    kinds = sorted({*profiles, *now})
    ranges = [range(fixed[kind], places + 1) for kind in kinds]
    for counts in product(*ranges):
        state = Counter({kind: count for kind, count in zip(kinds, counts, strict=True) if count})
        sizes = {gib(kind) for kind in state}
        total = sum(state.values())
        if state != now and total <= places and len(sizes) <= 1 and all(total <= MOST_ON_A2[size] for size in sizes):
            yield state
