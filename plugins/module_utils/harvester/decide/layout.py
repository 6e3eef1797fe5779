# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vGPUs by number: what a task asks for, planned, and what has to be so in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import join_names
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.conditions import (
    Condition,
    NodeAllocatable,
    VgpuConfigured,
    VgpuRemoved,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.devices import (
    DeviceRequest,
    belongs,
    plan_devices,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.owners import (
    checked_owner,
    marked,
    refuse_others,
    with_others_bound,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.version import HarvesterVersion
from ansible_collections.vgpu.fleet.plugins.module_utils.planning import plan as planner
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import Plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import (
    PER_FLEET,
    Demand,
    GpuSelector,
    InvalidDemand,
    Policy,
    patterns,
    refuse_empty,
    selected,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import ENABLE


def stuck_warnings(plan: Plan) -> list[str]:
    """Tell which vGPUs are more than were asked for and had to stay, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for one in plan.stuck:
        by_reason.setdefault(one.reason, []).append(f"{one.slot} ({one.profile})")
    return [
        f"There are more vGPUs than were asked for. {join_names(names, limit=5)} cannot be disabled: {reason}."
        " Run the task again once that has changed."
        for reason, names in sorted(by_reason.items())
    ]


@dataclass(frozen=True)
class VgpuRequest:
    """A task's wishes: either single devices or numbers of vGPUs."""

    wishes: tuple[DeviceRequest, ...] = ()
    demands: tuple[Demand, ...] = ()
    policy: Policy = field(default_factory=Policy)
    owner: str | None = None

    def __str__(self) -> str:
        asked = [f"{one.count} x {one.profile}" for one in self.demands]
        asked += [f"{one.name} {(one.profile or 'enabled') if one.enabled else 'disabled'}" for one in self.wishes]
        return join_names(asked, limit=6)

    def plan(self, fleet: Fleet) -> Plan:
        """Plan the wishes. With an owner, vGPUs of other owners stay, and new ones get the owner's mark.

        A vGPU that is only enabled again keeps its mark, whoever asks for it.
        """
        if self.owner is None:
            plan = self._plan(fleet)
            return replace(plan, steps=marked(fleet, plan.steps, None))
        plan = self._plan(with_others_bound(fleet, self.owner) if self.demands else fleet)
        refuse_others(fleet, plan.steps, self.owner)
        return replace(plan, steps=marked(fleet, plan.steps, self.owner), fleet=fleet)

    def _plan(self, fleet: Fleet) -> Plan:
        if self.demands:
            return planner.plan(fleet, self.demands, self.policy)
        return plan_devices(fleet, self.wishes, self.policy)

    def gpus(self, fleet: Fleet) -> frozenset[str]:
        """The GPUs on which the answer to the task depends."""
        if self.demands:
            return frozenset().union(*(selected(fleet, one.nodes, one.gpus) for one in self.demands))
        return frozenset(gpu.name for gpu in fleet.gpus for wish in self.wishes if belongs(wish.name, gpu))

    def concerns(self, fleet: Fleet) -> Scope:
        """What the task is about: single devices, or the profiles that were asked for on the GPUs that were chosen."""
        if not self.demands:
            named = frozenset(wish.name for wish in self.wishes)
            return Scope(slots=named, named=named)
        selections = GpuSelector(fleet)
        gpus = {fleet.gpus[i].name for one in self.demands for i in selections.gpus(one.nodes, one.gpus)}
        known = planner.known_profiles(fleet)
        profiles = frozenset(known.resolve(demand.profile) for demand in self.demands)
        slots = frozenset(
            slot.name
            for gpu, slot in fleet.slots()
            if gpu.name in gpus and slot.wanted in profiles and not slot.drifted
        )
        return Scope(slots, gpus=frozenset(gpus))


@dataclass(frozen=True)
class Scope:
    """`slots` have to be ready in the end. Shown are the vGPUs of `gpus`, or the devices `named`."""

    slots: frozenset[str]
    gpus: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()

    def shows(self, gpu: Gpu, slot: Slot) -> bool:
        return slot.name in self.named or (gpu.name in self.gpus and not slot.empty)


def goals(plan: Plan, concern: Scope, version: HarvesterVersion) -> list[Condition]:
    """Configured, and counted by the node; for what is to be gone, gone. Steps bring their own goals."""
    changed = {step.slot for step in plan.steps if step.slot}
    found: list[Condition] = []
    for gpu, slot in plan.fleet.slots():
        if slot.name in concern.slots and slot.name not in changed:
            if slot.wanted:
                found.append(VgpuConfigured(slot.name, gpu.node, slot.wanted, version))
            elif slot.profile:
                found.append(VgpuRemoved(slot.name, gpu.node, version))
    return [*found, *_counted(plan, concern, version)]


def _counted(plan: Plan, concern: Scope, version: HarvesterVersion) -> list[Condition]:
    """What each node has to count. vGPUs that it does not count now and that are not ours are left out."""
    changed = {step.slot for step in plan.steps if step.slot}
    # By the steps: the slots of some of them do not exist yet.
    ours = Counter((step.node, step.after) for step in plan.steps if step.action == ENABLE)
    others: Counter[tuple[str, str | None]] = Counter()
    for gpu, slot in plan.fleet.slots():
        if slot.name in changed:
            continue
        if slot.name in concern.slots and slot.wanted:
            ours[gpu.node, slot.wanted] += 1
        elif slot.allocatable:
            others[gpu.node, slot.profile] += 1
    return [
        NodeAllocatable(node, version.resource(type_name), count + others[node, type_name])
        for (node, type_name), count in sorted(ours.items(), key=str)
        if type_name
    ]


def request_from(params: Mapping[str, Any]) -> VgpuRequest:
    """The wishes in a task's options."""
    owner = checked_owner(params.get("owner"))
    policy = Policy(
        exclusive=params["exclusive"],
        reprofile=params["reprofile"],
        enable_sriov=params["enable_sriov"],
        enable_mig=params["enable_mig"],
        placement=params["placement"],
    )
    if params["devices"] is not None or params["name"]:
        entries = params["devices"] if params["devices"] is not None else [params]
        wishes = tuple(
            DeviceRequest(entry["name"], entry["profile"], enabled=(entry["state"] or "enabled") == "enabled")
            for entry in entries
        )
        if not wishes:
            raise InvalidDemand("The list of devices is empty.", hint="Name at least one.")
        return VgpuRequest(wishes=wishes, policy=policy, owner=owner)
    if params["state"]:
        raise InvalidDemand("state belongs to single devices.", hint="To have no vGPUs of a profile, set count to 0.")
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
            # What the task selects holds for entries that do not select anything themselves.
            nodes=patterns((entry if _selects(entry) else params)["nodes"]),
            gpus=patterns((entry if _selects(entry) else params)["gpus"]),
        )
        for entry in entries
    )


def _selects(entry: Mapping[str, Any]) -> bool:
    return entry["nodes"] is not None or entry["gpus"] is not None
