# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan of passthrough (DirectPath I/O) changes of host devices. Pure.

A setting is effective immediately or after a reboot of the host, which depends on the host (vsphere.md 2.6). Devices
that VMs use are never switched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import FleetError, NothingSelected, join_names
from ..read.fleet import Snapshot
from ..read.inventory import DIRECT, GpuFacts, HostFacts
from .plan import Plan

Ids = tuple[int, int]
LARGEST = 0xFFFF


class InvalidPassthrough(FleetError):
    code = "invalid_request"


class DeviceInUse(FleetError):
    code = "device_in_use"
    vms: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "vms": list(self.vms)}


class NotSwitchable(FleetError):
    code = "not_settable"


class HostUnreachable(FleetError):
    code = "host_unavailable"


@dataclass(frozen=True)
class PassthroughDevice:
    """A PCI device of a host. `dependent` is the device that is switched along with it, often the device itself."""

    address: str
    ids: Ids
    name: str = ""
    capable: bool = True
    enabled: bool = False
    active: bool = False
    dependent: str = ""
    label: str = ""
    users: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.address} ({self.name or ids_text(self.ids)})"


@dataclass(frozen=True)
class PassthroughHost:
    """The devices of a host. `rebinds`: the host switches passthrough without a reboot."""

    moid: str
    name: str
    connected: bool = True
    rebinds: bool = False
    devices: tuple[PassthroughDevice, ...] = ()
    reference: Any = field(default=None, compare=False, repr=False)
    system: Any = field(default=None, compare=False, repr=False)

    def with_users(self, users: Mapping[str, Sequence[str]]) -> PassthroughHost:
        devices = tuple(
            replace(device, users=tuple(dict.fromkeys(users.get(device.address, ())))) for device in self.devices
        )
        return replace(self, devices=devices)


@dataclass(frozen=True)
class PassthroughRequest:
    """The requested passthrough of devices, by their ids."""

    enabled: Mapping[Ids, bool] = field(default_factory=dict, hash=False)

    @classmethod
    def from_options(cls, entries: Iterable[Mapping[str, Any]] | None) -> PassthroughRequest:
        wanted: dict[Ids, bool] = {}
        for entry in entries or ():
            ids = (_number("vendor_id", entry["vendor_id"]), _number("device_id", entry["device_id"]))
            if wanted.setdefault(ids, entry["enabled"]) != entry["enabled"]:
                raise InvalidPassthrough(
                    f"passthrough lists device {ids_text(ids)} both as enabled and as disabled.",
                    hint="Remove one of the entries.",
                )
        return cls(wanted)

    @property
    def ids(self) -> list[Ids]:
        return list(self.enabled)


@dataclass(frozen=True)
class PassthroughChange:
    """The devices of a host that are switched, as they are afterwards."""

    host: PassthroughHost
    devices: tuple[PassthroughDevice, ...]


@dataclass(frozen=True)
class PassthroughPlan:
    request: PassthroughRequest
    hosts: tuple[PassthroughHost, ...] = ()
    changes: tuple[PassthroughChange, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.changes)

    def preview(self) -> list[PassthroughHost]:
        """Return the predicted hosts. Devices are active at once on hosts that switch without a reboot."""
        after = {(change.host.moid, device.address): device for change in self.changes for device in change.devices}
        return [
            replace(host, devices=tuple(after.get((host.moid, device.address), device) for device in host.devices))
            for host in self.hosts
        ]


def plan(hosts: Sequence[PassthroughHost], request: PassthroughRequest) -> PassthroughPlan:
    """Plan the changes of all hosts, or raise an error before any change."""
    for ids in request.ids:
        if not any(device.ids == ids for host in hosts for device in host.devices):
            raise NothingSelected(
                f"Host {join_names(host.name for host in hosts)} has no PCI device {ids_text(ids)}.",
                hint="List the devices of a host in vSphere, under Configure, Hardware, PCI Devices.",
            )
    changes = [
        PassthroughChange(host, devices)
        for host in hosts
        if (devices := tuple(_switched(host, device) for device in host.devices if _differs(device, request)))
    ]
    _refuse(changes, request)
    return PassthroughPlan(request, tuple(hosts), tuple(changes))


def needed_privileges(graphics: Plan, switch: PassthroughPlan) -> dict[Any, list[str]]:
    """Return the privileges for all steps, by host."""
    needs: dict[Any, list[str]] = {}
    for change in graphics.changes:
        needs[change.before.reference] = [
            *(["Host.Config.Settings"] if change.write else []),
            *(["Host.Config.NetService"] if change.restart else []),
        ]
    for switched in switch.changes:
        needs.setdefault(switched.host.reference, []).append("Host.Config.PciPassthru")
    return needs


def predicted(snapshot: Snapshot, plan: PassthroughPlan) -> Snapshot:
    """Predict the graphics types of GPUs whose passthrough is switched without a reboot."""
    active = {
        (change.host.moid, normal_address(device.address)): device.active
        for change in plan.changes
        if change.host.rebinds
        for device in change.devices
    }
    hosts = tuple(
        replace(
            host,
            gpus=tuple(
                _as_switched(host, gpu, active.get((host.moid, normal_address(gpu.address)))) for gpu in host.gpus
            ),
        )
        for host in snapshot.inventory.hosts
    )
    return Snapshot(replace(snapshot.inventory, hosts=hosts))


def _as_switched(host: HostFacts, gpu: GpuFacts, active: bool | None) -> GpuFacts:
    if active is None:
        return gpu
    mode = gpu.vgpu_mode
    if active and mode is not None:
        mode = "none"
    return replace(gpu, graphics_type=DIRECT if active else host.default_type, vgpu_mode=mode)


def _differs(device: PassthroughDevice, request: PassthroughRequest) -> bool:
    return device.ids in request.enabled and request.enabled[device.ids] != device.enabled


def _switched(host: PassthroughHost, device: PassthroughDevice) -> PassthroughDevice:
    enabled = not device.enabled
    return replace(device, enabled=enabled, active=enabled if host.rebinds else device.active)


def _refuse(changes: Sequence[PassthroughChange], request: PassthroughRequest) -> None:
    in_use: list[str] = []
    users: dict[str, None] = {}
    for change in changes:
        host = change.host
        if not host.connected:
            raise HostUnreachable(
                f"Host {host.name} is not connected.", hint="Reconnect it, or leave it out of esxi_hosts."
            )
        for device in change.devices:
            if device.enabled and not device.capable:
                raise NotSwitchable(
                    f"Device {device} of host {host.name} does not support passthrough.",
                    hint="Check that VT-d or AMD-Vi is enabled in the firmware of the host.",
                )
            along = [
                other
                for other in host.devices
                if other.dependent == device.dependent and other.ids not in request.enabled
            ]
            if along:
                raise NotSwitchable(
                    f"Device {device} of host {host.name} can only be switched together with"
                    f" {join_names(str(other) for other in along)}.",
                    hint="List these devices in passthrough as well.",
                )
            if device.users:
                in_use.append(f"Device {device} of host {host.name} is used by VM {join_names(device.users, limit=4)}")
                users.update(dict.fromkeys(device.users))
    if in_use:
        error = DeviceInUse(
            f"{'; '.join(in_use)}.", hint="Power these VMs off, and detach the devices from them. Nothing was changed."
        )
        error.vms = tuple(users)
        raise error


@dataclass(frozen=True)
class PassthroughResult:
    """The result of a task that also switches passthrough: `graphics` and the devices with the requested ids."""

    graphics: Any
    plan: PassthroughPlan
    after: tuple[PassthroughHost, ...]

    @property
    def warnings(self) -> list[str]:
        waiting = [record for record in self.records if record["reboot_required"]]
        return [
            *self.graphics.warnings,
            *(
                f"Passthrough of device {record['pci_id']} of host {record['host']} is"
                f" {'enabled' if record['enabled'] else 'disabled'} after a reboot of the host."
                for record in waiting
            ),
        ]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "host": host.name,
                "pci_id": device.address,
                "vendor_id": f"{device.ids[0]:04x}",
                "device_id": f"{device.ids[1]:04x}",
                "device_name": device.name,
                "enabled": device.enabled,
                "active": device.active,
                "vms": list(device.users),
                "reboot_required": device.enabled != device.active,
            }
            for host in self.after
            for device in host.devices
            if device.ids in self.plan.request.enabled
        ]

    def as_result(self) -> dict[str, Any]:
        result: dict[str, Any] = self.graphics.as_result()
        difference = {side: dict(result["diff"][side]) for side in ("before", "after")}
        after = {host.moid: host for host in self.after}
        for change in self.plan.changes:
            switched = {device.address for device in change.devices}
            for side, host in (("before", change.host), ("after", after[change.host.moid])):
                shown = {
                    pci_device.address: _settings(pci_device)
                    for pci_device in host.devices
                    if pci_device.address in switched
                }
                difference[side][host.name] = {**difference[side].get(host.name, {}), "passthrough": shown}
        return {
            **result,
            "changed": result["changed"] or self.plan.changed,
            "passthrough": self.records,
            "diff": difference,
        }


def _settings(device: PassthroughDevice) -> dict[str, bool]:
    return {"enabled": device.enabled, "active": device.active}


def normal_address(address: str) -> str:
    """Normalize a PCI address: `3b:00.0` and `0000:3B:00.0` are the same device."""
    address = address.strip().casefold()
    return address if address.count(":") > 1 else f"0000:{address}"


def ids_text(ids: Ids) -> str:
    return ":".join(f"{number:04x}" for number in ids)


def _number(option: str, text: str) -> int:
    try:
        number = int(str(text), 16)
    except ValueError:
        number = -1
    if not 0 <= number <= LARGEST:
        raise InvalidPassthrough(
            f"passthrough: {option} is {text!r}, which is not a hexadecimal PCI ID.",
            hint="For example: vendor_id '10de'. Quote the value, since YAML converts 0x10de to a decimal number.",
        )
    return number
