# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Refuse combinations of vGPUs that the cluster accepts but that cannot boot. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...availability.counts import Availability, select_nodes
from ...errors import FleetError, join_names
from ...fleet import catalog
from ...fleet.model import Fleet
from ...fleet.profile import Profile, board_key, large_compute, parse_or_none
from ..paths import restart_command
from ..version import HarvesterVersion

# On these boards, the series alone decides whether a VM may have several vGPUs (Harvester's page on vGPUs).
SEVERAL_OF_ANY_Q = ("a2", "a16")

_ADDRESS = re.compile("[0-9a-f]{9}")


class CannotBoot(FleetError):
    code = "cannot_boot"


class NotOffered(FleetError):
    code = "profile_not_offered"


class NotAdvertised(FleetError):
    """vGPUs exist, but the device plugin or the kubelet of their node does not report them."""

    code = "not_advertised"


class NoRoom(FleetError):
    code = "no_room"


def refuse_what_cannot_boot(vm: str, vgpus: Mapping[str, int]) -> None:
    """Apply rules of NVIDIA's driver that nothing else checks before the guest starts."""
    profiles = _profiles(vgpus)
    boards = {profile.board for profile in profiles}
    if len(boards) > 1:
        raise CannotBoot(
            f"VM {vm} cannot have vGPUs of different boards: {_said(vgpus)}.", hint="Choose profiles of one board."
        )
    series = {profile.series for profile in profiles}
    if len(series) > 1:
        raise CannotBoot(
            f"VM {vm} cannot have vGPUs of different series: {_said(vgpus)}.",
            hint="Choose profiles whose names end in the same letter.",
        )
    if sum(vgpus.values()) > 1 and series <= {"A", "B"} and series:
        raise CannotBoot(
            f"VM {vm} cannot have several vGPUs of series {series.pop()}: {_said(vgpus)}.",
            hint="Only series Q and C allow several vGPUs in one VM.",
        )


def warnings(vm: str, vgpus: Mapping[str, int], *, compute: bool) -> Iterator[str]:
    profiles = _profiles(vgpus)
    if sum(vgpus.values()) > 1:
        unsure = [profile.name for profile in profiles if not _allows_several(profile)]
        if unsure:
            yield (
                f"Whether VM {vm} may have several {join_names(unsure)} depends on the version of NVIDIA's driver:"
                " older ones allow it for the largest profiles only."
            )
        if len({profile.mib for profile in profiles}) > 1:
            yield f"VM {vm} gets vGPUs of different sizes ({_said(vgpus)}), which only recent drivers allow."
    weak = [profile.name for profile in profiles if profile.series in "AB"]
    if compute and weak:
        yield (
            f"VM {vm} is to compute, and {join_names(weak)} is of a series for desktops and applications: CUDA needs"
            " series Q or C, and their licence."
        )


def firmware_warnings(vm: str, vgpus: Mapping[str, int], *, efi: bool, version: HarvesterVersion) -> Iterator[str]:
    """Yield a warning if the firmware of the VM may not give its vGPUs enough address space (harvester.md 12.9)."""
    large = large_compute(name for name, count in vgpus.items() if count)
    if large and efi != version.efi_for_large_gpus:
        boots, other = ("EFI", "BIOS") if efi else ("BIOS", "EFI")
        yield (
            f"VM {vm} boots with {boots}. On Harvester {version}, vGPUs such as {join_names(large)} may need {other}:"
            " if the driver of the guest does not find them, create the VM anew with"
            f" {'bootloader.bios' if efi else 'bootloader.efi'}. The module does not change the firmware, because an"
            " installed guest would not boot any more."
        )


def refuse_what_no_node_has(vm: str, vgpus: Mapping[str, int], fleet: Fleet) -> None:
    """Refuse vGPUs that no single node offers, whether or not other VMs have them now."""
    offered = {node.name: node.advertised or {} for node in fleet.ordered_nodes}
    for profile in sorted(vgpus):
        if not any(amounts.get(profile) for amounts in offered.values()):
            _refuse_what_is_hidden(vm, profile, fleet)
            there = {name for amounts in offered.values() for name, count in amounts.items() if count}
            raise NotOffered(
                f"No node offers {profile}, so VM {vm} cannot have it.",
                hint=f"Make some: vgpu.fleet.harvester_vgpu. What is offered now: {join_names(there)}.",
            )
    if not any(all(amounts.get(name, 0) >= count for name, count in vgpus.items()) for amounts in offered.values()):
        most = "; ".join(
            f"{node}: " + ", ".join(f"{amounts.get(name, 0)} x {name}" for name in sorted(vgpus))
            for node, amounts in offered.items()
            if any(amounts.get(name) for name in vgpus)
        )
        raise NoRoom(
            f"VM {vm} cannot have {_said(vgpus)}: all vGPUs of a VM come from one node, and none has as many ({most}).",
            hint="Make more of them on one node: vgpu.fleet.harvester_vgpu.",
        )


def _refuse_what_is_hidden(vm: str, profile: str, fleet: Fleet) -> None:
    """Refuse a profile whose vGPUs exist while no node advertises them: more of them would not help."""
    configured = {
        node.name: sum(slot.profile == profile for gpu in node.gpus for slot in gpu.slots)
        for node in fleet.ordered_nodes
    }
    hidden = {name: count for name, count in configured.items() if count}
    if not hidden:
        return
    said = ", ".join(f"{count} on node {name}" for name, count in hidden.items())
    down = [node.name for node in fleet.ordered_nodes if node.name in hidden and not node.ready]
    up = [name for name in hidden if name not in down]
    hints = [f"Node {name} is not ready." for name in down]
    hints += [
        f"Check the kubelet and the pcidevices controller of node {name}, or restart the controller:"
        f" {restart_command(name)}."
        for name in up
    ]
    raise NotAdvertised(
        f"VM {vm} cannot have {profile}: its vGPUs are configured ({said}), but no node advertises them.",
        hint=" ".join(hints),
    )


def refuse_devices_of_different_nodes(vm: str, devices: Iterable[str], nodes: Iterable[str]) -> None:
    """Refuse PCI devices of different nodes: the webhook requires all of them on one node (harvester.md 10.2)."""
    known = sorted(nodes, key=len, reverse=True)
    places = {device: _node_of(device, known) for device in devices}
    found = {device: node for device, node in places.items() if node}
    if len(set(found.values())) > 1:
        said = ", ".join(f"{device} on {node}" for device, node in sorted(found.items()))
        raise CannotBoot(
            f"VM {vm} has devices of different nodes: {said}.",
            hint="All devices of a VM come from one node; take those of the others out of it.",
        )


def _node_of(device: str, nodes: Iterable[str]) -> str | None:
    # The name of a PCI device consists of its node and its address, of nine hexadecimal digits.
    for node in nodes:
        if device.startswith(f"{node}-") and _ADDRESS.fullmatch(device[len(node) + 1 :]):
            return node
    return None


def node_with_room(vm: str, vgpus: Mapping[str, int], fleet: Fleet) -> str | None:
    """Return a node on which the VM could start now. The VM's own current vGPUs count as free."""
    available = replace(Availability(fleet, select_nodes(fleet, None)), released=frozenset((vm,)))
    for node, counts in available.by_node.items():
        if all(name in counts and counts[name].free_now >= count for name, count in vgpus.items()):
            return node
    return None


def no_room_now(vm: str, vgpus: Mapping[str, int], fleet: Fleet) -> str:
    available = Availability(fleet, select_nodes(fleet, None))
    taken = sorted(
        path
        for path, holding in available.holdings.items()
        if path != vm and holding.holder.running and any(holding.vgpus.get(name) for name in vgpus)
    )
    return f"no node has {_said(vgpus)} free at the moment; they are in use by {join_names(taken)}"


def _allows_several(profile: Profile) -> bool:
    if board_key(profile.board) in SEVERAL_OF_ANY_Q:
        return profile.series == "Q"
    known = catalog.find_profile(profile.name)
    return bool(known and known.multi_vgpu)


def _profiles(vgpus: Mapping[str, int]) -> list[Profile]:
    parsed = (parse_or_none(name) for name, count in sorted(vgpus.items()) if count)
    return [profile for profile in parsed if profile]


def _said(vgpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(vgpus.items()) if count)
