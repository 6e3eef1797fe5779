# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The removal of vGPUs, MIG instances and SR-IOV for a declaration, with the objects to keep and why. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..module_utils.errors import InvalidDemand, join_names
from ..module_utils.fleet.model import MIG, Fleet, Gpu, Holder, Slot, could_be
from ..module_utils.fleet.profile import Profile, parse, parse_or_none
from ..module_utils.harvester.decide.in_use import protect_running_vms
from ..module_utils.planning.request import PER_GPU, PER_NODE, Demand, GpuSelector, Patterns, patterns


@dataclass(frozen=True)
class Declaration:
    """The variables of the role harvester_gpu_node. `mig` and `all_sriov` select GPUs without a profile.

    With an `owner`, only vGPUs with that owner mark are removed. With `adopt`, vGPUs without any mark are removed too.
    """

    layout: tuple[Demand, ...] = ()
    mig: tuple[tuple[Patterns, Patterns], ...] = ()
    nodes: Patterns = None
    gpus: Patterns = None
    all_sriov: bool = False
    everything: bool = False
    owner: str | None = None
    adopt: bool = False

    @classmethod
    def read(
        cls,
        layout: Sequence[Mapping[str, Any]] = (),
        mig: Sequence[Mapping[str, Any]] = (),
        nodes: Sequence[str] | None = None,
        gpus: Sequence[str] | None = None,
        *,
        all_sriov: bool = False,
        everything: bool = False,
        owner: str | None = None,
        adopt: bool = False,
    ) -> Declaration:
        def selection(entry: Mapping[str, Any]) -> tuple[Patterns, Patterns]:
            own = patterns(entry.get("nodes")), patterns(entry.get("gpus"))
            return (patterns(nodes), patterns(gpus)) if own == (None, None) else own

        for entry in layout:
            missing = [name for name in ("profile", "count") if entry.get(name) is None]
            if missing:
                raise InvalidDemand(
                    f"An entry of the layout has no {missing[0]}.", hint="Each entry needs profile and count."
                )
        return cls(
            layout=tuple(
                Demand(str(entry["profile"]), int(entry["count"]), str(entry.get("per") or "fleet"), *selection(entry))
                for entry in layout
            ),
            mig=tuple(map(selection, mig)),
            nodes=patterns(nodes),
            gpus=patterns(gpus),
            all_sriov=all_sriov,
            everything=everything,
            owner=owner,
            adopt=adopt,
        )

    def may_remove(self, slot: Slot) -> bool:
        """Return whether the vGPU belongs to the owner or counts as the owner's."""
        return self.owner is None or slot.owner == self.owner or (self.adopt and not slot.owner)


@dataclass(frozen=True)
class Removal:
    """The plan. `waits_for` are VMs that hold some of the `vgpus` and are about to be deleted."""

    vgpus: tuple[tuple[Gpu, Slot], ...] = ()
    gpus: tuple[Gpu, ...] = ()
    kept: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()

    @property
    def steps(self) -> list[str]:
        steps = [f"Disable vGPU {slot.name} ({_type(slot)}) on node {gpu.node}." for gpu, slot in self.vgpus]
        steps += [f"Remove the MIG instances of GPU {gpu.name}." for gpu in self.gpus if gpu.mode == MIG]
        return steps + [f"Disable SR-IOV on GPU {gpu.name}." for gpu in self.gpus]

    def as_dict(self) -> dict[str, Any]:
        return {
            "vgpus": [slot.name for _gpu, slot in self.vgpus],
            "gpus": [gpu.name for gpu in self.gpus],
            "mig_gpus": [gpu.name for gpu in self.gpus if gpu.mode == MIG],
            "vgpus_on_mig": [slot.name for gpu, slot in self.vgpus if gpu.mode == MIG],
            "steps": self.steps,
            "kept": list(self.kept),
            "held": list(self.held),
            "waits_for": list(self.waits_for),
        }


@dataclass
class _Work:
    """The fleet without the VMs that are about to be deleted, and the choices so far."""

    fleet: Fleet
    chosen: dict[str, tuple[Gpu, Slot]] = field(default_factory=dict)
    # GPUs whose SR-IOV may be disabled, by name.
    releasable: dict[str, Gpu] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)


def plan_removal(
    fleet: Fleet,
    declaration: Declaration,
    gone_vms: Collection[str] = (),
    gone_labels: Mapping[str, str] | None = None,
) -> Removal:
    """Plan the removal as if `gone_vms`, given by path, and VMs with `gone_labels` were already deleted."""

    def gone(holder: Holder) -> bool:
        labelled = bool(gone_labels) and dict(gone_labels or {}).items() <= dict(holder.labels).items()
        return holder.path in gone_vms or labelled

    before = protect_running_vms(fleet).assign_unbound()
    work = _Work(protect_running_vms(_without(fleet, gone)).assign_unbound())
    if declaration.everything:
        _everything(work, declaration)
    else:
        _declared(work, declaration)
    names = set(work.chosen)
    waits_for = {
        holder.path for _gpu, slot in before.slots() if slot.name in names for holder in slot.holders if gone(holder)
    }
    return Removal(
        vgpus=tuple(work.chosen.values()),
        gpus=tuple(_to_release(work)),
        kept=tuple(work.kept),
        held=tuple(work.held),
        waits_for=tuple(sorted(waits_for)),
    )


def _without(fleet: Fleet, gone: Callable[[Holder], bool]) -> Fleet:
    def released(slot: Slot) -> Slot:
        return replace(slot, holders=tuple(holder for holder in slot.holders if not gone(holder)))

    nodes = tuple(
        replace(node, gpus=tuple(replace(gpu, slots=tuple(map(released, gpu.slots))) for gpu in node.gpus))
        for node in fleet.nodes
    )
    return replace(fleet, nodes=nodes, claims=tuple(claim for claim in fleet.claims if not gone(claim.holder)))


def _everything(work: _Work, declaration: Declaration) -> None:
    for index in sorted(GpuSelector(work.fleet).gpus(declaration.nodes, declaration.gpus)):
        gpu = work.fleet.gpus[index]
        work.releasable[gpu.name] = gpu
        for slot in gpu.ordered_slots:
            if slot.holders:
                work.held.append(_in_use(slot))
            elif not slot.empty:
                work.chosen[slot.name] = (gpu, slot)


def _declared(work: _Work, declaration: Declaration) -> None:
    selections = GpuSelector(work.fleet)
    for demand in declaration.layout:
        profile = parse(demand.profile)
        chosen = sorted(selections.gpus(demand.nodes, demand.gpus))
        suitable = [gpu for gpu in (work.fleet.gpus[index] for index in chosen) if could_be(gpu, profile)]
        if demand.nodes or demand.gpus:
            work.releasable.update({gpu.name: gpu for gpu in suitable})
        for gpus in _scopes(suitable, demand.per):
            _choose(work, gpus, profile, demand, declaration)
    for nodes, names in declaration.mig:
        chosen = sorted(selections.gpus(nodes, names))
        work.releasable.update({gpu.name: gpu for gpu in (work.fleet.gpus[i] for i in chosen) if gpu.mode == MIG})
    if declaration.all_sriov:
        chosen = sorted(selections.gpus(declaration.nodes, declaration.gpus))
        work.releasable.update({gpu.name: gpu for gpu in (work.fleet.gpus[index] for index in chosen)})


def _scopes(gpus: Sequence[Gpu], per: str) -> Iterable[list[Gpu]]:
    if per == PER_GPU:
        return [[gpu] for gpu in gpus]
    if per == PER_NODE:
        return [[gpu for gpu in gpus if gpu.node == node] for node in dict.fromkeys(gpu.node for gpu in gpus)]
    return [list(gpus)]


def _choose(work: _Work, gpus: Sequence[Gpu], profile: Profile, demand: Demand, declaration: Declaration) -> None:
    """Choose as many unused vGPUs of the profile as declared, first on GPUs without other vGPUs."""
    every = [(gpu, slot) for gpu in gpus for slot in gpu.ordered_slots if _has(slot, profile)]
    mine = [(gpu, slot) for gpu, slot in every if slot.holders or declaration.may_remove(slot)]
    others = Counter(gpu.name for gpu in gpus for slot in gpu.slots if not slot.empty and not _is_free(slot, profile))
    free = [(gpu, slot) for gpu, slot in mine if not slot.holders and slot.name not in work.chosen]
    free.sort(key=lambda item: others[item[0].name])
    for gpu, slot in free[: demand.count]:
        work.chosen[slot.name] = (gpu, slot)
        work.releasable[gpu.name] = gpu
    rest = free[demand.count :]
    if rest:
        names = join_names(slot.name for _gpu, slot in rest)
        work.kept.append(f"vGPU {names} is kept: there are more vGPUs than the declared {demand}.")
    for _gpu, slot in mine:
        if slot.holders:
            work.kept.append(f"{_in_use(slot)} It is kept.")
    kept = [slot for _gpu, slot in every if not slot.holders and not declaration.may_remove(slot)]
    for owner in sorted({slot.owner or "" for slot in kept}):
        names = join_names(slot.name for slot in kept if (slot.owner or "") == owner)
        work.kept.append(f"vGPU {names} is kept: {_whose(owner)}")


def _to_release(work: _Work) -> Iterable[Gpu]:
    touched = {gpu.name for gpu, _slot in work.chosen.values()}
    for gpu in work.fleet.gpus:
        if gpu.name not in work.releasable or not gpu.sharing:
            continue
        left = [slot for slot in gpu.ordered_slots if not slot.empty and slot.name not in work.chosen]
        if not left:
            yield gpu
        elif gpu.name in touched:
            names = join_names(slot.name for slot in left)
            work.kept.append(f"SR-IOV stays enabled on GPU {gpu.name}, which still has vGPU {names}.")


def _whose(owner: str) -> str:
    if owner:
        return f"it was enabled for owner {owner}."
    return "it has no owner mark, so its owner is unknown. Set harvester_gpu_node_adopt to true to remove it."


def _type(slot: Slot) -> str:
    return slot.wanted or slot.profile or ""


def _has(slot: Slot, profile: Profile) -> bool:
    parsed = parse_or_none(_type(slot))
    return parsed is not None and parsed.key == profile.key


def _is_free(slot: Slot, profile: Profile) -> bool:
    return _has(slot, profile) and not slot.holders


def _in_use(slot: Slot) -> str:
    return f"vGPU {slot.name} ({_type(slot)}) is in use by {join_names(map(str, slot.holders), limit=3)}."
