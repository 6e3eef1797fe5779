# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Model of a VM without vSphere types. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .mark import Mark

ON = "on"
OFF = "off"
SUSPENDED = "suspended"

PciId = tuple[int, int]


@dataclass(frozen=True)
class PciDevice:
    """A PCI passthrough device of a VM: a vGPU with a profile, or a Dynamic DirectPath device with its allowed ids.

    This collection does not manage devices that have neither. Devices of a device group are added and removed only
    with their group (vsphere.md 1.4).
    """

    key: int
    name: str = ""
    profile: str = ""
    allowed: tuple[PciId, ...] = ()
    label: str = ""
    group: int | None = None

    @property
    def managed(self) -> bool:
        return self.group is None and bool(self.profile or self.allowed)


@dataclass(frozen=True)
class GroupMember:
    """A device of a device group. `kind` is its type in the API, since a group can contain any type of device."""

    key: int
    name: str = ""
    kind: str = "VirtualPCIPassthrough"


@dataclass(frozen=True)
class DeviceGroup:
    """A vendor device group of a VM, with its vGPUs and the ids and labels of its whole PCI devices."""

    key: int
    name: str
    members: tuple[GroupMember, ...] = ()
    vgpus: tuple[str, ...] = ()
    pci: tuple[tuple[PciId, str], ...] = ()


@dataclass(frozen=True)
class Disk:
    key: int
    gib: int


@dataclass(frozen=True)
class NetworkCard:
    key: int
    network: str = ""
    mac: str = ""


@dataclass(frozen=True)
class VmState:
    """The relevant properties of a VM or template."""

    moid: str
    name: str
    uuid: str = ""
    instance_uuid: str = ""
    template: bool = False
    power: str = OFF
    connection: str = "connected"
    host: str | None = None
    cpus: int = 1
    memory_mb: int = 1024
    hardware_version: int = 0
    firmware: str = "bios"
    annotation: str = ""
    memory_locked: bool = False
    cpu_hot_add: bool = False
    memory_hot_add: bool = False
    tools_running: bool = False
    change_version: str = ""
    extra_config: Mapping[str, str] = field(default_factory=dict, hash=False)
    mark: Mark = field(default_factory=Mark)
    devices: tuple[PciDevice, ...] = ()
    groups: tuple[DeviceGroup, ...] = ()
    disks: tuple[Disk, ...] = ()
    cards: tuple[NetworkCard, ...] = ()

    @property
    def running(self) -> bool:
        return self.power == ON

    @property
    def managed(self) -> tuple[PciDevice, ...]:
        return tuple(sorted((device for device in self.devices if device.managed), key=lambda device: device.key))

    @property
    def vgpus(self) -> Counter[str]:
        """Return the profiles of all vGPUs that the module manages."""
        return Counter(device.profile for device in self.managed if device.profile)

    @property
    def foreign_vgpus(self) -> Counter[str]:
        """Return the profiles of vGPUs in unknown kinds of groups. They count towards limits but are not changed."""
        named = {group.key for group in self.groups}
        return Counter(
            device.profile
            for device in self.devices
            if device.profile and not device.managed and device.group not in named
        )

    def differences(self, other: VmState) -> list[str]:
        """Describe the differences from another state of the same VM in all properties that the module can change."""
        found = [
            f"{what} was {mine} and is {its}"
            for what, mine, its in (
                ("its hardware version", self.hardware_version, other.hardware_version),
                ("its number of CPUs", self.cpus, other.cpus),
                ("its memory in MB", self.memory_mb, other.memory_mb),
                ("the lock of its memory reservation", self.memory_locked, other.memory_locked),
                ("its set of vGPUs", counted(self.vgpus), counted(other.vgpus)),
            )
            if mine != its
        ]
        if self.annotation != other.annotation:
            found.append("its notes are different")
        if Counter(device.allowed for device in self.managed) != Counter(device.allowed for device in other.managed):
            found.append("its PCI devices are different")
        if Counter(group.name for group in self.groups) != Counter(group.name for group in other.groups):
            found.append("its device groups are different")
        if self._mmio != other._mmio:
            found.append("its MMIO settings are different")
        return found

    @property
    def _mmio(self) -> dict[str, str]:
        return {key: value for key, value in self.extra_config.items() if key.startswith("pciPassthru.")}


def pci_id(ids: Sequence[int]) -> str:
    return ":".join(f"{number:04x}" for number in ids)


def counted(amounts: Mapping[str, int]) -> str:
    """Format profiles with their counts for a message."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(amounts.items()) if count) or "none"
