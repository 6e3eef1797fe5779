# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Validation of the devices of a VM before any change. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ....errors import FleetError, did_you_mean, join_names
from ....fleet import catalog
from ....fleet.profile import Profile, board_key, parse_or_none, vsphere_name
from ....fleet.profile_resolver import ProfileResolver, UnknownProfile
from .devices import PciRequest
from .model import PciId, counted

HEX = 16
# Several vGPUs of series C with a part of the framebuffer in one VM (nvidia.md 5.1).
FRACTIONAL_SINCE = (8, 0)


class InvalidRequest(FleetError):
    code = "invalid_request"


class CannotBoot(FleetError):
    code = "cannot_boot"


class NotOffered(FleetError):
    code = "profile_not_offered"


class NoSuchDevice(FleetError):
    code = "device_not_offered"


def wanted_vgpus(asked: Sequence[Mapping[str, Any]] | None, names: Iterable[str]) -> Counter[str] | None:
    """Return the requested number of vGPUs per profile, with profiles in vSphere spelling."""
    if asked is None:
        return None
    known = ProfileResolver(names)
    wanted: Counter[str] = Counter()
    for vgpu in asked:
        _refuse_count(vgpu["profile"], vgpu["count"])
        wanted[_resolved(vgpu["profile"], known)] += vgpu["count"]
    return wanted


def _resolved(spelling: str, known: ProfileResolver) -> str:
    """Return the profile in vSphere spelling, or unchanged if the profile is unknown."""
    try:
        return vsphere_name(known.resolve(spelling))
    except UnknownProfile:
        return spelling


def wanted_pci_devices(asked: Sequence[Mapping[str, Any]] | None) -> list[PciRequest] | None:
    if asked is None:
        return None
    wanted: list[PciRequest] = []
    for device in asked:
        ids = (_pci_number("vendor_id", device["vendor_id"]), _pci_number("device_id", device["device_id"]))
        request = PciRequest(ids, device.get("custom_label") or "")
        _refuse_count(str(request), device["count"])
        wanted += [request] * device["count"]
    return wanted


def wanted_device_groups(asked: Sequence[Mapping[str, Any]] | None) -> Counter[str] | None:
    """Return the requested number of device groups per name."""
    if asked is None:
        return None
    wanted: Counter[str] = Counter()
    for group in asked:
        name = group["name"].strip()
        if not name:
            raise InvalidRequest("The name of a device group is empty.", hint="See vgpu.fleet.vsphere_gpu_info.")
        _refuse_count(f"Device group {name}", group["count"])
        wanted[name] += group["count"]
    return wanted


def refuse_groups_that_no_host_offers(vm: str, groups: Iterable[str], offers: Mapping[str, Iterable[str]]) -> None:
    """Reject device groups that no single host offers. `offers` are the names of the groups of each host."""
    needed = set(groups)
    by_host = {host: set(names) for host, names in offers.items()}
    if any(needed <= names for names in by_host.values()):
        return
    everything = set().union(*by_host.values())
    missing = sorted(needed - everything)
    if not missing:
        raise NoSuchDevice(
            f"No host in reach offers all of the device groups {join_names(needed)}, so VM {vm} cannot have them"
            " together.",
            hint="All devices of a VM come from one host.",
        )
    alike = did_you_mean(missing[0], everything)
    there = f"The nearest ones offered: {', '.join(alike)}." if alike else f"There are: {join_names(everything)}."
    raise NoSuchDevice(
        f"No host in reach offers the device group {missing[0]}, so VM {vm} cannot have it.",
        hint=there if everything else "None of them offers any device group: see vgpu.fleet.vsphere_gpu_info.",
    )


def refuse_what_cannot_boot(
    vm: str,
    vgpus: Mapping[str, int],
    *,
    most: int | None = None,
    api_version: tuple[int, ...] = FRACTIONAL_SINCE,
) -> None:
    """Reject combinations of vGPUs that NVIDIA's driver does not support, or that exceed the server's limit `most`."""
    parsed = [profile for profile in map(parse_or_none, (name for name in sorted(vgpus) if vgpus[name])) if profile]
    if len({board_key(profile.board) for profile in parsed}) > 1:
        raise CannotBoot(
            f"VM {vm} cannot have vGPUs of different boards: {counted(vgpus)}.", hint="Choose profiles of one board."
        )
    series = {profile.series for profile in parsed}
    if len(series) > 1:
        raise CannotBoot(
            f"VM {vm} cannot have vGPUs of different series: {counted(vgpus)}.",
            hint="Choose profiles whose names end in the same letter.",
        )
    total = sum(vgpus.values())
    if total > 1 and series and series <= {"A", "B"}:
        raise CannotBoot(
            f"VM {vm} cannot have several vGPUs of series {series.pop()}: {counted(vgpus)}.",
            hint="Only series Q and C allow several vGPUs in one VM.",
        )
    fractional = [profile.name for profile in parsed if _is_fractional(profile)]
    if total > 1 and series == {"C"} and fractional and api_version < FRACTIONAL_SINCE:
        raise CannotBoot(
            f"VM {vm} cannot have several vGPUs ({counted(vgpus)}): before vSphere 8.0 all vGPUs of series C in such a"
            f" VM must have the whole framebuffer of their GPU, and {join_names(fractional)} has only a part of it.",
            hint="Use one vGPU, profiles of the full size, or vSphere 8.0.",
        )
    if most is not None and total > most:
        raise CannotBoot(
            f"VM {vm} cannot have {total} vGPUs ({counted(vgpus)}): a VM of its hardware version takes {most}.",
            hint="Use fewer and larger ones.",
        )


def _is_fractional(profile: Profile) -> bool:
    board = catalog.find_board(profile.board)
    return board is not None and (profile.mig or profile.mib < board.framebuffer_mib)


def refuse_what_no_host_offers(vm: str, vgpus: Mapping[str, int], offers: Mapping[str, Iterable[str]]) -> None:
    """Reject vGPUs that no single host offers. `offers` are the profiles of each host, free or in use."""
    by_host = {host: set(profiles) for host, profiles in offers.items()}
    everything = set().union(*by_host.values())
    for profile in sorted(vgpus):
        if profile not in everything:
            raise _not_offered(vm, profile, everything)
    if vgpus and not any(set(vgpus) <= profiles for profiles in by_host.values()):
        each = "; ".join(f"{host}: {join_names(set(vgpus) & has)}" for host, has in sorted(by_host.items()) if has)
        raise NotOffered(
            f"No host offers all of {join_names(vgpus)}, so VM {vm} cannot have them together ({each}).",
            hint="All vGPUs of a VM come from one host.",
        )


def _not_offered(vm: str, profile: str, everything: set[str]) -> NotOffered:
    message = f"No host in reach offers {profile}, so VM {vm} cannot have it."
    if not everything:
        return NotOffered(
            message,
            hint="None of them offers any vGPU: see vgpu.fleet.vsphere_gpu_info, and switch them to shared direct with"
            " vgpu.fleet.vsphere_gpu_host.",
        )
    parsed = parse_or_none(profile)
    boards = {profile.board for profile in map(parse_or_none, everything) if profile}
    same = {name for name in everything if parsed and (one := parse_or_none(name)) and one.key[0] == parsed.key[0]}
    alike = did_you_mean(profile, same or everything)
    if not alike:
        return NotOffered(message, hint=f"Boards there are: {join_names(boards)}.")
    return NotOffered(message, hint=f"The nearest ones offered: {', '.join(alike)}.")


def refuse_what_no_host_has(
    vm: str, requests: Sequence[PciRequest], devices: Mapping[str, Sequence[tuple[PciId, str]]]
) -> None:
    """Reject PCI devices that no single host has.

    `devices` are the ids and labels of the Dynamic DirectPath devices of each host, free or in use.
    """
    needed = Counter(requests)
    if not needed or any(serves(has, needed) for has in devices.values()):
        return
    for request, count in sorted(needed.items()):
        best = max((_count(has, request) for has in devices.values()), default=0)
        if best < count:
            there = {str(PciRequest(ids, label)) for has in devices.values() for ids, label in has}
            raise NoSuchDevice(
                f"No host in reach has {count} x PCI device {request}, so VM {vm} cannot have it.",
                hint=f"Devices for Dynamic DirectPath there are: {join_names(there)}.",
            )
    raise NoSuchDevice(
        f"No host in reach has all of {join_names(map(str, needed))}, so VM {vm} cannot have them together.",
        hint="All devices of a VM come from one host.",
    )


def serves(has: Sequence[tuple[PciId, str]], needed: Counter[PciRequest]) -> bool:
    """Return whether a host with these devices can provide all needed devices."""
    labelled = all(_count(has, request) >= count for request, count in needed.items() if request.label)
    by_ids: Counter[PciId] = Counter()
    for request, count in needed.items():
        by_ids[request.ids] += count
    return labelled and all(_count(has, PciRequest(ids)) >= count for ids, count in by_ids.items())


def _count(has: Sequence[tuple[PciId, str]], request: PciRequest) -> int:
    return sum(1 for ids, label in has if ids == request.ids and request.label in ("", label))


def _refuse_count(what: str, count: int) -> None:
    if count < 1:
        raise InvalidRequest(f"{what} is asked for with count {count}.", hint="Use 1 or more, or leave it out.")


def _pci_number(option: str, text: str) -> int:
    try:
        number = int(str(text).strip(), HEX)
    except ValueError:
        number = -1
    if not 0 < number <= 0xFFFF:
        raise InvalidRequest(f"{option} {text!r} is not a PCI id.", hint="Use four hexadecimal digits, as in 10de.")
    return number
