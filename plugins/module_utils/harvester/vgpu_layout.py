# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vGPUs by number: what a task asks for, planned, and what has to be so in the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils import planner
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import Fleet, Gpu, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.era import Era
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.readiness import (
    Advertised,
    Goal,
    VgpuCleared,
    VgpuConfigured,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.vgpu_devices import Wish, belongs, plan_devices
from ansible_collections.vgpu.fleet.plugins.module_utils.planner import Plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.demand import (
    PER_FLEET,
    Demand,
    InvalidDemand,
    Policy,
    Selections,
    patterns,
    refuse_empty,
    selected,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import ENABLE


@dataclass(frozen=True)
class Request:
    """A task's wishes: either single devices or numbers of vGPUs."""

    wishes: tuple[Wish, ...] = ()
    demands: tuple[Demand, ...] = ()
    policy: Policy = field(default_factory=Policy)

    def plan(self, fleet: Fleet) -> Plan:
        if self.demands:
            return planner.plan(fleet, self.demands, self.policy)
        return plan_devices(fleet, self.wishes, self.policy)

    def gpus(self, fleet: Fleet) -> frozenset[str]:
        """The GPUs on which the answer to the task depends."""
        if self.demands:
            return frozenset().union(*(selected(fleet, one.nodes, one.gpus) for one in self.demands))
        return frozenset(gpu.name for gpu in fleet.gpus for wish in self.wishes if belongs(wish.name, gpu))

    def concerns(self, fleet: Fleet) -> Concern:
        """What the task is about: single devices, or the profiles that were asked for on the GPUs that were chosen."""
        if not self.demands:
            named = frozenset(wish.name for wish in self.wishes)
            return Concern(slots=named, named=named)
        selections = Selections(fleet)
        gpus = {fleet.gpus[i].name for one in self.demands for i in selections.gpus(one.nodes, one.gpus)}
        known = planner.known_profiles(fleet)
        profiles = frozenset(known.resolve(demand.profile) for demand in self.demands)
        slots = frozenset(
            slot.name
            for gpu, slot in fleet.slots()
            if gpu.name in gpus and slot.wanted in profiles and not slot.drifted
        )
        return Concern(slots, gpus=frozenset(gpus))


@dataclass(frozen=True)
class Concern:
    """`slots` have to be ready in the end. Shown are the vGPUs of `gpus`, or the devices `named`."""

    slots: frozenset[str]
    gpus: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()

    def shows(self, gpu: Gpu, slot: Slot) -> bool:
        return slot.name in self.named or (gpu.name in self.gpus and not slot.empty)


def goals(plan: Plan, concern: Concern, era: Era) -> list[Goal]:
    """Configured, and counted by the node; for what is to be gone, gone. Steps bring their own goals."""
    changed = {step.slot for step in plan.steps if step.slot}
    found: list[Goal] = []
    for gpu, slot in plan.fleet.slots():
        if slot.name in concern.slots and slot.name not in changed:
            if slot.wanted:
                found.append(VgpuConfigured(slot.name, gpu.node, slot.wanted, era))
            elif slot.profile:
                found.append(VgpuCleared(slot.name, gpu.node, era))
    return [*found, *_counted(plan, concern, era)]


def _counted(plan: Plan, concern: Concern, era: Era) -> list[Goal]:
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
        Advertised(node, era.resource(type_name), count + others[node, type_name])
        for (node, type_name), count in sorted(ours.items(), key=str)
        if type_name
    ]


def request_from(params: Mapping[str, Any]) -> Request:
    """The wishes in a task's options."""
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
            Wish(entry["name"], entry["profile"], enabled=(entry["state"] or "enabled") == "enabled")
            for entry in entries
        )
        if not wishes:
            raise InvalidDemand("The list of devices is empty.", hint="Name at least one.")
        return Request(wishes=wishes, policy=policy)
    if params["state"]:
        raise InvalidDemand("state belongs to single devices.", hint="To have no vGPUs of a profile, set count to 0.")
    entries = params["layout"] if params["layout"] is not None else [params]
    return Request(demands=_demands(entries, params), policy=policy)


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
