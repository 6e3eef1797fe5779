# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Free capacity of ESXi hosts, for FitCheck. Pure.

Machines are placed on hosts one by one, after all powered-off VMs, as vSphere would start them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..availability.counts import VmHolding
from ..availability.fit import MAX_TRIED, Capacity
from ..availability.packing import MachineGroup, Packing
from ..errors import join_names
from ..fleet.model import Holder
from .capacity import HostCapacity
from .counts import VsphereAvailability, size_of
from .host.plan import HostGraphicsRequest, plan
from .read import inventory as facts
from .read.fleet import Snapshot
from .read.inventory import HostFacts

MACHINE = Holder("machine", running=True)


@dataclass(frozen=True)
class HostsCapacity:
    counts: VsphereAvailability
    place = "host"

    @property
    def holdings(self) -> Mapping[str, VmHolding]:
        return self.counts.holdings

    def without(self, vms: Collection[str]) -> HostsCapacity:
        ids = {self.holdings[path].holder.labels["moid"] for path in vms}
        return HostsCapacity(replace(self.counts, released=self.counts.released.union(ids)))

    def pack(self, groups: Sequence[MachineGroup]) -> Packing:
        """Try the given order and largest machines first, each on fullest hosts first and by name. Return the best."""
        given = list(range(len(groups)))
        by_size = sorted(given, key=lambda index: -size_of(groups[index].vgpus))
        best = self._pack_in_order(groups, given, full_first=True)
        for order, full_first in ((given, False), (by_size, True), (by_size, False)):
            if best.fits:
                break
            other = self._pack_in_order(groups, order, full_first=full_first)
            best = min(best, other, key=lambda packing: sum(packing.missing))
        return best

    def _pack_in_order(self, groups: Sequence[MachineGroup], order: Sequence[int], *, full_first: bool) -> Packing:
        state = {name: host.copy() for name, host in self.counts.after_claims.items() if host.node.usable}
        placed: list[Counter[str]] = [Counter() for _group in groups]
        used: dict[str, Counter[str]] = {name: Counter() for name in state}
        for index in order:
            # The capacity of hosts only decreases, so a host without room for a machine has no room for the next one.
            left = sorted(state, key=lambda name: (-state[name].used if full_first else 0, name))
            for _machine in range(groups[index].count):
                while left and not self._admits(state[left[0]], groups[index].vgpus, used[left[0]]):
                    left.pop(0)
                if not left:
                    break
                placed[index][left[0]] += 1
                used[left[0]].update(groups[index].vgpus)
        missing = tuple(group.count - hosts.total() for group, hosts in zip(groups, placed, strict=True))
        # With a single group, the order of the machines does not matter.
        return Packing(tuple(map(dict, placed)), missing, exhaustive=not any(missing) or len(groups) == 1)

    def _admits(self, host: HostCapacity, vgpus: Mapping[str, int], used: Mapping[str, int]) -> bool:
        """Start a machine on a host. The capacity that vCenter reports takes precedence over the own count."""
        limits = {profile: self.counts.limit(host.node.name, profile) for profile in vgpus}
        within = [limit is None or used.get(profile, 0) + vgpus[profile] <= limit for profile, limit in limits.items()]
        if not all(within):
            return False
        if host.admit(vgpus, MACHINE):
            return True
        # The reported numbers hold for one profile at a time.
        return None not in limits.values() and len(vgpus) == 1 and set(used) <= set(vgpus)

    # Reasons
    def describe(self, profile: str) -> str:
        counts = self.counts
        offering = [node for node in counts.nodes if counts.now[node.name].counts(profile)]
        if not offering:
            return f"No host offers {profile}."
        total = counts.total(counts.nodes, profile)
        free = {node.name: counts.after_claims[node.name].count(profile) for node in offering}
        shown = ", ".join(f"{name} {count}" for name, count in sorted(free.items()) if count) or "none"
        parts = [f"Free {profile}: {shown}"]
        if total.in_use:
            parts.append(f"{total.in_use} in use by {join_names(self._holders(profile, running=True), limit=4)}")
        if total.claimed:
            stopped = join_names(self._holders(profile, running=False), limit=4)
            parts.append(f"{total.claimed} claimed by stopped {stopped}")
        refusals = {
            f"{node.name} GPU {room.address}: {room.reason}"
            for node in offering
            for room in counts.after_claims[node.name].rooms(profile)
            if room.reason
        }
        if refusals:
            parts.append(join_names(refusals, limit=6))
        return "; ".join(parts) + "."

    def _holders(self, profile: str, *, running: bool) -> list[str]:
        return [
            path
            for path, holding in self.holdings.items()
            if holding.holder.running == running and holding.vgpus.get(profile)
        ]

    # Suggestions
    def detachable(self, profiles: Collection[str]) -> Sequence[Sequence[str]]:
        """Return all stopped VMs, in groups of equal VMs. VMs with other profiles use the same GPUs."""
        groups: dict[object, list[str]] = {}
        for path, holding in self.holdings.items():
            if not holding.holder.running:
                cluster = self.counts.snapshot.cluster_of(holding.holder)
                alike = (cluster, frozenset(holding.by_node), frozenset(holding.vgpus.items()))
                groups.setdefault(alike, []).append(path)
        return list(groups.values())

    def changes(
        self, profiles: Collection[str], would_fit: Callable[[Capacity], bool], not_tried: list[str]
    ) -> Iterator[str]:
        every = [
            (verb, host, changed)
            for host in self.counts.snapshot.inventory.gpu_hosts
            for verb, changed in _improvements(host)
        ]
        for verb, host, changed in every[:MAX_TRIED]:
            if would_fit(self._with_hosts([changed])):
                yield f"{verb} host {host.name}."
        left = {host.name: _improved(host) for _verb, host, _changed in every[MAX_TRIED:]}
        # If all of them together are not enough, none of them is.
        if left and would_fit(self._with_hosts(left.values())):
            not_tried.append(f"changes to the hosts {join_names(left)}, which together make it fit")

    def _with_hosts(self, changed: Iterable[HostFacts]) -> HostsCapacity:
        snapshot = self.counts.snapshot
        for host in changed:
            snapshot = snapshot.with_host(host)
        return HostsCapacity(replace(self.counts, snapshot=snapshot))


def _improvements(host: HostFacts) -> Iterator[tuple[str, HostFacts]]:
    """Yield possible changes to a host, each with the resulting host."""
    if not host.connected:
        yield "Reconnect", replace(host, connected=True, maintenance=False)
    elif host.maintenance:
        yield "End the maintenance of", replace(host, maintenance=False)
    if host.connected and any(gpu.graphics_type == facts.SHARED for gpu in host.gpus):
        request = HostGraphicsRequest(graphics_type=facts.SHARED_DIRECT)
        change = plan(Snapshot(facts.Inventory((host,))), request, force=True)
        yield "Make the GPUs shared direct (vgpu.fleet.vsphere_gpu_host) of", change.changes[0].after


def _improved(host: HostFacts) -> HostFacts:
    """Return the host after all possible changes: connected and not in maintenance, then shared direct."""
    for _change in range(2):
        host = next((changed for _verb, changed in _improvements(host)), host)
    return host
