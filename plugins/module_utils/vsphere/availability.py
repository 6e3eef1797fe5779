# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vGPUs are free on vSphere, and whether machines fit in: the same answers as on the other platform. Pure.

A vGPU comes into being when its VM starts, so what is free is room on GPUs, which profiles share. It is counted for
each profile alone. VMs that are off will want theirs back: `free` is what is left when they have got them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import Count
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.fit import (
    DemandDoesNotFit,
    DemandResult,
    MachineDemand,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import join_names
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Holder, Node, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse_or_none
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.capacity import HostCapacity, HostGpuCapacity
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read import inventory as facts
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.fleet import (
    Snapshot,
    gpu_name,
    offers,
    pinned_by_type,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.inventory import HostFacts
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.result.records import spellings

State = dict[str, HostCapacity]


@dataclass(frozen=True)
class VsphereAvailability:
    """The counts of a snapshot. `released` are VMs, by id, that are as good as gone."""

    snapshot: Snapshot
    released: frozenset[str] = frozenset()

    @cached_property
    def fleet(self) -> Fleet:
        return self.snapshot.fleet_without(*self.released)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(node for node in self.fleet.ordered_nodes if node.gpus)

    # The hosts as they are, and as they will be
    @cached_property
    def now(self) -> State:
        """With everything that runs, also what no GPU lists."""
        return self._state(lambda claim: claim.holder.running)

    @cached_property
    def after_bound_claims(self) -> State:
        """When VMs that are off and belong to one host have started there too."""
        return self._state(lambda claim: claim.node is not None)

    @cached_property
    def after_claims(self) -> State:
        """When all VMs that are off have started, as far as they can."""
        state = {name: room.copy() for name, room in self.after_bound_claims.items()}
        for holder, vgpus in self._vms(lambda claim: claim.node is None):
            cluster = self.snapshot.cluster_of(holder)
            hosts = [room for name, room in state.items() if self._cluster_id(name) == cluster]
            for room in sorted(hosts, key=lambda one: (-one.used, one.node.name)):
                if room.admit(vgpus, holder):
                    break
        return state

    def _state(self, counts: Callable[[UnboundRequest], bool]) -> State:
        state = {node.name: self._room(node) for node in self.nodes}
        for claim_holder, vgpus in self._vms(counts):
            node = next(claim.node for claim in self.fleet.claims if claim.holder == claim_holder)
            if node in state:
                state[node].admit(vgpus, claim_holder)
        return state

    def _room(self, node: Node) -> HostCapacity:
        host = self.snapshot.hosts[node.name]
        return HostCapacity(
            node,
            {gpu_name(host.name, gpu.address): offers(host, gpu) for gpu in host.gpus},
            by_type=pinned_by_type(host),
            doubtful=[gpu.name for gpu in node.gpus if self.snapshot.estimates.get(gpu.name)],
        )

    def _vms(self, counts: Callable[[UnboundRequest], bool]) -> Iterator[tuple[Holder, Mapping[str, int]]]:
        """VMs of claims, the largest first, each with all that it claims."""
        by_path: dict[str, tuple[Holder, Counter[str]]] = {}
        for claim in self.fleet.ordered_claims:
            if counts(claim):
                by_path.setdefault(claim.holder.path, (claim.holder, Counter()))[1][claim.profile] += claim.count
        yield from sorted(by_path.values(), key=lambda entry: (-_size(entry[1]), entry[0].path))

    # Counting
    @cached_property
    def profiles(self) -> list[str]:
        found = {name for room in self.now.values() for name in room.profiles()}
        return sorted(found | {claim.profile for claim in self.fleet.claims}, key=_by_size)

    def count(self, node: Node, profile: str) -> Count:
        """One profile on one host. VMs that are off and may start anywhere in their cluster do not count here."""
        in_use = sum(1 for gpu in node.gpus for slot in gpu.slots if slot.profile == profile)
        claims = [claim for claim in self.fleet.claims if claim.node == node.name and claim.profile == profile]
        in_use += sum(claim.count for claim in claims if claim.holder.running)
        free_now = _total(self.now[node.name].rooms(profile))
        return Count(
            allocatable=in_use + free_now,
            configured=in_use,
            in_use=in_use,
            claimed=sum(claim.count for claim in claims if not claim.holder.running),
            free_now=free_now,
            free=_total(self.after_bound_claims[node.name].rooms(profile)),
        )

    def total(self, nodes: Collection[Node], profile: str) -> Count:
        """One profile on several hosts, with the VMs that are off and may start on any of them."""
        names = {node.name for node in nodes}
        clusters = {self._cluster_id(node.name) for node in nodes}
        summed = Count()
        for node in nodes:
            if node.usable:
                summed = summed + self.count(node, profile)
        floating = sum(
            claim.count
            for claim in self.fleet.claims
            if claim.node is None and claim.profile == profile and self.snapshot.cluster_of(claim.holder) in clusters
        )
        free = sum(_total(room.rooms(profile)) for name, room in self.after_claims.items() if name in names)
        return replace(summed, claimed=summed.claimed + floating, free=free)

    def exact(self, nodes: Collection[Node], profile: str) -> bool:
        return all(gpu.exact for node in nodes for gpu in self.now[node.name].rooms(profile))

    # Results
    def profile_records(self) -> list[dict[str, Any]]:
        return [self._profile_record(profile) for profile in self.profiles]

    def _profile_record(self, profile: str) -> dict[str, Any]:
        by_cluster: dict[str, list[Node]] = {}
        for node in self.nodes:
            by_cluster.setdefault(self._cluster_id(node.name), []).append(node)
        return {
            "profile": profile,
            "spellings": spellings(profile),
            **self.total(self.nodes, profile).as_dict(),
            "exact": self.exact(self.nodes, profile),
            "clusters": sorted(
                (self._cluster_record(nodes, profile) for nodes in by_cluster.values()),
                key=lambda one: (one["cluster"], one["datacenter"]),
            ),
            "nodes": [self._node_record(node, profile) for node in self.nodes if self._concerns(node, profile)],
        }

    def _cluster_record(self, nodes: Sequence[Node], profile: str) -> dict[str, Any]:
        host = self.snapshot.hosts[nodes[0].name]
        return {
            "cluster": host.cluster,
            "datacenter": host.datacenter,
            **self.total(nodes, profile).as_dict(),
            "exact": self.exact(nodes, profile),
        }

    def _cluster_id(self, host: str) -> str:
        return self.snapshot.hosts[host].cluster_id

    def _concerns(self, node: Node, profile: str) -> bool:
        return bool(self.now[node.name].rooms(profile)) or bool(self.count(node, profile).claimed)

    def _node_record(self, node: Node, profile: str) -> dict[str, Any]:
        rooms = self.now[node.name].rooms(profile)
        later = {room.gpu: room.count for room in self.after_bound_claims[node.name].rooms(profile)}
        gpus = {gpu.name: gpu for gpu in node.gpus}
        return {
            "node": node.name,
            "usable": node.usable,
            **self.count(node, profile).as_dict(),
            "exact": all(room.exact for room in rooms),
            "gpus": [
                {
                    "gpu": room.gpu,
                    "in_use": sum(1 for slot in gpus[room.gpu].slots if slot.profile == profile),
                    "free_now": room.count,
                    "free": later[room.gpu],
                    "exact": room.exact,
                    "reason": room.reason,
                }
                for room in rooms
            ],
        }

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


def unusable_because(node: Node) -> str:
    if not node.ready:
        return "not connected"
    if not node.schedulable:
        return "in maintenance mode"
    return "" if node.gpus else "has no NVIDIA GPU"


def _total(rooms: Sequence[HostGpuCapacity]) -> int:
    return sum(room.count for room in rooms)


def _size(vgpus: Mapping[str, int]) -> int:
    return sum(_mib(profile) * count for profile, count in vgpus.items())


def _mib(profile: str) -> int:
    parsed = parse_or_none(profile)
    return parsed.mib if parsed else 0


def _by_size(profile: str) -> tuple[str, int, str]:
    parsed = parse_or_none(profile)
    return (parsed.key[0], parsed.mib, profile) if parsed else ("", 0, profile)


@dataclass(frozen=True)
class HostPacking:
    """Machines by host, one mapping for each demand."""

    nodes: tuple[Mapping[str, int], ...]
    missing: tuple[int, ...]


class VsphereFitCheck:
    """Demands asked of what is available. The same question can be asked of a changed world: what if?"""

    def __init__(self, available: VsphereAvailability, demands: Sequence[MachineDemand]) -> None:
        self._demands = list(demands)
        self._existing, released = _standing(available, demands)
        self.available = replace(available, released=available.released | released)

    @cached_property
    def filling(self) -> HostPacking:
        return self._fill(self.available)

    @property
    def fits(self) -> bool:
        return not any(self.filling.missing)

    @cached_property
    def proven(self) -> bool:
        """A filling is its own proof. That there is none is certain if a demand does not even fit alone."""
        if self.fits or len(self._demands) == 1:
            return True
        return any(self._fill(self.available, [index]).missing[0] for index in range(len(self._demands)))

    @cached_property
    def answers(self) -> list[DemandResult]:
        return [
            DemandResult(demand, self._existing[index], nodes, missing, self._reasons(index) if missing else ())
            for index, (demand, nodes, missing) in enumerate(
                zip(self._demands, self.filling.nodes, self.filling.missing, strict=True)
            )
        ]

    @cached_property
    def helps(self) -> list[str]:
        """Each of them alone would make everything fit."""
        return [] if self.fits else list(dict.fromkeys(self._suggestions()))

    def require(self) -> None:
        if self.fits:
            return
        raise DemandDoesNotFit(
            " ".join(reason for answer in self.answers if not answer.fits for reason in answer.reasons),
            hint=f"What would help: {' Or: '.join(self.helps)}" if self.helps else "No single change would help.",
        )

    # Placing
    def _asked(self, index: int) -> int:
        demand = self._demands[index]
        return max(demand.machines + demand.surge - len(self._existing[index]), 0)

    def _fill(self, available: VsphereAvailability, indices: Sequence[int] | None = None) -> HostPacking:
        """In the order of the demands, or the largest first, on full hosts first or in order: whichever fits most."""
        chosen = list(range(len(self._demands)) if indices is None else indices)
        by_size = sorted(chosen, key=lambda index: -_size(self._demands[index].vgpus))
        best = self._fill_in_order(available, chosen, chosen, packed=True)
        for order, packed in ((chosen, False), (by_size, True), (by_size, False)):
            if not any(best.missing):
                break
            other = self._fill_in_order(available, order, chosen, packed=packed)
            best = min(best, other, key=lambda filling: sum(filling.missing))
        return best

    def _fill_in_order(
        self, available: VsphereAvailability, order: Sequence[int], chosen: Sequence[int], *, packed: bool
    ) -> HostPacking:
        state = {name: room.copy() for name, room in available.after_claims.items() if room.node.usable}
        placed: dict[int, Counter[str]] = {index: Counter() for index in chosen}
        for index in order:
            demand = self._demands[index]
            # Hosts only get fuller, so one that has refused a machine refuses the next one like it.
            open_hosts = sorted(state, key=lambda name: (-state[name].used if packed else 0, name))
            for number in range(self._asked(index)):
                holder = Holder(f"{demand.name} {number + 1}", running=True)
                while open_hosts and not state[open_hosts[0]].admit(demand.vgpus, holder):
                    open_hosts.pop(0)
                if not open_hosts:
                    break
                placed[index][open_hosts[0]] += 1
        return HostPacking(
            tuple(dict(placed[index]) for index in chosen),
            tuple(self._asked(index) - placed[index].total() for index in chosen),
        )

    # Why not
    def _reasons(self, index: int) -> tuple[str, ...]:
        demand = self._demands[index]
        surge = f" (surge {demand.surge} included)" if demand.surge else ""
        texts = [
            f"Demand {demand.name}: {sum(self.filling.nodes[index].values())} of {self._asked(index)} more machines fit"
            f"{surge}; each needs {demand.each} on one host."
        ]
        texts.extend(self._situation(profile) for profile in sorted(demand.vgpus))
        if len(self._demands) > 1 and not self._fill(self.available, [index]).missing[0]:
            texts.append("Alone it would fit: other demands want the same GPUs.")
        return (" ".join(texts),)

    def _situation(self, profile: str) -> str:
        available = self.available
        concerned = [node for node in available.nodes if available.now[node.name].rooms(profile)]
        if not concerned:
            return f"No host offers {profile}."
        total = available.total(available.nodes, profile)
        free = {node.name: _total(available.after_claims[node.name].rooms(profile)) for node in concerned}
        shown = ", ".join(f"{name} {count}" for name, count in sorted(free.items()) if count) or "none"
        parts = [f"Free {profile}: {shown}"]
        if total.in_use:
            parts.append(f"{total.in_use} in use by {join_names(self._holders(profile, running=True), limit=4)}")
        if total.claimed:
            parts.append(
                f"{total.claimed} claimed by {join_names(self._holders(profile, running=False), limit=4)}, off"
            )
        refusals = {
            f"{node.name} GPU {room.address}: {room.reason}"
            for node in concerned
            for room in available.after_claims[node.name].rooms(profile)
            if room.reason
        }
        if refusals:
            parts.append(join_names(refusals, limit=6))
        return "; ".join(parts) + "."

    def _holders(self, profile: str, *, running: bool) -> list[str]:
        fleet = self.available.fleet
        found = [holder for _gpu, slot in fleet.slots() if slot.profile == profile for holder in slot.holders]
        found += [claim.holder for claim in fleet.claims if claim.profile == profile]
        return [holder.path for holder in found if holder.running == running]

    # What would help
    def _suggestions(self) -> Iterator[str]:
        for host in self.available.snapshot.inventory.gpu_hosts:
            for verb, changed in _improved(host):
                if self._would_fit(self._with_host(changed)):
                    yield f"{verb} host {host.name}."
        yield from self._by_releasing()
        yield from self._by_asking_less()

    def _would_fit(self, available: VsphereAvailability) -> bool:
        return not any(self._fill(available).missing)

    def _with_host(self, changed: HostFacts) -> VsphereAvailability:
        inventory = self.available.snapshot.inventory
        hosts = tuple(changed if host.moid == changed.moid else host for host in inventory.hosts)
        return replace(self.available, snapshot=Snapshot(replace(inventory, hosts=hosts)))

    def _by_releasing(self) -> Iterator[str]:
        stopped = {
            claim.holder.labels["moid"]: claim.holder.path
            for claim in self.available.fleet.ordered_claims
            if not claim.holder.running
        }
        for moid, path in stopped.items():
            if self._would_fit(self._without({moid})):
                yield f"Take the vGPUs out of VM {path}, which is off."
                return
        if len(stopped) > 1 and self._would_fit(self._without(set(stopped))):
            yield f"Take the vGPUs out of the VMs {join_names(stopped.values())}, which are off."

    def _without(self, moids: set[str]) -> VsphereAvailability:
        return replace(self.available, released=self.available.released | moids)

    def _by_asking_less(self) -> Iterator[str]:
        for answer in self.answers:
            most = answer.demand.machines - answer.missing
            if not answer.fits and most > 0:
                yield f"Ask for {most} machines in {answer.demand.name}."
            elif not answer.fits and answer.demand.surge >= answer.missing:
                yield f"Ask for no surge in {answer.demand.name}."


def _improved(host: HostFacts) -> Iterator[tuple[str, HostFacts]]:
    """What could be done about a host, with the host as it would be."""
    if not host.connected:
        yield "Reconnect", replace(host, connected=True, maintenance=False)
    elif host.maintenance:
        yield "End the maintenance of", replace(host, maintenance=False)
    if host.connected and any(gpu.graphics_type == facts.SHARED for gpu in host.gpus):
        from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.host import plan as host_graphics

        wish = host_graphics.HostGraphicsRequest(graphics_type=facts.SHARED_DIRECT)
        plan = host_graphics.plan(Snapshot(facts.Inventory((host,))), wish, force=True)
        yield "Make the GPUs shared direct (vgpu.fleet.vsphere_gpu_host) of", plan.changes[0].after


def _standing(
    available: VsphereAvailability, demands: Sequence[MachineDemand]
) -> tuple[list[tuple[str, ...]], frozenset[str]]:
    """An owner's VMs: those with the same vGPUs are machines of the demand already, the others make way for it."""
    holdings: dict[str, tuple[Holder, Counter[str]]] = {}

    def add(holder: Holder, profile: str, count: int) -> None:
        holdings.setdefault(holder.path, (holder, Counter()))[1][profile] += count

    for _gpu, slot in available.fleet.slots():
        for holder in slot.holders:
            add(holder, slot.profile or "", 1)
    for claim in available.fleet.ordered_claims:
        add(claim.holder, claim.profile, claim.count)
    taken: set[str] = set()
    released: set[str] = set()
    existing: list[tuple[str, ...]] = []
    for demand in demands:
        mine = [
            path for path, (holder, _vgpus) in sorted(holdings.items()) if path not in taken and demand.owns(holder)
        ]
        taken.update(mine)
        alike = [path for path in mine if dict(holdings[path][1]) == dict(demand.vgpus)]
        # Running ones first: they are the ones that would stay.
        alike.sort(key=lambda path: (not holdings[path][0].running, path))
        kept = alike[: demand.machines + demand.surge]
        existing.append(tuple(sorted(kept)))
        released.update(holdings[path][0].labels["moid"] for path in mine if path not in kept)
    return existing, frozenset(released)
