# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counts of vGPUs by profile and node: allocatable, in use, free and creatable. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ..errors import NothingSelected, join_names
from ..fleet import catalog
from ..fleet.model import MIG, Fleet, Holder, Node
from ..fleet.profile import RESOURCE_PREFIX, parse_or_none
from ..planning.capacity import AllowedChanges, classify_slots, max_additional


@dataclass(frozen=True)
class VmHolding:
    """The vGPUs that a VM has or will take, by profile. `node` is None for vGPUs that are not bound to a node."""

    holder: Holder
    vgpus: Mapping[str, int] = field(hash=False)
    by_node: Mapping[str | None, Mapping[str, int]] = field(hash=False)


@dataclass(frozen=True)
class Count:
    """The counts of one profile on one node, or on all nodes together.

    `free_now` counts vGPUs that no running VM has. `free` counts vGPUs that remain when every stopped VM has its own
    too.
    """

    allocatable: int = 0
    configured: int = 0
    in_use: int = 0
    claimed: int = 0
    free_now: int = 0
    free: int = 0
    creatable: int = 0
    drift: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(*(mine + its for mine, its in zip(self._values(), other._values(), strict=True)))

    def _values(self) -> tuple[int, ...]:
        return (
            self.allocatable,
            self.configured,
            self.in_use,
            self.claimed,
            self.free_now,
            self.free,
            self.creatable,
            self.drift,
        )

    def as_dict(self) -> dict[str, int]:
        return {
            "allocatable": self.allocatable,
            "configured": self.configured,
            "in_use": self.in_use,
            "claimed": self.claimed,
            "free_now": self.free_now,
            "free": self.free,
            "creatable": self.creatable,
            "drift": self.drift,
        }


@dataclass(frozen=True)
class Availability:
    """The counts of a fleet, or of some of its nodes.

    vGPUs that VMs hold on a node are subtracted from this node. VMs that are not bound to a node, because they wait for
    one, or are stopped and name no device, are `floating`: they count for the profile as a whole and are placed with
    the demand.
    """

    fleet: Fleet
    selected: frozenset[str]
    # VMs, by path, to be treated as removed: their vGPUs are free.
    released: frozenset[str] = frozenset()
    # Whether to count capacity on GPUs that need SR-IOV enabled first.
    sriov: bool = False

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self.fleet.ordered_nodes if node.name in self.selected)

    @cached_property
    def holdings(self) -> dict[str, VmHolding]:
        """Return all VMs with vGPUs, on any node, by path."""
        holders: dict[str, Holder] = {}
        amounts: dict[str, dict[str | None, Counter[str]]] = {}

        def add(holder: Holder, node: str | None, profile: str, count: int) -> None:
            holders.setdefault(holder.path, holder)
            amounts.setdefault(holder.path, {}).setdefault(node, Counter())[profile] += count

        for gpu, slot in self.fleet.slots():
            for holder in slot.holders:
                if slot.profile:
                    add(holder, gpu.node, slot.profile, 1)
        for claim in self.fleet.counted_claims:
            add(claim.holder, claim.node, claim.profile, claim.count)
        return {
            path: VmHolding(holders[path], sum(amounts[path].values(), Counter()), amounts[path])
            for path in sorted(holders)
        }

    def pending(self, path: str, profile: str) -> int:
        """Return how many more vGPUs a running VM gets at its next restart."""
        return self._pending[path, profile]

    @cached_property
    def _pending(self) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for claim in self.fleet.claims:
            if claim.pending:
                found[claim.holder.path, claim.profile] += claim.count
        return found

    def waiting_for_restart(self, profile: str) -> list[str]:
        """Return the running VMs that get vGPUs of the profile at their next restart."""
        return sorted(
            {
                claim.holder.path
                for claim in self.fleet.claims
                if claim.profile == profile
                and claim.holder.running
                and claim.pending
                and claim.holder.path not in self.released
                and (claim.node is None or claim.node in self.selected)
            }
        )

    @cached_property
    def floating(self) -> dict[str, Mapping[str, int]]:
        """Return, by VM, the vGPUs that are not bound to a node yet."""
        return {
            path: holding.by_node[None]
            for path, holding in self.holdings.items()
            if None in holding.by_node and path not in self.released
        }

    @cached_property
    def by_node(self) -> dict[str, dict[str, Count]]:
        """Return the counts by node and profile. A node that is not usable has no free vGPUs."""
        return {node.name: self._count_node(node) for node in self.nodes}

    @cached_property
    def totals(self) -> dict[str, Count]:
        """Return the counts by profile, for usable nodes only."""
        found: dict[str, Count] = {}
        for node in self.nodes:
            if node.usable:
                for profile, count in self.by_node[node.name].items():
                    found[profile] = found.get(profile, Count()) + count
            else:
                for profile in self.by_node[node.name]:
                    found.setdefault(profile, Count())
        for amounts in self.floating.values():
            for profile, amount in amounts.items():
                count = found.get(profile, Count())
                rest = max(count.free - amount, 0)
                found[profile] = count + Count(claimed=amount, free=rest - count.free)
        return dict(sorted(found.items()))

    @cached_property
    def free(self) -> dict[str, dict[str, int]]:
        """Return the free vGPUs for placing machines. Floating VMs are still to be placed."""
        return {
            node: {profile: count.free for profile, count in counts.items() if count.free}
            for node, counts in self.by_node.items()
        }

    @cached_property
    def creatable(self) -> dict[str, dict[str, int]]:
        """Return how many more vGPUs of each profile fit on a node. Each number stands alone; they do not add up."""
        return {
            node: {profile: count.creatable for profile, count in counts.items() if count.creatable}
            for node, counts in self.by_node.items()
        }

    def _count_node(self, node: Node) -> dict[str, Count]:
        configured: Counter[str] = Counter()
        in_use: Counter[str] = Counter()
        claimed: Counter[str] = Counter()
        for gpu in node.gpus:
            for slot in gpu.slots:
                if not slot.profile:
                    continue
                configured[slot.profile] += 1
                holders = [holder for holder in slot.holders if holder.path not in self.released]
                if any(holder.running for holder in holders):
                    in_use[slot.profile] += 1
                elif holders:
                    claimed[slot.profile] += 1
        for claim in self.fleet.counted_claims:
            if claim.node == node.name and claim.holder.path not in self.released:
                (in_use if claim.in_use else claimed)[claim.profile] += claim.count
        advertised = configured if node.advertised is None else _vgpus_only(node.advertised)
        creatable = _creatable(node, sriov=self.sriov)
        profiles = {name for name in advertised if advertised[name] or configured[name]}
        profiles |= {*configured, *in_use, *claimed, *creatable}
        counts = {}
        for profile in sorted(profiles):
            allocatable = advertised.get(profile, 0)
            # A vGPU serves a VM only if it exists, the node advertises it and KubeVirt permits it.
            serves = node.usable and self.fleet.permits(profile)
            usable = min(allocatable, configured[profile]) if serves else 0
            free_now = max(usable - in_use[profile], 0)
            counts[profile] = Count(
                allocatable=allocatable,
                configured=configured[profile],
                in_use=in_use[profile],
                claimed=claimed[profile],
                free_now=free_now,
                free=max(free_now - claimed[profile], 0),
                creatable=creatable.get(profile, 0),
                drift=configured[profile] - allocatable,
            )
        return counts

    # Results
    def profile_records(self, spelt: Callable[[str], Mapping[str, str]]) -> list[dict[str, Any]]:
        return [
            {
                "profile": profile,
                "spellings": dict(spelt(profile)),
                "permitted": None if self.fleet.not_permitted is None else self.fleet.permits(profile),
                **total.as_dict(),
                "nodes": [
                    {"node": node.name, "usable": node.usable, **self.by_node[node.name][profile].as_dict()}
                    for node in self.nodes
                    if profile in self.by_node[node.name]
                ],
            }
            for profile, total in self.totals.items()
        ]

    def node_records(self) -> list[dict[str, Any]]:
        return [{"name": node.name, "usable": node.usable, "reason": unusable_because(node)} for node in self.nodes]

    def device_records(self, spelt: Callable[[str], Mapping[str, str]]) -> list[dict[str, Any]]:
        """Return every vGPU, with the labels intended for Rancher's machine pool page."""
        records = []
        for node in self.nodes:
            for gpu in node.ordered_gpus:
                for slot in gpu.ordered_slots:
                    if not slot.profile:
                        continue
                    resource = spelt(slot.profile)["resource"].removeprefix(RESOURCE_PREFIX)
                    allocatable = self.totals[slot.profile].allocatable
                    records.append(
                        {
                            "name": slot.name,
                            "node": node.name,
                            "profile": slot.profile,
                            "state": slot.state,
                            "holders": sorted(holder.path for holder in slot.holders),
                            "label": f"{resource} (profile: {slot.name} - allocatable: {allocatable})",
                        }
                    )
        return records

    def drifts(self) -> list[str]:
        """Return messages about vGPUs that are configured but not advertised, or advertised but not configured."""
        found = []
        for node in self.nodes:
            for profile, count in self.by_node[node.name].items():
                if count.drift:
                    found.append(
                        f"Node {node.name} advertises {count.allocatable} x {profile} and has {count.configured}"
                        " configured."
                    )
        return found


def _vgpus_only(advertised: Mapping[str, int]) -> Counter[str]:
    """Return the counts without GPUs in passthrough, whose resources are not profiles."""
    return Counter(
        {
            name: count
            for name, count in advertised.items()
            if not name.startswith(RESOURCE_PREFIX) or parse_or_none(name)
        }
    )


def _creatable(node: Node, *, sriov: bool) -> dict[str, int]:
    """Return the creatable vGPUs by profile, on empty slots and within the driver's limits for each GPU."""
    found: Counter[str] = Counter()
    if not node.usable:
        return found
    for gpu in node.gpus:
        site = classify_slots(gpu, node)
        names = {name for slot in site.empty for name in slot.offered or ()}
        # In MIG mode the driver lists only the types of existing instances, although more instances may be possible.
        if (sriov and not gpu.sharing) or gpu.mode == MIG or any(slot.offered is None for slot in site.empty):
            names |= _types_of_boards(gpu.boards)
        for name in names:
            parsed = parse_or_none(name)
            if parsed is None:
                continue
            found[name] += max_additional(site, parsed.key, name, AllowedChanges(sriov=sriov, mig=True))
    return {name: count for name, count in found.items() if count}


def _types_of_boards(boards: Collection[str]) -> set[str]:
    return {name for board in boards for name in catalog.type_names(board)}


def unusable_because(node: Node) -> str:
    if node.reserved_for_containers:
        return "reserved for containers"
    if not node.ready:
        return "not ready"
    return "" if node.schedulable else "cordoned"


def select_nodes(fleet: Fleet, patterns: Iterable[str] | None) -> frozenset[str]:
    """Return the nodes that match names or shell patterns. None selects all nodes, an empty list none."""
    names = [node.name for node in fleet.ordered_nodes]
    if patterns is None:
        return frozenset(names)
    found: set[str] = set()
    for pattern in patterns:
        matching = {name for name in names if fnmatchcase(name, pattern)}
        if not matching:
            raise NothingSelected(f"No node matches {pattern!r}.", hint=f"There are: {join_names(names, limit=20)}.")
        found |= matching
    return frozenset(found)
