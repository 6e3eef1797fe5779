# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records for module results: fleet records with vSphere details. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, Node
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse_or_none
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.capacity import (
    AllowedChanges,
    GpuCapacity,
    capacity_for,
    classify_slots,
    group_of,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.host.plan import SPELT, pending
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.fleet import Snapshot

Record = dict[str, Any]


def spellings(name: str) -> dict[str, str]:
    """Return all spellings of a profile, with the name in this vCenter as vSphere spelling."""
    return {**catalog.spellings(name), "vsphere": name}


def gpu_record(snapshot: Snapshot, gpu: Gpu) -> Record:
    host = snapshot.hosts[gpu.node]
    shown = next(one for one in host.gpus if one.address == gpu.address)
    notes = snapshot.notes.get(gpu.name, ())
    return {
        **gpu.as_dict(),
        "graphics_type": SPELT.get(shown.graphics_type, shown.graphics_type),
        "pending": gpu.address in pending(host),
        "exact": not notes,
        "notes": list(notes),
    }


def gpu_records(snapshot: Snapshot, fleet: Fleet) -> list[Record]:
    return [gpu_record(snapshot, gpu) for gpu in fleet.gpus]


def node_records(snapshot: Snapshot, fleet: Fleet) -> list[Record]:
    return [
        {**node.as_dict(), "gpus": [gpu_record(snapshot, gpu) for gpu in node.ordered_gpus]}
        for node in fleet.ordered_nodes
    ]


def vgpu_records(fleet: Fleet) -> list[Record]:
    """Return the running vGPUs in the order of the fleet."""
    return [
        {**slot.as_dict(), "node": gpu.node, "gpu": gpu.name, "spellings": spellings(slot.profile)}
        for gpu, slot in fleet.slots()
        if slot.profile
    ]


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
    parsed = parse_or_none(profile)
    if any(slot.profile == profile for slot in gpu.slots):
        return True
    offered = any(profile in (slot.offered or ()) for slot in gpu.slots)
    return bool(
        parsed
        and offered
        and isinstance(
            capacity_for(classify_slots(gpu, node), group_of(parsed.key), {parsed.key: profile}, AllowedChanges()),
            GpuCapacity,
        )
    )
