# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who must not lose a vGPU: the one question that is asked before anything is taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError, listing
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import Claim, Fleet, Gpu, Node, Slot


class DeviceInUse(FleetError):
    code = "device_in_use"

    def __init__(self, slots: list[Slot], action: str) -> None:
        said = "; ".join(
            f"vGPU {slot.name} is in use by {listing(map(str, slot.holders), limit=3)}" for slot in slots[:5]
        )
        more = f"; and {len(slots) - 5} more" if len(slots) > 5 else ""
        super().__init__(
            f"Cannot {action}: {said}{more}.",
            hint="Detach them first: vgpu.fleet.harvester_vgpu_vm with state: absent.",
        )
        self.devices = [slot.as_dict() for slot in slots]

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "devices": self.devices}


def with_running_vms_bound(fleet: Fleet) -> Fleet:
    """The fleet with every vGPU marked as held that a running VM may have.

    Which one it got is written down only once it runs. Until then any of its type on its node may be the one, so none
    of them is touched.
    """
    # What a VM gets after a restart it does not have now.
    running = [claim for claim in fleet.claims if claim.holder.running and not claim.after_restart]
    if not running:
        return fleet
    return replace(
        fleet,
        nodes=tuple(_bound_node(node, running) for node in fleet.nodes),
        claims=tuple(claim for claim in fleet.claims if claim not in running),
    )


def _bound_node(node: Node, running: list[Claim]) -> Node:
    here = [claim for claim in running if claim.node in (None, node.name)]
    if not here:
        return node
    return replace(node, gpus=tuple(_bound_gpu(gpu, here) for gpu in node.gpus))


def _bound_gpu(gpu: Gpu, here: list[Claim]) -> Gpu:
    def bound(slot: Slot) -> Slot:
        mine = tuple(claim.holder for claim in here if slot.profile == claim.profile)
        return replace(slot, holders=mine) if mine and not slot.holders else slot

    return replace(gpu, slots=tuple(map(bound, gpu.slots)))
