# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways to move the running VMs with vGPUs of a host to other hosts. Pure.

A host that enters maintenance mode has to be emptied first (vsphere.md 7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import join_names
from ..capacity import GpuClasses, HostCapacity
from ..read.evacuation import HOT_MIGRATE
from ..read.fleet import Snapshot, gpu_name, offers, pinned_by_type
from ..read.inventory import EVACUATION_OPTION, HostFacts, VmFacts

AUTOMATIC = "automatic"
BY_HAND = "by_hand"
IMPOSSIBLE = "impossible"


@dataclass(frozen=True)
class Evacuation:
    """The way to empty a host: by DRS, by hand, or not at all. `reasons` explain all but `automatic`."""

    how: str
    reasons: tuple[str, ...] = ()
    vms: tuple[VmFacts, ...] = ()

    def as_dict(self, stun_times: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
        return {
            "possible": self.how != IMPOSSIBLE,
            "automatic": self.how == AUTOMATIC,
            "reasons": list(self.reasons),
            "vms": [
                {"name": vm.name, "vgpus": [profile for _key, profile in vm.vgpus], "stun_times": _stun(vm, stun_times)}
                for vm in self.vms
            ],
        }


def evacuations(snapshot: Snapshot, *, hot_migrate: bool) -> dict[str, Evacuation]:
    """Return for each GPU host whether its running VMs with vGPUs can move away, by name of the host."""
    rooms = _Rooms(snapshot)
    return {
        host.name: _evacuation(snapshot, rooms, host, hot_migrate=hot_migrate) for host in snapshot.inventory.gpu_hosts
    }


def _evacuation(snapshot: Snapshot, rooms: _Rooms, host: HostFacts, *, hot_migrate: bool) -> Evacuation:
    here = [vm for vm in snapshot.inventory.vms if vm.host == host.moid and vm.running]
    vms = tuple(sorted((vm for vm in here if vm.vgpus), key=lambda vm: vm.name))
    obstacles = []
    if not host.connected:
        obstacles.append(f"Host {host.name} is not connected.")
    pinned = sorted(vm.name for vm in here if vm.passthrough)
    if pinned:
        obstacles.append(f"VM {join_names(pinned)} has a PCI device of the host, so it cannot move while it runs.")
    if vms and not hot_migrate:
        obstacles.append(
            f"The vCenter setting {HOT_MIGRATE} is not true, so VM {join_names(vm.name for vm in vms)} cannot move"
            " while it runs."
        )
    stranded = rooms.stranded(host, vms) if vms else []
    if stranded:
        obstacles.append(f"No other host of cluster {host.cluster} has room for VM {join_names(stranded)}.")
    if obstacles:
        return Evacuation(IMPOSSIBLE, tuple(obstacles), vms)
    manual = []
    if vms and not host.drs:
        manual.append(f"DRS is off in cluster {host.cluster}, so VMs have to be moved by hand.")
    elif vms and host.drs_evacuation != "-1":
        manual.append(
            f"The DRS option {EVACUATION_OPTION} of cluster {host.cluster} is not -1, so DRS does not move VMs with"
            " vGPUs off a host that enters maintenance mode."
        )
    return Evacuation(BY_HAND if manual else AUTOMATIC, tuple(manual), vms)


class _Rooms:
    """The free capacity of all hosts, computed once."""

    def __init__(self, snapshot: Snapshot) -> None:
        classes = GpuClasses()
        self._hosts: list[tuple[HostFacts, HostCapacity]] = []
        for node in snapshot.fleet.ordered_nodes:
            host = snapshot.hosts[node.name]
            if host.gpus and node.usable:
                offered = {gpu_name(host.name, gpu.address): offers(host, gpu) for gpu in host.gpus}
                capacity = HostCapacity(node, offered, by_type=pinned_by_type(host), classes=classes)
                self._hosts.append((host, capacity))
        self._holders = snapshot.holders

    def stranded(self, host: HostFacts, vms: tuple[VmFacts, ...]) -> list[str]:
        """Return the VMs that fit on no other host of the cluster, after the larger ones have moved."""
        others = [
            capacity.copy()
            for other, capacity in self._hosts
            if other.moid != host.moid and other.cluster_id == host.cluster_id
        ]
        left = []
        for vm in sorted(vms, key=lambda vm: (-len(vm.vgpus), vm.name)):
            vgpus = Counter(profile for _key, profile in vm.vgpus)
            if not any(other.admit(vgpus, self._holders[vm.moid]) for other in others):
                left.append(vm.name)
        return left


def _stun(vm: VmFacts, stun_times: Mapping[str, Mapping[int, int]]) -> list[dict[str, int]]:
    """Return the estimated stun time by bandwidth: the sum over the vGPUs, if all of them have an estimate."""
    profiles = [stun_times.get(profile, {}) for _key, profile in vm.vgpus]
    common = set.intersection(*(set(times) for times in profiles)) if profiles else set()
    return [
        {"bandwidth_mbps": bandwidth, "seconds": sum(times[bandwidth] for times in profiles)}
        for bandwidth in sorted(common)
    ]
