# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The remaining capacity of one GPU, or the rule that blocks further vGPUs.

The rules are the driver's: on a time-sliced GPU all vGPUs have the same framebuffer size, whatever their series; each
profile has a maximum per GPU; each vGPU needs a virtual function; a GPU in MIG mode serves MIG profiles from its GPU
instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import join_names
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import InstanceSize, geometry_of, size_of
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import (
    MIG,
    VSPHERE,
    Gpu,
    Holder,
    Node,
    Slot,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import Key, parse_or_none

# Profiles that can coexist on one GPU share a group: the profiles of one board and size, or all MIG profiles of a
# board, marked by a size of -1. Lower numbers stand for the same profiles on a GPU with a new MIG layout (see `ways`).
Group = tuple[str, int]

UNLIMITED = 1 << 30


def group_of(key: Key) -> Group:
    return (key[0], -1 if key[1] else key[2])


def is_cut(group: Group) -> bool:
    return group[1] < -1


def family(group: Group) -> Group:
    """Return the group of the profiles, without the MIG layout that the group may stand for."""
    return (group[0], -1) if is_cut(group) else group


@dataclass(frozen=True)
class AllowedChanges:
    """The changes to a GPU that a plan may use: enable SR-IOV, remove vGPUs without a holder, create MIG instances."""

    sriov: bool = False
    evict: bool = False
    mig: bool = False


@dataclass(frozen=True)
class Blocker:
    """The reason why a GPU takes no more vGPUs of a profile. `in_the_way` are the slots that would have to change.

    `why` is a whole clause. If there are such slots, `link` joins the clause to their description.
    """

    rule: str
    why: str
    in_the_way: tuple[Slot, ...] = ()
    link: str = ", with"

    @property
    def holders(self) -> tuple[Holder, ...]:
        return tuple(dict.fromkeys(holder for slot in self.in_the_way for holder in slot.holders))

    @property
    def detail(self) -> str:
        if not self.in_the_way:
            return self.why
        counted = Counter(map(_described, self.in_the_way))
        has = ", ".join(f"{count} x {name}" for name, count in sorted(counted.items()))
        by = join_names(map(str, self.holders), limit=4) if self.holders else "nobody"
        return f"{self.why}{self.link} {has}, held by {by}"


@dataclass(frozen=True)
class GpuCapacity:
    """Places for new vGPUs: each lane is a number of places and the profiles that they may have.

    The first lane is free. If vGPUs may be removed, a second lane has the places that removing vGPUs provides. `kept`
    are the vGPUs that certainly stay. `exact` is False if a number is an estimate.
    """

    lanes: tuple[tuple[tuple[Key, ...], int], ...]
    kept: Mapping[Key, int]
    exact: bool = True


@dataclass
class GpuState:
    """A GPU as the planner sees it: its slots sorted into held, removable and empty ones."""

    gpu: Gpu
    frozen: str = ""
    cordoned: bool = False
    held: list[tuple[Slot, Key | None]] = field(default_factory=list)
    loose: dict[Key, list[Slot]] = field(default_factory=dict)
    # Slots that have no holder and serve no demand: the vGPU differs from its request, or its profile is unknown.
    astray: list[tuple[Slot, Key | None]] = field(default_factory=list)
    empty: list[Slot] = field(default_factory=list)

    @cached_property
    def held_counts(self) -> Counter[Key]:
        return Counter(key for _slot, key in self.held if key)

    @cached_property
    def counts(self) -> Counter[Key]:
        """Return the vGPUs that serve demands unchanged."""
        counted = Counter(self.held_counts)
        for key, slots in self.loose.items():
            counted[key] += len(slots)
        return counted

    @cached_property
    def offered(self) -> frozenset[Key] | None:
        """Return the profiles that the driver offers for an empty slot now. Return None if they are unknown."""
        told = {slot.offered for slot in self.empty if slot.offered}
        if told:
            return frozenset.intersection(*map(_keys, told))
        return frozenset() if any(slot.offered is not None for slot in self.empty) else None

    @cached_property
    def likeness(self) -> Hashable:
        """Return a value that is equal for GPUs with the same capacity for every profile."""
        gpu = self.gpu
        return (
            (gpu.platform, gpu.boards, gpu.framebuffer_mib, gpu.mode, gpu.sharing, gpu.vf_capacity),
            (self.frozen, self.cordoned),
            frozenset(gpu.max_instances.items()),
            frozenset(Counter(key for _slot, key in self.held).items()),
            frozenset(self.counts.items()),
            frozenset(Counter((key, bool(slot.profile)) for slot, key in self.astray).items()),
            sum(1 for slot in self.empty if slot.offered is None or slot.offered),
            len(gpu.slots),
            self.offered,
        )

    def occupants(self, *, evict: bool) -> Iterator[tuple[Slot, Key | None]]:
        """Yield the vGPUs that stay: all of them, or with `evict` only those that VMs hold."""
        yield from self.held
        if not evict:
            yield from ((slot, key) for key, slots in self.loose.items() for slot in slots)
            yield from self.astray


def classify_slots(gpu: Gpu, node: Node | None) -> GpuState:
    """Sort the slots of a GPU by their state."""
    site = GpuState(gpu, frozen=gpu.blocked, cordoned=bool(node and not node.schedulable))
    if not site.frozen and node and not node.ready:
        site.frozen = f"node {node.name} is not ready"
    for slot in gpu.ordered_slots:
        name = slot.profile or slot.wanted
        if not name:
            site.empty.append(slot)
            continue
        parsed = parse_or_none(name)
        key = parsed.key if parsed else None
        if slot.holders:
            site.held.append((slot, key))
        elif key is None or slot.drifted:
            site.astray.append((slot, key))
        else:
            site.loose.setdefault(key, []).append(slot)
    return site


def capacity_for(
    site: GpuState, group: Group, wanted: Mapping[Key, str], means: AllowedChanges
) -> GpuCapacity | Blocker:
    """Return the capacity of a GPU for new vGPUs of a group. `wanted` are the relevant profiles with their names."""
    gpu = site.gpu
    mig = group[1] < 0
    if site.frozen:
        return Blocker("unusable", site.frozen)
    if mig != (gpu.mode == MIG):
        is_mode = "in MIG mode" if gpu.mode == MIG else "not in MIG mode"
        return Blocker(
            "mode", f"it is {is_mode}, and {join_names(wanted.values())} is {'' if mig else 'not '}a MIG profile"
        )
    if not gpu.sharing and not means.sriov:
        return Blocker("sriov_off", "SR-IOV is off")
    if is_cut(group):
        return _cut_room(site, group, wanted)
    if not site.loose and not site.astray:
        means = replace(means, evict=False)
    if mig:
        return _mig_room(site, wanted, means)
    return _equal_size_room(site, group, wanted, means)


def ways(site: GpuState, group: Group, wanted: Iterable[Key], means: AllowedChanges) -> list[Group]:
    """Return the ways to open a GPU for a group: unchanged, and in MIG mode with each of the best layouts."""
    geometry = geometry_of(group[0]) if means.mig and group[1] < 0 else None
    kept = kept_instances(site, means) if geometry and site.gpu.mode == MIG else None
    if geometry is None or kept is None:
        return [group]
    sizes = {size for size in map(size_of, wanted) if size}
    return [group, *((group[0], -2 - number) for number in geometry.fullest(sizes, kept))]


def max_additional(site: GpuState, key: Key, name: str, means: AllowedChanges) -> int:
    """Return how many more vGPUs of one profile fit on a GPU that needs no others."""
    rooms = (capacity_for(site, way, {key: name}, means) for way in ways(site, group_of(key), [key], means))
    return max(
        (sum(count for _keys, count in room.lanes) for room in rooms if isinstance(room, GpuCapacity)), default=0
    )


def kept_instances(site: GpuState, means: AllowedChanges) -> Counter[InstanceSize] | None:
    """Return the GPU instances that stay when a GPU gets a new MIG layout. Return None if the layout cannot change.

    Harvester creates instances on a GPU without any, and removes them only all together while no vGPU is enabled on the
    GPU (harvester.md 8.2 and 10.2). A vGPU with a holder therefore fixes the layout.
    """
    if site.gpu.platform == VSPHERE or site.held:
        return None
    if means.evict:
        return Counter()
    return None if site.loose or site.astray else instances_of(site.gpu)


def instances_of(gpu: Gpu) -> Counter[InstanceSize]:
    """Return the GPU instances of a GPU."""
    found: Counter[InstanceSize] = Counter()
    for key, count in keyed(gpu.max_instances).items():
        size = size_of(key)
        if size and count:
            found[size] += count
    return found


def cut_of(group: Group) -> Counter[InstanceSize]:
    """Return the GPU instances that a group stands for."""
    geometry = geometry_of(group[0]) if is_cut(group) else None
    return geometry.cut(-2 - group[1]) if geometry else Counter()


def _cut_room(site: GpuState, group: Group, wanted: Mapping[Key, str]) -> GpuCapacity:
    cut = cut_of(group)
    places = len(site.gpu.slots) if site.gpu.sharing else virtual_functions(site.gpu)
    lanes: list[tuple[tuple[Key, ...], int]] = []
    for key in wanted:
        size = size_of(key)
        free = min(cut[size], places) if size else 0
        if free > 0:
            lanes.append(((key,), free))
            places -= free
    return GpuCapacity(tuple(lanes), Counter())


def _equal_size_room(
    site: GpuState, group: Group, wanted: Mapping[Key, str], means: AllowedChanges
) -> GpuCapacity | Blocker:
    stay = list(site.occupants(evict=means.evict))
    # A slot with an unreadable request and no vGPU only occupies a virtual function.
    others = [(slot, key) for slot, key in stay if (group_of(key) != group if key else slot.profile)]
    if others:
        return Blocker("size", "all vGPUs of a GPU have the same size", _slots(others), ", and it has")
    limit, exact = _limit(site, group, wanted)
    used = sum(1 for _slot, key in stay if key)
    if used >= limit:
        return Blocker("instances", f"it takes {limit} of this size", _slots(stay), " and has")
    places = _free_functions(site, means, taken=len(stay))
    if places <= 0:
        return _without_function(site, stay)
    offered = _offered(site, group, means)
    keys = tuple(key for key in wanted if offered is None or key in offered)
    if not keys:
        return Blocker("not_offered", "the driver does not offer it there")
    most = min(limit - used, places)
    if not means.evict:
        return GpuCapacity(((keys, most),), _kept(stay), exact)
    free = min(most, _free_beside(site, group, limit))
    return GpuCapacity(((keys, free), (keys, most - free)), _kept(stay), exact)


def _free_beside(site: GpuState, group: Group, limit: int) -> int:
    """Return how many of the places are free without removing a vGPU."""
    present = [(slot, key) for slot, key in site.occupants(evict=False) if key or slot.profile]
    if any(key is None or group_of(key) != group for _slot, key in present):
        return 0
    return max(0, min(limit - len(present), _free_functions(site, AllowedChanges(), taken=0)))


def _mig_room(site: GpuState, wanted: Mapping[Key, str], means: AllowedChanges) -> GpuCapacity | Blocker:
    stay = list(site.occupants(evict=means.evict))
    kept = _kept(stay)
    instances = keyed(site.gpu.max_instances)
    offered = site.offered
    places = _free_functions(site, means, taken=len(stay))
    lanes: list[tuple[tuple[Key, ...], int]] = []
    for key in wanted:
        # A profile that is available without a count fits at least once.
        free = instances[key] - kept[key] if key in instances else int(offered is not None and key in offered)
        free = min(free, places)
        if free > 0:
            lanes.append(((key,), free))
            places -= free
    if lanes:
        return GpuCapacity(tuple(lanes), kept)
    if any(instances.get(key) for key in wanted):
        if all(kept[key] >= instances.get(key, 0) for key in wanted):
            return Blocker("instances", "its MIG instances are taken", _slots(stay), ", by")
        return _without_function(site, stay)
    if not means.mig or not geometry_of(next(iter(wanted))[0]):
        return Blocker("mig_layout", "it has no MIG instance for it")
    if stay:
        why = "it has no MIG instance for it, and they change only while it has no vGPUs"
        return Blocker("mig_layout", why, _slots(stay), ", but it has")
    return Blocker("mig_layout", "its slices do not suffice for one more MIG instance of that kind")


def _without_function(site: GpuState, stay: list[tuple[Slot, Key | None]]) -> Blocker:
    if not site.gpu.slots:
        return Blocker("functions", "it has no virtual functions")
    if site.empty or not stay:
        return Blocker("functions", "none of its empty virtual functions offers a type", _slots(stay), ", and it has")
    return Blocker("functions", "all its virtual functions are taken", _slots(stay), ", by")


def _described(slot: Slot) -> str:
    return f"{slot.profile} (asked to be {slot.wanted})" if slot.drifted else slot.profile or slot.wanted or ""


def _slots(occupants: list[tuple[Slot, Key | None]]) -> tuple[Slot, ...]:
    return tuple(slot for slot, _key in occupants)


def _kept(stay: list[tuple[Slot, Key | None]]) -> Counter[Key]:
    return Counter(key for slot, key in stay if key and (slot.holders or not slot.drifted))


def _limit(site: GpuState, group: Group, wanted: Mapping[Key, str]) -> tuple[int, bool]:
    """Return the maximum of vGPUs of a size: the lowest maximum among the profiles involved."""
    gpu = site.gpu
    names = dict(wanted)
    for key, slots in site.loose.items():
        names.setdefault(key, slots[0].profile or slots[0].wanted or "")
    for slot, held in site.held:
        if held:
            names.setdefault(held, slot.profile or slot.wanted or "")
    live = keyed(gpu.max_instances)
    count, exact = UNLIMITED, True
    for key, name in names.items():
        if group_of(key) != group:
            continue
        limit = catalog.Limit(live[key], "live") if key in live else _catalog_limit(name, framebuffer_of(gpu))
        if limit.count is not None:
            count = min(count, limit.count)
        exact = exact and limit.exact
    return count, exact


@lru_cache(maxsize=4096)
def _catalog_limit(name: str, framebuffer_mib: int | None) -> catalog.Limit:
    return catalog.max_instances(name, framebuffer_mib=framebuffer_mib)


def framebuffer_of(gpu: Gpu) -> int | None:
    if gpu.framebuffer_mib:
        return gpu.framebuffer_mib
    board = catalog.find_board(gpu.boards[0]) if gpu.boards else None
    return board.framebuffer_mib if board else None


def keyed(by_name: Mapping[str, int]) -> dict[Key, int]:
    """Return the numbers by profile key instead of by spelling."""
    if not by_name:
        return {}
    return {parsed.key: count for name, count in by_name.items() if (parsed := parse_or_none(name))}


def _free_functions(site: GpuState, means: AllowedChanges, taken: int) -> int:
    gpu = site.gpu
    if gpu.platform == VSPHERE:
        return UNLIMITED
    if not gpu.sharing:
        return virtual_functions(gpu)
    if means.evict:
        return len(gpu.slots) - taken
    return sum(1 for slot in site.empty if slot.offered is None or slot.offered)


def virtual_functions(gpu: Gpu) -> int:
    """Return how many virtual functions a GPU has with SR-IOV enabled, or a lower bound if that is unknown."""
    if gpu.vf_capacity is not None:
        return gpu.vf_capacity
    known = [board for board in map(catalog.find_board, gpu.boards) if board]
    return min((board.vfs or board.vfs_at_least for board in known), default=0)


def _offered(site: GpuState, group: Group, means: AllowedChanges) -> frozenset[Key] | None:
    """Return the profiles that the driver would create. Return None if its current list is not conclusive."""
    now = site.offered
    if now is None or not means.evict:
        return now
    # The list of a full GPU, or of a GPU with vGPUs of another size, does not apply to the GPU without these vGPUs.
    present = {group_of(key) if key else None for _slot, key in site.occupants(evict=False)}
    return now | frozenset(site.loose) if now and present == {group} else None


@lru_cache(maxsize=1024)
def _keys(names: tuple[str, ...]) -> frozenset[Key]:
    return frozenset(parsed.key for parsed in map(parse_or_none, names) if parsed)
