# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that bring a GPU to its target, and the fleet that results from steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..fleet import catalog
from ..fleet.mig import InstanceSize, format_instances, match, read_size, read_wanted, served_types
from ..fleet.model import Fleet, Gpu, Slot
from ..fleet.profile import Key, parse_or_none
from ..fleet.shared_instances import SharedLayouts
from .capacity import GpuState, Group, family, group_of, instances_of, is_cut, shared_layouts_of
from .mig_layout import MigLayout, new_mig_layout, new_shared_layout

ENABLE_SRIOV = "enable_sriov"
DISABLE = "disable"
ENABLE = "enable"
CREATE_MIG_INSTANCES = "create_mig_instances"
# The planner never disables SR-IOV, removes MIG instances permanently or changes a mode. Other callers do.
DISABLE_SRIOV = "disable_sriov"
REMOVE_MIG_INSTANCES = "remove_mig_instances"
SET_MODE = "set_mode"
# Write the current type of a vGPU into its spec. The vGPU itself does not change.
CORRECT = "correct"


@dataclass(frozen=True)
class Step:
    """One change. Steps on one GPU run in order, steps on different GPUs run in parallel.

    `slot` is None if the slot only exists once SR-IOV is enabled. `instances` are the names of the MIG instances of a
    new MIG layout. `owner` is the owner for whom a vGPU is enabled; the vGPU is marked with it.
    """

    action: str
    node: str
    gpu: str
    slot: str | None = None
    before: str | None = None
    after: str | None = None
    instances: tuple[tuple[str, int], ...] = ()
    owner: str | None = None

    def __str__(self) -> str:
        if self.action == ENABLE_SRIOV:
            return f"switch SR-IOV on for GPU {self.gpu}"
        if self.action == CREATE_MIG_INSTANCES:
            return f"cut GPU {self.gpu} into {self.after}"
        where = f"{self.slot or 'a new vGPU'} of GPU {self.gpu}"
        if self.action == CORRECT:
            return f"write {self.after} into the spec of {where}"
        return f"enable {self.after} on {where}" if self.action == ENABLE else f"disable {self.before} on {where}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "action": self.action,
            "node": self.node,
            "gpu": self.gpu,
            "slot": self.slot,
            "before": self.before,
            "after": self.after,
        }


@dataclass
class GpuTarget:
    """The vGPUs that a GPU needs at least, or exactly if exclusive. `places` limits the vGPUs beside the held ones."""

    assigned: Counter[Key]
    group: Group | None = None
    evict: bool = False
    exclusive: bool = False
    places: int = 0


def partitioning(gpu: Gpu, instances: Mapping[InstanceSize, int]) -> Step:
    """Return the step that gives a GPU exactly these MIG instances."""
    has = listed_instances(gpu)
    # The GPU may have other names for these slices than the catalog.
    listed = {size: None for size in map(read_size, gpu.instances) if size}
    own = {match(size, listed) or size: count for size, count in instances.items() if count}
    named = tuple((size.name, count) for size, count in own.items())
    before = format_instances(has) if has else None
    return Step(CREATE_MIG_INSTANCES, gpu.node, gpu.name, before=before, after=format_instances(own), instances=named)


def listed_instances(gpu: Gpu) -> Counter[InstanceSize]:
    """Return all GPU instances under the names that the GPU has for them."""
    found = Counter({size: count for name, count in gpu.instances.items() if count and (size := read_size(name))})
    return found or instances_of(gpu)


def steps_to(site: GpuState, target: GpuTarget, names: Mapping[Key, str]) -> list[Step]:
    """Return the steps on one GPU: enable SR-IOV, remove vGPUs, then create vGPUs."""
    if target.group and shared_layouts_of(site, target.group):
        return _steps_on_shared_instances(site, target, names)
    if target.group and is_cut(target.group):
        cut = new_mig_layout(site, target.assigned, exclusive=target.exclusive)
        if cut is not None:
            return _cutting(site, cut, names)
    if target.group:
        target = replace(target, group=family(target.group))
    keep = _kept(site, target)
    adds = Counter(
        {
            key: count - site.held_counts[key] - len(keep.get(key, ()))
            for key, count in target.assigned.items()
            if count > site.held_counts[key] + len(keep.get(key, ()))
        }
    )
    if not adds and not target.exclusive:
        return []
    repaired = _repaired((slot for slot, _key in site.astray), adds) if target.evict else {}
    astray = [slot for slot, key in site.astray if _may_stay(target, slot, key) and slot.name not in repaired]
    _drop_surplus(site, target, keep, astray, sum(adds.values()))
    staying = {slot.name for slot in astray}.union(slot.name for slots in keep.values() for slot in slots)
    unheld = [slot for slots in site.loose.values() for slot in slots] + [slot for slot, _key in site.astray]
    removed = sorted((slot for slot in unheld if slot.name not in staying), key=lambda slot: (slot.address, slot.name))
    gpu = site.gpu
    steps: list[Step] = []
    if not gpu.sharing and adds:
        steps.append(Step(ENABLE_SRIOV, gpu.node, gpu.name))
    steps += [Step(DISABLE, gpu.node, gpu.name, slot.name, before=slot.profile or slot.wanted) for slot in removed]
    return steps + _enabling(site, adds, repaired, removed, names)


def _steps_on_shared_instances(site: GpuState, target: GpuTarget, names: Mapping[Key, str]) -> list[Step]:
    """Return the steps on a GPU whose MIG instances serve several vGPUs each."""
    shared = shared_layouts_of(site, target.group) if target.group else None
    if not target.group or not shared:
        raise AssertionError(f"GPU {site.gpu.name} has no shared MIG instances.")
    gpu, has = site.gpu, instances_of(site.gpu)
    cut = new_shared_layout(site, target.assigned, shared, exclusive=target.exclusive)
    if cut is not None:
        return _cutting(site, cut, names)
    keep = _kept(site, replace(target, group=family(target.group)))
    astray = [slot for slot, _key in site.astray if not (target.exclusive or target.evict)]

    def staying() -> Counter[Key]:
        return site.held_counts + Counter({key: len(slots) for key, slots in keep.items()})

    def total() -> Counter[Key]:
        return staying() | Counter(target.assigned)

    if target.evict or target.exclusive:
        # Remove unrequested vGPUs until the rest fits, and all others if it is not certain which instances they are on.
        for key in sorted(keep, key=lambda key: (target.assigned[key] > 0, key)):
            least = max(0, target.assigned[key] - site.held_counts[key])
            while len(keep[key]) > least and not _has_room(site, shared, staying(), total(), has):
                keep[key].pop()
        if total() != staying() and not _has_room(site, shared, staying(), total(), has):
            keep = {}
    adds = total() - staying()
    if not adds and not target.exclusive:
        return []
    names_kept = {slot.name for slot in astray}.union(slot.name for slots in keep.values() for slot in slots)
    unheld = [slot for slots in site.loose.values() for slot in slots] + [slot for slot, _key in site.astray]
    removed = sorted(
        (slot for slot in unheld if slot.name not in names_kept), key=lambda item: (item.address, item.name)
    )
    steps = [Step(DISABLE, gpu.node, gpu.name, slot.name, before=slot.profile or slot.wanted) for slot in removed]
    own = {key: slots[0].profile or slots[0].wanted or "" for key, slots in site.loose.items()}
    return steps + _enabling(site, adds, {}, removed, {**own, **names})


def _has_room(
    site: GpuState,
    shared: SharedLayouts,
    staying: Counter[Key],
    total: Counter[Key],
    has: Mapping[InstanceSize, int],
) -> bool:
    most = min(len(site.gpu.slots), catalog.MAX_PER_GPU)
    return shared.for_sure(staying, total, has) and total.total() <= most


def _cutting(site: GpuState, cut: MigLayout, names: Mapping[Key, str]) -> list[Step]:
    gpu = site.gpu
    removed = [slot for slot in gpu.ordered_slots if not slot.empty]
    steps = [] if gpu.sharing else [Step(ENABLE_SRIOV, gpu.node, gpu.name)]
    steps += [Step(DISABLE, gpu.node, gpu.name, slot.name, before=slot.profile or slot.wanted) for slot in removed]
    steps.append(partitioning(gpu, cut.instances))
    own = {key: slots[0].profile or slots[0].wanted or "" for key, slots in site.loose.items()}
    return steps + _enabling(site, cut.vgpus, {}, removed, {**own, **names})


def _kept(site: GpuState, target: GpuTarget) -> dict[Key, list[Slot]]:
    """Return the vGPUs without a holder that can stay."""
    kept: dict[Key, list[Slot]] = {}
    for key, slots in site.loose.items():
        if target.exclusive:
            wanted = max(0, target.assigned[key] - site.held_counts[key])
            # Remove allocatable vGPUs last.
            kept[key] = sorted(slots, key=lambda slot: (not slot.allocatable, slot.address, slot.name))[:wanted]
        elif not target.evict or target.group is None or group_of(key) == target.group:
            kept[key] = list(slots)
    return kept


def _may_stay(target: GpuTarget, slot: Slot, key: Key | None) -> bool:
    if target.exclusive:
        return False
    if not target.evict or target.group is None:
        return True
    return not slot.profile if key is None else group_of(key) == target.group


def _repaired(astray: Iterable[Slot], adds: Counter[Key]) -> dict[str, tuple[Slot, Key]]:
    """Return slots whose request matches a needed profile but whose vGPU differs. They are repaired first."""
    left = Counter(adds)
    chosen: dict[str, tuple[Slot, Key]] = {}
    for slot in astray:
        parsed = parse_or_none(slot.wanted)
        if parsed and left[parsed.key]:
            left[parsed.key] -= 1
            chosen[slot.name] = (slot, parsed.key)
    return chosen


def _drop_surplus(
    site: GpuState, target: GpuTarget, keep: dict[Key, list[Slot]], astray: list[Slot], adding: int
) -> None:
    """Drop as many vGPUs as the new ones need room for: drifted ones first, then unrequested ones."""
    if not target.evict or target.exclusive:
        return
    if target.group and target.group[1] < 0:
        # Each MIG instance serves only its own profile, so a vGPU with the right profile blocks nothing.
        astray.clear()
        return
    excess = sum(map(len, keep.values())) + len(astray) + adding - target.places
    while excess > 0 and astray:
        astray.pop()
        excess -= 1
    for key in sorted(keep, key=lambda key: (target.assigned[key] > 0, key)):
        slots = keep[key]
        while excess > 0 and len(slots) > max(0, target.assigned[key] - site.held_counts[key]):
            slots.pop()
            excess -= 1


def _enabling(
    site: GpuState,
    adds: Counter[Key],
    repaired: Mapping[str, tuple[Slot, Key]],
    removed: list[Slot],
    names: Mapping[Key, str],
) -> list[Step]:
    gpu = site.gpu
    left = Counter(adds)
    chosen: list[tuple[str | None, Key]] = []
    for slot, key in repaired.values():
        chosen.append((slot.name, key))
        left[key] -= 1
    # Choose a slot that was just disabled last: the node may not count it again (harvester.md 9.2).
    fresh = sorted(
        site.empty,
        key=lambda slot: (slot.offered == (), slot.offered is None, bool(slot.holders), slot.address, slot.name),
    )
    spare = [slot for slot in fresh if not slot.leftover]
    spare += [slot for slot in removed if slot.name not in repaired]
    spare += [slot for slot in fresh if slot.leftover]
    for key in sorted(left):
        for _number in range(left[key]):
            if gpu.sharing:
                chosen.append((spare.pop(0).name, key))
            else:
                chosen.append((None, key))
    return [Step(ENABLE, gpu.node, gpu.name, slot, after=names[key]) for slot, key in chosen]


def after_steps(fleet: Fleet, steps: Iterable[Step]) -> Fleet:
    """Return the fleet after the steps, as check mode predicts it."""
    by_gpu: dict[str, list[Step]] = {}
    for step in steps:
        by_gpu.setdefault(step.gpu, []).append(step)
    if not by_gpu:
        return fleet
    nodes = tuple(
        replace(node, gpus=tuple(_after(gpu, by_gpu[gpu.name]) if gpu.name in by_gpu else gpu for gpu in node.gpus))
        for node in fleet.nodes
    )
    return replace(fleet, nodes=nodes)


def _after(gpu: Gpu, steps: list[Step]) -> Gpu:
    slots = {slot.name: slot for slot in gpu.ordered_slots}
    sharing, max_instances, instances = gpu.sharing, gpu.max_instances, gpu.instances
    for number, step in enumerate(steps):
        if step.action == ENABLE_SRIOV:
            sharing = True
            continue
        if step.action == CREATE_MIG_INSTANCES:
            max_instances = _served(gpu, step.instances)
            instances = {**dict.fromkeys(gpu.instances, 0), **dict(step.instances)} if gpu.instances else {}
            slots = {name: replace(slot, offered=None) if slot.empty else slot for name, slot in slots.items()}
            continue
        name = step.slot or f"{gpu.name} new {number}"
        slot = slots.get(name, Slot(name))
        owner = slot.owner if step.action == CORRECT else step.owner
        slots[name] = replace(
            slot, profile=step.after, wanted=step.after, allocatable=bool(step.after), offered=None, owner=owner
        )
    return replace(gpu, sharing=sharing, slots=tuple(slots.values()), max_instances=max_instances, instances=instances)


def _served(gpu: Gpu, instances: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the types that the instances serve, with their numbers."""
    return {
        name: count * each
        for instance, count in instances
        if gpu.boards
        for name, each in served_types(gpu.boards[0], read_wanted(instance).size).items()
    }
