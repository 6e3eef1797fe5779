# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Capacity of ESXi hosts, filled in the way vSphere places starting VMs. Pure.

All vGPUs of a VM come from one host. The assignment policy chooses among the GPUs of the host: `consolidation` takes
the fullest GPU with free capacity, `performance` the GPU with the fewest VMs (vsphere.md 2.3). The rules for a single
GPU are in planning/capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..errors import join_names
from ..fleet.model import MIG, MIXED_SIZE, TIME_SLICED, Gpu, Holder, Node, Slot, could_be
from ..fleet.profile import Key, parse_or_none
from ..planning.capacity import (
    UNLIMITED,
    AllowedChanges,
    Blocker,
    capacity_for,
    classify_slots,
    framebuffer_of,
    group_of,
    keyed,
)
from . import mixed_size
from .read import mig

CONSOLIDATION = "consolidation"


@dataclass(frozen=True)
class HostGpuCapacity:
    """The number of vGPUs of a profile that still fit on a GPU, with a reason for 0. An estimate is not `exact`.

    `at_most` is larger than the count if more may fit, depending on places that only the driver knows.
    """

    gpu: str
    address: str
    count: int
    at_most: int = 0
    exact: bool = True
    reason: str = ""


@dataclass(frozen=True)
class _GpuSample:
    """A GPU that represents all GPUs with the same capacity."""

    gpu: Gpu
    node: Node
    offered: frozenset[str]
    by_type: bool

    def grown(self, profile: str) -> _GpuSample:
        return replace(self, gpu=with_vgpu(self.gpu, profile, Holder("", running=True), self.offered))


# The class and the number of VMs of each GPU of a host, in the order of the GPUs.
HostState = tuple[tuple[int, ...], tuple[int, ...]]


class GpuClasses:
    """Capacities and placements, computed once for all GPUs and hosts in the same state.

    A large vCenter has hundreds of GPUs and thousands of VMs, but its GPUs have few different states. `optimistic`
    placements use all places that may be free on mixed-size GPUs, instead of those that certainly are.
    """

    def __init__(self, *, optimistic: bool = False) -> None:
        self._optimistic = optimistic
        self._ids: dict[Hashable, int] = {}
        self._samples: list[_GpuSample] = []
        self._keys: list[frozenset[Key]] = []
        self._used: list[int] = []
        self._rooms: dict[tuple[int, str], GpuRoom] = {}
        self._next: dict[tuple[int, str], int] = {}
        self._placements: dict[Hashable, tuple[HostState, tuple[int, ...]] | None] = {}
        # Number of capacities and placements that were not in the cache.
        self.computed = 0

    def class_of(self, sample: _GpuSample) -> int:
        alike = (classify_slots(sample.gpu, sample.node).likeness, sample.offered, sample.by_type)
        if alike not in self._ids:
            self._ids[alike] = len(self._samples)
            self._samples.append(sample)
            self._keys.append(frozenset(keyed(dict.fromkeys(sample.offered, 1))))
            self._used.append(len(present_profiles(sample.gpu)))
        return self._ids[alike]

    def offers(self, gpu_class: int, profile: str) -> bool:
        parsed = parse_or_none(profile)
        return bool(parsed and parsed.key in self._keys[gpu_class])

    def room(self, gpu_class: int, profile: str) -> GpuRoom:
        """Return how many more vGPUs of the profile fit on a GPU."""
        found = self._rooms.get((gpu_class, profile))
        if found is None:
            sample = self._samples[gpu_class]
            self.computed += 1
            found = room_of(sample.gpu, sample.node, profile, by_type=sample.by_type)
            self._rooms[gpu_class, profile] = found
        return found

    def count(self, gpu_class: int, profile: str) -> int:
        """Return how many more vGPUs of the profile a placement may put on a GPU."""
        room = self.room(gpu_class, profile)
        return room.at_most if self._optimistic else room.count

    def place(
        self, state: HostState, vgpus: Mapping[str, int], policy: str
    ) -> tuple[HostState, tuple[int, ...]] | None:
        """Start a VM on a host. Return the resulting state and the GPU of each vGPU, or None if the VM does not fit."""
        wanted = tuple(profile for profile, count in sorted(vgpus.items()) for _vgpu in range(count))
        question = (state, wanted, policy == CONSOLIDATION)
        if question not in self._placements:
            self.computed += 1
            classes, vms = state
            placed = self._assign(classes, vms, wanted, (), set(), consolidate=policy == CONSOLIDATION)
            self._placements[question] = placed and self._after(vms, *placed)
        return self._placements[question]

    @staticmethod
    def _after(
        vms: tuple[int, ...], classes: tuple[int, ...], chosen: tuple[int, ...]
    ) -> tuple[HostState, tuple[int, ...]]:
        counts = tuple(count + (index in chosen) for index, count in enumerate(vms))
        return (classes, counts), chosen

    def _assign(
        self,
        classes: tuple[int, ...],
        vms: tuple[int, ...],
        wanted: Sequence[str],
        chosen: tuple[int, ...],
        hopeless: set[Hashable],
        *,
        consolidate: bool,
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Place the vGPUs in sequence, and backtrack if a later vGPU does not fit.

        `hopeless` are the states in which the remaining vGPUs do not fit, by GPU classes and number of remaining
        vGPUs. Different choices often lead to the same state.
        """
        if not wanted:
            return classes, chosen
        state = (len(wanted), frozenset(Counter(classes).items()))
        if state in hopeless or not self._could_take(classes, Counter(wanted)):
            return None
        profile = wanted[0]

        def rank(index: int) -> tuple[int, int]:
            used = self._used[classes[index]]
            return (-used, 0) if consolidate else (vms[index] + (index in chosen), used)

        tried: set[int] = set()
        for index in sorted(range(len(classes)), key=rank):
            gpu_class = classes[index]
            if gpu_class in tried or not self.offers(gpu_class, profile) or self.count(gpu_class, profile) < 1:
                continue
            grown = (*classes[:index], self._with(gpu_class, profile), *classes[index + 1 :])
            placed = self._assign(grown, vms, wanted[1:], (*chosen, index), hopeless, consolidate=consolidate)
            if placed is not None:
                return placed
            tried.add(gpu_class)
        hopeless.add(state)
        return None

    def _could_take(self, classes: Sequence[int], wanted: Mapping[str, int]) -> bool:
        """Return whether each profile on its own would fit."""
        return all(
            sum(self.count(gpu_class, profile) for gpu_class in classes if self.offers(gpu_class, profile)) >= count
            for profile, count in wanted.items()
        )

    def _with(self, gpu_class: int, profile: str) -> int:
        if (gpu_class, profile) not in self._next:
            self._next[gpu_class, profile] = self.class_of(self._samples[gpu_class].grown(profile))
        return self._next[gpu_class, profile]


class HostCapacity:
    """A host with its VMs. Copies are cheap.

    `offered` are the profiles of each GPU, including profiles that its current vGPUs exclude. Hosts that share
    `classes` share their computations.
    """

    def __init__(
        self,
        node: Node,
        offered: Mapping[str, Sequence[str]],
        *,
        by_type: bool = False,
        estimated: Iterable[str] = (),
        classes: GpuClasses | None = None,
    ) -> None:
        self.node = node
        self._gpus = node.ordered_gpus
        self._offered = [frozenset((*offered.get(gpu.name, ()), *present_profiles(gpu))) for gpu in self._gpus]
        self._policy = node.labels.get("assignment_policy", "")
        self._by_type = by_type
        self._estimated = frozenset(estimated)
        self._classes = classes or GpuClasses()
        self._state: HostState = (
            tuple(
                self._classes.class_of(_GpuSample(gpu, node, names, by_type))
                for gpu, names in zip(self._gpus, self._offered, strict=True)
            ),
            tuple(len(_holders(gpu)) for gpu in self._gpus),
        )
        self.used = sum(len(present_profiles(gpu)) for gpu in self._gpus)
        # The vGPUs of admitted VMs: index of the GPU, profile, holder.
        self._admitted: tuple[tuple[int, str, Holder], ...] = ()

    def copy(self) -> HostCapacity:
        twin = object.__new__(HostCapacity)
        twin.__dict__.update(self.__dict__)
        return twin

    def profiles(self) -> set[str]:
        return {name for names in self._offered for name in names}

    def admit(self, vgpus: Mapping[str, int], holder: Holder) -> bool:
        """Start a VM on this host if all its vGPUs fit."""
        placed = self._classes.place(self._state, vgpus, self._policy)
        if placed is None:
            return False
        self._state, chosen = placed
        self.used += len(chosen)
        profiles = (profile for profile, count in sorted(vgpus.items()) for _vgpu in range(count))
        self._admitted += tuple((index, profile, holder) for index, profile in zip(chosen, profiles, strict=True))
        return True

    def counts(self, profile: str) -> dict[str, int]:
        """Return how many more vGPUs of a profile fit on each GPU that `rooms` describes."""
        return {
            self._gpus[index].name: self._classes.room(self._state[0][index], profile).count
            for index in self._concerned(profile)
        }

    def count(self, profile: str) -> int:
        return sum(self._classes.room(self._state[0][index], profile).count for index in self._concerned(profile))

    def at_most(self, profile: str) -> int:
        """Return how many more vGPUs of a profile may fit, including places that only the driver knows."""
        return sum(self._classes.room(self._state[0][index], profile).at_most for index in self._concerned(profile))

    def rooms(self, profile: str) -> list[HostGpuCapacity]:
        """Return the capacity of each GPU that offers a profile, or would offer it if it were available."""
        return [self._gpu_room(index, profile) for index in self._concerned(profile)]

    def _concerned(self, profile: str) -> list[int]:
        parsed = parse_or_none(profile)
        return [
            index
            for index, gpu in enumerate(self._gpus)
            if self._classes.offers(self._state[0][index], profile)
            or (gpu.blocked and parsed and could_be(gpu, parsed))
        ]

    def _gpu_room(self, index: int, profile: str) -> HostGpuCapacity:
        gpu = self._gpus[index]
        room = self._classes.room(self._state[0][index], profile)
        # Reasons name VMs, so compute them for this GPU instead of its class.
        reason = "" if room.count else room_of(self._filled(index), self.node, profile, by_type=self._by_type).reason
        exact = room.exact and gpu.name not in self._estimated
        return HostGpuCapacity(gpu.name, gpu.address, room.count, room.at_most, exact, reason)

    def _filled(self, index: int) -> Gpu:
        """Return the GPU with the vGPUs of admitted VMs."""
        gpu = self._gpus[index]
        for where, profile, holder in self._admitted:
            if where == index:
                gpu = with_vgpu(gpu, profile, holder, self._offered[index])
        return gpu


@dataclass(frozen=True)
class GpuRoom:
    """The number of vGPUs of a profile that certainly still fit on a GPU, that may fit, and the reason for 0."""

    count: int
    at_most: int
    exact: bool = True
    reason: str = ""


def room_of(gpu: Gpu, node: Node, profile: str, *, by_type: bool) -> GpuRoom:
    """Return how many more vGPUs of a profile fit on a GPU."""
    parsed = parse_or_none(profile)
    if parsed is None:
        return GpuRoom(0, 0, exact=False, reason=f"the profile {profile} is unknown")
    others = {name for name in present_profiles(gpu) if (other := parse_or_none(name)) and other.key != parsed.key}
    if by_type and gpu.mode == TIME_SLICED and others:
        why = f"before vSphere 8.0.2 a GPU has one profile at a time, and it has {join_names(others)}"
        return GpuRoom(0, 0, reason=why)
    mixed = gpu.mode == MIXED_SIZE
    # On a mixed-size GPU, the rules of an empty GPU apply, and then those of its placement ids.
    seen = replace(gpu, mode=TIME_SLICED, slots=_empty_slots(gpu)) if mixed else gpu
    answer = capacity_for(classify_slots(seen, node), group_of(parsed.key), {parsed.key: profile}, AllowedChanges())
    if isinstance(answer, Blocker):
        return GpuRoom(0, 0, reason=answer.detail)
    if mixed:
        return _mixed_size_room(gpu, profile)
    count = sum(count for _keys, count in answer.lanes)
    return GpuRoom(count, count, answer.exact)


def _empty_slots(gpu: Gpu) -> tuple[Slot, ...]:
    return tuple(slot for slot in gpu.slots if not slot.profile and not slot.wanted)


def _mixed_size_room(gpu: Gpu, profile: str) -> GpuRoom:
    """Return the places that are free in any arrangement of the present vGPUs, and those that may be free."""
    whole = framebuffer_of(gpu)
    taken = [slot for slot in gpu.ordered_slots if slot.profile]
    if not whole:
        return GpuRoom(0, UNLIMITED, exact=False, reason="how much of its framebuffer is free is not known")
    found = mixed_size.room_for(whole, [slot.profile or "" for slot in taken], profile)
    if found.least:
        return GpuRoom(found.least, found.most, found.exact)
    why = f"it has room for 0 to {found.most}, depending on the places of its vGPUs"
    if not found.most:
        why = "its framebuffer is taken" if taken else "it has no room for one"
    blocker = Blocker("memory", why, tuple(taken), ", with" if found.most else ", by")
    return GpuRoom(0, found.most, found.exact, blocker.detail)


def with_vgpu(gpu: Gpu, profile: str, holder: Holder, offered: Iterable[str]) -> Gpu:
    """Return the GPU with one more vGPU."""
    name = f"{gpu.name}-{len(gpu.slots)}+"
    slot = Slot(name, profile=profile, wanted=profile, allocatable=True, holders=(holder,))
    grown = replace(gpu, slots=(*gpu.slots, slot))
    if gpu.mode != MIG:
        return grown
    return replace(grown, max_instances=mig.instances(gpu.boards, sorted(offered), present_profiles(grown)))


def present_profiles(gpu: Gpu) -> list[str]:
    return [slot.profile for slot in gpu.slots if slot.profile]


def _holders(gpu: Gpu) -> set[str]:
    return {holder.path for slot in gpu.slots for holder in slot.holders}
