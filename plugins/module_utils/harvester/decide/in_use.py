# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Determine which vGPUs are in use and must not be changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ...errors import FleetError, join_names
from ...fleet.model import Fleet, Gpu, Holder, Node, Slot, UnboundRequest
from ...fleet.profile import Key, parse_or_none

DETACH = (
    "Detach them first: vgpu.fleet.harvester_vgpu_vm with state: absent. A VM that runs keeps its vGPUs until it is"
    " stopped or restarted."
)


class DeviceInUse(FleetError):
    code = "device_in_use"

    def __init__(self, slots: Sequence[Slot], action: str, *, why: str = "") -> None:
        said = why or "; ".join(
            f"vGPU {slot.name} is in use by {join_names(map(str, slot.holders), limit=3)}" for slot in slots[:5]
        )
        more = f"; and {len(slots) - 5} more" if len(slots) > 5 and not why else ""
        super().__init__(f"Cannot {action}: {said}{more}.", hint=DETACH)
        self.devices = [slot.as_dict() for slot in slots]

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "devices": self.devices}


def protect_running_vms(fleet: Fleet) -> Fleet:
    """Return the fleet with a holder on every vGPU that a running VM may have.

    The vGPU of a running VM is certain only if Harvester's annotation is reliable. Otherwise any vGPU of its type on
    its node may be the one, so all of them are protected. If there are fewer of them than the VM has, the others are
    devices that do not show their type, so those are protected as well.
    """
    running = [claim for claim in fleet.claims if claim.in_use]
    if not running:
        return fleet
    return replace(
        fleet,
        nodes=tuple(_bound_node(node, running) for node in fleet.nodes),
        claims=tuple(claim for claim in fleet.claims if not claim.in_use),
    )


def _bound_node(node: Node, running: list[UnboundRequest]) -> Node:
    here = [claim for claim in running if claim.node in (None, node.name)]
    if not here:
        return node
    shown = Counter(_key(slot.profile or slot.wanted) for gpu in node.gpus for slot in gpu.slots)
    hidden = [claim.holder for claim in here if claim.node and shown[_key(claim.profile)] < claim.count]
    return replace(node, gpus=tuple(_bound_gpu(gpu, here, hidden) for gpu in node.gpus))


def _bound_gpu(gpu: Gpu, here: list[UnboundRequest], hidden: list[Holder]) -> Gpu:
    def bound(slot: Slot) -> Slot:
        key = _key(slot.profile or slot.wanted)
        mine = [claim.holder for claim in here if key and key == _key(claim.profile)]
        if not slot.profile:
            mine += hidden
        return replace(slot, holders=_joined(slot.holders, mine)) if mine else slot

    return replace(gpu, slots=tuple(map(bound, gpu.slots)))


def _joined(known: Iterable[Holder], more: Iterable[Holder]) -> tuple[Holder, ...]:
    by_path = {(holder.kind, holder.path): holder for holder in (*more, *known)}
    return tuple(by_path[which] for which in sorted(by_path))


def _key(type_name: str | None) -> Key | str | None:
    parsed = parse_or_none(type_name)
    return parsed.key if parsed else type_name


def check_claims(before: Fleet, after: Fleet, action: str) -> None:
    """Refuse a change that leaves too few vGPUs for VMs that request a profile without naming devices.

    VMs that are stopped, or were edited while they run, take any vGPU of the profile when they start. So as many vGPUs
    as they request must remain, and those of each VM on one node. In both fleets, the vGPUs of running VMs are
    protected.
    """
    left = {slot.name: slot.profile for _gpu, slot in after.slots()}
    lost = [slot for _gpu, slot in before.slots() if slot.profile and left.get(slot.name) != slot.profile]
    profiles = {slot.profile for slot in lost} & {claim.profile for claim in before.claims}
    if not profiles:
        return
    short = [claim for claim in after.assign_unbound(across_nodes=False).claims if claim.profile in profiles]
    if short:
        wanted = {claim.profile for claim in short}
        said = "; ".join(f"{claim.holder} asks for {_amount(claim, before)}" for claim in short[:5])
        more = f"; and {len(short) - 5} more" if len(short) > 5 else ""
        slots = [slot for slot in lost if slot.profile in wanted]
        raise DeviceInUse(slots, action, why=f"too few vGPUs would be left for VMs that need them: {said}{more}")


def _amount(claim: UnboundRequest, fleet: Fleet) -> str:
    asked = sum(other.count for other in fleet.claims if (other.holder, other.profile) == (claim.holder, claim.profile))
    return f"{asked} x {claim.profile}"
