# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Selection of the hosts with free capacity for all devices of a VM, based on the planner. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ....errors import FleetError
from ....fleet.model import MIG, Fleet, Holder, Node, could_be
from ....fleet.profile import parse_or_none
from ...capacity import GpuClasses, HostCapacity, room_of
from .devices import DeviceDiff, PciRequest
from .model import PciId, counted
from .rules import serves


class NoRoom(FleetError):
    code = "no_room"


@dataclass(frozen=True)
class HostCandidates:
    """Hosts with free capacity, best first; hosts where only the driver can tell; and reasons for all other hosts."""

    fitting: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict, hash=False)
    # Differences between the capacity that vCenter reports and the own count.
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> str | None:
        return next(iter(self.fitting + self.unsure), None)


def without_devices(wanted: Sequence[PciRequest], devices: Mapping[str, Sequence[tuple[PciId, str]]]) -> dict[str, str]:
    """Return the hosts that lack requested PCI devices, with the reason. `devices` are the free devices by host."""
    needed = Counter(wanted)
    each = counted({f"PCI device {request}": count for request, count in needed.items()})
    return {host: f"it has not {each} to give" for host, has in devices.items() if not serves(has, needed)}


def without_groups(
    wanted: Mapping[str, int], offers: Mapping[str, Iterable[str]], remaining: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """Return the hosts that cannot provide requested device groups, with the reason.

    `offers` are the names of the groups of each host, and `remaining` the free groups where vCenter reports them.
    """
    found = {}
    for host, names in offers.items():
        missing = sorted(set(wanted) - set(names))
        taken = [name for name, count in sorted(wanted.items()) if remaining.get(host, {}).get(name, count) < count]
        if missing:
            found[host] = f"it has no device group {missing[0]}"
        elif taken:
            left = remaining[host][taken[0]]
            found[host] = f"it has only {left} free of {wanted[taken[0]]} x device group {taken[0]}"
    return found


def rooms(
    fleet: Fleet,
    vgpus: Mapping[str, int],
    *,
    current: str | None = None,
    lacking: Mapping[str, str] | None = None,
    reported: Mapping[str, Mapping[str, int]] | None = None,
) -> HostCandidates:
    """Check each host separately, since all devices of a VM come from one host. `fleet` does not contain the VM.

    Prefer the host on which the VM is registered, then hosts whose GPUs are already in use. `lacking` maps hosts that
    cannot take the VM for another reason to that reason. `reported` are the free vGPUs by host and profile as vCenter
    reports them, which take precedence over the own count.
    """
    fitting: list[tuple[bool, bool, str]] = []
    unsure: list[str] = []
    reasons: dict[str, str] = {}
    warnings: list[str] = []
    for node in fleet.ordered_nodes:
        alone = Fleet((node,))
        try:
            reason = _why_not(alone, vgpus)
        except FleetError as error:
            reason = error.message
        told = (reported or {}).get(node.name, {})
        if node.usable and set(vgpus) <= set(told):
            short = [profile for profile, count in sorted(vgpus.items()) if told[profile] < count]
            # The numbers hold for one profile at a time, so they cannot confirm a combination of profiles.
            fits = not short if short or len(vgpus) == 1 else not reason
            if fits != (not reason):
                profile = short[0] if short else next(iter(vgpus))
                explained = f"the own count disagrees: {reason.rstrip('.')}" if reason else "the own count has room"
                warnings.append(
                    f"vCenter reports {told[profile]} free vGPUs {profile} on host {node.name}, and {explained}."
                    " The number of vCenter is used."
                )
                reason = "" if fits else f"vCenter reports only {told[profile]} free vGPUs {profile}"
        elsewhere = (lacking or {}).get(node.name, "")
        if elsewhere:
            reasons[node.name] = reason or elsewhere
        elif not reason:
            fresh = not any(slot.holders for gpu in alone.gpus for slot in gpu.slots)
            fitting.append((node.name != current, fresh, node.name))
        elif not set(vgpus) <= set(told) and _only_the_driver_knows(alone, vgpus):
            unsure.append(node.name)
        else:
            reasons[node.name] = reason
    return HostCandidates(tuple(name for *_rank, name in sorted(fitting)), tuple(unsure), reasons, tuple(warnings))


def refuse_without_room(vm: str, devices: DeviceDiff, found: HostCandidates) -> None:
    if found.best is None:
        wanted = [counted(devices.vgpu_counts)] if devices.vgpus else []
        wanted += [f"{count} x PCI device {request}" for request, count in sorted(Counter(devices.pci).items())]
        wanted += [f"{count} x device group {name}" for name, count in sorted(devices.groups.items())]
        each = "; ".join(f"{host}: {reason.rstrip('.')}" for host, reason in sorted(found.reasons.items()))
        raise NoRoom(
            f"No host has room for VM {vm} with {', '.join(wanted)}" + (f" ({each})." if each else "."),
            hint="See what is free with vgpu.fleet.vgpu_availability, or use placement: none to leave it to vSphere.",
        )


def _why_not(alone: Fleet, vgpus: Mapping[str, int]) -> str:
    node = alone.nodes[0]
    if not node.ready:
        return "the host is not connected"
    if not node.schedulable:
        return "the host is in maintenance mode"
    if not any(vgpus.values()):
        return ""
    if not node.gpus:
        return "it has no GPU"
    if _admits(node, vgpus):
        return ""
    return "; ".join(_obstacles(alone, vgpus)) or f"it has room for only a part of {counted(vgpus)}"


def _admits(node: Node, vgpus: Mapping[str, int], *, optimistic: bool = False) -> bool:
    # Admit all vGPUs in sequence, since each vGPU reduces the remaining capacity of a GPU in MIG mode.
    offered = {gpu.name: [name for slot in gpu.slots for name in slot.offered or ()] for gpu in node.gpus}
    return HostCapacity(node, offered, classes=GpuClasses(optimistic=optimistic)).admit(vgpus, Holder(""))


def _obstacles(alone: Fleet, vgpus: Mapping[str, int]) -> Iterable[str]:
    """Yield a reason for each GPU that has no capacity for a profile, and for each profile that no GPU supports."""
    for profile in sorted(vgpus):
        parsed = parse_or_none(profile)
        if parsed is None:
            continue
        fitting = [gpu for gpu in alone.gpus if could_be(gpu, parsed)]
        if not fitting:
            yield f"its GPUs do not offer {profile}"
        for gpu in fitting:
            room = room_of(gpu, alone.nodes[0], profile, by_type=False)
            if not room.count:
                why = room.reason if gpu.sharing or gpu.blocked else "it is not shared direct"
                yield f"GPU {gpu.address or gpu.name}: {why}"


def _only_the_driver_knows(alone: Fleet, vgpus: Mapping[str, int]) -> bool:
    """Return whether only the driver can tell if the vGPUs fit.

    On mixed-size GPUs, it depends on the places of the present vGPUs. The MIG instances of unknown boards are an
    estimate; for known boards, the slices are exact.
    """
    node = alone.nodes[0]
    if not node.usable:
        return False
    parsed = [profile for profile in map(parse_or_none, vgpus) if profile]
    return _admits(node, vgpus, optimistic=True) or any(
        profile.mig and gpu.mode == MIG and not gpu.max_instances and gpu.sharing and not gpu.blocked
        for gpu in alone.gpus
        for profile in parsed
        if could_be(gpu, profile)
    )
