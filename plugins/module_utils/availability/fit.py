# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The check whether machines with vGPUs fit into the free capacity, with reasons and suggestions if not. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from ..errors import FleetError, join_names
from .counts import VmHolding
from .packing import MachineGroup, Packing
from .request import MachineDemand

# Suggestions are verified one by one, each by packing all machines again.
MAX_TRIED = 8


class DemandDoesNotFit(FleetError):
    code = "demand_does_not_fit"


class Capacity(Protocol):
    """The free capacity of a platform. Each platform has an adapter of this shape."""

    # The name of a place for machines: node, host.
    place: str

    @property
    def holdings(self) -> Mapping[str, VmHolding]:
        """Return the VMs that have vGPUs or will take some, by path."""

    def without(self, vms: Collection[str]) -> Capacity:
        """Return the capacity as if these VMs, by path, had no vGPUs."""

    def pack(self, groups: Sequence[MachineGroup]) -> Packing:
        """Place as many machines as possible, beside everything that VMs hold or will take."""

    def describe(self, profile: str) -> str:
        """Return a sentence about the places that have vGPUs of the profile and the VMs that hold them."""

    def detachable(self, profiles: Collection[str]) -> Sequence[Sequence[str]]:
        """Return the stopped VMs in the way of a profile. Detaching any VM of a group has the same effect."""

    def changes(
        self, profiles: Collection[str], would_fit: Callable[[Capacity], bool], not_tried: list[str]
    ) -> Iterator[str]:
        """Yield changes to the platform after which `would_fit` is true. Describe in `not_tried` what was left out."""


@dataclass(frozen=True)
class DemandResult:
    """The result for one demand. `existing` machines run already."""

    demand: MachineDemand
    existing: tuple[str, ...]
    nodes: Mapping[str, int]
    missing: int
    reasons: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return not self.missing

    def as_dict(self) -> dict[str, Any]:
        demand = self.demand
        return {
            "name": demand.name,
            "machines": demand.machines,
            "surge": demand.surge,
            "vgpus": [{"profile": profile, "count": count} for profile, count in sorted(demand.vgpus.items())],
            "existing": list(self.existing),
            "placed": sum(self.nodes.values()),
            "missing": self.missing,
            "fits": self.fits,
            "nodes": [{"node": node, "machines": count} for node, count in sorted(self.nodes.items())],
            "reasons": list(self.reasons),
        }


class FitCheck:
    """The placement of the machines of all demands together. What-if variants of the capacity give the suggestions."""

    def __init__(self, capacity: Capacity, demands: Sequence[MachineDemand]) -> None:
        self._demands = list(demands)
        self._existing, replaced = existing_machines(capacity.holdings, demands)
        self.capacity = capacity.without(replaced) if replaced else capacity
        self._not_tried: list[str] = []
        self._groups = [
            MachineGroup(demand.vgpus, max(demand.machines + demand.surge - len(existing), 0))
            for demand, existing in zip(self._demands, self._existing, strict=True)
        ]

    @cached_property
    def packing(self) -> Packing:
        return self.capacity.pack(self._groups)

    @property
    def fits(self) -> bool:
        return self.packing.fits

    @cached_property
    def exhaustive(self) -> bool:
        """Return whether the answer is certain. A demand that does not fit alone proves that not all of them fit."""
        if self.fits or self.packing.exhaustive:
            return True
        alone = map(self._pack_alone, range(len(self._demands)))
        return any(not packing.fits and packing.exhaustive for packing in alone)

    @cached_property
    def results(self) -> list[DemandResult]:
        return [
            DemandResult(
                demand,
                self._existing[index],
                self.packing.nodes[index],
                self.packing.missing[index],
                self._reasons(index) if self.packing.missing[index] else (),
            )
            for index, demand in enumerate(self._demands)
        ]

    @cached_property
    def suggestions(self) -> list[str]:
        """Return changes, each of which alone makes all demands fit."""
        return [] if self.fits else list(dict.fromkeys(self._suggestions()))

    @property
    def not_tried(self) -> list[str]:
        """Return descriptions of the changes that were not tried, each of which may make all demands fit."""
        _tried = self.suggestions
        return self._not_tried

    def as_result(self) -> dict[str, Any]:
        """Return the keys of the module's result."""
        return {
            "fits": self.fits,
            "exhaustive": self.exhaustive,
            "demand": [result.as_dict() for result in self.results],
            "suggestions": self.suggestions,
            "not_tried": self.not_tried,
        }

    def require(self) -> None:
        """Raise DemandDoesNotFit unless all demands fit."""
        if self.fits:
            return
        hint = "No single change would make it fit."
        if self.suggestions:
            hint = f"Suggestions: {' Or: '.join(self.suggestions)}"
        elif self.not_tried:
            hint = f"None of the changes that were tried makes it fit. Not tried: {'; '.join(self.not_tried)}."
        raise DemandDoesNotFit(
            " ".join(reason for result in self.results for reason in result.reasons),
            hint=hint,
        )

    # Reasons
    def _reasons(self, index: int) -> tuple[str, ...]:
        demand = self._demands[index]
        surge = f" (surge {demand.surge} included)" if demand.surge else ""
        texts = [
            f"Demand {demand.name}: {sum(self.packing.nodes[index].values())} of {self._groups[index].count} more"
            f" machines fit{surge}; each needs {demand.vgpus_per_machine} on one {self.capacity.place}."
        ]
        texts.extend(self._descriptions[profile] for profile in sorted(demand.vgpus))
        if len(self._demands) > 1 and self._pack_alone(index).fits:
            texts.append("It would fit without the other demands.")
        return (" ".join(texts),)

    @cached_property
    def _descriptions(self) -> dict[str, str]:
        profiles = {profile for demand in self._demands for profile in demand.vgpus}
        return {profile: self.capacity.describe(profile) for profile in sorted(profiles)}

    def _pack_alone(self, index: int) -> Packing:
        return self.capacity.pack([self._groups[index]])

    # Suggestions
    def _suggestions(self) -> Iterator[str]:
        profiles = {profile for result in self.results if not result.fits for profile in result.demand.vgpus}
        yield from self.capacity.changes(profiles, self._would_fit, self._not_tried)
        yield from self._suggest_detach(profiles)
        yield from self._suggest_fewer()

    def _would_fit(self, capacity: Capacity) -> bool:
        return capacity.pack(self._groups).fits

    def _suggest_detach(self, profiles: Collection[str]) -> Iterator[str]:
        # Without its vGPUs an existing machine would have to be placed again.
        kept = {path for paths in self._existing for path in paths}
        found = ([path for path in group if path not in kept] for group in self.capacity.detachable(profiles))
        groups = [group for group in found if group]
        for group in groups[:MAX_TRIED]:
            if self._would_fit(self.capacity.without([group[0]])):
                yield f"Detach the vGPUs of the stopped VM {group[0]}."
                return
        stopped = [path for group in groups for path in group]
        if len(stopped) > 1 and self._would_fit(self.capacity.without(stopped)):
            yield f"Detach the vGPUs of the stopped VMs {join_names(stopped)}."

    def _suggest_fewer(self) -> Iterator[str]:
        unmet = [result for result in self.results if not result.fits]
        machines = {result.demand.name: result.demand.machines - result.missing for result in unmet}
        if all(result.demand.surge >= result.missing for result in unmet):
            yield f"Set surge to 0 in {join_names(machines)}."
        if min(machines.values()) >= 0 and any(machines.values()):
            counts = join_names(f"{count} in {name}" for name, count in machines.items())
            yield f"Reduce the number of machines: {counts}."


def existing_machines(
    holdings: Mapping[str, VmHolding], demands: Sequence[MachineDemand]
) -> tuple[list[tuple[str, ...]], frozenset[str]]:
    """Return the VMs of each demand that stay, and all VMs that the demands replace.

    VMs of an owner that have the vGPUs of the demand count as its machines. The demand replaces the owner's other VMs.
    """
    taken: set[str] = set()
    replaced: set[str] = set()
    existing: list[tuple[str, ...]] = []
    for demand in demands:
        owned = [path for path, held in holdings.items() if path not in taken and demand.owns(held.holder)]
        taken.update(owned)
        alike = [path for path in owned if dict(holdings[path].vgpus) == dict(demand.vgpus)]
        # Running VMs come first, because they stay.
        alike.sort(key=lambda path: (not holdings[path].holder.running, path))
        kept = set(alike[: demand.machines + demand.surge])
        existing.append(tuple(sorted(kept)))
        replaced.update(path for path in owned if path not in kept)
    return existing, frozenset(replaced)
