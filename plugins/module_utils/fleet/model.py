# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model of both platforms: a fleet has nodes, a node has GPUs, a GPU has slots, a slot may have a holder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..errors import FleetError
from .profile import Profile, board_key, parse_or_none

HARVESTER = "harvester"
VSPHERE = "vsphere"

TIME_SLICED = "time_sliced"
MIXED_SIZE = "mixed_size"
MIG = "mig"

# The kind of a holder that is not a VM but the owner for whom a vGPU was enabled.
OWNER = "owner"


@dataclass(frozen=True)
class Holder:
    """A VM that has a vGPU, or will take it when it starts."""

    name: str
    namespace: str = ""
    running: bool = False
    kind: str = "VM"
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def path(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind} {self.path}" + ("" if self.running else " (stopped)")

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "namespace": self.namespace,
            "name": self.name,
            "running": self.running,
            "labels": dict(sorted(self.labels.items())),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Holder:
        return cls(**{**record, "labels": dict(record.get("labels") or {})})


@dataclass(frozen=True)
class UnboundRequest:
    """vGPUs that a VM has or requests by profile, while their slots are unknown.

    A running VM has these vGPUs, unless they are `pending`: the VM was edited and takes them at its next start. A
    `protective` request is not additional: the VM is bound to slots that another VM may have, so other slots are kept
    for it.
    """

    profile: str
    count: int
    holder: Holder
    node: str | None = None
    pending: bool = False
    protective: bool = False

    @property
    def in_use(self) -> bool:
        return self.holder.running and not self.pending

    def as_dict(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "count": self.count,
            "node": self.node,
            "pending": self.pending,
            "protective": self.protective,
            "holder": self.holder.as_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> UnboundRequest:
        return cls(**{**record, "holder": Holder.from_dict(record["holder"])})


@dataclass(frozen=True)
class Slot:
    """A place for one vGPU.

    `profile` is the profile on the hardware, `wanted` the requested one. They differ while a request is in progress,
    and permanently if the platform accepted a request without carrying it out. `offered` lists the types that an empty
    slot can be given, or is None if the platform does not report them. `hardware` is the type that the device itself
    reports if its node allocates it as another type. `owner` is the owner for whom the vGPU was enabled, if it is
    marked. A `leftover` slot is empty, and its node still offers it as an earlier vGPU.
    """

    name: str
    address: str = ""
    profile: str | None = None
    wanted: str | None = None
    allocatable: bool = False
    holders: tuple[Holder, ...] = ()
    offered: tuple[str, ...] | None = None
    hardware: str | None = None
    owner: str | None = None
    leftover: bool = False

    @property
    def state(self) -> str:
        if self.profile:
            return "allocatable" if self.allocatable else "configured"
        return "requested" if self.wanted else "empty"

    @property
    def empty(self) -> bool:
        return not self.profile and not self.wanted

    @property
    def drifted(self) -> bool:
        """Return whether the vGPU differs from its request, which only takes effect at a reboot or a re-enable."""
        return bool(self.profile and self.wanted and self.profile != self.wanted)

    @property
    def correctable(self) -> bool:
        """Return whether only the spec drifted: correcting the spec changes nothing, also while a VM uses the vGPU."""
        return self.drifted and self.hardware is None

    @property
    def in_use(self) -> bool:
        return any(holder.running for holder in self.holders)

    @property
    def claimed(self) -> bool:
        """Return whether only stopped VMs hold the slot."""
        return bool(self.holders) and not self.in_use

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "address": self.address,
            "profile": self.profile,
            "requested": self.wanted,
            "state": self.state,
            "drifted": self.drifted,
            "hardware": self.hardware,
            "owner": self.owner,
            "holders": [
                holder.as_dict() for holder in sorted(self.holders, key=lambda holder: (holder.namespace, holder.name))
            ],
            "available_profiles": None if self.offered is None else sorted(self.offered),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Slot:
        offered = record["available_profiles"]
        return cls(
            record["name"],
            record["address"],
            record["profile"],
            record["requested"],
            allocatable=record["state"] == "allocatable",
            holders=tuple(map(Holder.from_dict, record["holders"])),
            offered=None if offered is None else tuple(offered),
            hardware=record.get("hardware"),
            owner=record.get("owner"),
        )


@dataclass(frozen=True)
class Gpu:
    """A physical GPU. `sharing` tells whether the GPU is enabled for vGPUs (SR-IOV, or shared direct).

    `boards` has several entries if the platform cannot distinguish boards with the same PCI id. `max_instances` holds
    the maximum of each type on the live system, and on a GPU in MIG mode the number of instances that serve each type.
    `instances` holds the instance profiles that a GPU in MIG mode lists, each with the number of its instances.
    `blocked` is the reason why the GPU cannot be used at all, if there is one. `unstable` is the reason why its mode
    may change by itself, so that nothing new is planned on it.
    """

    name: str
    node: str
    platform: str = HARVESTER
    address: str = ""
    boards: tuple[str, ...] = ()
    framebuffer_mib: int | None = None
    mode: str = TIME_SLICED
    sharing: bool = True
    vf_capacity: int | None = None
    slots: tuple[Slot, ...] = ()
    max_instances: Mapping[str, int] = field(default_factory=dict, hash=False)
    blocked: str = ""
    instances: Mapping[str, int] = field(default_factory=dict, hash=False)
    unstable: str = ""

    @property
    def board(self) -> str | None:
        return self.boards[0] if len(self.boards) == 1 else None

    @cached_property
    def ordered_slots(self) -> tuple[Slot, ...]:
        return tuple(sorted(self.slots, key=lambda slot: (slot.address, slot.name)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "node": self.node,
            "platform": self.platform,
            "address": self.address,
            "board": self.board,
            "possible_boards": sorted(self.boards),
            "framebuffer_mib": self.framebuffer_mib,
            "mode": self.mode,
            "vgpu_enabled": self.sharing,
            "vf_capacity": self.vf_capacity,
            "max_instances": dict(sorted(self.max_instances.items())),
            "unavailable_reason": self.blocked,
            "mig_instances": dict(sorted(self.instances.items())),
            "unstable_reason": self.unstable,
            "slots": [slot.as_dict() for slot in self.ordered_slots],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Gpu:
        if "slots" not in record:
            raise FleetError(f"GPU {record['name']} counts its vGPUs.", hint="Read it with detail: full.")
        taken = {name: value for name, value in record.items() if name not in ("board", "possible_boards", "slots")}
        slots = tuple(map(Slot.from_dict, record["slots"]))
        taken["sharing"], taken["blocked"] = taken.pop("vgpu_enabled"), taken.pop("unavailable_reason")
        taken["unstable"], taken["instances"] = taken.pop("unstable_reason", ""), taken.pop("mig_instances", {})
        return cls(**taken, boards=tuple(record["possible_boards"]), slots=slots)


@dataclass(frozen=True)
class Node:
    """A Harvester node or ESXi host. `advertised` is its allocatable count by type name, if the platform has one.

    The GPUs of a node that is `reserved_for_containers` serve no VMs.
    """

    name: str
    ready: bool = True
    schedulable: bool = True
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    reserved_for_containers: bool = False
    gpus: tuple[Gpu, ...] = ()
    advertised: Mapping[str, int] | None = field(default=None, hash=False)

    @property
    def usable(self) -> bool:
        """Return whether a VM with vGPUs can start on the node."""
        return self.ready and self.schedulable and not self.reserved_for_containers

    @cached_property
    def ordered_gpus(self) -> tuple[Gpu, ...]:
        return tuple(sorted(self.gpus, key=lambda gpu: (gpu.address, gpu.name)))

    def as_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "ready": self.ready,
            "schedulable": self.schedulable,
            "labels": dict(sorted(self.labels.items())),
            "reserved_for_containers": self.reserved_for_containers,
            "advertised": None if self.advertised is None else dict(sorted(self.advertised.items())),
            "gpus": [gpu.as_dict() for gpu in self.ordered_gpus],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Node:
        return cls(**{**record, "gpus": tuple(map(Gpu.from_dict, record["gpus"]))})


@dataclass(frozen=True)
class Fleet:
    """All nodes and the unbound requests of VMs.

    `not_permitted` holds the types of existing vGPUs that the platform does not permit VMs to request, or is None if
    this is unknown.
    """

    nodes: tuple[Node, ...] = ()
    claims: tuple[UnboundRequest, ...] = ()
    not_permitted: frozenset[str] | None = None

    def permits(self, profile: str) -> bool:
        """Return whether VMs may request a type, as far as this is known."""
        return profile not in (self.not_permitted or ())

    @cached_property
    def ordered_nodes(self) -> tuple[Node, ...]:
        return tuple(sorted(self.nodes, key=lambda node: node.name))

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """Return all GPUs by node and address. Everything built on the model keeps this order."""
        return tuple(gpu for node in self.ordered_nodes for gpu in node.ordered_gpus)

    @cached_property
    def ordered_claims(self) -> tuple[UnboundRequest, ...]:
        return tuple(
            sorted(self.claims, key=lambda claim: (claim.holder.path, claim.profile, claim.node or "", claim.pending))
        )

    @cached_property
    def counted_claims(self) -> tuple[UnboundRequest, ...]:
        """Return the unbound requests less the vGPUs that their VMs have: a starting VM is also bound to slots by name.

        Use the result for counting only. Which of the slots the VM has is not known, so none of them may be removed.
        """
        claims = tuple(claim for claim in self.ordered_claims if not claim.protective)
        if not any(claim.in_use for claim in claims):
            return claims
        has: dict[str, dict[tuple[str, str], int]] = {}
        for gpu, slot in self.slots():
            for holder in slot.holders if slot.profile else ():
                mine = has.setdefault(holder.path, {})
                mine[gpu.node, slot.profile or ""] = mine.get((gpu.node, slot.profile or ""), 0) + 1
        left: list[UnboundRequest] = []
        for claim in claims:
            mine = has.get(claim.holder.path, {}) if claim.in_use else {}
            known = sum(n for (node, name), n in mine.items() if name == claim.profile and claim.node in (None, node))
            if claim.count > known:
                left.append(replace(claim, count=claim.count - known))
        return tuple(left)

    @cached_property
    def node_by_name(self) -> Mapping[str, Node]:
        return {node.name: node for node in self.nodes}

    def slots(self) -> Iterator[tuple[Gpu, Slot]]:
        for gpu in self.gpus:
            for slot in gpu.ordered_slots:
                yield gpu, slot

    def type_names(self) -> list[str]:
        """Return every type name that the live system reports, for `ProfileResolver`."""
        found: set[str] = set()
        offers: set[tuple[str, ...]] = set()
        for gpu in self.gpus:
            found.update(gpu.max_instances)
            for slot in gpu.slots:
                if slot.profile:
                    found.add(slot.profile)
                if slot.offered:
                    offers.add(slot.offered)
        return sorted(found.union(*offers))

    def assign_unbound(self, *, across_nodes: bool = True) -> Fleet:
        """Return the fleet with unbound requests assigned to slots of their profile without a holder, if possible.

        The slots of a VM are decided when it starts; until then that number of slots is reserved. Slots on GPUs with
        holders come first, and the slots of a VM come from one node if possible, because a VM cannot start with vGPUs
        of two nodes: if it has enough, the node on which the VM is already bound to slots. The rest comes from other
        nodes, after every VM has its slots on one node: which VM takes which slot is a guess, but their number is not.
        Without `across_nodes`, the rest remains unbound.
        """
        if not self.claims:
            return self
        free: dict[tuple[str, str], list[tuple[bool, str, str]]] = {}
        nodes_of: dict[str, set[str]] = {}
        for gpu in self.gpus:
            held = any(slot.holders for slot in gpu.slots)
            for slot in gpu.ordered_slots:
                for holder in slot.holders:
                    nodes_of.setdefault(holder.path, set()).add(gpu.node)
                if slot.profile and not slot.holders and not slot.drifted:
                    free.setdefault((gpu.node, slot.profile), []).append((not held, gpu.name, slot.name))
        bound: dict[tuple[str, str], Holder] = {}

        def bind(claim: UnboundRequest) -> UnboundRequest:
            """Bind slots of the best node. Return the rest of the request."""
            own = nodes_of.setdefault(claim.holder.path, set())
            together = [other for other in self.ordered_claims if other.holder.path == claim.holder.path]
            places = [
                ((min(len(slots), claim.count), node in own, _found(free, node, together)), node, slots)
                for (node, profile), slots in sorted(free.items())
                if slots and profile == claim.profile and claim.node in (None, node)
            ]
            if not places:
                return claim
            _rank, node, chosen = max(places, key=lambda place: place[0])
            own.add(node)
            chosen.sort()
            taken, chosen[:] = chosen[: claim.count], chosen[claim.count :]
            bound.update({(gpu, slot): claim.holder for _fresh, gpu, slot in taken})
            return replace(claim, count=claim.count - len(taken))

        # Requests for a certain node have no other choice, so they come first.
        left = [bind(claim) for claim in sorted(self.ordered_claims, key=lambda claim: claim.node is None)]
        for index, claim in enumerate(left if across_nodes else ()):
            rest, before = claim, None
            while rest.count and rest != before:
                rest, before = bind(rest), rest
            left[index] = rest
        claims = tuple(claim for claim in left if claim.count)
        return replace(self, nodes=tuple(_bind(node, bound) for node in self.nodes), claims=claims)

    def as_dict(self) -> dict[str, Any]:
        return {
            "nodes": [node.as_dict() for node in self.ordered_nodes],
            "claims": [claim.as_dict() for claim in self.ordered_claims],
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Fleet:
        """Return the fleet from the output of `as_dict`, such as a module's result."""
        return cls(tuple(map(Node.from_dict, record["nodes"])), tuple(map(UnboundRequest.from_dict, record["claims"])))


def _found(
    free: Mapping[tuple[str, str], list[tuple[bool, str, str]]], node: str, claims: Iterable[UnboundRequest]
) -> int:
    """Return how many of the vGPUs that a VM requests the node has."""
    return sum(min(len(free.get((node, claim.profile), ())), claim.count) for claim in claims)


def _bind(node: Node, bound: Mapping[tuple[str, str], Holder]) -> Node:
    touched = {gpu for gpu, _slot in bound}
    if touched.isdisjoint(gpu.name for gpu in node.gpus):
        return node
    gpus = tuple(
        replace(
            gpu,
            slots=tuple(
                replace(slot, holders=(bound[gpu.name, slot.name],)) if (gpu.name, slot.name) in bound else slot
                for slot in gpu.slots
            ),
        )
        for gpu in node.gpus
    )
    return replace(node, gpus=gpus)


def could_be(gpu: Gpu, profile: Profile) -> bool:
    """Return whether the GPU is, or may be, of the board of the profile."""
    wanted = profile.key[0]
    if gpu.boards:
        return any(board_key(board) == wanted for board in gpu.boards)
    seen = (name for slot in gpu.slots for name in ((slot.profile,) if slot.profile else slot.offered or ())[:1])
    return any(parsed.key[0] == wanted for parsed in map(parse_or_none, seen) if parsed)
