# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The manifest of a new VM without vGPUs, built as Harvester's machine driver builds it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..module_utils.errors import FleetError
from ..module_utils.fleet.profile import large_compute
from ..module_utils.harvester.ownership import DEFAULT_OWNER, MANAGED_BY, OWNER, mark

Json = dict[str, Any]

CREATOR = "vgpu.fleet"
MIB_PER_GIB = 1024
CLOUD_INIT_DISK = "cloudinitdisk"


class InvalidMachine(FleetError):
    code = "invalid_request"


@dataclass(frozen=True)
class Disk:
    """A disk from an image, an empty disk of a storage class, or a temporary disk from a container image."""

    size_gib: int = 0
    image: str = ""
    storage_class: str = ""
    container: str = ""

    @classmethod
    def read(cls, given: Mapping[str, Any], vm: str) -> Disk:
        unknown = set(given) - {"size_gib", "image", "storage_class", "container"}
        if unknown:
            raise InvalidMachine(f"Unknown option {min(unknown)} of a disk of VM {vm}.")
        disk = cls(**{**given, "size_gib": int(given.get("size_gib") or 0)})
        if sum(map(bool, (disk.image, disk.storage_class, disk.container))) != 1:
            raise InvalidMachine(f"A disk of VM {vm} needs one of image, storage_class and container.")
        if not disk.container and disk.size_gib < 1:
            raise InvalidMachine(f"A disk of VM {vm} needs a size_gib of 1 or more.")
        return disk


@dataclass(frozen=True)
class VmSpec:
    name: str
    namespace: str = "default"
    cpus: int = 4
    memory_gib: int = 8
    reserved_memory_mib: int = 0
    efi: bool = False
    secure_boot: bool = False
    disks: tuple[Disk, ...] = ()
    networks: tuple[str, ...] = ()
    cloud_init: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: str = DEFAULT_OWNER

    @classmethod
    def read(cls, given: Mapping[str, Any], owner: str = DEFAULT_OWNER, *, large_compute_efi: bool = False) -> VmSpec:
        """Read a VM. With `large_compute_efi`, profiles that need EFI decide about EFI if the VM does not."""
        name = str(given.get("name") or "")
        if not name:
            raise InvalidMachine("A VM needs a name.")
        machine = cls(
            name=name,
            namespace=str(given.get("namespace") or "default"),
            cpus=int(given.get("cpus") or 4),
            memory_gib=int(given.get("memory_gib") or 8),
            reserved_memory_mib=int(given.get("reserved_memory_mib") or 0),
            efi=large_compute_efi and _computes(given) if given.get("efi") is None else _switch(given["efi"]),
            secure_boot=_switch(given.get("secure_boot")),
            disks=tuple(Disk.read(disk, name) for disk in given.get("disks") or ()),
            networks=tuple(given.get("networks") or ()),
            cloud_init=bool(given.get("user_data")),
            labels={key: str(value) for key, value in (given.get("labels") or {}).items()},
            owner=owner,
        )
        reserved = sorted({MANAGED_BY, OWNER} & set(machine.labels))
        if reserved:
            raise InvalidMachine(
                f"Label {reserved[0]} of VM {name} is reserved.",
                hint="It names the tool and the owner of the VM. Set the owner instead.",
            )
        if machine.secure_boot and not machine.efi:
            raise InvalidMachine(f"secure_boot of VM {name} needs efi.", hint="Set efi: true as well.")
        if not 0 <= machine.reserved_memory_mib < machine.memory_gib * MIB_PER_GIB:
            raise InvalidMachine(
                f"reserved_memory_mib of VM {name} is {machine.reserved_memory_mib}, and the VM has"
                f" {machine.memory_gib} GiB.",
                hint="Use a part of memory_gib, or 0 for Harvester's default.",
            )
        for network in machine.networks:
            if network.count("/") != 1:
                raise InvalidMachine(f"Network {network} of VM {name} must have the form namespace/name.")
        return machine


def _computes(given: Mapping[str, Any]) -> bool:
    return bool(large_compute(str(vgpu.get("profile") or "") for vgpu in given.get("vgpus") or ()))


def _switch(given: Any) -> bool:
    """Return a boolean. Surveys of AWX send texts."""
    return given if isinstance(given, bool) else str(given or "").lower() in ("true", "yes", "on", "1")


def manifest(machine: VmSpec, storage_classes: Mapping[str, str]) -> Json:
    labels = {"harvesterhci.io/creator": CREATOR, "harvesterhci.io/vmName": machine.name, **machine.labels}
    claims = list(_claims(machine, storage_classes))
    # Only the VM gets the owner mark, because its instances and pods must not be deleted directly.
    metadata: Json = {
        "name": machine.name,
        "namespace": machine.namespace,
        "labels": {**labels, **mark(machine.owner)},
    }
    annotations: dict[str, str] = {}
    if machine.reserved_memory_mib:
        # Harvester subtracts this from the memory of the guest. It is for the processes of the hypervisor.
        annotations["harvesterhci.io/reservedMemory"] = f"{machine.reserved_memory_mib}Mi"
    if claims:
        # Harvester creates the PersistentVolumeClaims from this annotation and associates them with the VM.
        annotations["harvesterhci.io/volumeClaimTemplates"] = json.dumps(claims, separators=(",", ":"))
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": metadata,
        "spec": {"runStrategy": "Halted", "template": {"metadata": {"labels": labels}, "spec": _template(machine)}},
    }


def _template(machine: VmSpec) -> Json:
    limits = {"cpu": str(machine.cpus), "memory": f"{machine.memory_gib}Gi"}
    devices: Json = {"disks": list(_disks(machine)), "interfaces": list(_interfaces(machine))}
    firmware: Json = {}
    if machine.efi:
        # KubeVirt enables secure boot with EFI by default, and secure boot requires SMM.
        firmware["firmware"] = {"bootloader": {"efi": {"secureBoot": machine.secure_boot}}}
        firmware["features"] = {"acpi": {"enabled": True}, "smm": {"enabled": machine.secure_boot}}
    return {
        "domain": {
            "cpu": {"cores": machine.cpus, "sockets": 1, "threads": 1},
            "devices": devices,
            **firmware,
            "resources": {"limits": limits},
        },
        "evictionStrategy": "LiveMigrateIfPossible",
        "networks": list(_networks(machine)),
        "volumes": list(_volumes(machine)),
    }


def _disks(machine: VmSpec) -> Iterator[Json]:
    if machine.cloud_init:
        yield {"name": CLOUD_INIT_DISK, "disk": {"bus": "virtio"}}
    for number, _disk in enumerate(machine.disks):
        boots = {} if number else {"bootOrder": 1}
        yield {"name": f"disk-{number}", "disk": {"bus": "virtio"}, **boots}


def _volumes(machine: VmSpec) -> Iterator[Json]:
    if machine.cloud_init:
        yield {"name": CLOUD_INIT_DISK, "cloudInitNoCloud": {"secretRef": {"name": cloud_init_secret(machine.name)}}}
    for number, disk in enumerate(machine.disks):
        if disk.container:
            yield {"name": f"disk-{number}", "containerDisk": {"image": disk.container}}
        else:
            yield {"name": f"disk-{number}", "persistentVolumeClaim": {"claimName": _claim_name(machine, number)}}


def _interfaces(machine: VmSpec) -> Iterator[Json]:
    if not machine.networks:
        yield {"name": "nic-0", "model": "virtio", "masquerade": {}}
    for number, _network in enumerate(machine.networks):
        yield {"name": f"nic-{number}", "model": "virtio", "bridge": {}}


def _networks(machine: VmSpec) -> Iterator[Json]:
    if not machine.networks:
        yield {"name": "nic-0", "pod": {}}
    for number, network in enumerate(machine.networks):
        yield {"name": f"nic-{number}", "multus": {"networkName": network}}


def _claims(machine: VmSpec, storage_classes: Mapping[str, str]) -> Iterator[Json]:
    for number, disk in enumerate(machine.disks):
        if disk.container:
            continue
        storage_class = disk.storage_class or storage_classes.get(disk.image, "")
        if not storage_class:
            raise InvalidMachine(
                f"Image {disk.image} of VM {machine.name} does not exist or is not ready.",
                hint="Use the form namespace/name, with the name of the object, not the name that the UI displays.",
            )
        # Harvester creates the PersistentVolumeClaim with these labels. Disks that are added to the VM later do not
        # have them.
        metadata: Json = {"name": _claim_name(machine, number), "labels": mark(machine.owner)}
        if disk.image:
            metadata["annotations"] = {"harvesterhci.io/imageId": disk.image}
        yield {
            "metadata": metadata,
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": f"{disk.size_gib}Gi"}},
                "storageClassName": storage_class,
                "volumeMode": "Block",
            },
        }


def _claim_name(machine: VmSpec, number: int) -> str:
    return f"{machine.name}-disk-{number}"


def cloud_init_secret(vm: str) -> str:
    return f"{vm}-cloudinit"
