# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check of templates and devices for programs that clone VMs without a check, such as Cluster API's provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import FleetError, join_names
from ...fleet.profile_resolver import ProfileResolver
from ..read import inventory
from ..session import Session
from ..vm.decide import requirements
from ..vm.decide.devices import PciRequest
from ..vm.decide.model import VmState
from ..vm.decide.rules import refuse_what_cannot_boot
from ..vm.find.finder import VmFinder
from ..vm.find.read import read_vm
from ..vm.hosts import CandidateHosts
from .room import machines_that_fit

Json = dict[str, Any]


class TemplateTooOld(FleetError):
    code = "template_too_old"


class InvalidGroup(FleetError):
    code = "invalid_request"


class NoSuchDevices(FleetError):
    code = "demand_does_not_fit"


@dataclass(frozen=True)
class Group:
    """Equal VMs: their template, their devices and how many of them are to start."""

    name: str
    template: str
    vgpus: tuple[tuple[str, int], ...] = ()
    pci_devices: tuple[PciRequest, ...] = ()
    memory_mb: int = 0
    hardware_version: int = 0
    machines: int = 0


@dataclass
class CheckResult:
    groups: list[Json]
    warnings: list[str] = field(default_factory=list)

    def as_result(self) -> Json:
        return {"changed": False, "groups": self.groups}


def groups_from(given: Sequence[Mapping[str, Any]]) -> list[Group]:
    return [_group(f"groups[{index}]", one) for index, one in enumerate(given)]


def _group(option: str, given: Mapping[str, Any]) -> Group:
    devices: list[PciRequest] = []
    for device in given.get("pci_devices") or []:
        ids = (_hexadecimal(option, device, "vendor_id"), _hexadecimal(option, device, "device_id"))
        devices += [PciRequest(ids, device.get("custom_label") or "")] * _count(option, device)
    vgpus = [(str(vgpu["profile"]), _count(option, vgpu)) for vgpu in given.get("vgpus") or []]
    version = str(given.get("hardware_version") or "").removeprefix("vmx-")
    if version and not version.isdecimal():
        raise InvalidGroup(f"{option}.hardware_version {version!r} is not valid.", hint="Write it like vmx-19.")
    return Group(
        name=given["name"],
        template=given["template"],
        vgpus=tuple(vgpus),
        pci_devices=tuple(devices),
        memory_mb=given.get("memory_mb") or 0,
        hardware_version=int(version or 0),
        machines=given.get("machines") or 0,
    )


def _hexadecimal(option: str, device: Mapping[str, Any], name: str) -> int:
    text = str(device.get(name) or "").lower().removeprefix("0x")
    try:
        number = int(text, 16)
    except ValueError:
        number = -1
    if not 0 <= number <= 0xFFFF:
        raise InvalidGroup(
            f"{option}.pci_devices has the {name} {device.get(name)!r}.",
            hint="Quote a hexadecimal number of up to four digits, such as '10de'.",
        )
    return number


def _count(option: str, given: Mapping[str, Any]) -> int:
    count = given.get("count")
    count = 1 if count is None else int(count)
    if count < 1:
        raise InvalidGroup(f"{option} has a device with the count {count}.", hint="Leave it out, or count from 1 on.")
    return count


def check(session: Session, groups: Sequence[Group], *, datacenter: str | None, cluster: str | None) -> CheckResult:
    """Check the templates, resolve the profiles and look for the devices. Raise an error for what cannot work."""
    facts = inventory.selected(inventory.read_hosts(session), datacenter=datacenter, cluster=cluster, esxi_hosts=None)
    hosts = CandidateHosts(session, facts)
    finder, known, result = VmFinder(session), ProfileResolver(hosts.profiles), CheckResult([])
    for group in groups:
        template = read_vm(session, finder.template(group.template, datacenter=datacenter or ""), group.template)
        vgpus = _resolved(group, known, hosts)
        refuse_what_cannot_boot(f"of group {group.name}", _counts(vgpus), api_version=session.version)
        profiles = [profile for profile, count in vgpus for _vgpu in range(count)]
        memory = group.memory_mb or template.machine.memory_mb
        needs = requirements.needs_of(profiles, group.pci_devices, memory_mib=memory, api_version=session.version)
        _check_template(group, template.machine, needs, result)
        result.groups.append(
            {
                "name": group.name,
                "template": {
                    "name": template.machine.name,
                    "path": template.path,
                    "hardware_version": template.machine.hardware_version,
                    "firmware": template.machine.firmware,
                },
                "vgpus": [{"profile": profile, "count": count} for profile, count in vgpus],
                "vmx_keys": _vmx_keys(template.machine, needs),
            }
        )
    _check_devices(groups, hosts)
    return result


def _resolved(group: Group, known: ProfileResolver, hosts: CandidateHosts) -> list[tuple[str, int]]:
    """Return the profiles by their names in vCenter, and refuse a profile that no host offers."""
    found = [(known.resolve(profile), count) for profile, count in group.vgpus]
    missing = [profile for profile, _count in found if profile not in hosts.profiles]
    if missing:
        raise NoSuchDevices(
            f"No host offers {join_names(missing)}, which machines of {group.name} need.",
            hint=f"The hosts offer: {join_names(hosts.profiles, limit=20)}.",
        )
    return found


def _counts(vgpus: Sequence[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for profile, count in vgpus:
        found[profile] += count
    return found


def _check_template(group: Group, template: VmState, needs: requirements.Requirements, result: CheckResult) -> None:
    if not group.vgpus and not group.pci_devices:
        return
    version = max(template.hardware_version, group.hardware_version)
    if version < requirements.HARDWARE_VERSION:
        raise TemplateTooOld(
            f"Template {group.template} of {group.name} has hardware version {version}, and its devices need"
            f" {requirements.HARDWARE_VERSION} or later.",
            hint=f"Use a template with vmx-{requirements.HARDWARE_VERSION} or later, or set the hardware version of the"
            " machines.",
        )
    requirements.refuse_without_efi(template, needs, creating=True)
    if template.firmware != requirements.EFI:
        result.warnings.append(
            f"Template {group.template} of {group.name} has {template.firmware.upper()} firmware. EFI is recommended"
            " for machines with GPUs."
        )


def _vmx_keys(template: VmState, needs: requirements.Requirements) -> dict[str, str]:
    return dict(requirements.prepare(template, needs).extra_config)


def _check_devices(groups: Sequence[Group], hosts: CandidateHosts) -> None:
    """Refuse passthrough devices that no host has, or that are not free for as many machines as are to start."""
    if not any(group.pci_devices for group in groups):
        return
    free = hosts.free_pci_devices("")
    for group in groups:
        if group.pci_devices and not machines_that_fit(hosts.pci_devices, [(group.pci_devices, 1)]):
            raise NoSuchDevices(
                f"No host has {join_names(map(str, group.pci_devices))} for a machine of {group.name}.",
                hint="Enable passthrough for the devices, and check the ids and the label.",
            )
    wanted = [(group.pci_devices, group.machines) for group in groups if group.pci_devices]
    if not machines_that_fit(free, wanted):
        listed = "; ".join(f"{group.machines} of {group.name}" for group in groups if group.pci_devices)
        raise NoSuchDevices(
            f"The hosts do not have enough free passthrough devices for these machines: {listed}.",
            hint="Reduce the number of machines, or stop VMs that use the devices.",
        )
