# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vGPUs beyond the requested count. Counts are exact, so unused surplus vGPUs are disabled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import FleetError, join_names
from ..fleet.model import OWNER, Fleet, Gpu, Slot
from ..fleet.profile import Key, parse
from .capacity import GpuState
from .problem import Problem
from .request import Need
from .steps import DISABLE, Step, after_steps


class CountInUse(FleetError):
    """VMs hold more vGPUs of a profile than requested."""

    code = "device_in_use"

    def __init__(self, profile: str, asked: int, held: int, surplus: Sequence[Slot]) -> None:
        holders = sorted({str(holder) for slot in surplus for holder in slot.holders})
        owned = any(holder.kind == OWNER for slot in surplus for holder in slot.holders)
        super().__init__(
            f"The number of {profile} cannot be lowered to {asked}:"
            f" {'VMs and other owners' if owned else 'VMs'} hold {held} of them."
            f" {join_names((slot.name for slot in surplus), limit=5)} would have to go, held by {join_names(holders)}.",
            hint=f"Set count to {held}, which includes vGPUs of other owners, or select other nodes."
            if owned
            else f"Detach them first with vgpu.fleet.harvester_vgpu_vm, or set count to {held}.",
        )
        self.devices = [slot.as_dict() for slot in surplus]

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "devices": self.devices}


@dataclass(frozen=True)
class Stuck:
    """A surplus vGPU that has to stay because its GPU cannot be changed."""

    node: str
    gpu: str
    slot: str
    profile: str
    reason: str

    def as_dict(self) -> dict[str, str]:
        return {"name": self.slot, "node": self.node, "gpu": self.gpu, "profile": self.profile, "reason": self.reason}


@dataclass(frozen=True)
class Surplus:
    """The unused vGPUs that no demand needs: the steps that disable them, and the vGPUs that have to stay."""

    steps: tuple[Step, ...] = ()
    stuck: tuple[Stuck, ...] = ()


def find_surplus(problem: Problem) -> Surplus:
    """Find the unused vGPUs of the requested profiles that no demand needs.

    If the request is exclusive, vGPUs of other profiles are surplus as well. An exclusive request disables both by
    itself, so only the vGPUs that have to stay are returned. Raise CountInUse if VMs hold more vGPUs than the demands
    of a request that is not exclusive.
    """
    exclusive = problem.policy.exclusive
    steps: list[Step] = []
    stuck: list[Stuck] = []
    asked_for = _selected_by_profile(problem)
    for key, selected in asked_for.items():
        needs = [need for need in problem.needs if need.profile.key == key]
        matching = _Matching(needs)
        left = [
            (site, slot)
            for index, site, slot in _candidates(problem.sites, selected, key)
            if not matching.assign(index)
        ]
        held = [slot for _site, slot in left if slot.holders]
        if held and not exclusive:
            asked = sum(need.count for need in needs)
            every = sum(problem.sites[index].held_counts[key] for index in selected)
            raise CountInUse(held[0].profile or held[0].wanted or "", asked, every, held)
        stuck += [_stuck(site, slot) for site, slot in left if site.frozen and not slot.holders]
        steps += [
            Step(DISABLE, site.gpu.node, site.gpu.name, slot.name, before=slot.profile or slot.wanted)
            for site, slot in left
            if not site.frozen and not exclusive
        ]
    if exclusive:
        stuck += [
            _stuck(site, slot)
            for index in sorted(problem.selected)
            if (site := problem.sites[index]).frozen
            for key, slots in site.loose.items()
            if index not in asked_for.get(key, ())
            for slot in slots
        ]
    return Surplus(tuple(steps), tuple(sorted(stuck, key=lambda item: (item.node, item.gpu, item.slot))))


def _stuck(site: GpuState, slot: Slot) -> Stuck:
    return Stuck(site.gpu.node, site.gpu.name, slot.name, slot.profile or slot.wanted or "", site.frozen)


def without_surplus(fleet: Fleet, steps: Sequence[Step]) -> Fleet:
    """Return the fleet without the surplus. The available profiles of a GPU that becomes empty are not known yet."""
    if not steps:
        return fleet
    touched = {step.gpu for step in steps}

    def settled(gpu: Gpu) -> Gpu:
        if gpu.name not in touched or not all(slot.empty for slot in gpu.slots):
            return gpu
        return replace(gpu, slots=tuple(replace(slot, offered=None) for slot in gpu.slots))

    after = after_steps(fleet, steps)
    return replace(after, nodes=tuple(replace(node, gpus=tuple(map(settled, node.gpus))) for node in after.nodes))


def _selected_by_profile(problem: Problem) -> dict[Key, frozenset[int]]:
    selected: dict[Key, frozenset[int]] = {}
    for demand in problem.demands:
        key = parse(demand.profile).key
        chosen = problem.selections.gpus(demand.nodes, demand.gpus)
        selected[key] = selected.get(key, frozenset()) | chosen
    return selected


def _candidates(sites: Sequence[GpuState], selected: Iterable[int], key: Key) -> Iterator[tuple[int, GpuState, Slot]]:
    """Yield the vGPUs of a profile in order of retention: held, allocatable, then those on GPUs that stay occupied."""
    found: list[tuple[tuple[Any, ...], int, GpuState, Slot]] = []
    for index in selected:
        site = sites[index]
        occupied = bool(site.held) or len(site.loose) > 1
        for slot, held_key in site.held:
            if held_key == key:
                found.append(((0, index, slot.address, slot.name), index, site, slot))
        for slot in site.loose.get(key, ()):
            rank = (1, not site.frozen, not slot.allocatable, not occupied, index, slot.address, slot.name)
            found.append((rank, index, site, slot))
    for _rank, index, site, slot in sorted(found, key=lambda item: item[0]):
        yield index, site, slot


@dataclass
class _Matching:
    """An assignment of vGPUs to the needs that they serve, built one vGPU at a time.

    If the needs of a vGPU are already met, other vGPUs move to make room. The first vGPUs are therefore kept whenever
    any assignment keeps them.
    """

    needs: Sequence[Need]
    _open: list[int] = field(init=False)
    _served_by: list[Counter[int]] = field(init=False)
    _needs_at: Mapping[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._open = [need.count for need in self.needs]
        self._served_by = [Counter() for _need in self.needs]
        needs_at: dict[int, list[int]] = {}
        for number, need in enumerate(self.needs):
            for gpu in need.gpus:
                needs_at.setdefault(gpu, []).append(number)
        self._needs_at = needs_at

    def assign(self, gpu: int) -> bool:
        """Assign one vGPU on this GPU to a need. Return False if no need can use it."""
        return any(self._open) and self._assign(gpu, set())

    def _assign(self, gpu: int, tried: set[int]) -> bool:
        for number in self._needs_at.get(gpu, ()):
            if number in tried:
                continue
            tried.add(number)
            if self._open[number]:
                self._open[number] -= 1
            else:
                moved = next(
                    (other for other, count in self._served_by[number].items() if count and self._assign(other, tried)),
                    None,
                )
                if moved is None:
                    continue
                self._served_by[number][moved] -= 1
            self._served_by[number][gpu] += 1
            return True
        return False
