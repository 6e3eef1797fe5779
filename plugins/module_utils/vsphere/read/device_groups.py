# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Vendor device groups: connected devices of a host that a VM gets as a whole (vsphere.md 1.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..session import Session

# Do not read device groups on older servers: pyVmomi lacks the fields for them (vsphere.md 10.1).
SINCE = "8.0.0.1"


@dataclass(frozen=True)
class GroupDevice:
    """A device of a group: a vGPU with a profile, a whole PCI device with its ids, or another kind of device."""

    kind: str
    vendor: str = ""
    name: str = ""
    profile: str = ""
    ids: tuple[int, int] | None = None
    label: str = ""

    def as_dict(self) -> dict[str, Any]:
        vendor, device = self.ids or (None, None)
        return {
            "type": self.kind,
            "vendor": self.vendor,
            "name": self.name,
            "profile": self.profile or None,
            "vendor_id": None if vendor is None else f"{vendor:04x}",
            "device_id": None if device is None else f"{device:04x}",
        }


@dataclass(frozen=True)
class GroupOffer:
    """A device group that a host offers. Hosts do not report how many such groups they have (vsphere.md 1.4)."""

    name: str
    description: str = ""
    devices: tuple[GroupDevice, ...] = ()
    # The devices to add to a VM, in the types of the server.
    templates: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @property
    def vgpus(self) -> tuple[str, ...]:
        return tuple(device.profile for device in self.devices if device.profile)

    @property
    def pci(self) -> tuple[tuple[tuple[int, int], str], ...]:
        return tuple((device.ids, device.label) for device in self.devices if device.ids)


def offers_of(session: Session, target: Any) -> dict[str, GroupOffer]:
    """Return the device groups of a ConfigTarget, by name."""
    if target is None or not session.has(SINCE):
        return {}
    return {
        str(info.deviceGroupName): GroupOffer(
            name=str(info.deviceGroupName),
            description=str(info.deviceGroupDescription or ""),
            devices=tuple(_device(session, component) for component in info.componentDeviceInfo or []),
            templates=tuple(component.device for component in info.componentDeviceInfo or []),
        )
        for info in target.vendorDeviceGroupInfo or []
    }


def _device(session: Session, component: Any) -> GroupDevice:
    passthrough = session.vim.vm.device.VirtualPCIPassthrough
    backing = component.device.backing
    whole = isinstance(backing, passthrough.DynamicBackingInfo) and backing.allowedDevice
    allowed = backing.allowedDevice[0] if whole else None
    return GroupDevice(
        kind=str(component.type),
        vendor=str(component.vendorName),
        name=str(component.deviceName),
        profile=str(backing.vgpu) if isinstance(backing, passthrough.VmiopBackingInfo) else "",
        # PCI ids can arrive as negative shorts (vsphere.md 1.6).
        ids=(int(allowed.vendorId) & 0xFFFF, int(allowed.deviceId) & 0xFFFF) if allowed else None,
        label=str(backing.customLabel or "") if whole else "",
    )


def names_by_key(session: Session, groups: Any) -> Mapping[int, str]:
    """Return the names of a VM's vendor device groups, by their keys in the VM."""
    if groups is None or not session.has(SINCE):
        return {}
    vendor = session.vim.vm.VirtualDeviceGroups.VendorDeviceGroup
    return {
        int(group.groupInstanceKey): str(group.deviceGroupName)
        for group in groups.deviceGroup or []
        if isinstance(group, vendor)
    }
