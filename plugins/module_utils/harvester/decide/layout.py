# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the request of a task for vGPUs, and plan it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ...errors import InvalidDemand, join_names
from ...fleet.model import Fleet, Gpu, Slot
from ...planning import plan as planner
from ...planning.plan import Plan
from ...planning.request import PER_FLEET, Demand, Policy, patterns, refuse_empty, selected
from ...planning.steps import ENABLE, Step
from .. import paths as r
from ..conditions import Condition, NodeAllocatable, VgpuConfigured, VgpuRemoved, VgpuTypePermitted
from ..read.snapshot import Snapshot
from ..version import HarvesterVersion
from .devices import DeviceRequest, belongs, plan_devices
from .owners import checked_owner, marked, refuse_others, with_others_bound


@dataclass(frozen=True)
class Scope:
    """The vGPUs of a task: `slots` must be ready at the end. The result shows the vGPUs of `gpus`, and `named`."""

    slots: frozenset[str]
    gpus: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()

    def includes(self, gpu: Gpu, slot: Slot) -> bool:
        """Return whether the result shows the vGPU."""
        return slot.name in self.named or (gpu.name in self.gpus and not slot.empty)


@dataclass(frozen=True)
class VgpuPlan:
    """A plan for the vGPUs of a Harvester cluster, with its scope and its wait conditions."""

    plan: Plan
    scope: Scope
    version: HarvesterVersion
    # Whether KubeVirt's list of permitted devices can be read.
    permits_known: bool = True

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.plan.steps

    @property
    def fleet(self) -> Fleet:
        return self.plan.fleet

    @property
    def touched(self) -> tuple[str, ...]:
        return self.plan.touched

    @property
    def after(self) -> Fleet:
        return self.plan.after

    def with_steps(self, steps: Sequence[Step]) -> VgpuPlan:
        """Return the plan with other steps."""
        return replace(self, plan=replace(self.plan, steps=tuple(steps)))

    @property
    def warnings(self) -> list[str]:
        """Return a warning for each reason that keeps surplus vGPUs from being removed."""
        by_reason: dict[str, list[str]] = {}
        for vgpu in self.plan.stuck:
            by_reason.setdefault(vgpu.reason, []).append(f"{vgpu.slot} ({vgpu.profile})")
        return [
            f"There are more vGPUs than requested. {join_names(names, limit=5)} cannot be disabled: {reason}."
            " Run the task again when this has changed."
            for reason, names in sorted(by_reason.items())
        ] + self._permission_warnings()

    def _permission_warnings(self) -> list[str]:
        """Return a warning if KubeVirt's list of permitted devices cannot be read."""
        types = {type_name for _node, type_name in self._in_scope if type_name}
        if not types or self.permits_known:
            return []
        return [
            f"KubeVirt's list of permitted devices cannot be read, so it is unknown whether VMs may use"
            f" {join_names(types)}. Grant the right to list and watch kubevirts in namespace {r.SYSTEM_NAMESPACE}."
        ]

    @cached_property
    def conditions(self) -> list[Condition]:
        """Return the conditions for vGPUs in scope that no step changes, and the allocatable counts of the nodes.

        The conditions for vGPUs that steps change belong to the steps.
        """
        changed = {step.slot for step in self.steps if step.slot}
        conditions: list[Condition] = []
        for gpu, slot in self.fleet.slots():
            if slot.name in self.scope.slots and slot.name not in changed:
                if slot.wanted:
                    conditions.append(VgpuConfigured(slot.name, gpu.node, slot.wanted, self.version))
                elif slot.profile:
                    conditions.append(VgpuRemoved(slot.name, gpu.node, self.version))
        return [*conditions, *self._allocatable(changed), *self._permitted()]

    def _permitted(self) -> Iterator[Condition]:
        """Yield a condition for each type in scope, since no VM starts with a vGPU that KubeVirt does not permit."""
        nodes = {type_name: node for node, type_name in sorted(self._in_scope, key=str, reverse=True)}
        for type_name, node in sorted(nodes.items(), key=str):
            if type_name and self.permits_known:
                yield VgpuTypePermitted(node, self.version.resource(type_name))

    @cached_property
    def _in_scope(self) -> Counter[tuple[str, str | None]]:
        """Return the number of vGPUs that the task is about after its steps, by node and type."""
        changed = {step.slot for step in self.steps if step.slot}
        # Count steps, not slots: the slots of some steps do not exist yet.
        found = Counter((step.node, step.after) for step in self.steps if step.action == ENABLE)
        for gpu, slot in self.fleet.slots():
            if slot.name not in changed and slot.name in self.scope.slots and slot.wanted:
                found[gpu.node, slot.wanted] += 1
        return found

    def _allocatable(self, changed: Container[str]) -> list[Condition]:
        """Return the allocatable count that each node has to reach.

        vGPUs that are out of scope count only if they are allocatable now.
        """
        others: Counter[tuple[str, str | None]] = Counter()
        for gpu, slot in self.fleet.slots():
            in_scope = slot.name in self.scope.slots and slot.wanted
            if slot.name not in changed and not in_scope and slot.allocatable:
                others[gpu.node, slot.profile] += 1
        return [
            NodeAllocatable(node, self.version.resource(type_name), count + others[node, type_name])
            for (node, type_name), count in sorted(self._in_scope.items(), key=str)
            if type_name
        ]


@dataclass(frozen=True)
class VgpuRequest:
    """The request of a task: either single devices or demands for numbers of vGPUs."""

    devices: tuple[DeviceRequest, ...] = ()
    demands: tuple[Demand, ...] = ()
    policy: Policy = field(default_factory=Policy)
    owner: str | None = None

    def __str__(self) -> str:
        parts = [f"{demand.count} x {demand.profile}" for demand in self.demands]
        parts += [
            f"{device.name} {(device.profile or 'enabled') if device.enabled else 'disabled'}"
            for device in self.devices
        ]
        return join_names(parts, limit=6)

    def plan(self, fleet: Fleet) -> Plan:
        """Plan the request. With an owner, vGPUs of other owners stay, and new ones get the owner's mark.

        A vGPU that is only enabled again keeps its mark, regardless of the requester.
        """
        if self.owner is None:
            plan = self._plan(fleet)
            return replace(plan, steps=marked(fleet, plan.steps, None))
        plan = self._plan(with_others_bound(fleet, self.owner) if self.demands else fleet)
        refuse_others(fleet, plan.steps, self.owner)
        return replace(plan, steps=marked(fleet, plan.steps, self.owner), fleet=fleet)

    def plan_for(self, fleet: Fleet, snapshot: Snapshot) -> VgpuPlan:
        """Plan the request, with its scope and its wait conditions."""
        plan = self.plan(fleet)
        scope = self._scope(fleet, plan.gpus, plan.profiles)
        return VgpuPlan(plan, scope, snapshot.version, snapshot.kubevirts is not None)

    def resume(self, fleet: Fleet, snapshot: Snapshot, steps: Sequence[Step], _layouts: Sequence[object]) -> VgpuPlan:
        """Return the plan that consists of the remaining steps of an interrupted run."""
        resolver = planner.known_profiles(fleet)
        profiles = frozenset(resolver.resolve(demand.profile) for demand in self.demands)
        scope = self._scope(fleet, self.selected(fleet), profiles)
        return VgpuPlan(Plan(tuple(steps), fleet=fleet), scope, snapshot.version, snapshot.kubevirts is not None)

    def selected(self, fleet: Fleet) -> frozenset[str]:
        """Return the names of the GPUs on which the result of the task depends."""
        if self.demands:
            return frozenset().union(*(selected(fleet, demand.nodes, demand.gpus) for demand in self.demands))
        return frozenset(gpu.name for gpu in fleet.gpus for device in self.devices if belongs(device.name, gpu))

    def _plan(self, fleet: Fleet) -> Plan:
        if self.demands:
            return planner.plan(fleet, self.demands, self.policy)
        return plan_devices(fleet, self.devices, self.policy)

    def _scope(self, fleet: Fleet, gpus: frozenset[str], profiles: frozenset[str]) -> Scope:
        if not self.demands:
            named = frozenset(device.name for device in self.devices)
            return Scope(slots=named, named=named)
        slots = frozenset(
            slot.name
            for gpu, slot in fleet.slots()
            if gpu.name in gpus and slot.wanted in profiles and not slot.drifted
        )
        return Scope(slots, gpus=gpus)


def request_from(params: Mapping[str, Any]) -> VgpuRequest:
    """Read the request from the options of a task."""
    owner = checked_owner(params.get("owner"))
    policy = Policy(
        exclusive=params["exclusive"],
        reprofile=params["reprofile"],
        enable_sriov=params["enable_sriov"],
        enable_mig=params["enable_mig"],
        placement=params["placement"],
    )
    if params["devices"] is not None or params["name"] is not None:
        entries = params["devices"] if params["devices"] is not None else [params]
        devices = tuple(
            DeviceRequest(entry["name"], entry["profile"], enabled=(entry["state"] or "enabled") == "enabled")
            for entry in entries
        )
        if not devices:
            raise InvalidDemand("devices is empty.", hint="Name at least one device.")
        return VgpuRequest(devices=devices, policy=policy, owner=owner)
    if params["state"]:
        raise InvalidDemand(
            "state is only valid with single devices.", hint="To have no vGPUs of a profile, set count to 0."
        )
    entries = params["layout"] if params["layout"] is not None else [params]
    return VgpuRequest(demands=_demands(entries, params), policy=policy, owner=owner)


def _demands(entries: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> tuple[Demand, ...]:
    if not entries:
        raise InvalidDemand("The layout is empty.", hint="To have no vGPUs of a profile, set its count to 0.")
    refuse_empty(nodes=params["nodes"], gpus=params["gpus"])
    return tuple(
        Demand(
            profile=entry["profile"],
            count=entry["count"],
            per=entry["per"] or PER_FLEET,
            # The selection of the task is the default for entries without one.
            nodes=patterns((entry if _selects(entry) else params)["nodes"]),
            gpus=patterns((entry if _selects(entry) else params)["gpus"]),
        )
        for entry in entries
    )


def _selects(entry: Mapping[str, Any]) -> bool:
    return entry["nodes"] is not None or entry["gpus"] is not None
