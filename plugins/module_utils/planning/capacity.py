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

from ..errors import join_names
from ..fleet import catalog
from ..fleet.mig import InstanceSize, format_instances, geometry_of, match, read_size, size_of, vgpus_per_instance
from ..fleet.model import MIG, VSPHERE, Gpu, Holder, Node, Slot
from ..fleet.profile import Key, parse_or_none
from ..fleet.shared_instances import SharedLayouts, known_use, shared_layouts, use_of

# Profiles that can coexist on one GPU share a group: the profiles of one board and size, or all MIG profiles of a
# board, marked by a size of -1. Lower numbers stand for the same profiles with a certain MIG layout, and with a certain
# split of the virtual functions among them if there are too few (see `ways`).
Group = tuple[str, int]

_SPLIT = 1 << 20
_SPLITS_TRIED = 400

UNLIMITED = 1 << 30


def group_of(key: Key) -> Group:
    return (key[0], -1 if key[1] else key[2])


def is_cut(group: Group) -> bool:
    return group[1] < 0 and (-1 - group[1]) % _SPLIT > 0


def family(group: Group) -> Group:
    """Return the group of the profiles, without the MIG layout and the split that the group may stand for."""
    return (group[0], -1) if group[1] < 0 else group


def _with_layout(group: Group, number: int) -> Group:
    return (group[0], -2 - number)


def _layout_number(group: Group) -> int:
    return (-1 - group[1]) % _SPLIT - 1


def _split_number(group: Group) -> int:
    return (-1 - group[1]) // _SPLIT


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
    are the vGPUs that certainly stay. `exact` is False if a number was computed and not read. `certain` is False if it
    is an estimate that the hardware may contradict.
    """

    lanes: tuple[tuple[tuple[Key, ...], int], ...]
    kept: Mapping[Key, int]
    exact: bool = True
    certain: bool = True


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
    def usable(self) -> list[Slot]:
        """Return the empty slots for new vGPUs. A slot with a claim left behind is used only if there is no other.

        Such a slot can only get the type of its claim, which says nothing about the other slots of the GPU.
        """
        open_slots = [slot for slot in self.empty if slot.offered is None or slot.offered]
        return [slot for slot in open_slots if not slot.leftover] or open_slots

    @cached_property
    def offered(self) -> frozenset[Key] | None:
        """Return the profiles that the driver offers for an empty slot now. Return None if they are unknown."""
        told = {slot.offered for slot in self.usable if slot.offered}
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
            frozenset(gpu.instances.items()),
            frozenset(Counter(key for _slot, key in self.held).items()),
            frozenset(self.counts.items()),
            frozenset(Counter((key, bool(slot.profile)) for slot, key in self.astray).items()),
            len(self.usable),
            (len(gpu.slots), sum(1 for slot in self.empty if slot.leftover)),
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
    site = GpuState(gpu, frozen=gpu.blocked or gpu.unstable, cordoned=bool(node and not node.schedulable))
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
    shared = shared_layouts_of(site, group)
    if shared:
        return _shared_room(site, group, wanted, means, shared)
    if is_cut(group):
        return _cut_room(site, group, wanted)
    if not site.loose and not site.astray:
        means = replace(means, evict=False)
    if mig:
        return _mig_room(site, group, wanted, means)
    return _equal_size_room(site, group, wanted, means)


def ways(site: GpuState, group: Group, wanted: Iterable[Key], means: AllowedChanges) -> list[Group]:
    """Return the ways to open a GPU for a group: unchanged, and in MIG mode with each of the best layouts."""
    shared = shared_layouts_of(site, group)
    if shared:
        return _shared_ways(site, group, wanted, means, shared) or [group]
    if group[1] >= 0 or site.gpu.mode != MIG:
        return [group]
    wanted = dict.fromkeys(wanted, "")
    found = [group]
    geometry = geometry_of(group[0]) if means.mig else None
    kept = kept_instances(site, means) if geometry else None
    if geometry and kept is not None:
        sizes = {size for size in map(size_of, wanted) if size}
        found += [_with_layout(group, number) for number in geometry.fullest(sizes, kept)]
    return [way for layout in found for way in _with_splits(site, layout, wanted, means)]


def _with_splits(site: GpuState, group: Group, wanted: Mapping[Key, str], means: AllowedChanges) -> list[Group]:
    """Return the group once for each way to share too few virtual functions among its profiles."""
    if site.frozen or (not site.gpu.sharing and not means.sriov):
        return [group]
    room = _cut_places(site, group, wanted) if is_cut(group) else _mig_places(site, wanted, means)
    return [(group[0], group[1] - number * _SPLIT) for number in range(len(_splits(room.limits, room.places)))]


@lru_cache(maxsize=1024)
def _splits(limits: tuple[int, ...], places: int) -> tuple[tuple[int, ...], ...]:
    """Return every way to share places among profiles. One stands for all if there are too many."""
    if sum(limits) <= places:
        return (limits,)
    found: list[tuple[int, ...]] = [()]
    for number, limit in enumerate(limits):
        rest = sum(limits[number + 1 :])
        found = [
            (*split, count)
            for split in found
            for count in range(min(limit, places - sum(split)), max(0, places - sum(split) - rest) - 1, -1)
        ]
        if len(found) > _SPLITS_TRIED:
            return (_greedy(limits, places),)
    return tuple(found)


def _greedy(limits: tuple[int, ...], places: int) -> tuple[int, ...]:
    found: list[int] = []
    for limit in limits:
        found.append(min(limit, places - sum(found)))
    return tuple(found)


@dataclass(frozen=True)
class _Places:
    """Profiles with a limit each, and the virtual functions that they share."""

    lanes: tuple[tuple[tuple[Key, ...], int], ...]
    places: int

    @property
    def limits(self) -> tuple[int, ...]:
        return tuple(limit for _keys, limit in self.lanes)

    def split(self, group: Group) -> tuple[tuple[tuple[Key, ...], int], ...]:
        splits = _splits(self.limits, max(0, self.places))
        chosen = splits[min(_split_number(group), len(splits) - 1)]
        return tuple((keys, count) for (keys, _limit), count in zip(self.lanes, chosen, strict=True) if count > 0)


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
    if site.gpu.platform == VSPHERE or site.held or foreign_instances(site.gpu):
        return None
    if means.evict:
        return Counter()
    return None if site.loose or site.astray else instances_of(site.gpu)


def instances_of(gpu: Gpu) -> Counter[InstanceSize]:
    """Return the GPU instances of a GPU that serve vGPUs, as the catalog names them."""
    found: Counter[InstanceSize] = Counter()
    for key, count in keyed(gpu.max_instances).items():
        size = size_of(key)
        if size and count:
            found[size] = max(found[size], count // vgpus_per_instance(key))
    return found


def foreign_instances(gpu: Gpu) -> Counter[InstanceSize]:
    """Return the GPU instances that serve no vGPU of the catalog. Someone may use them otherwise, so they are kept."""
    geometry = geometry_of(gpu.boards[0]) if len(gpu.boards) == 1 else None
    if geometry is None:
        return Counter()
    found = {read_size(name): count for name, count in gpu.instances.items() if count}
    return Counter({size: count for size, count in found.items() if size and match(size, geometry.sizes) is None})


def shared_layouts_of(site: GpuState, group: Group) -> SharedLayouts | None:
    """Return the layouts of a GPU whose MIG instances serve several vGPUs each. vSphere does not report instances."""
    return shared_layouts(group[0]) if group[1] < 0 and site.gpu.platform != VSPHERE else None


def _shared_ways(
    site: GpuState, group: Group, wanted: Iterable[Key], means: AllowedChanges, shared: SharedLayouts
) -> list[Group]:
    wanted = tuple(wanted)
    if not site.gpu.sharing and not means.mig:
        return []
    stay = list(site.occupants(evict=means.evict))
    if any(slot.profile and not known_use(shared, key) for slot, key in stay):
        return []
    used = shared.needed(Counter(key for _slot, key in stay if key and known_use(shared, key)))
    has = instances_of(site.gpu)
    found = list(shared.numbers(wanted, used, has, recut=False)) if site.gpu.sharing else []
    kept = kept_instances(site, means) if means.mig else None
    if kept is not None:
        found += shared.numbers(wanted, {}, kept, recut=True)
    return [_with_layout(group, number) for number in dict.fromkeys(found)]


def _shared_room(
    site: GpuState, group: Group, wanted: Mapping[Key, str], means: AllowedChanges, shared: SharedLayouts
) -> GpuCapacity | Blocker:
    """Return the capacity of a GPU whose MIG instances serve several vGPUs of one size each."""
    if not is_cut(group):
        ways = _shared_ways(site, group, wanted, replace(means, mig=False), shared)
        if not ways:
            return _without_instance(site, wanted, means, list(site.occupants(evict=means.evict)))
        group = ways[0]
    gpu, layout = site.gpu, shared.layout(_layout_number(group))
    recut = not gpu.sharing or shared.instances(layout) != instances_of(gpu)
    stay = [] if recut else list(site.occupants(evict=means.evict))
    present = Counter(use_of(key) for _slot, key in stay if key)
    taken = sum(present.values())
    if recut:
        places = len(gpu.slots) if gpu.sharing else virtual_functions(gpu)
    else:
        places = _free_functions(site, means, taken=len(stay))
    places = min(places, catalog.MAX_PER_GPU - taken)
    offered = None if recut or means.evict else site.offered
    lanes: list[tuple[tuple[Key, ...], int]] = []
    for use, count in sorted(layout.items()):
        keys = tuple(key for key in wanted if use_of(key) == use and (offered is None or key in offered))
        free = min(count * shared.per_instance.get(use, 0) - present[use], places)
        if keys and free > 0:
            lanes.append((keys, free))
            places -= free
    kept = _kept(stay)
    if not lanes:
        return _without_instance(site, wanted, means, stay)
    # vGPUs of several sizes, or removed ones, may leave more instances in use than packed vGPUs need.
    packed = sum(shared.needed(kept).values())
    return GpuCapacity(tuple(lanes), kept, certain=sum(kept.values()) == packed or set(present) <= _only(wanted))


def _only(wanted: Mapping[Key, str]) -> set[tuple[int, int]]:
    uses = {use_of(key) for key in wanted}
    return uses if len(uses) == 1 else set()


def _without_instance(
    site: GpuState, wanted: Mapping[Key, str], means: AllowedChanges, stay: list[tuple[Slot, Key | None]]
) -> Blocker:
    """Return why no MIG instance serves a profile."""
    foreign = foreign_instances(site.gpu)
    if foreign:
        why = (
            f"it has {format_instances(foreign)}, which serve no vGPU and are only removed by vgpu.fleet.harvester_mig"
        )
        return Blocker("mig_layout", why)
    has = instances_of(site.gpu)
    if any(size_of(key) in has for key in wanted):
        if stay and (site.empty or means.evict):
            return Blocker("instances", "its MIG instances are taken", _slots(stay), ", by")
        return _without_function(site, stay)
    if not means.mig:
        return Blocker("mig_layout", "it has no MIG instance for it")
    if stay:
        why = "it has no MIG instance for it, and they change only while it has no vGPUs"
        return Blocker("mig_layout", why, _slots(stay), ", but it has")
    return Blocker("mig_layout", "its slices do not suffice for one more MIG instance of that kind")


def cut_of(group: Group) -> Counter[InstanceSize]:
    """Return the GPU instances that a group stands for."""
    geometry = geometry_of(group[0]) if is_cut(group) else None
    return geometry.cut(_layout_number(group)) if geometry else Counter()


def _cut_room(site: GpuState, group: Group, wanted: Mapping[Key, str]) -> GpuCapacity:
    return GpuCapacity(_cut_places(site, group, wanted).split(group), Counter())


def _cut_places(site: GpuState, group: Group, wanted: Mapping[Key, str]) -> _Places:
    cut = cut_of(group)
    places = len(site.gpu.slots) if site.gpu.sharing else virtual_functions(site.gpu)
    sizes = {key: size_of(key) for key in sorted(wanted)}
    return _Places(tuple(((key,), cut[size]) for key, size in sizes.items() if size and cut[size]), places)


def _equal_size_room(
    site: GpuState, group: Group, wanted: Mapping[Key, str], means: AllowedChanges
) -> GpuCapacity | Blocker:
    stay = list(site.occupants(evict=means.evict))
    # A slot with an unreadable request and no vGPU only occupies a virtual function.
    others = [(slot, key) for slot, key in stay if (group_of(key) != group if key else slot.profile)]
    if others:
        return Blocker("size", "all vGPUs of a GPU have the same size", _slots(others), ", and it has")
    limit, exact, certain = _limit(site, group, wanted)
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
        return GpuCapacity(((keys, most),), _kept(stay), exact, certain)
    free = min(most, _free_beside(site, group, limit))
    return GpuCapacity(((keys, free), (keys, most - free)), _kept(stay), exact, certain)


def _free_beside(site: GpuState, group: Group, limit: int) -> int:
    """Return how many of the places are free without removing a vGPU."""
    present = [(slot, key) for slot, key in site.occupants(evict=False) if key or slot.profile]
    if any(key is None or group_of(key) != group for _slot, key in present):
        return 0
    return max(0, min(limit - len(present), _free_functions(site, AllowedChanges(), taken=0)))


def _mig_places(site: GpuState, wanted: Mapping[Key, str], means: AllowedChanges) -> _Places:
    if not site.loose and not site.astray:
        means = replace(means, evict=False)
    stay = list(site.occupants(evict=means.evict))
    kept = _kept(stay)
    instances = keyed(site.gpu.max_instances)
    lanes: list[tuple[tuple[Key, ...], int]] = []
    for key in sorted(wanted):
        # A profile that is available without a count fits at least once.
        free = instances[key] - kept[key] if key in instances else int(bool(site.offered and key in site.offered))
        if free > 0:
            lanes.append(((key,), free))
    return _Places(tuple(lanes), _free_functions(site, means, taken=len(stay)))


def _mig_room(site: GpuState, group: Group, wanted: Mapping[Key, str], means: AllowedChanges) -> GpuCapacity | Blocker:
    stay = list(site.occupants(evict=means.evict))
    kept = _kept(stay)
    instances = keyed(site.gpu.max_instances)
    lanes = _mig_places(site, wanted, means).split(group)
    if lanes:
        return GpuCapacity(lanes, kept, certain=all(key in instances for keys, _count in lanes for key in keys))
    if foreign_instances(site.gpu):
        return _without_instance(site, wanted, means, stay)
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


def _limit(site: GpuState, group: Group, wanted: Mapping[Key, str]) -> tuple[int, bool, bool]:
    """Return the maximum of vGPUs of a size: the lowest maximum among the profiles involved.

    Also return whether it was read, and whether it can be relied on. The maximum for a board that the catalog lacks is
    estimated, and not lower than the number of vGPUs that the GPU has and offers now.
    """
    gpu = site.gpu
    names = dict(wanted)
    for key, slots in site.loose.items():
        names.setdefault(key, slots[0].profile or slots[0].wanted or "")
    for slot, held in site.held:
        if held:
            names.setdefault(held, slot.profile or slot.wanted or "")
    live = keyed(gpu.max_instances)
    count, exact, certain = UNLIMITED, True, True
    proven = sum(1 for _slot, key in site.occupants(evict=False) if key and group_of(key) == group)
    proven += bool(site.offered and any(group_of(key) == group for key in site.offered))
    for key, name in names.items():
        if group_of(key) != group:
            continue
        limit = catalog.Limit(live[key], "live") if key in live else _catalog_limit(name, framebuffer_of(gpu))
        if limit.count is not None:
            count = min(count, max(limit.count, proven) if limit.source == "estimated" else limit.count)
        exact = exact and limit.exact
        certain = certain and limit.source not in ("estimated", "unknown")
    return count, exact, certain


@lru_cache(maxsize=4096)
def _catalog_limit(name: str, framebuffer_mib: int | None) -> catalog.Limit:
    return catalog.max_instances(name, framebuffer_mib=framebuffer_mib)


def framebuffer_of(gpu: Gpu) -> int | None:
    if gpu.framebuffer_mib:
        return gpu.framebuffer_mib
    board = catalog.find_board(gpu.boards[0]) if gpu.boards else None
    if board:
        return board.framebuffer_mib
    return _least_framebuffer(gpu) if gpu.platform != VSPHERE else None


def _least_framebuffer(gpu: Gpu) -> int | None:
    """Return the framebuffer that a GPU has at least: the largest type that it offers, or all its vGPUs together.

    An empty GPU offers a type with the whole framebuffer.
    """
    offered = {name for slot in gpu.slots for name in slot.offered or ()}
    largest = max((parsed.mib for parsed in map(parse_or_none, offered) if parsed and not parsed.mig), default=0)
    present = (parse_or_none(slot.profile or slot.wanted) for slot in gpu.slots)
    return max(largest, sum(parsed.mib for parsed in present if parsed and not parsed.mig)) or None


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
        left = sum(1 for slot in site.empty if slot.leftover)
        return max(len(gpu.slots) - taken - left, 0) or len(gpu.slots) - taken
    return len(site.usable)


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
