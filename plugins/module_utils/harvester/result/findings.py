# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find inconsistencies that Harvester does not report and that cause problems later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import join_names
from ...fleet.mig import format_instances, read_size, serves_nothing
from ...fleet.model import Fleet, Gpu, Slot
from .. import paths as r
from ..read.mig_configuration import OUT_OF_SYNC, read_configuration
from ..read.snapshot import Snapshot, claimed_resource, is_made_by_hand, mig_retried_remedy
from ..read.vm_usage import broken_notes
from .vm_findings import vm_findings


@dataclass(frozen=True)
class Finding:
    """A detected problem. `device` is the affected device, VM or node."""

    kind: str
    device: str
    text: str

    def as_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "device": self.device, "text": self.text}


def findings(snapshot: Snapshot, fleet: Fleet) -> list[Finding]:
    """Return the findings on a fleet, which may be a part of the snapshot's fleet. Findings on VMs cover all nodes."""
    found = [
        Finding(
            "invalid_annotation",
            vm,
            f"The allocation annotation of VM {vm} is invalid, which stops the pcidevices controllers of all nodes.",
        )
        for vm in broken_notes(snapshot.vms.items)
    ]
    found += [Finding(*finding) for finding in vm_findings(snapshot)]
    found += _of_permitted_devices(snapshot, fleet)
    found += _of_claims(snapshot, fleet)
    for node in fleet.ordered_nodes:
        if node.reserved_for_containers and node.gpus:
            names = join_names(gpu.name for gpu in node.gpus)
            text = (
                f"The GPUs of node {node.name} are reserved for containers. Harvester removes {names} with its vGPUs."
            )
            found.append(Finding("reserved_node", node.name, text))
    for gpu in fleet.gpus:
        if gpu.sharing and not gpu.vf_capacity:
            text = f"SR-IOV is enabled on GPU {gpu.name}, but the GPU has no virtual functions."
            found.append(Finding("no_functions", gpu.name, text))
        if gpu.unstable:
            text = (
                f"GPU {gpu.name} offers time-sliced types, but {gpu.unstable}: a later attempt takes these types away."
            )
            found.append(Finding("mig_unstable", gpu.name, f"{text} {mig_retried_remedy(snapshot.version, gpu.node)}"))
        found += _of_mig(snapshot, gpu)
        for slot in gpu.ordered_slots:
            found += _of_slot(snapshot, gpu, slot)
    return found


def _of_permitted_devices(snapshot: Snapshot, fleet: Fleet) -> Iterator[Finding]:
    """Yield findings on KubeVirt's list of permitted devices, which the controllers of all nodes write.

    Up to 1.8 they write entries twice all the time (harvester.md 9.5). This does no harm as long as no entry is lost.
    """
    shown = {slot.profile for _gpu, slot in fleet.slots() if slot.profile}
    lacking = sorted(shown & (snapshot.fleet.not_permitted or frozenset()))
    for name in lacking:
        resource = snapshot.version.resource(name)
        text = f"KubeVirt's list of permitted devices lacks {resource}, so no VM can start with a vGPU of type {name}."
        yield Finding("not_permitted", resource, text)
    for resource, count in (snapshot.permitted.duplicates if snapshot.permitted and lacking else {}).items():
        text = f"KubeVirt's list of permitted devices has {resource} {count} times, in place of entries that got lost."
        yield Finding("permitted_twice", resource, text)


def _of_claims(snapshot: Snapshot, fleet: Fleet) -> Iterator[Finding]:
    """Yield findings on claims of vGPU devices that do not exist, because SR-IOV was disabled under enabled vGPUs."""
    nodes = {node.name for node in fleet.nodes}
    for name, claim in sorted(snapshot.claims.items.items()):
        node, resource = (claim.get("spec") or {}).get("nodeName", ""), claimed_resource(claim)
        gone = name not in snapshot.vgpus.items and name not in snapshot.gpus.items
        if snapshot.version.vendor_vfio and gone and resource and node in nodes and not is_made_by_hand(claim):
            text = f"Claim {name} has no vGPU device, but node {node} may still offer it as {resource}."
            yield Finding("claim_without_device", name, f"{text} Enable SR-IOV on its GPU to repair it.")


def _of_mig(snapshot: Snapshot, gpu: Gpu) -> Iterator[Finding]:
    item = snapshot.mig.items.get(gpu.name)
    mig = read_configuration(item) if item else None
    if mig is None or not mig.enabled:
        return
    listed = [size for size in map(read_size, mig.profiles) if size]
    idle = {size: count for size, count in mig.instances.items() if serves_nothing(gpu.board, size, listed)}
    if idle:
        serving = join_names(size.name for size in listed if not serves_nothing(gpu.board, size, listed))
        text = f"GPU {gpu.name} has {format_instances(idle)}, which serve no vGPU. Only {serving or 'others'} do."
        yield Finding("mig_serves_nothing", gpu.name, text)
    if mig.status == OUT_OF_SYNC:
        message = f": {mig.message}" if mig.message else ""
        yield Finding("mig_out_of_sync", gpu.name, f"The MIG instances of GPU {gpu.name} are out of sync{message}.")
    elif mig.instances and dict(mig.instances) != dict(mig.requested):
        text = f"GPU {gpu.name} has {format_instances(mig.instances)}, but its MIG configuration requests"
        text += f" {format_instances(mig.requested)}, which it gets at the next reboot."
        yield Finding("mig_differs", gpu.name, text)


def _of_slot(snapshot: Snapshot, gpu: Gpu, slot: Slot) -> Iterator[Finding]:
    vgpu = snapshot.vgpus.items[slot.name]
    if (vgpu["metadata"].get("labels") or {}).get(r.NODE_LABEL) != gpu.node:
        text = f"vGPU device {slot.name} has no label {r.NODE_LABEL}, which stops the scan of node {gpu.node}."
        yield Finding("missing_label", slot.name, text)
    handed_out = snapshot.claimed_type(vgpu)
    status_type = (vgpu.get("status") or {}).get("configureVGPUTypeName")
    if slot.drifted and handed_out and handed_out != status_type:
        text = f"vGPU {slot.name} is {status_type}, but node {gpu.node} offers it as {handed_out}."
        yield Finding("type_differs", slot.name, text)
    elif slot.drifted:
        text = f"vGPU {slot.name} is {slot.profile}, but {slot.wanted} is requested. It changes at the next reboot."
        yield Finding("type_differs", slot.name, text)
    elif slot.profile and not slot.wanted:
        text = f"vGPU {slot.name} is disabled and still configured as {slot.profile}."
        yield Finding("not_removed", slot.name, text)
    elif slot.wanted and not slot.profile:
        text = f"vGPU {slot.name} requests {slot.wanted}, but is not configured."
        yield Finding("not_configured", slot.name, text)
    elif slot.profile and not vgpu["spec"].get("vGPUTypeName"):
        text = f"vGPU {slot.name} is {slot.profile}, but its spec does not request it. The next reboot removes it."
        yield Finding("unrequested", slot.name, text)
    elif slot.state == "configured":
        text = f"vGPU {slot.name} is configured as {slot.profile}, but node {gpu.node} does not offer it."
        yield Finding("not_allocatable", slot.name, f"{text} If it stays so: {r.restart_command(gpu.node)}")
    elif slot.empty and handed_out:
        text = f"vGPU {slot.name} is disabled, but node {gpu.node} still offers it as {handed_out}."
        yield Finding("claim_left_behind", slot.name, text)
