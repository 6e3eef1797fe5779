# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The free capacity of a Harvester cluster, for FitCheck. Pure.

vGPUs exist before a VM takes them, so machines are packed onto counts of vGPUs by node and profile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..availability.counts import Availability, VmHolding, unusable_because
from ..availability.fit import MAX_TRIED, Capacity
from ..availability.packing import MachineGroup, Packing, place
from ..errors import join_names
from .paths import restart_command
from .read.permitted_devices import REPAIR_HINT

# VMs that exist are placed before the machines of demands.
EXISTING, DEMANDED = 0, 1


@dataclass(frozen=True)
class NodeCapacity:
    """The counts of a cluster, with vGPUs `created` in addition, by node and profile."""

    counts: Availability
    created: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)
    place = "node"

    @property
    def holdings(self) -> Mapping[str, VmHolding]:
        return self.counts.holdings

    def without(self, vms: Collection[str]) -> NodeCapacity:
        return replace(self, counts=replace(self.counts, released=self.counts.released.union(vms)))

    def pack(self, groups: Sequence[MachineGroup]) -> Packing:
        """Place the VMs that are bound to no node first, then the machines."""
        unbound = [MachineGroup(vgpus, 1, EXISTING) for _path, vgpus in sorted(self.counts.floating.items())]
        packing = place(self._free, [*unbound, *(replace(group, rank=DEMANDED) for group in groups)])
        skip = len(unbound)
        return Packing(packing.nodes[skip:], packing.missing[skip:], packing.exhaustive)

    @cached_property
    def _free(self) -> Mapping[str, Mapping[str, int]]:
        if not self.created:
            return self.counts.free
        free = {node: dict(amounts) for node, amounts in self.counts.free.items()}
        for node, amounts in self.created.items():
            for profile, count in amounts.items():
                free[node][profile] = free[node].get(profile, 0) + count
        return free

    # Reasons
    def describe(self, profile: str) -> str:
        counts = self.counts
        total = counts.totals.get(profile)
        if total is None or not (total.allocatable or total.creatable):
            away = [node.name for node in counts.nodes if not node.usable and node.advertised]
            offering = [name for name in away if counts.by_node[name].get(profile)]
            because = f" but {join_names(offering)}, which is out of service" if offering else ""
            reserved = [node.name for node in counts.nodes if node.reserved_for_containers]
            others = f" The GPUs of {join_names(reserved)} are reserved for containers." if reserved else ""
            hidden = self._hidden((profile,))
            if hidden:
                return f"No node advertises {profile}: {'; '.join(hidden.values())}.{others}"
            return f"No node offers {profile}{because}.{others}"
        if not counts.fleet.permits(profile):
            return (
                f"KubeVirt does not permit {profile}: its list of permitted devices lacks it, so no VM can start with"
                f" it. {REPAIR_HINT}"
            )
        free = {node: amounts[profile] for node, amounts in counts.free.items() if amounts.get(profile)}
        parts = [f"Free {profile}: " + (", ".join(f"{node} {count}" for node, count in sorted(free.items())) or "none")]
        parts += self._hidden((profile,)).values()
        if total.in_use:
            parts.append(f"{total.in_use} in use by {join_names(self._holders(profile, running=True), limit=4)}")
        if total.claimed:
            parts.append(f"{total.claimed} claimed by {' and '.join(self._claimants(profile))}")
        parts += [
            f"{node.name} ({unusable_because(node)}) does not count"
            for node in counts.nodes
            if not node.usable and counts.by_node[node.name].get(profile)
        ]
        return "; ".join(parts) + "."

    def _hidden(self, profiles: Collection[str]) -> dict[str, str]:
        """Return the nodes that do not advertise all vGPUs that are configured there, with the counts."""
        found = {}
        for node in self.counts.nodes:
            counts = self.counts.by_node[node.name]
            short = [(name, counts[name]) for name in sorted(profiles) if name in counts and counts[name].drift > 0]
            if node.usable and short:
                said = ", ".join(f"{count.allocatable} of {count.configured} {name}" for name, count in short)
                found[node.name] = f"{node.name} advertises {said}"
        return found

    def _holders(self, profile: str, *, running: bool) -> list[str]:
        counts = self.counts
        return [
            path
            for path, holding in counts.holdings.items()
            if path not in counts.released
            and holding.holder.running == running
            and holding.vgpus.get(profile, 0) > counts.pending(path, profile)
            and any(node in counts.selected or node is None for node in holding.by_node)
        ]

    def _claimants(self, profile: str) -> Iterator[str]:
        stopped = self._holders(profile, running=False)
        if stopped:
            yield f"stopped {join_names(stopped, limit=4)}"
        waiting = self.counts.waiting_for_restart(profile)
        if waiting:
            yield f"{join_names(waiting, limit=4)} after a restart"

    # Suggestions
    def detachable(self, profiles: Collection[str]) -> Sequence[Sequence[str]]:
        stopped = {path for profile in profiles for path in self._holders(profile, running=False)}
        groups: dict[object, list[str]] = {}
        for path in sorted(stopped):
            by_node = self.holdings[path].by_node
            alike = frozenset((node, frozenset(vgpus.items())) for node, vgpus in by_node.items())
            groups.setdefault(alike, []).append(path)
        return list(groups.values())

    def changes(
        self, profiles: Collection[str], would_fit: Callable[[Capacity], bool], not_tried: list[str]
    ) -> Iterator[str]:
        # vGPUs that exist and are only not advertised come back, and count before others are created.
        hidden = list(self._hidden(profiles))
        base = self._with_all_advertised(hidden) if hidden else self
        if hidden and would_fit(base):
            milder = True
            yield f"{_advertise(hidden)}."
        else:
            # Nothing is left out: what is too much to try one by one is tried together.
            created = base._with_all_creatable(profiles)
            milder = bool(created.created) and would_fit(created)
            if milder:
                fewest = base._fewest(created, would_fit)
                yield f"{_advertise(hidden)}, and create {fewest}." if hidden else f"Create {fewest}."
        yield from self._suggest_nodes(would_fit)
        if not milder and not self.counts.sriov:
            switched = NodeCapacity(replace(self.counts, sriov=True))
            created = switched._with_all_creatable(profiles)
            if created.created and would_fit(created):
                yield f"Enable SR-IOV where it is off and create {switched._fewest(created, would_fit)}."

    def _with_all_advertised(self, names: Collection[str]) -> NodeCapacity:
        nodes = tuple(
            replace(node, advertised=None) if node.name in names else node for node in self.counts.fleet.nodes
        )
        return replace(self, counts=replace(self.counts, fleet=replace(self.counts.fleet, nodes=nodes)))

    def _with_all_creatable(self, profiles: Collection[str]) -> NodeCapacity:
        """Create as many vGPUs as possible. Profiles share the room of a node, so only one of them gets it."""
        created: dict[str, dict[str, int]] = {}
        for node, amounts in self.counts.creatable.items():
            fitting = {profile: count for profile, count in amounts.items() if profile in profiles}
            if fitting:
                most = max(sorted(fitting), key=lambda profile: fitting[profile])
                created[node] = {most: fitting[most]}
        return replace(self, created=created)

    def _fewest(self, enough: NodeCapacity, would_fit: Callable[[Capacity], bool]) -> str:
        """Describe the fewest new vGPUs that suffice. On a large fleet, consider only the nodes with the most room."""
        room = {node: dict(amounts) for node, amounts in enough.created.items()}
        nodes = sorted(room, key=lambda node: (-sum(room[node].values()), node))
        number = len(nodes)
        if number > MAX_TRIED:
            number = _minimum(
                number, lambda count: would_fit(replace(self, created={node: room[node] for node in nodes[:count]}))
            )
        needed = {node: room[node] for node in nodes[:number]}
        for node in sorted(needed) if number <= MAX_TRIED else nodes[number - 1 : number]:
            for profile in sorted(needed[node]):

                def fits(count: int, node: str = node, profile: str = profile) -> bool:
                    created = {**needed, node: {**needed[node], profile: count}}
                    return would_fit(replace(self, created=created))

                needed[node][profile] = _minimum(needed[node][profile], fits)
        parts = [
            f"{count} more {profile} on {node}"
            for node, amounts in sorted(needed.items())
            for profile, count in sorted(amounts.items())
            if count
        ]
        rest = f", and so on on {len(parts) - MAX_TRIED} more nodes" if len(parts) > MAX_TRIED else ""
        return ", ".join(parts[:MAX_TRIED]) + rest

    def _suggest_nodes(self, would_fit: Callable[[Capacity], bool]) -> Iterator[str]:
        away = [node for node in self.counts.nodes if not (node.ready and node.schedulable)]
        verbs = {"cordoned": "Uncordon node", "not ready": "Bring back node"}
        enough = [node for node in away[:MAX_TRIED] if would_fit(self._with_nodes({node.name}))]
        for node in enough:
            yield f"{verbs['cordoned' if node.ready else 'not ready']} {node.name}."
        if len(away) > 1 and not enough and would_fit(self._with_nodes({node.name for node in away})):
            yield f"Bring back the nodes {join_names(node.name for node in away)}."

    def _with_nodes(self, names: Collection[str]) -> NodeCapacity:
        nodes = tuple(
            replace(node, ready=True, schedulable=True) if node.name in names else node
            for node in self.counts.fleet.nodes
        )
        return replace(self, counts=replace(self.counts, fleet=replace(self.counts.fleet, nodes=nodes)))


def _advertise(nodes: Sequence[str]) -> str:
    """Return the advice for nodes that do not advertise all their vGPUs."""
    commands = " and ".join(restart_command(node) for node in nodes[:MAX_TRIED])
    return (
        f"Make {join_names(nodes)} advertise all vGPUs that are configured there: check the kubelet and the pcidevices"
        f" controller, or restart the controller ({commands})"
    )


def _minimum(most: int, holds: Callable[[int], bool]) -> int:
    """Return the smallest number for which `holds` is true. It is true for `most` and for all numbers from there on."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return high
