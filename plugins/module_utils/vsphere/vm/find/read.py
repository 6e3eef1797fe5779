# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Conversion of the vSphere properties of a VM into a VmState."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ....errors import FleetError
from ...faults import Operation, moid_of
from ...read.device_groups import SINCE as GROUPS_SINCE, names_by_key
from ...session import Properties, Session
from ..decide.mark import mark_of
from ..decide.model import OFF, ON, SUSPENDED, DeviceGroup, Disk, GroupMember, NetworkCard, PciDevice, VmState
from ..decide.place import ROOT_POOL, Location
from .path import path_of

PATHS = (
    "name",
    "resourcePool",
    "snapshot",
    "runtime.powerState",
    "runtime.connectionState",
    "runtime.host",
    "config.uuid",
    "config.instanceUuid",
    "config.template",
    "config.version",
    "config.firmware",
    "config.annotation",
    "config.changeVersion",
    "config.hardware",
    "config.memoryReservationLockedToMax",
    "config.cpuHotAddEnabled",
    "config.memoryHotAddEnabled",
    "config.extraConfig",
    "guest.toolsRunningStatus",
)
POWER = {"poweredOn": ON, "poweredOff": OFF, "suspended": SUSPENDED}
KIB_PER_GIB = 1 << 20
DEVICE_GROUPS = "config.deviceGroups"


Found = Sequence[tuple[Any, Properties]]


class VmUnavailable(FleetError):
    code = "vm_unavailable"
    certain = False


@dataclass(frozen=True)
class VmSnapshot:
    """A VM with its reference, datacenter and location."""

    reference: Any
    machine: VmState
    properties: Properties
    datacenter: Any = None
    location: Location = field(default_factory=lambda: Location(""))

    @property
    def path(self) -> str:
        return self.location.path

    @property
    def folder(self) -> str:
        return self.location.folder


def read_vm(session: Session, reference: Any, name: str, *, compute: bool = False) -> VmSnapshot:
    """Read a VM and its parent folders in one call, and with `compute` also its resource pool and cluster."""
    vim, query = session.vim, session.vmodl.query.PropertyCollector

    def way(name: str, kind: Any, path: str) -> Any:
        return query.TraversalSpec(
            name=name,
            type=kind,
            path=path,
            skip=False,
            selectSet=[query.SelectionSpec(name=way_name) for way_name in ways],
        )

    ways = {"up": (vim.ManagedEntity, "parent"), "vapp": (vim.VirtualMachine, "parentVApp")}
    ways["folder"] = (vim.VirtualApp, "parentFolder")
    named = ["name", "parent"]
    paths = [*PATHS, DEVICE_GROUPS] if session.has(GROUPS_SINCE) else PATHS
    started = [way(one, *where) for one, where in ways.items()]
    around = []
    if compute:
        # Follow resourcePool from the VM only: compute resources have a property of the same name.
        started.append(way("pool", vim.VirtualMachine, "resourcePool"))
        around = [
            query.PropertySpec(type=vim.ResourcePool, pathSet=named),
            query.PropertySpec(type=vim.ComputeResource, pathSet=named),
        ]
    wanted = query.FilterSpec(
        objectSet=[query.ObjectSpec(obj=reference, selectSet=started)],
        propSet=[
            query.PropertySpec(type=vim.VirtualMachine, pathSet=[*paths, "parent", "parentVApp"]),
            query.PropertySpec(type=vim.VirtualApp, pathSet=[*named, "parentFolder"]),
            query.PropertySpec(type=vim.Folder, pathSet=named),
            query.PropertySpec(type=vim.Datacenter, pathSet=named),
            *around,
        ],
    )
    found = session.collect(Operation(f"read VM {name}", vm=name), wanted)
    properties = next((values for entity, values in found if isinstance(entity, vim.VirtualMachine)), None)
    if properties is None or not {"config.hardware", "runtime.powerState"} <= properties.keys():
        state = (properties or {}).get("runtime.connectionState") or "not there"
        raise VmUnavailable(
            f"The configuration of VM {name} cannot be read: it is {state}.",
            hint="Its host or its files are out of reach; bring them back first.",
        )
    datacenter = next((entity for entity, _values in found if isinstance(entity, vim.Datacenter)), None)
    machine = machine_of(session, reference, properties)
    location = Location(
        path=path_of(machine.moid, known := {moid_of(entity): values for entity, values in found}),
        datacenter=path_of(moid_of(datacenter), known) if datacenter is not None else "",
        running=machine.running,
    )
    if compute:
        location = _with_compute(location, moid_of(properties.get("resourcePool")), found, session)
    return VmSnapshot(reference, machine, properties, datacenter, location)


def _with_compute(location: Location, pool: str, found: Found, session: Session) -> Location:
    vim, known = session.vim, {moid_of(entity): values for entity, values in found}
    pools = {moid_of(entity) for entity, _values in found if isinstance(entity, vim.ResourcePool)}
    resources = {moid_of(entity) for entity, _values in found if isinstance(entity, vim.ComputeResource)}
    names, at = [], pool
    while at in pools:
        names.append(str(known[at]["name"]))
        at = moid_of(known[at].get("parent"))
    cluster = at if at in resources else ""
    return replace(
        location,
        cluster=str(known[cluster]["name"]) if cluster else "",
        # Paths omit the topmost pool, which is the root pool of the cluster.
        pool="/".join(reversed(names[:-1])) or ROOT_POOL,
    )


def machine_of(session: Session, reference: Any, properties: Mapping[str, Any]) -> VmState:
    hardware = properties["config.hardware"]
    version = str(properties.get("config.version") or "")
    host = properties.get("runtime.host")
    extra_config = {option.key: str(option.value) for option in properties.get("config.extraConfig") or []}
    return VmState(
        moid=moid_of(reference),
        name=str(properties["name"]),
        uuid=str(properties.get("config.uuid") or ""),
        instance_uuid=str(properties.get("config.instanceUuid") or ""),
        template=bool(properties.get("config.template")),
        power=POWER[str(properties["runtime.powerState"])],
        connection=str(properties.get("runtime.connectionState") or "connected"),
        host=moid_of(host) if host is not None else None,
        cpus=int(hardware.numCPU),
        memory_mb=int(hardware.memoryMB),
        hardware_version=_hardware_version(version),
        firmware=str(properties.get("config.firmware") or "bios"),
        annotation=str(properties.get("config.annotation") or ""),
        memory_locked=bool(properties.get("config.memoryReservationLockedToMax")),
        cpu_hot_add=bool(properties.get("config.cpuHotAddEnabled")),
        memory_hot_add=bool(properties.get("config.memoryHotAddEnabled")),
        tools_running=properties.get("guest.toolsRunningStatus") == "guestToolsRunning",
        change_version=str(properties.get("config.changeVersion") or ""),
        extra_config=extra_config,
        mark=mark_of(extra_config),
        devices=(devices := tuple(pci_devices(session, hardware.device))),
        groups=tuple(_groups(session, properties.get(DEVICE_GROUPS), hardware.device, devices)),
        disks=tuple(_disks(session, hardware.device)),
        cards=tuple(_cards(session, hardware.device)),
    )


def _hardware_version(version: str) -> int:
    """Return the number of a hardware version such as vmx-20, or 0 for other texts."""
    number = version.removeprefix("vmx-")
    return int(number) if version.startswith("vmx-") and number.isdecimal() and len(number) < 6 else 0


def pci_devices(session: Session, devices: Any) -> Iterator[PciDevice]:
    """Yield the PCI passthrough devices of any kind."""
    passthrough = session.vim.vm.device.VirtualPCIPassthrough
    dynamic = getattr(passthrough, "DynamicBackingInfo", None) if session.has("7.0") else None
    for device in devices or []:
        if not isinstance(device, passthrough):
            continue
        backing = device.backing
        grouped = device.deviceGroupInfo if session.has(GROUPS_SINCE) else None
        whole = dynamic is not None and isinstance(backing, dynamic)
        yield PciDevice(
            key=int(device.key),
            name=str(device.deviceInfo.label) if device.deviceInfo else "",
            profile=str(backing.vgpu) if isinstance(backing, passthrough.VmiopBackingInfo) else "",
            allowed=tuple(
                (_unsigned(device_id.vendorId), _unsigned(device_id.deviceId)) for device_id in backing.allowedDevice
            )
            if whole
            else (),
            label=str(backing.customLabel or "") if whole else "",
            group=int(grouped.groupInstanceKey) if grouped else None,
        )


def _groups(session: Session, groups: Any, devices: Any, known: Sequence[PciDevice]) -> Iterator[DeviceGroup]:
    """Yield the vendor device groups with their devices, which can be of any type."""
    for key, name in sorted(names_by_key(session, groups).items()):
        members = [
            device
            for device in devices or []
            if device.deviceGroupInfo and device.deviceGroupInfo.groupInstanceKey == key
        ]
        mine = [device for device in known if device.group == key]
        yield DeviceGroup(
            key,
            name,
            tuple(
                GroupMember(
                    int(device.key),
                    str(device.deviceInfo.label) if device.deviceInfo else "",
                    type(device).__name__.rpartition(".")[2],
                )
                for device in members
            ),
            tuple(device.profile for device in mine if device.profile),
            tuple((device.allowed[0], device.label) for device in mine if device.allowed),
        )


def _disks(session: Session, devices: Any) -> Iterator[Disk]:
    for device in devices or []:
        if isinstance(device, session.vim.vm.device.VirtualDisk):
            yield Disk(int(device.key), int(device.capacityInKB) // KIB_PER_GIB)


def _cards(session: Session, devices: Any) -> Iterator[NetworkCard]:
    for device in devices or []:
        if isinstance(device, session.vim.vm.device.VirtualEthernetCard):
            network = str(getattr(device.backing, "deviceName", "") or "")
            yield NetworkCard(int(device.key), network, str(device.macAddress or ""))


def _unsigned(number: int) -> int:
    """Return a PCI id as unsigned number. Ids above 0x7fff may arrive as negative shorts (vsphere.md 1.6)."""
    return int(number) & 0xFFFF
