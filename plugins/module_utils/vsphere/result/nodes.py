# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of hosts with their GPUs, and the selection of hosts by GPU and profile. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from ...fleet.model import Fleet, Gpu, Node
from ..capacity import room_of
from ..read.fleet import Snapshot
from .evacuation import Evacuation
from .records import Record, gpu_record


def node_records(
    snapshot: Snapshot,
    fleet: Fleet,
    emptied: Mapping[str, Evacuation] | None = None,
    remaining_groups: Mapping[str, Mapping[str, int]] | None = None,
) -> list[Record]:
    return [
        {
            **node.as_dict(),
            "gpus": [gpu_record(snapshot, gpu) for gpu in node.ordered_gpus],
            "device_groups": group_records(snapshot, node.name, (remaining_groups or {}).get(node.name, {})),
            "evacuation": _evacuation_record(snapshot, (emptied or {}).get(node.name), node.name),
        }
        for node in fleet.ordered_nodes
    ]


def group_records(snapshot: Snapshot, host: str, remaining: Mapping[str, int]) -> list[Record]:
    """Return the device groups of a host, with the VMs that have them and the free ones where vCenter reports them."""
    facts = snapshot.hosts[host]
    there = [vm for vm in snapshot.inventory.vms if vm.host == facts.moid and not vm.template]
    return [
        {
            "name": group.name,
            "description": group.description,
            "devices": [device.as_dict() for device in group.devices],
            "in_use": sum(vm.device_groups.count(group.name) for vm in there if vm.running),
            "vms": sorted(vm.name for vm in there if group.name in vm.device_groups),
            "free": remaining.get(group.name),
        }
        for group in facts.device_groups
    ]


def _evacuation_record(snapshot: Snapshot, found: Evacuation | None, host: str) -> Record | None:
    """Return whether a GPU host can be emptied, or None for a host without GPUs."""
    stun_times = {detail.name: dict(detail.stun_times) for detail in snapshot.hosts[host].details}
    return found.as_dict(stun_times) if found else None


def filtered(fleet: Fleet, *, gpus: Sequence[str] | None = None, profiles: Sequence[str] | None = None) -> Fleet:
    """Return the selected part of the fleet. With a filter, omit hosts without selected GPUs.

    None means no filter; an empty list selects no GPU.
    """

    def matches(node: Node, gpu: Gpu) -> bool:
        if gpus is not None and not any(fnmatchcase(gpu.name, pattern) for pattern in gpus):
            return False
        return profiles is None or any(_has_or_takes(node, gpu, profile) for profile in profiles)

    chosen: list[Node] = []
    for node in fleet.ordered_nodes:
        left = tuple(gpu for gpu in node.gpus if matches(node, gpu))
        if left or (gpus is None and profiles is None):
            chosen.append(replace(node, gpus=left))
    return replace(fleet, nodes=tuple(chosen))


def _has_or_takes(node: Node, gpu: Gpu, profile: str) -> bool:
    if any(slot.profile == profile for slot in gpu.slots):
        return True
    offered = any(profile in (slot.offered or ()) for slot in gpu.slots)
    return offered and room_of(gpu, node, profile, by_type=False).at_most > 0
