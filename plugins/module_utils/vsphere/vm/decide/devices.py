# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Comparison of the current and requested PCI passthrough devices of a VM. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...read.device_groups import GroupOffer
from .model import DeviceGroup, PciDevice, PciId, VmState, pci_id


@dataclass(frozen=True, order=True)
class PciRequest:
    """A request for one Dynamic DirectPath device. `label` is the label that the host gives the device."""

    ids: PciId
    label: str = ""

    def __str__(self) -> str:
        return pci_id(self.ids) + (f" labelled {self.label}" if self.label else "")


@dataclass(frozen=True)
class DeviceDiff:
    """The devices that a reconfigure task removes and adds, and the devices that the VM has afterwards."""

    remove: tuple[PciDevice, ...] = ()
    add_vgpus: tuple[str, ...] = ()
    add_pci: tuple[PciRequest, ...] = ()
    vgpus: tuple[str, ...] = ()
    pci: tuple[PciRequest, ...] = ()
    remove_groups: tuple[DeviceGroup, ...] = ()
    keep_groups: tuple[DeviceGroup, ...] = ()
    add_groups: tuple[GroupOffer, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.remove or self.add_vgpus or self.add_pci or self.groups_change)

    @property
    def groups_change(self) -> bool:
        return bool(self.remove_groups or self.add_groups)

    @property
    def grows(self) -> bool:
        return bool(self.add_vgpus or self.add_pci or self.add_groups)

    @property
    def any(self) -> bool:
        """Return whether the VM will have devices that only some hosts provide."""
        return bool(self.vgpus or self.pci or self.groups)

    @property
    def groups(self) -> Counter[str]:
        """Return the number of device groups of each name that the VM will have."""
        return Counter(group.name for group in self._all_groups)

    @property
    def _all_groups(self) -> Sequence[DeviceGroup | GroupOffer]:
        return [*self.keep_groups, *self.add_groups]

    @property
    def all_vgpus(self) -> tuple[str, ...]:
        """Return the profiles of all vGPUs that the VM will have, including those in device groups."""
        grouped = [profile for group in self._all_groups for profile in group.vgpus]
        return tuple(sorted([*self.vgpus, *grouped]))

    @property
    def all_pci(self) -> tuple[PciRequest, ...]:
        """Return all whole PCI devices that the VM will have, including those in device groups."""
        grouped = [PciRequest(*device) for group in self._all_groups for device in group.pci]
        return tuple(sorted([*self.pci, *grouped]))

    @property
    def vgpu_counts(self) -> Counter[str]:
        """Return the number of vGPUs of each profile that the VM will have."""
        return Counter(self.vgpus)


def diff(
    machine: VmState,
    vgpus: Mapping[str, int] | None,
    pci_devices: Sequence[PciRequest] | None,
    *,
    groups: Mapping[str, int] | None = None,
    offers: Mapping[str, GroupOffer] | None = None,
    exclusive: bool = True,
) -> DeviceDiff:
    """Compare the devices as multisets. None leaves the devices of that kind unchanged.

    Of several equal devices, keep those with the lowest keys, so that their position in the guest does not change.
    `offers` are the device groups that the hosts offer.
    """
    remove: list[PciDevice] = []
    add_vgpus: list[str] = []
    has_vgpus = [device for device in machine.managed if device.profile]
    if vgpus is not None:
        left = Counter(dict(vgpus))
        for device in has_vgpus:
            if left[device.profile] > 0:
                left[device.profile] -= 1
            elif exclusive:
                remove.append(device)
        add_vgpus = sorted(left.elements())
    has_pci = [device for device in machine.managed if device.allowed]
    add_pci: list[PciRequest] = []
    if pci_devices is not None:
        unserved, surplus = _match(has_pci, pci_devices)
        add_pci = unserved
        if exclusive:
            remove += surplus
    gone = {device.key for device in remove}
    kept_groups, surplus_groups, add_groups = _compare_groups(machine.groups, groups)
    if not exclusive:
        kept_groups, surplus_groups = list(machine.groups), []
    return DeviceDiff(
        tuple(remove),
        tuple(add_vgpus),
        tuple(add_pci),
        tuple(sorted([device.profile for device in has_vgpus if device.key not in gone] + add_vgpus)),
        tuple(sorted([request_of(device) for device in has_pci if device.key not in gone] + add_pci)),
        tuple(surplus_groups),
        tuple(kept_groups),
        tuple((offers or {}).get(name, GroupOffer(name)) for name in add_groups),
    )


def _compare_groups(
    has: Sequence[DeviceGroup], wanted: Mapping[str, int] | None
) -> tuple[list[DeviceGroup], list[DeviceGroup], list[str]]:
    """Return the groups that stay, the groups that are surplus, and the names of the groups that are missing."""
    if wanted is None:
        return list(has), [], []
    left = Counter(dict(wanted))
    kept, surplus = [], []
    for group in sorted(has, key=lambda group: group.key):
        if left[group.name] > 0:
            left[group.name] -= 1
            kept.append(group)
        else:
            surplus.append(group)
    return kept, surplus, sorted(left.elements())


def request_of(device: PciDevice) -> PciRequest:
    return PciRequest(device.allowed[0], device.label)


def _match(has: Sequence[PciDevice], wanted: Sequence[PciRequest]) -> tuple[list[PciRequest], list[PciDevice]]:
    """Return the requests without a device and the devices without a request.

    Match devices that allow the fewest ids first.
    """
    free = sorted(has, key=lambda device: (len(device.allowed), device.key))
    unserved = []
    for request in sorted(wanted):
        found = next(
            (
                pci_device
                for pci_device in free
                if request.ids in pci_device.allowed and request.label == pci_device.label
            ),
            None,
        )
        if found is None:
            unserved.append(request)
        else:
            free.remove(found)
    return unserved, sorted(free, key=lambda device: device.key)
