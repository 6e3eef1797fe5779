# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records that modules return: the records of the fleet, with all spellings of the profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from ...fleet import catalog
from ...fleet.model import MIG, Fleet, Gpu, Node, Slot
from ...fleet.profile import parse_or_none, vsphere_name
from ..version import HarvesterVersion

Record = dict[str, Any]


def spellings(type_name: str, version: HarvesterVersion) -> dict[str, str]:
    """Return the spellings of a type on this cluster and on other platforms."""
    parsed = parse_or_none(type_name)
    listed = catalog.find_profile(type_name)
    return {
        "type": type_name,
        "short": parsed.short if parsed else type_name,
        "resource": version.resource(type_name),
        "vsphere": vsphere_name(listed.name if listed else type_name),
    }


def profile_records(vgpus: Iterable[Record], version: HarvesterVersion) -> list[Record]:
    """Return the spellings of the profiles of some vGPUs and the numbers of these vGPUs, once for each profile."""
    listed = [(name, vgpu) for vgpu in vgpus if (name := vgpu["profile"] or vgpu["requested"]) is not None]
    total = Counter(name for name, _vgpu in listed)
    in_use = Counter(name for name, vgpu in listed if vgpu["holders"])
    return [{**spellings(name, version), "total": total[name], "in_use": in_use[name]} for name in sorted(total)]


def vgpu_record(gpu: Gpu, slot: Slot) -> Record:
    known = {} if slot.address else {"name": None, "address": None}
    return {**slot.as_dict(), **known, "node": gpu.node, "gpu": gpu.name}


def is_enabled(gpu: Gpu, slot: Slot) -> bool:
    return not slot.empty


def vgpu_records(fleet: Fleet, shown: Callable[[Gpu, Slot], bool] = is_enabled) -> list[Record]:
    """Return the records of vGPUs in the fleet's order."""
    return [vgpu_record(gpu, slot) for gpu, slot in fleet.slots() if shown(gpu, slot)]


def filtered(
    fleet: Fleet,
    *,
    nodes: Sequence[str] | None = None,
    gpus: Sequence[str] | None = None,
    profiles: Sequence[str] | None = None,
) -> Fleet:
    """Return a part of the fleet. A filter on GPUs also leaves out the nodes without a matching GPU.

    None means no filter; an empty list selects nothing.
    """

    def matches(gpu: Gpu) -> bool:
        if gpus is not None and not _matches(gpu.name, gpus):
            return False
        return profiles is None or any(
            name in profiles for slot in gpu.slots for name in (slot.profile, *(slot.offered or ()))
        )

    chosen: list[Node] = []
    for node in fleet.ordered_nodes:
        if nodes is None or _matches(node.name, nodes):
            left = tuple(gpu for gpu in node.gpus if matches(gpu))
            if left or (gpus is None and profiles is None):
                chosen.append(replace(node, gpus=left))
    return replace(fleet, nodes=tuple(chosen))


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def gpu_records(fleet: Fleet, gpus: Iterable[str]) -> list[Record]:
    chosen = set(gpus)
    return [gpu.as_dict() for gpu in fleet.gpus if gpu.name in chosen]


def diff(before: Fleet, after: Fleet, gpus: Iterable[str]) -> Record:
    """Return the difference on some GPUs for Ansible's diff mode."""
    chosen = set(gpus)
    old, new = ({gpu.name: _summary(gpu) for gpu in fleet.gpus if gpu.name in chosen} for fleet in (before, after))
    changed = [name for name, summary in old.items() if new.get(name) != summary]
    return {"before": {name: old[name] for name in changed}, "after": {name: new.get(name) for name in changed}}


def _summary(gpu: Gpu) -> Record:
    vgpus = {slot.name: slot.profile or slot.wanted for slot in gpu.ordered_slots if not slot.empty}
    summary: Record = {"sriov": "enabled" if gpu.sharing else "disabled", "vgpus": vgpus}
    if gpu.mode == MIG:
        summary["mig"] = {name: count for name, count in sorted(gpu.max_instances.items()) if count}
    return summary
