# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether machines with vGPUs fit into what is free, and if not, why not and what would help. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import (
    Availability,
    VmHolding,
    unusable_because,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.label_selector import Selector, parse_selector
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.packing import MachineGroup, Packing, place
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError, join_names
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Holder
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile_resolver import ProfileResolver

STANDING, WANTED = 0, 1
# So many nodes or VMs are tried one by one for what would help.
FEW = 8


class InvalidDemand(FleetError):
    code = "invalid_demand"


class DemandDoesNotFit(FleetError):
    code = "demand_does_not_fit"


@dataclass(frozen=True)
class MachineDemand:
    """`machines` that have the same vGPUs, and `surge` more of them while they are being replaced."""

    name: str
    machines: int
    vgpus: Mapping[str, int] = field(hash=False)
    surge: int = 0
    owner: Selector | None = None
    vms: frozenset[str] = frozenset()

    def owns(self, holder: Holder) -> bool:
        return holder.path in self.vms or (self.owner is not None and self.owner.matches(holder.labels))

    @property
    def each(self) -> str:
        return ", ".join(f"{count} x {profile}" for profile, count in sorted(self.vgpus.items()))


def read_demand(entries: Sequence[Mapping[str, Any]], known: ProfileResolver) -> list[MachineDemand]:
    demands = []
    for entry in entries:
        name = entry["name"]
        vgpus: dict[str, int] = {}
        for vgpu in entry.get("vgpus") or []:
            profile = known.resolve(vgpu["profile"])
            vgpus[profile] = vgpus.get(profile, 0) + _positive(vgpu.get("count", 1), "count", name)
        if not vgpus:
            raise InvalidDemand(f"The demand {name} names no vGPUs.", hint="List at least one profile in vgpus.")
        owner = parse_selector(entry["owner"]) if entry.get("owner") else None
        machines = _positive(entry["machines"], "machines", name, least=0)
        surge = _positive(entry.get("surge") or 0, "surge", name, least=0)
        demands.append(MachineDemand(name, machines, vgpus, surge, owner, frozenset(entry.get("vms") or ())))
    names = [demand.name for demand in demands]
    if len(set(names)) != len(names):
        raise InvalidDemand("Two demands have the same name.", hint="Give each a name of its own.")
    return demands


def _positive(number: int, what: str, name: str, *, least: int = 1) -> int:
    if number < least:
        raise InvalidDemand(f"The demand {name} has {what} {number}.", hint=f"Use {least} or more.")
    return number


@dataclass(frozen=True)
class DemandResult:
    """One demand, met or not. `existing` machines are there already."""

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
    """Demands asked of what is available. The same question can be asked of a changed world: what if?"""

    def __init__(self, availability: Availability, demands: Sequence[MachineDemand]) -> None:
        self._demands = demands
        self._existing, released = _standing(availability, demands)
        self.available = replace(availability, released=availability.released | released)

    @cached_property
    def placement(self) -> Packing:
        return self._placed(self.available)

    @property
    def fits(self) -> bool:
        return not any(self.placement.missing[self._standing_count(self.available) :])

    @property
    def proven(self) -> bool:
        return self.fits or self.placement.proven

    @cached_property
    def answers(self) -> list[DemandResult]:
        return [
            DemandResult(demand, self._existing[index], nodes, missing, self._reasons(demand) if missing else ())
            for index, (demand, nodes, missing) in enumerate(self._served(self.placement, self.available))
        ]

    @cached_property
    def helps(self) -> list[str]:
        """Each of them alone would make everything fit."""
        return [] if self.fits else list(dict.fromkeys(self._suggestions()))

    def require(self) -> None:
        if self.fits:
            return
        unmet = [answer for answer in self.answers if not answer.fits]
        raise DemandDoesNotFit(
            " ".join(reason for answer in unmet for reason in answer.reasons),
            hint=f"What would help: {' Or: '.join(self.helps)}" if self.helps else "No single change would help.",
        )

    # Placing
    def _batches(self, available: Availability) -> list[MachineGroup]:
        standing = [MachineGroup(vgpus, 1, STANDING) for _path, vgpus in sorted(available.floating.items())]
        wanted = [
            MachineGroup(demand.vgpus, max(demand.machines + demand.surge - len(self._existing[index]), 0), WANTED)
            for index, demand in enumerate(self._demands)
        ]
        return [*standing, *wanted]

    def _placed(self, available: Availability, extra: Mapping[str, Mapping[str, int]] | None = None) -> Packing:
        free = {node: dict(amounts) for node, amounts in available.free.items()}
        for node, amounts in (extra or {}).items():
            for profile, count in amounts.items():
                free[node][profile] = free[node].get(profile, 0) + count
        return place(free, self._batches(available))

    @staticmethod
    def _standing_count(available: Availability) -> int:
        return len(available.floating)

    def _served(
        self, placement: Packing, available: Availability
    ) -> Iterator[tuple[MachineDemand, Mapping[str, int], int]]:
        skip = self._standing_count(available)
        yield from zip(self._demands, placement.nodes[skip:], placement.missing[skip:], strict=True)

    def _would_fit(self, available: Availability, extra: Mapping[str, Mapping[str, int]] | None = None) -> bool:
        placement = self._placed(available, extra)
        return not any(missing for _demand, _nodes, missing in self._served(placement, available))

    # Why not
    def _reasons(self, demand: MachineDemand) -> tuple[str, ...]:
        available = self.available
        index = self._demands.index(demand)
        _demand, nodes, _missing = list(self._served(self.placement, available))[index]
        asked = demand.machines + demand.surge - len(self._existing[index])
        surge = f" (surge {demand.surge} included)" if demand.surge else ""
        texts = [
            f"Demand {demand.name}: {sum(nodes.values())} of {asked} more machines fit{surge}; each needs"
            f" {demand.each} on one node."
        ]
        texts.extend(self._situation(profile) for profile in sorted(demand.vgpus))
        if len(self._demands) > 1 and self._alone_fits(demand, index):
            texts.append("Alone it would fit: other demands want the same vGPUs.")
        return (" ".join(texts),)

    def _situation(self, profile: str) -> str:
        available = self.available
        total = available.totals.get(profile)
        if total is None or not (total.allocatable or total.creatable):
            where = [node.name for node in available.nodes if not node.usable and node.advertised]
            found = [name for name in where if available.by_node[name].get(profile)]
            because = f" but {join_names(found)}, which is out of service" if found else ""
            return f"No node offers {profile}{because}."
        free = {node: amounts[profile] for node, amounts in available.free.items() if amounts.get(profile)}
        parts = [f"free {profile}: " + (", ".join(f"{node} {count}" for node, count in sorted(free.items())) or "none")]
        if total.in_use:
            parts.append(f"{total.in_use} in use by {join_names(self._holders(profile, running=True), limit=4)}")
        if total.claimed:
            parts.append(f"{total.claimed} claimed by {' and '.join(self._claimants(profile))}")
        out = [
            f"{node.name} ({unusable_because(node)}) does not count"
            for node in available.nodes
            if not node.usable and available.by_node[node.name].get(profile)
        ]
        text = "; ".join([*parts, *out])
        return text[0].upper() + text[1:] + "."

    def _holders(self, profile: str, *, running: bool) -> list[str]:
        return [
            path
            for path, holding in self.available.holdings.items()
            if path not in self.available.released
            and holding.holder.running == running
            and holding.vgpus.get(profile, 0) > self.available.pending(path, profile)
            and any(node in self.available.selected or node is None for node in holding.by_node)
        ]

    def _claimants(self, profile: str) -> Iterator[str]:
        stopped = self._holders(profile, running=False)
        if stopped:
            yield f"stopped {join_names(stopped, limit=4)}"
        waiting = self.available.waiting_for_restart(profile)
        if waiting:
            yield f"{join_names(waiting, limit=4)} after a restart"

    def _alone_fits(self, demand: MachineDemand, index: int) -> bool:
        count = demand.machines + demand.surge - len(self._existing[index])
        batches = [
            *self._batches(self.available)[: self._standing_count(self.available)],
            MachineGroup(demand.vgpus, count, 1),
        ]
        return not place(self.available.free, batches).missing[-1]

    # What would help
    def _suggestions(self) -> Iterator[str]:
        wanted = {profile for answer in self.answers if not answer.fits for profile in answer.demand.vgpus}
        yield from self._by_creating(wanted, self.available, "Create")
        yield from self._by_return_of_nodes()
        yield from self._by_releasing(wanted)
        if not self.available.sriov:
            switched = replace(self.available, sriov=True)
            if not self._would_fit(self.available, self._room(wanted, self.available)):
                yield from self._by_creating(wanted, switched, "Switch SR-IOV on where it is off and create")
        yield from self._by_asking_less()

    @staticmethod
    def _room(wanted: set[str], available: Availability) -> dict[str, dict[str, int]]:
        """Room for new vGPUs, which is shared between profiles: only one of them is counted on each node."""
        room: dict[str, dict[str, int]] = {}
        for node, amounts in available.creatable.items():
            fitting = {profile: count for profile, count in amounts.items() if profile in wanted}
            if len(fitting) > 1:
                best = max(sorted(fitting), key=lambda profile: fitting[profile])
                fitting = {best: fitting[best]}
            if fitting:
                room[node] = fitting
        return room

    def _by_creating(self, wanted: set[str], available: Availability, verb: str) -> Iterator[str]:
        room = self._room(wanted, available)
        if not room or not self._would_fit(available, room):
            return
        needed = self._least(available, room)
        parts = [
            f"{count} more {profile} on {node}"
            for node, amounts in sorted(needed.items())
            for profile, count in sorted(amounts.items())
            if count
        ]
        rest = f" and so on on {len(parts) - FEW} more nodes" if len(parts) > FEW else ""
        yield f"{verb} {', '.join(parts[:FEW])}{rest}."

    def _least(self, available: Availability, room: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        """As few new vGPUs as will do. On a large fleet only the nodes with most room are looked at."""
        nodes = sorted(room, key=lambda node: (-sum(room[node].values()), node))
        enough = len(nodes)
        if enough > FEW:
            enough = _first(
                enough, lambda number: self._would_fit(available, {one: room[one] for one in nodes[:number]})
            )
        needed = {node: dict(room[node]) for node in nodes[:enough]}
        for node in sorted(needed) if enough <= FEW else nodes[enough - 1 : enough]:
            for profile in sorted(needed[node]):

                def fits(count: int, node: str = node, profile: str = profile) -> bool:
                    return self._would_fit(available, {**needed, node: {**needed[node], profile: count}})

                needed[node][profile] = _first(needed[node][profile], fits)
        return needed

    def _by_return_of_nodes(self) -> Iterator[str]:
        away = [node for node in self.available.nodes if not node.usable]
        tried = away[:FEW]
        verbs = {"cordoned": "Uncordon node", "not ready": "Bring back node"}
        enough = [node for node in tried if self._would_fit(self._with_nodes({node.name}))]
        for node in enough:
            yield f"{verbs[unusable_because(node)]} {node.name}."
        if len(away) > 1 and not enough and self._would_fit(self._with_nodes({node.name for node in away})):
            yield f"Bring back the nodes {join_names(node.name for node in away)}."

    def _with_nodes(self, names: set[str]) -> Availability:
        nodes = tuple(
            replace(node, ready=True, schedulable=True) if node.name in names else node
            for node in self.available.fleet.nodes
        )
        return replace(self.available, fleet=replace(self.available.fleet, nodes=nodes))

    def _by_releasing(self, wanted: set[str]) -> Iterator[str]:
        stopped = [path for profile in sorted(wanted) for path in self._holders(profile, running=False)]
        names = sorted(set(stopped))
        for path in names[:FEW]:
            if self._would_fit(self._without({path})):
                yield f"Take the vGPUs out of the stopped VM {path}."
                return
        if len(names) > 1 and self._would_fit(self._without(set(names))):
            yield f"Take the vGPUs out of the stopped VMs {join_names(names)}."

    def _without(self, paths: set[str]) -> Availability:
        return replace(self.available, released=self.available.released | paths)

    def _by_asking_less(self) -> Iterator[str]:
        unmet = [answer for answer in self.answers if not answer.fits]
        left = {answer.demand.name: answer.demand.machines - answer.missing for answer in unmet}
        if all(answer.demand.surge >= answer.missing for answer in unmet):
            yield f"Do without surge in {join_names(left)}."
        if min(left.values()) >= 0 and any(left.values()):
            yield f"Ask for fewer machines: {join_names(f'{count} in {name}' for name, count in left.items())}."


def _first(most: int, holds: Callable[[int], bool]) -> int:
    """The least number for which something holds that holds for all greater ones, and for the greatest."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _standing(
    availability: Availability, demands: Sequence[MachineDemand]
) -> tuple[list[tuple[str, ...]], frozenset[str]]:
    """An owner's VMs: those with the same vGPUs are machines of the demand already, the others make way for it."""
    taken: set[str] = set()
    released: set[str] = set()
    existing: list[tuple[str, ...]] = []
    for demand in demands:
        mine = _owned(availability.holdings, demand, taken)
        taken.update(mine)
        alike = [path for path in mine if dict(availability.holdings[path].vgpus) == dict(demand.vgpus)]
        # Running ones first: they are the ones that would stay.
        alike.sort(key=lambda path: (not availability.holdings[path].holder.running, path))
        kept = alike[: demand.machines + demand.surge]
        existing.append(tuple(sorted(kept)))
        released.update(path for path in mine if path not in kept)
    return existing, frozenset(released)


def _owned(holdings: Mapping[str, VmHolding], demand: MachineDemand, taken: set[str]) -> list[str]:
    return [path for path, holding in holdings.items() if path not in taken and demand.owns(holding.holder)]
