# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Demands on a fleet under a policy, and what-if variants of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ..fleet.model import Fleet
from ..fleet.profile import Key
from .capacity import AllowedChanges, GpuState, classify_slots
from .components import Layout, Planning
from .request import SPREAD, Demand, GpuSelector, Need, Policy, needs_of
from .search import SearchBudget
from .spread import spread


class Problem:
    """Demands on a fleet. Their profiles are the type names of the fleet.

    With `in_addition`, the demands are for vGPUs beside the existing ones, as when another VM is to be started.
    """

    def __init__(
        self,
        fleet: Fleet,
        demands: Sequence[Demand],
        policy: Policy,
        sites: Sequence[GpuState] | None = None,
        budget: SearchBudget | None = None,
        *,
        in_addition: bool = False,
    ) -> None:
        self.fleet = fleet
        self.demands = tuple(demands)
        self.policy = policy
        self.selections = GpuSelector(fleet)
        self.in_addition = in_addition
        self._sites = sites
        self._budget = budget or SearchBudget()
        # Budget shared by all what-if variants.
        self._spare = budget or SearchBudget(hard=True)

    @cached_property
    def sites(self) -> Sequence[GpuState]:
        if self._sites is not None:
            return self._sites
        nodes = self.fleet.node_by_name
        return [classify_slots(gpu, nodes.get(gpu.node)) for gpu in self.fleet.gpus]

    @cached_property
    def needs(self) -> list[Need]:
        return needs_of(self.fleet, self.demands, self.selections)

    @cached_property
    def selected(self) -> frozenset[int]:
        """Return the GPUs that any demand selects, of any board."""
        return frozenset().union(*(self.selections.gpus(demand.nodes, demand.gpus) for demand in self.demands))

    @cached_property
    def planning(self) -> Planning:
        exclusive = self.selected if self.policy.exclusive else frozenset()
        return Planning(self.sites, self.needs, exclusive, self._budget, in_addition=self.in_addition)

    @property
    def means(self) -> AllowedChanges:
        """Return the most disruptive changes that the policy allows."""
        policy = self.policy
        return AllowedChanges(
            sriov=policy.enable_sriov, evict=policy.reprofile or policy.exclusive, mig=policy.enable_mig
        )

    @property
    def ladder(self) -> list[AllowedChanges]:
        """Return the allowed changes from the least to the most disruptive."""
        policy = self.policy
        rungs = [AllowedChanges(evict=policy.exclusive)]
        if policy.enable_mig:
            rungs.append(AllowedChanges(evict=policy.exclusive, mig=True))
        if policy.enable_sriov:
            rungs.append(AllowedChanges(sriov=True, evict=policy.exclusive, mig=policy.enable_mig))
        if self.means not in rungs:
            rungs.append(self.means)
        return rungs

    @cached_property
    def layout(self) -> Layout:
        layout = self.planning.solve(self.ladder)
        if self.policy.placement == SPREAD and layout.fits:
            spread(self.planning, layout)
        return layout

    @property
    def fits(self) -> bool:
        """Return whether the demands fit, as far as the search budget permits."""
        self._budget.spend(sum(len(need.gpus) for need in self.needs))
        return not self._budget.exhausted and self.layout.fits

    @property
    def names(self) -> Mapping[Key, str]:
        return {key: name for wanted in self.planning.wanted.values() for key, name in wanted.items()}

    def under(self, policy: Policy) -> Problem:
        return self._but(policy=policy)

    def with_count(self, number: int, count: int) -> Problem:
        demands = list(self.demands)
        demands[number] = replace(demands[number], count=count)
        return self._but(demands=demands)

    def without_vms(self, vms: Collection[str]) -> Problem:
        """Return the problem as if these VMs, by path, held no vGPUs."""
        nodes = self.fleet.node_by_name
        sites = list(self.sites)
        for index, gpu in enumerate(self.fleet.gpus):
            if any(holder.path in vms for slot in gpu.slots for holder in slot.holders):
                slots = tuple(
                    replace(slot, holders=tuple(holder for holder in slot.holders if holder.path not in vms))
                    for slot in gpu.slots
                )
                sites[index] = classify_slots(replace(gpu, slots=slots), nodes.get(gpu.node))
        return self._but(sites=sites)

    def _but(
        self,
        demands: Sequence[Demand] | None = None,
        policy: Policy | None = None,
        sites: Sequence[GpuState] | None = None,
    ) -> Problem:
        return Problem(
            self.fleet,
            demands or self.demands,
            policy or self.policy,
            sites or self.sites,
            self._spare,
            in_addition=self.in_addition,
        )
