# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Result of a VM task, with the same keys in check mode. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...fleet import catalog
from ..read.fleet import gpu_name
from .decide.devices import DeviceDiff, PciRequest, request_of
from .decide.model import OFF, ON, DeviceGroup, VmState, pci_id


@dataclass
class VmResult:
    """The result of a VM task.

    `vgpus` and `pci_devices` are pairs of the device name in vSphere, if already assigned, and a profile or request.
    """

    changed: bool
    name: str
    moid: str | None = None
    uuid: str | None = None
    folder: str | None = None
    owner: str | None = None
    power: str = OFF
    host: str | None = None
    gpus: tuple[str, ...] = ()
    vgpus: Sequence[tuple[str | None, str]] = ()
    pci_devices: Sequence[tuple[str | None, PciRequest]] = ()
    # Pairs of the name of a device group and the names of its devices, which are empty before the group is added.
    device_groups: Sequence[tuple[str, tuple[str, ...]]] = ()
    restarted: bool = False
    created: bool = False
    diff: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def as_result(self) -> dict[str, Any]:
        gpus = [gpu_name(self.host, address) for address in self.gpus] if self.host else []
        return {
            "changed": self.changed,
            "vm": {
                "name": self.name,
                "moid": self.moid,
                "uuid": self.uuid,
                "folder": self.folder,
                "owner": self.owner,
                "running": self.power == ON,
                "power": self.power,
                "node": self.host,
                "gpus": gpus,
            },
            "vgpus": [
                {
                    "profile": profile,
                    "spellings": spellings(profile),
                    "device": device,
                    "gpu": gpus[0] if len(gpus) == 1 else None,
                }
                for device, profile in sorted(self.vgpus, key=lambda pair: (pair[1], pair[0] or ""))
            ],
            "pci_devices": [
                {
                    "vendor_id": pci_id(request.ids[:1]),
                    "device_id": pci_id(request.ids[1:]),
                    "custom_label": request.label,
                    "device": device,
                }
                for device, request in sorted(self.pci_devices, key=lambda pair: (pair[1], pair[0] or ""))
            ],
            "device_groups": [{"name": name, "devices": list(devices)} for name, devices in sorted(self.device_groups)],
            "created": self.created,
            "restarted": self.restarted,
            "diff": self.diff,
        }


def spellings(profile: str) -> dict[str, str]:
    """Return all spellings of a profile, with the spelling of this vCenter."""
    return {**catalog.spellings(profile), "vsphere": profile}


def named_vgpus(machine: VmState) -> list[tuple[str | None, str]]:
    return [(device.name, device.profile) for device in machine.managed if device.profile]


def named_pci_devices(machine: VmState) -> list[tuple[str | None, PciRequest]]:
    return [(device.name, request_of(device)) for device in machine.managed if device.allowed]


def named_groups(groups: Sequence[DeviceGroup]) -> list[tuple[str, tuple[str, ...]]]:
    return [(group.name, tuple(member.name for member in group.members)) for group in groups]


def predicted_groups(devices: DeviceDiff) -> list[tuple[str, tuple[str, ...]]]:
    return named_groups(devices.keep_groups) + [(group.name, ()) for group in devices.add_groups]
