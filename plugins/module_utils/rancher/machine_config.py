# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machine configs: conversion between our fields and Rancher's, where numbers are strings and lists are JSON. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import FleetError

Json = dict[str, Any]
REQUESTS = "vGPURequests"
DEFAULT_NAMESPACE = "default"
DEFAULT_CPUS, DEFAULT_MEMORY_GIB = 2, 4
# The fields of the driver before diskInfo and networkInfo.
OLD_DISK_FIELDS = ("imageName", "diskSize", "diskBus")
OLD_NETWORK_FIELDS = ("networkName", "networkModel", "networkType")


class UnreadableConfig(FleetError):
    code = "unreadable_config"


@dataclass(frozen=True)
class PoolDeviceRequest:
    """One vGPU of each machine. The name is only a label: it selects no device, and all machines share it."""

    name: str
    resource: str


@dataclass(frozen=True)
class Disk:
    size_gib: int
    image: str = ""
    storage_class: str = ""
    bus: str = ""
    boot_order: int = 0
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def as_dict(self) -> Json:
        return {
            "image": self.image or None,
            "storage_class": self.storage_class or None,
            "size_gib": self.size_gib,
            "bus": self.bus or "virtio",
        }


@dataclass(frozen=True)
class MachineConfig:
    """The fields of a HarvesterConfig that the collection knows. All other fields are left unchanged."""

    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def _text(self, name: str) -> str:
        return str(self.fields.get(name) or "")

    @property
    def cpus(self) -> int:
        return _number(self._text("cpuCount"), DEFAULT_CPUS)

    @property
    def memory_gib(self) -> int:
        return _number(self._text("memorySize"), DEFAULT_MEMORY_GIB)

    @property
    def reserved_memory_mib(self) -> int:
        """Return the memory that the guest does not get; 0 for Harvester's default, which the driver writes as -1."""
        return max(_number(self._text("reservedMemorySize"), 0), 0)

    @property
    def efi(self) -> bool:
        return bool(self.fields.get("enableEfi"))

    @property
    def secure_boot(self) -> bool:
        return bool(self.fields.get("enableSecureBoot"))

    @property
    def vm_namespace(self) -> str:
        return self._text("vmNamespace") or DEFAULT_NAMESPACE

    @property
    def ssh_user(self) -> str:
        return self._text("sshUser") or "root"

    @property
    def user_data(self) -> str:
        return decoded(self._text("userData"))

    @property
    def requests(self) -> tuple[PoolDeviceRequest, ...]:
        """Return the vGPU requests. Keys are case-insensitive, as for the driver."""
        text = self._text("vgpuInfo")
        if not text:
            return ()
        entries = _folded(_parsed("vgpuInfo", text)).get(REQUESTS.casefold()) or []
        if not isinstance(entries, list):
            raise _unreadable("vgpuInfo")
        return tuple(
            PoolDeviceRequest(str(entry.get("name") or ""), str(entry.get("devicename") or ""))
            for entry in map(_folded, entries)
        )

    @property
    def disks(self) -> tuple[Disk, ...]:
        text = self._text("diskInfo")
        if not text:
            if not self._text("imageName"):
                return ()
            size = _number(self._text("diskSize"), 0)
            return (Disk(size, image=self._text("imageName"), bus=self._text("diskBus"), boot_order=1),)
        return tuple(map(_disk, _folded(_parsed("diskInfo", text)).get("disks") or []))

    @property
    def networks(self) -> tuple[str, ...]:
        text = self._text("networkInfo")
        if not text:
            return (self._text("networkName"),) if self._text("networkName") else ()
        entries = _folded(_parsed("networkInfo", text)).get("interfaces") or []
        return tuple(str(_folded(entry).get("networkname") or "") for entry in entries)

    def as_dict(self) -> Json:
        """Return the record for results. User data may contain passwords, so only its size is shown."""
        return {
            "cpus": self.cpus,
            "memory_gib": self.memory_gib,
            "reserved_memory_mib": self.reserved_memory_mib,
            "efi": self.efi,
            "secure_boot": self.secure_boot,
            "image": next((disk.image for disk in self.disks if disk.image), None),
            "disks": [disk.as_dict() for disk in self.disks],
            "networks": list(self.networks),
            "vm_namespace": self.vm_namespace,
            "ssh_user": self.ssh_user,
            "user_data_bytes": len(self.user_data.encode()),
        }


def vgpu_info(resources: Sequence[str]) -> str:
    """Return the vGPU requests as JSON with unique names: a VM with two devices of one name does not start."""
    requests = [{"name": f"vgpu-{index}", "deviceName": resource} for index, resource in enumerate(resources)]
    return _packed({REQUESTS: requests})


def disk_info(disks: Sequence[Disk]) -> str:
    entries: list[Json] = []
    for index, disk in enumerate(disks):
        entry: Json = dict(disk.other)
        if disk.image:
            entry["imageName"] = disk.image
        else:
            entry["storageClassName"] = disk.storage_class
        entry["size"] = disk.size_gib
        if disk.bus:
            entry["bus"] = disk.bus
        if disk.boot_order or not index:
            entry["bootOrder"] = disk.boot_order or 1
        entries.append(entry)
    return _packed({"disks": entries})


def network_info(networks: Sequence[str]) -> str:
    return _packed({"interfaces": [{"networkName": name} for name in networks]})


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def decoded(text: str) -> str:
    """Decode a field that the driver accepts as plain text or as base64."""
    try:
        return base64.b64decode(text, validate=True).decode() if text else ""
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return text


def _disk(entry: Any) -> Disk:
    disk = _folded(entry)
    known = {"imagename", "storageclassname", "size", "bus", "bootorder"}
    return Disk(
        size_gib=_number(str(disk.get("size") or ""), 0),
        image=str(disk.get("imagename") or ""),
        storage_class=str(disk.get("storageclassname") or ""),
        bus=str(disk.get("bus") or ""),
        boot_order=_number(str(disk.get("bootorder") or ""), 0),
        other={name: value for name, value in entry.items() if name.casefold() not in known},
    )


def _parsed(name: str, text: str) -> Any:
    try:
        return json.loads(text) or {}
    except ValueError:
        raise _unreadable(name) from None


def _unreadable(name: str) -> UnreadableConfig:
    return UnreadableConfig(
        f"{name} of the machine config is not what the machine driver can read.",
        hint="Rancher cannot make machines from it: give the option that replaces it.",
    )


def _folded(thing: Any) -> Json:
    """Return the mapping with case-folded keys: Go matches keys case-insensitively."""
    return {str(key).casefold(): value for key, value in thing.items()} if isinstance(thing, Mapping) else {}


def _packed(thing: Json) -> str:
    return json.dumps(thing, separators=(",", ":"))


def _number(text: str, default: int) -> int:
    try:
        return int(text)
    except ValueError:
        return default
