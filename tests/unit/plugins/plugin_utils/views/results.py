"""Results of the modules for fleets in a few words, without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.counts import VsphereAvailability
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.fleet import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.result import nodes, records
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.result.findings import findings

Json = dict[str, Any]


def finding(kind: str, device: str, text: str = "") -> Json:
    return {"kind": kind, "device": device, "text": text or f"{device}: {kind}."}


def harvester_info(fleet: Fleet, findings: Sequence[Json] = ()) -> Json:
    """What harvester_gpu_info returns, as far as records are made from it."""
    return {
        **fleet.as_dict(),
        "findings": list(findings),
        "harvester": {"version": "1.8", "vfio_framework": "vendor_vfio"},
    }


def vsphere_info(found: Snapshot) -> Json:
    return {
        "nodes": nodes.node_records(found, found.fleet),
        "vgpus": records.vgpu_records(found.fleet),
        "claims": [claim.as_dict() for claim in found.fleet.ordered_claims],
        "findings": [one.as_dict() for one in findings(found)],
        "vsphere": {"version": found.inventory.api_version},
    }


def vsphere_availability(found: Snapshot) -> Json:
    available = VsphereAvailability(found)
    return {"profiles": available.profile_records(), "nodes": available.node_records()}
