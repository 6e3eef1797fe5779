# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hosts that are filled with VMs, as vSphere would when they start. Pure.

All vGPUs of a VM come from one host. Among its GPUs the assignment policy decides: `consolidation` takes the fullest
that has room, `performance` the one with the fewest VMs (vsphere.md 2.3). What a GPU takes is the planner's to say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import join_names
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import MIG, TIME_SLICED, Gpu, Holder, Node, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse_or_none
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.capacity import (
    AllowedChanges,
    Blocker,
    capacity_for,
    classify_slots,
    group_of,
    keyed,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import could_be
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read import mig

CONSOLIDATION = "consolidation"


@dataclass(frozen=True)
class HostGpuCapacity:
    """How many more vGPUs of a profile a GPU takes; 0 has a reason. `exact` is False for an estimate."""

    gpu: str
    address: str
    count: int
    exact: bool = True
    reason: str = ""


class HostCapacity:
    """A host with what is on it. Copies are cheap: records of GPUs are shared until one changes.

    `offered` are the profiles of each GPU, also those that cannot be had beside what is there now.
    """

    def __init__(
        self, node: Node, offered: Mapping[str, Sequence[str]], *, by_type: bool = False, doubtful: Iterable[str] = ()
    ) -> None:
        self.node = node
        self._gpus = list(node.ordered_gpus)
        self._offered = {gpu.name: {*offered.get(gpu.name, ()), *_present(gpu)} for gpu in self._gpus}
        self._keys = {name: frozenset(keyed(dict.fromkeys(names, 1))) for name, names in self._offered.items()}
        self._policy = node.labels.get("assignment_policy", "")
        self._by_type = by_type
        self._doubtful = frozenset(doubtful)
        self._counts: dict[tuple[Hashable, str], tuple[int, bool]] = {}
        self._rooms: dict[str, list[HostGpuCapacity]] = {}

    def copy(self) -> HostCapacity:
        twin = object.__new__(HostCapacity)
        twin.__dict__.update(self.__dict__)
        twin._rooms = dict(self._rooms)
        return twin

    @property
    def used(self) -> int:
        return sum(_used(gpu) for gpu in self._gpus)

    def profiles(self) -> set[str]:
        return {name for names in self._offered.values() for name in names}

    def rooms(self, profile: str) -> list[HostGpuCapacity]:
        """The GPUs that have to do with a profile: they offer it, or would if nothing were in the way."""
        if profile not in self._rooms:
            parsed = parse_or_none(profile)
            self._rooms[profile] = [
                self._gpu_room(gpu, profile)
                for gpu in self._gpus
                if self._offers(gpu, profile) or (gpu.blocked and parsed and could_be(gpu, parsed))
            ]
        return self._rooms[profile]

    def _gpu_room(self, gpu: Gpu, profile: str) -> HostGpuCapacity:
        count, exact = self._room(gpu, profile)
        # Reasons name VMs, so they are never those of another GPU.
        reason = "" if count else self._ask(gpu, profile)[2]
        return HostGpuCapacity(gpu.name, gpu.address, count, exact and gpu.name not in self._doubtful, reason)

    def admit(self, vgpus: Mapping[str, int], holder: Holder) -> bool:
        """Start a VM here, if all its vGPUs find a place."""
        wanted = [profile for profile, count in sorted(vgpus.items()) for _one in range(count)]
        placed = self._assign(self._gpus, wanted, holder, set())
        if placed is None:
            return False
        self._gpus = placed
        self._rooms = {}
        return True

    # Rules
    def _assign(
        self, gpus: list[Gpu], wanted: Sequence[str], holder: Holder, hopeless: set[Hashable]
    ) -> list[Gpu] | None:
        """One vGPU after the other; an earlier choice is taken back when a later vGPU finds no place.

        `hopeless` are states from which the rest does not fit, by what GPUs there are and how many vGPUs are left:
        many ways lead to the same.
        """
        if not wanted:
            return gpus
        likenesses = [classify_slots(gpu, self.node).likeness for gpu in gpus]
        state = (len(wanted), frozenset(Counter(likenesses).items()))
        if state in hopeless or not self._could_take(gpus, Counter(wanted)):
            return None
        profile = wanted[0]
        tried: set[Hashable] = set()
        for index in self._in_order(gpus):
            gpu = gpus[index]
            if likenesses[index] in tried or not self._offers(gpu, profile) or self._room(gpu, profile)[0] < 1:
                continue
            grown = [*gpus[:index], self._with(gpu, profile, holder), *gpus[index + 1 :]]
            placed = self._assign(grown, wanted[1:], holder, hopeless)
            if placed is not None:
                return placed
            tried.add(likenesses[index])
        hopeless.add(state)
        return None

    def _could_take(self, gpus: Sequence[Gpu], wanted: Mapping[str, int]) -> bool:
        """Whether there is room for each profile if there were no other."""
        return all(
            sum(self._room(gpu, profile)[0] for gpu in gpus if self._offers(gpu, profile)) >= count
            for profile, count in wanted.items()
        )

    def _in_order(self, gpus: Sequence[Gpu]) -> list[int]:
        def rank(index: int) -> tuple[int, int]:
            used = _used(gpus[index])
            return (-used, 0) if self._policy == CONSOLIDATION else (len(_holders(gpus[index])), used)

        return sorted(range(len(gpus)), key=rank)

    def _offers(self, gpu: Gpu, profile: str) -> bool:
        parsed = parse_or_none(profile)
        return bool(parsed and parsed.key in self._keys[gpu.name])

    def _room(self, gpu: Gpu, profile: str) -> tuple[int, bool]:
        alike = (classify_slots(gpu, self.node).likeness, profile)
        if alike not in self._counts:
            count, exact, _reason = self._ask(gpu, profile)
            self._counts[alike] = (count, exact)
        return self._counts[alike]

    def _ask(self, gpu: Gpu, profile: str) -> tuple[int, bool, str]:
        parsed = parse_or_none(profile)
        if parsed is None:
            return 0, False, f"nothing is known of {profile}"
        others = {one for one in _present(gpu) if (other := parse_or_none(one)) and other.key != parsed.key}
        if self._by_type and gpu.mode == TIME_SLICED and others:
            return 0, True, f"before vSphere 8.0.2 a GPU has one profile at a time, and it has {join_names(others)}"
        answer = capacity_for(
            classify_slots(gpu, self.node), group_of(parsed.key), {parsed.key: profile}, AllowedChanges()
        )
        if isinstance(answer, Blocker):
            return 0, True, answer.detail
        return sum(count for _keys, count in answer.lanes), answer.exact, ""

    def _with(self, gpu: Gpu, profile: str, holder: Holder) -> Gpu:
        number = len(gpu.slots)
        slot = Slot(f"{gpu.name}-{number}+", profile=profile, wanted=profile, allocatable=True, holders=(holder,))
        slots = (*gpu.slots, slot)
        if gpu.mode != MIG:
            return replace(gpu, slots=slots)
        grown = replace(gpu, slots=slots)
        instances = mig.instances(gpu.boards, sorted(self._offered[gpu.name]), _present(grown))
        return replace(grown, max_instances=instances)


def _present(gpu: Gpu) -> list[str]:
    return [slot.profile for slot in gpu.slots if slot.profile]


def _used(gpu: Gpu) -> int:
    return len(_present(gpu))


def _holders(gpu: Gpu) -> set[str]:
    return {holder.path for slot in gpu.slots for holder in slot.holders}
