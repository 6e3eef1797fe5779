"""Hosts, GPUs and VMs for these tests, in a few words."""

from __future__ import annotations

from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.fleet import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.inventory import (
    GpuFacts,
    HostFacts,
    Inventory,
    ProfileFacts,
    VmFacts,
)

A40 = 0x2235 << 16 | 0x10DE
A100 = 0x20F1 << 16 | 0x10DE
A40_PROFILES = ("nvidia_a40-4q", "nvidia_a40-8q", "nvidia_a40-8c", "nvidia_a40-16q", "nvidia_a40-48q")
MIG_PROFILES = ("grid_a100-1-5c", "grid_a100-2-10c", "grid_a100-3-20c", "grid_a100-7-40c")
FIRST, SECOND = "0000:3b:00.0", "0000:3d:00.0"


def gpu(address: str = FIRST, *vms: str, **more: Any) -> GpuFacts:
    return GpuFacts(address, vms=tuple(vms), **({"device": A40, "vgpu_mode": "sameSize"} | more))


def host(name: str = "esx1", *gpus: GpuFacts, profiles: tuple[str, ...] = A40_PROFILES, **more: Any) -> HostFacts:
    chosen = gpus or (gpu(), gpu(SECOND))
    details = tuple(ProfileFacts(profile, A40, mig=False) for profile in profiles)
    given = {"moid": f"host-{name}", "cluster": "gpu", "drs": True, "version": "8.0.3", "details": details}
    return HostFacts(name=name, gpus=chosen, profiles=profiles, **(given | more))


def old_host(name: str = "esx1", *gpus: GpuFacts, **more: Any) -> HostFacts:
    """Before 7.0.3 nothing is known of profiles but their names, and before 8.0.3 nothing of modes."""
    chosen = gpus or (gpu(vgpu_mode=None), gpu(SECOND, vgpu_mode=None))
    return host(name, *chosen, **({"version": "6.7.0", "details": ()} | more))


def vm(name: str, *profiles: str, on: str = "esx1", power: str = "poweredOn", **more: Any) -> VmFacts:
    vgpus = tuple((13000 + number, profile) for number, profile in enumerate(profiles))
    return VmFacts(name, name, f"host-{on}", power, vgpus=vgpus, **more)


def snapshot(*hosts: HostFacts, vms: tuple[VmFacts, ...] = ()) -> Snapshot:
    return Snapshot(Inventory(tuple(hosts), vms, "8.0.3.0"))
