# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counts of the free vGPUs on vSphere, by profile, host and cluster. Pure.

A vGPU exists only while its VM runs. Free vGPUs are therefore free capacity of GPUs, which all profiles share: each
count is valid for its profile alone. `free` is the capacity that remains after all powered-off VMs have started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..availability.counts import Count, VmHolding
from ..errors import join_names
from ..fleet.model import Fleet, Holder, Node, UnboundRequest
from ..fleet.profile import parse_or_none
from .capacity import GpuClasses, HostCapacity
from .read.device_groups import GroupOffer
from .read.fleet import Snapshot, gpu_name, offers, pinned_by_type
from .result.records import spellings

State = dict[str, HostCapacity]


class CapacityCache:
    """Capacities of hosts, shared between what-if variants of one snapshot."""

    def __init__(self) -> None:
        self.classes = GpuClasses()
        # By id of the host record. Keep a reference to the record, so that Python does not reuse the id.
        self._hosts: dict[int, tuple[Node, HostCapacity]] = {}

    def capacity_of(self, snapshot: Snapshot, node: Node) -> HostCapacity:
        if id(node) not in self._hosts:
            host = snapshot.hosts[node.name]
            capacity = HostCapacity(
                node,
                {gpu_name(host.name, gpu.address): offers(host, gpu) for gpu in host.gpus},
                by_type=pinned_by_type(host),
                estimated=[name for name, notes in snapshot.notes_of(host).items() if notes],
                classes=self.classes,
            )
            self._hosts[id(node)] = (node, capacity)
        return self._hosts[id(node)][1].copy()


@dataclass(frozen=True)
class VsphereAvailability:
    """The counts of a snapshot without the VMs `released`, by id."""

    snapshot: Snapshot
    released: frozenset[str] = frozenset()
    # Free vGPUs by host and profile as vCenter 9.0 and later reports them. These numbers take precedence.
    reported: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)
    # Free device groups by host and name, in the same way.
    reported_groups: Mapping[str, Mapping[str, int]] = field(default_factory=dict, hash=False)
    cache: CapacityCache = field(default_factory=CapacityCache, compare=False, repr=False)

    @cached_property
    def fleet(self) -> Fleet:
        return self.snapshot.fleet_without(*self.released)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self.fleet.ordered_nodes if node.gpus)

    @cached_property
    def holdings(self) -> dict[str, VmHolding]:
        """Return all VMs with vGPUs, by path. Powered-off VMs have no host if DRS chooses their host."""
        holders: dict[str, Holder] = {}
        amounts: dict[str, dict[str | None, Counter[str]]] = {}

        def add(holder: Holder, node: str | None, profile: str, count: int) -> None:
            holders.setdefault(holder.path, holder)
            amounts.setdefault(holder.path, {}).setdefault(node, Counter())[profile] += count

        for gpu, slot in self.fleet.slots():
            for holder in slot.holders:
                add(holder, gpu.node, slot.profile or "", 1)
        for claim in self.fleet.ordered_claims:
            add(claim.holder, claim.node, claim.profile, claim.count)
        return {
            path: VmHolding(holders[path], sum(amounts[path].values(), Counter()), amounts[path])
            for path in sorted(holders)
        }

    # Hosts at different times
    @cached_property
    def now(self) -> State:
        """Return the hosts with all running VMs, including those that no GPU lists."""
        return self._state(lambda claim: claim.holder.running)

    @cached_property
    def after_bound_claims(self) -> State:
        """Return the hosts after the start of all powered-off VMs that are bound to a host."""
        return self._state(lambda claim: claim.node is not None)

    @cached_property
    def after_claims(self) -> State:
        """Return the hosts after the start of all powered-off VMs that fit."""
        state = {name: capacity.copy() for name, capacity in self.after_bound_claims.items()}
        clusters: dict[str, list[HostCapacity]] = {}
        for name, capacity in state.items():
            clusters.setdefault(self._cluster_id(name), []).append(capacity)
        # The capacity of hosts only decreases, so a host without room for a VM has no room for the next equal VM.
        refused: dict[tuple[tuple[str, int], ...], set[str]] = {}
        for holder, vgpus in self._vms(claim for claim in self.fleet.ordered_claims if claim.node is None):
            full = refused.setdefault(tuple(sorted(vgpus.items())), set())
            hosts = [host for host in clusters.get(self.snapshot.cluster_of(holder), ()) if host.node.name not in full]
            for host in sorted(hosts, key=lambda host: (-host.used, host.node.name)):
                if host.admit(vgpus, holder):
                    break
                full.add(host.node.name)
        return state

    def _state(self, counts: Callable[[UnboundRequest], bool]) -> State:
        state = {node.name: self.cache.capacity_of(self.snapshot, node) for node in self.nodes}
        hosts = {claim.holder.path: claim.node for claim in self.fleet.ordered_claims}
        for holder, vgpus in self._vms(filter(counts, self.fleet.ordered_claims)):
            host = state.get(hosts[holder.path] or "")
            if host:
                host.admit(vgpus, holder)
        return state

    @staticmethod
    def _vms(claims: Iterable[UnboundRequest]) -> list[tuple[Holder, Mapping[str, int]]]:
        """Return the VMs of the claims with all vGPUs that they claim, largest VM first."""
        by_path: dict[str, tuple[Holder, dict[str, int]]] = {}
        for claim in claims:
            vgpus = by_path.setdefault(claim.holder.path, (claim.holder, {}))[1]
            vgpus[claim.profile] = vgpus.get(claim.profile, 0) + claim.count
        return sorted(by_path.values(), key=lambda entry: (-size_of(entry[1]), entry[0].path))

    # Counts
    @cached_property
    def profiles(self) -> list[str]:
        offered = {name for host in self.now.values() for name in host.profiles()}
        return sorted(offered | {claim.profile for claim in self.fleet.claims}, key=_by_size)

    @cached_property
    def _claims(self) -> Mapping[tuple[str | None, str], Sequence[UnboundRequest]]:
        """Return the claims by host and profile."""
        found: dict[tuple[str | None, str], list[UnboundRequest]] = {}
        for claim in self.fleet.claims:
            found.setdefault((claim.node, claim.profile), []).append(claim)
        return found

    @cached_property
    def _on_gpus(self) -> Counter[tuple[str, str]]:
        """Return the running vGPUs by GPU and profile."""
        return Counter((gpu.name, slot.profile) for gpu, slot in self.fleet.slots() if slot.profile)

    def count(self, node: Node, profile: str) -> Count:
        """Count one profile on one host, without powered-off VMs that may start on any host of their cluster."""
        claims = self._claims.get((node.name, profile), ())
        in_use = sum(self._on_gpus[gpu.name, profile] for gpu in node.gpus)
        in_use += sum(claim.count for claim in claims if claim.holder.running)
        free_now = self.now[node.name].count(profile)
        free = self.after_bound_claims[node.name].count(profile)
        correction = self._correction(node.name, profile)
        free_now, free = free_now + correction, max(0, free + correction)
        return Count(
            allocatable=in_use + free_now,
            configured=in_use,
            in_use=in_use,
            claimed=sum(claim.count for claim in claims if not claim.holder.running),
            free_now=free_now,
            free=free,
        )

    def _correction(self, host: str, profile: str) -> int:
        """Return how many more vGPUs vCenter reports as free than the count of this snapshot."""
        told = self.reported.get(host, {}).get(profile)
        return 0 if told is None or self.released else told - self.now[host].count(profile)

    def limit(self, host: str, profile: str) -> int | None:
        """Return how many vGPUs are free after all powered-off VMs have started, if vCenter reports a capacity."""
        if self.released or profile not in self.reported.get(host, {}):
            return None
        return max(0, self.after_claims[host].count(profile) + self._correction(host, profile))

    def differences(self) -> list[str]:
        """Describe for each host the profiles of which vCenter reports another number than the count explains."""
        texts = []
        for node in self.nodes:
            parts = [
                f"{profile} {told} instead of {own}"
                for profile, told in sorted(self.reported.get(node.name, {}).items())
                if not (own := self.now[node.name].count(profile)) <= told <= self.now[node.name].at_most(profile)
            ]
            if parts:
                texts.append(
                    f"vCenter reports other free vGPUs on host {node.name} than its VMs and GPUs explain:"
                    f" {join_names(parts, limit=4)}. The numbers of vCenter are used."
                )
        return texts

    def total(self, nodes: Collection[Node], profile: str) -> Count:
        """Count one profile on several hosts, with powered-off VMs that may start on any of these hosts."""
        clusters = {self._cluster_id(node.name) for node in nodes}
        summed = Count()
        for node in nodes:
            if node.usable:
                summed = summed + self.count(node, profile)
        unbound = sum(
            claim.count
            for claim in self._claims.get((None, profile), ())
            if self.snapshot.cluster_of(claim.holder) in clusters
        )
        free = sum(
            max(0, self.after_claims[node.name].count(profile) + self._correction(node.name, profile))
            for node in nodes
            if node.usable
        )
        return replace(summed, claimed=summed.claimed + unbound, free=free)

    # Results
    def profile_records(self) -> list[dict[str, Any]]:
        return [self._profile_record(profile) for profile in self.profiles]

    def _profile_record(self, profile: str) -> dict[str, Any]:
        by_cluster: dict[str, list[Node]] = {}
        for node in self.nodes:
            by_cluster.setdefault(self._cluster_id(node.name), []).append(node)
        nodes = [self._node_record(node, profile) for node in self.nodes]
        exact = {record["node"]: record["exact"] for record in nodes}
        return {
            "profile": profile,
            "spellings": spellings(profile),
            **self.total(self.nodes, profile).as_dict(),
            "free_now_at_most": self._at_most(self.nodes, profile),
            "exact": all(exact.values()),
            "clusters": sorted(
                (self._cluster_record(members, profile, exact) for members in by_cluster.values()),
                key=lambda record: (record["cluster"], record["datacenter"]),
            ),
            "nodes": [record for record in nodes if record["gpus"] or record["claimed"]],
        }

    def _cluster_record(self, nodes: Sequence[Node], profile: str, exact: Mapping[str, bool]) -> dict[str, Any]:
        host = self.snapshot.hosts[nodes[0].name]
        return {
            "cluster": host.cluster,
            "datacenter": host.datacenter,
            **self.total(nodes, profile).as_dict(),
            "free_now_at_most": self._at_most(nodes, profile),
            "exact": all(exact[node.name] for node in nodes),
        }

    def _at_most(self, nodes: Iterable[Node], profile: str) -> int:
        return sum(
            self.now[node.name].count(profile) + self._correction(node.name, profile)
            if profile in self.reported.get(node.name, {})
            else self.now[node.name].at_most(profile)
            for node in nodes
            if node.usable
        )

    def _cluster_id(self, host: str) -> str:
        return self.snapshot.hosts[host].cluster_id

    def _node_record(self, node: Node, profile: str) -> dict[str, Any]:
        rooms = self.now[node.name].rooms(profile)
        later = self.after_bound_claims[node.name].counts(profile)
        return {
            "node": node.name,
            "usable": node.usable,
            **self.count(node, profile).as_dict(),
            "free_now_at_most": self._at_most([node], profile),
            "exact": all(room.exact for room in rooms) or profile in self.reported.get(node.name, {}),
            "gpus": [
                {
                    "gpu": room.gpu,
                    "in_use": self._on_gpus[room.gpu, profile],
                    "free_now": room.count,
                    "free_now_at_most": room.at_most,
                    "free": later[room.gpu],
                    "exact": room.exact,
                    "reason": room.reason,
                }
                for room in rooms
            ],
        }

    def group_records(self) -> list[dict[str, Any]]:
        """Count the vendor device groups by name and host."""
        offers = {node.name: self.snapshot.hosts[node.name].device_groups for node in self.nodes}
        records = []
        for name in sorted({group.name for groups in offers.values() for group in groups}):
            nodes = [
                self._group_record(node, group)
                for node in self.nodes
                for group in offers[node.name]
                if group.name == name and node.usable
            ]
            claimed = sum(
                vm.device_groups.count(name)
                for vm in self.snapshot.inventory.vms
                if not vm.running and not vm.template and vm.moid not in self.released
            )
            records.append(
                {
                    "name": name,
                    "in_use": sum(record["in_use"] for record in nodes),
                    "claimed": claimed,
                    **{key: _sum(record[key] for record in nodes) for key in ("free_now", "free_now_at_most")},
                    "nodes": nodes,
                }
            )
        return records

    def _group_record(self, node: Node, group: GroupOffer) -> dict[str, Any]:
        moid = self.snapshot.hosts[node.name].moid
        running = [vm for vm in self.snapshot.inventory.vms if vm.host == moid and vm.running]
        told = self.reported_groups.get(node.name, {}).get(group.name)
        return {
            "node": node.name,
            "in_use": sum(vm.device_groups.count(group.name) for vm in running if vm.moid not in self.released),
            "free_now": told,
            "free_now_at_most": self._most_groups(node, group) if told is None else told,
        }

    def _most_groups(self, node: Node, group: GroupOffer) -> int | None:
        """Return how often the vGPUs of a group fit on a host, regardless of how its GPUs are connected."""
        if not group.vgpus:
            return None
        host, count = self.now[node.name].copy(), 0
        while host.admit(Counter(group.vgpus), Holder("group", running=True)):
            count += 1
        return count

    def device_records(self) -> list[dict[str, Any]]:
        return [
            {
                "name": slot.name,
                "node": gpu.node,
                "profile": slot.profile,
                "state": slot.state,
                "holders": sorted(holder.path for holder in slot.holders),
                "label": f"{slot.profile} (GPU {gpu.address} of {gpu.node}, {join_names(map(str, slot.holders))})",
            }
            for gpu, slot in self.fleet.slots()
            if slot.profile
        ]

    def node_records(self) -> list[dict[str, Any]]:
        return [
            {"name": node.name, "usable": node.usable and bool(node.gpus), "reason": unusable_because(node)}
            for node in self.fleet.ordered_nodes
        ]


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum, or None if a number is unknown."""
    known = list(numbers)
    return None if None in known else sum(number or 0 for number in known)


def unusable_because(node: Node) -> str:
    """Return the reason why no VM with vGPUs can start on a host, or an empty string."""
    if not node.ready:
        return "not connected"
    if not node.schedulable:
        return "in maintenance mode"
    return "" if node.gpus else "has no NVIDIA GPU"


def size_of(vgpus: Mapping[str, int]) -> int:
    """Return the total framebuffer of the vGPUs in MiB."""
    parsed = ((parse_or_none(profile), count) for profile, count in vgpus.items())
    return sum(profile.mib * count for profile, count in parsed if profile)


def _by_size(profile: str) -> tuple[str, int, str]:
    parsed = parse_or_none(profile)
    return (parsed.key[0], parsed.mib, profile) if parsed else ("", 0, profile)
