# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detection of problems with hosts and VMs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..read import inventory as facts
from ..read.fleet import Snapshot, gpu_name, offers
from ..read.inventory import HostFacts, pending_text


@dataclass(frozen=True)
class Finding:
    """A detected problem. `device` is the affected GPU, host or VM."""

    kind: str
    device: str
    text: str

    def as_dict(self) -> dict[str, str]:
        return {"kind": self.kind, "device": self.device, "text": self.text}


def findings(snapshot: Snapshot) -> list[Finding]:
    return [*_hosts(snapshot), *_vms(snapshot)]


def _hosts(snapshot: Snapshot) -> Iterator[Finding]:
    for host in snapshot.inventory.gpu_hosts:
        waiting = pending_text(host)
        if waiting:
            yield Finding("graphics_pending", host.name, waiting)
        for gpu in host.gpus:
            if host.connected and gpu.graphics_type == facts.SHARED_DIRECT and not offers(host, gpu):
                yield Finding(
                    "driver_missing",
                    gpu_name(host.name, gpu.address),
                    f"GPU {gpu.address} of host {host.name} is shared direct and offers no vGPU profiles: the NVIDIA"
                    " host driver is missing or does not work.",
                )


def _vms(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield VMs that could not start again, and running VMs with vGPUs that no GPU lists."""
    offered: dict[str, set[str]] = {}
    for host in snapshot.inventory.hosts:
        offered.setdefault(_place(host), set()).update(host.profiles)
    hosts = {host.moid: host for host in snapshot.inventory.hosts}
    for vm in snapshot.inventory.vms:
        home = hosts.get(vm.host)
        if home is None:
            # The VM left the selection after the hosts were read, or has no host, so its GPUs are unknown.
            continue
        there = offered[_place(home)]
        missing = sorted({profile for _key, profile in vm.vgpus} - there)
        where = f"cluster {home.cluster}" if home.drs else f"host {home.name}"
        for profile in missing:
            yield Finding(
                "profile_not_offered", vm.name, f"VM {vm.name} has a vGPU {profile}, which nothing in {where} offers."
            )
        if vm.running and vm.vgpus and not any(vm.moid in gpu.vms for gpu in home.gpus):
            yield Finding(
                "not_on_a_gpu", vm.name, f"VM {vm.name} runs with vGPUs, and no GPU of host {home.name} lists it."
            )


def _place(host: HostFacts) -> str:
    """Return the id of the cluster or, without DRS, of the host, in which VMs of the host can start."""
    return host.cluster_id if host.drs else host.moid
