# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Protection of vGPUs that were enabled for another owner. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import FleetError, InvalidDemand, join_names
from ...fleet.model import OWNER, Fleet, Holder, Slot
from ...planning.steps import CREATE_MIG_INSTANCES, DISABLE, ENABLE, Step

_OWNER = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class OtherOwner(FleetError):
    """The task would disable vGPUs that were enabled for another owner."""

    code = "other_owner"

    def __init__(self, slots: Sequence[Slot], owner: str) -> None:
        said = join_names((f"{slot.name} of owner {slot.owner}" for slot in slots), limit=5)
        super().__init__(
            f"vGPU {said} cannot be disabled for owner {owner}.",
            hint="Name other devices, or set owner if you are that owner. Nothing was changed.",
        )
        self.devices = [slot.as_dict() for slot in slots]

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "devices": self.devices}


def checked_owner(owner: str | None) -> str | None:
    """Return the owner. Refuse a name that is not valid as owner mark."""
    if owner is not None and not _OWNER.fullmatch(owner):
        raise InvalidDemand(
            f"Owner {owner!r} cannot be a mark.",
            hint="Use up to 63 letters, digits, hyphens, underscores and dots, with a letter or digit at both ends.",
        )
    return owner


def with_others_bound(fleet: Fleet, owner: str) -> Fleet:
    """Return the fleet with the vGPUs of other owners held by them, so that no plan disables them.

    VMs that name no devices get their vGPUs first: they may take the vGPUs of any owner.
    """

    def bound(slot: Slot) -> Slot:
        if not _of_another(slot, owner) or slot.holders:
            return slot
        return replace(slot, holders=(Holder(slot.owner or "", running=True, kind=OWNER),))

    if not any(_of_another(slot, owner) for _gpu, slot in fleet.slots()):
        return fleet
    fleet = fleet.assign_unbound()
    nodes = tuple(
        replace(node, gpus=tuple(replace(gpu, slots=tuple(map(bound, gpu.slots))) for gpu in node.gpus))
        for node in fleet.nodes
    )
    return replace(fleet, nodes=nodes)


def refuse_others(fleet: Fleet, steps: Sequence[Step], owner: str) -> None:
    """Refuse steps that disable a vGPU of another owner."""
    slots = {slot.name: slot for _gpu, slot in fleet.slots()}
    touched = [slots[step.slot] for step in steps if step.action == DISABLE and step.slot in slots]
    others = [slot for slot in touched if _of_another(slot, owner)]
    if others:
        raise OtherOwner(others, owner)


def marked(fleet: Fleet, steps: Sequence[Step], owner: str | None) -> tuple[Step, ...]:
    """Return the steps with the owner of the vGPUs that they enable. A vGPU that is only enabled again keeps its owner.

    On a GPU that gets new MIG instances, a vGPU may be enabled again on another device. It is then a vGPU of the same
    type that the same steps disable on that GPU and that is not enabled again on its own device.
    """
    before = {slot.name: slot for _gpu, slot in fleet.slots()}
    disabled = {step.slot for step in steps if step.action == DISABLE and step.slot}

    def comes_back(step: Step) -> bool:
        slot = before.get(step.slot or "")
        return slot is not None and bool(slot.wanted) and step.after in (slot.profile, slot.wanted)

    enabling = [step for step in steps if step.action == ENABLE]
    partitioned = {step.gpu for step in steps if step.action == CREATE_MIG_INSTANCES}
    moved: dict[tuple[str, str | None], list[Slot]] = {}
    for gpu, slot in fleet.slots():
        if gpu.name not in partitioned or slot.name not in disabled:
            continue
        if not any(step.slot == slot.name and comes_back(step) for step in enabling):
            moved.setdefault((gpu.name, slot.wanted), []).append(slot)

    def owner_of(step: Step) -> str | None:
        if comes_back(step):
            return before[step.slot or ""].owner
        left = moved.get((step.gpu, step.after))
        return left.pop(0).owner if left else owner

    return tuple(replace(step, owner=owner_of(step)) if step.action == ENABLE else step for step in steps)


def marked_as_before(steps: Sequence[Step], owners: Mapping[str, Mapping[str, str | None]]) -> tuple[Step, ...]:
    """Return the steps with the owners that a journal recorded, by GPU and device, for vGPUs of another profile.

    A new vGPU belongs to the owner of the vGPU that its device had. If the device had none, the new vGPU belongs to the
    owner of all vGPUs that the GPU had, if they had a single owner. Otherwise the vGPU gets no mark.
    """

    def owner_of(step: Step) -> str | None:
        here = owners.get(step.gpu) or {}
        if step.slot is not None and step.slot in here:
            return here[step.slot]
        only = set(here.values())
        return only.pop() if len(only) == 1 else None

    return tuple(
        replace(step, owner=owner_of(step)) if step.action == ENABLE and not step.owner else step for step in steps
    )


def _of_another(slot: Slot, owner: str) -> bool:
    return bool(slot.owner) and slot.owner != owner and not slot.empty
