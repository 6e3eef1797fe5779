# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records for module results: fleet records with vSphere details. Pure."""

from __future__ import annotations

from typing import Any

from ...fleet import catalog
from ...fleet.model import Fleet, Gpu
from ..read.fleet import Snapshot
from ..read.inventory import SPELT, pending

Record = dict[str, Any]


# Keys of a GPU that only Harvester fills: hosts create MIG instances when VMs start and do not report them.
NOT_ON_VSPHERE = ("mig_instances", "unstable_reason")


def spellings(name: str) -> dict[str, str]:
    """Return all spellings of a profile, with the name in this vCenter as vSphere spelling."""
    return {**catalog.spellings(name), "vsphere": name}


def gpu_record(snapshot: Snapshot, gpu: Gpu) -> Record:
    host = snapshot.hosts[gpu.node]
    shown = next(candidate for candidate in host.gpus if candidate.address == gpu.address)
    notes = snapshot.notes.get(gpu.name, ())
    return {
        **{key: value for key, value in gpu.as_dict().items() if key not in NOT_ON_VSPHERE},
        "graphics_type": SPELT.get(shown.graphics_type, shown.graphics_type),
        "pending": gpu.address in pending(host),
        "direct_path": shown.direct_path.as_dict() if shown.direct_path else None,
        "exact": not notes,
        "notes": list(notes),
    }


def gpu_records(snapshot: Snapshot, fleet: Fleet) -> list[Record]:
    return [gpu_record(snapshot, gpu) for gpu in fleet.gpus]


def vgpu_records(fleet: Fleet) -> list[Record]:
    """Return the running vGPUs in the order of the fleet."""
    return [
        {**slot.as_dict(), "node": gpu.node, "gpu": gpu.name, "spellings": spellings(slot.profile)}
        for gpu, slot in fleet.slots()
        if slot.profile
    ]
