"""Flags of the machine driver, parsed and refused as by the real driver (tests/data/machine-driver). Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.kubernetes.client import Json

SET_CONFIG = "SetConfigFromFlags"
PRE_CREATE = "PreCreateCheck"
CREATE = "Create"


class DriverError(Exception):
    """Error of the driver, with its step and message."""

    def __init__(self, step: str, text: str) -> None:
        super().__init__(text)
        self.step = step
        self.text = text


@dataclass(frozen=True)
class Driver:
    """One release of the driver."""

    name: str
    # hostDevices in drivers built against Harvester 1.8, gpus in earlier drivers.
    device_field: str
    # Whether the driver sets labels for cluster, pool and machine set, and sends sockets and threads.
    labels: bool


# Unreleased driver, built against Harvester 1.8.
MASTER = Driver("master", "hostDevices", labels=True)
V0_7_2 = Driver("v0.7.2", "gpus", labels=False)
DRIVERS = {driver.name: driver for driver in (MASTER, V0_7_2)}
RELEASED = V0_7_2
URL = "https://releases.rancher.com/harvester-node-driver/{name}/docker-machine-driver-harvester-amd64.tar.gz"


def at(url: str) -> Driver:
    """Return the driver at a NodeDriver's URL; a driver that was not recorded counts as the released one."""
    parts = url.split("/")
    return DRIVERS.get(parts[-2] if len(parts) > 1 else "", RELEASED)


@dataclass(frozen=True)
class Disk:
    name: str
    size: int
    image: str = ""
    storage_class: str = ""
    bus: str = "virtio"
    boot_order: int = 0
    hotpluggable: bool = False


@dataclass(frozen=True)
class Settings:
    """Settings of one machine."""

    driver: Driver
    namespace: str
    cpus: int
    memory_gib: int
    disks: tuple[Disk, ...]
    networks: tuple[str, ...]
    network_model: str
    vgpus: tuple[Json, ...]
    cluster: str = ""
    user_data: str = ""
    network_data: str = ""
    affinity: Json | None = None
    key_pair: str = ""
    efi: bool = False
    secure_boot: bool = False
    cpu_pinning: bool = False
    isolate_emulator: bool = False
    tpm: bool = False
    reserved_memory_mib: int = -1
    cpu_model: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


def read(driver: Driver, flags: Mapping[str, Any]) -> Settings:
    """Return the settings that SetConfigFromFlags derives from the flags."""

    def text(name: str, default: str = "") -> str:
        return str(flags.get(f"harvester-{name}") or default)

    def number(name: str, default: int) -> int:
        value = flags.get(f"harvester-{name}")
        return default if value in (None, "") else int(value)

    def switch(name: str) -> bool:
        return bool(flags.get(f"harvester-{name}"))

    if text("key-pair-name") and not text("ssh-private-key-path"):
        raise DriverError(SET_CONFIG, "must specify the ssh private key path of the harvester key pair")
    if switch("enable-secure-boot") and not switch("enable-efi"):
        raise DriverError(SET_CONFIG, "enable secure boot requires enable EFI")
    return Settings(
        driver=driver,
        namespace=text("vm-namespace", "default"),
        cpus=number("cpu-count", 2),
        memory_gib=number("memory-size", 4),
        disks=_disks(text("disk-info"), text("image-name"), number("disk-size", 0), text("disk-bus", "virtio")),
        networks=_networks(text("network-info"), text("network-name")),
        network_model=text("network-model", "virtio"),
        vgpus=_vgpus(text("vgpu-info"), driver),
        cluster=text("cluster-name"),
        user_data=decoded(text("user-data")),
        network_data=decoded(text("network-data")),
        affinity=json.loads(decoded(text("vm-affinity"))) if text("vm-affinity") else None,
        key_pair=text("key-pair-name"),
        efi=switch("enable-efi"),
        secure_boot=switch("enable-secure-boot"),
        cpu_pinning=switch("cpu-pinning"),
        isolate_emulator=switch("isolate-emulator-thread"),
        tpm=switch("enable-tpm"),
        reserved_memory_mib=number("reserved-memory-size", -1),
        cpu_model=text("cpu-model"),
    )


def decoded(text: str) -> str:
    """Return the text of a flag, which may be base64-encoded."""
    try:
        return base64.b64decode(text, validate=True).decode() if text else ""
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return text


def _disks(info: str, image: str, size: int, bus: str) -> tuple[Disk, ...]:
    if not info:
        if not image:
            raise DriverError(SET_CONFIG, "must specify image name or storageClass name in harvester disk info")
        # The flags that predate diskInfo number their only disk from one.
        return (Disk("disk-1", size, image=image, bus=bus, boot_order=1),)
    disks = []
    for index, entry in enumerate(_go(json.loads(info)).get("disks") or []):
        disk = _go(entry)
        if not disk.get("imagename") and not disk.get("storageclassname"):
            raise DriverError(SET_CONFIG, "must specify image name or storageClass name in harvester disk info")
        if not disk.get("size"):
            raise DriverError(SET_CONFIG, "must specify disk size in harvester disk info")
        disks.append(
            Disk(
                f"disk-{index}",
                int(disk["size"]),
                image=disk.get("imagename", ""),
                storage_class=disk.get("storageclassname", ""),
                bus=disk.get("bus") or "virtio",
                boot_order=int(disk.get("bootorder") or 0),
                hotpluggable=bool(disk.get("hotplugable")),
            )
        )
    return tuple(disks)


def _networks(info: str, name: str) -> tuple[str, ...]:
    if not info:
        if not name:
            raise DriverError(SET_CONFIG, "must specify network name in harvester network info")
        return (name,)
    names = [_go(entry).get("networkname") or "" for entry in _go(json.loads(info)).get("interfaces") or []]
    if not all(names):
        raise DriverError(SET_CONFIG, "must specify network name in harvester network info")
    return tuple(names)


def _vgpus(info: str, driver: Driver) -> tuple[Json, ...]:
    """Return the vGPU requests of a JSON object (not base64); keys match in any case, and only two are used."""
    if not info:
        return ()
    try:
        requests = _go(json.loads(info) or {}).get("vgpurequests") or []
        if not isinstance(requests, list):
            raise TypeError
        return tuple(_vgpu(_go(request), driver) for request in requests)
    except (ValueError, TypeError, AttributeError):
        raise DriverError(SET_CONFIG, "error unmarshalling vgpuInfo string") from None


def _vgpu(request: Json, driver: Driver) -> Json:
    device: Json = {"name": request.get("name") or ""}
    if request.get("devicename") or driver is V0_7_2:
        device["deviceName"] = request.get("devicename") or ""
    return device


def _go(thing: Any) -> Json:
    """Return the object with lower-case keys, because Go's JSON matches keys without regard to case."""
    return {key.casefold(): value for key, value in thing.items()}
