# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PCI devices that hosts can pass through, their settings and the VMs that use them, read with two calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..faults import Operation, moid_of
from ..host.passthrough import Ids, PassthroughDevice, PassthroughHost, normal_address
from ..session import Properties, Session
from .inventory import HostFacts

PATHS = ["config.pciPassthruInfo", "hardware.pciDevice", "configManager.pciPassthruSystem"]
# Since 7.0 hosts tell whether they switch passthrough without a reboot.
REBINDS = "capability.deviceRebindWithoutRebootSupported"
VM_PATHS = ["name", "runtime.powerState", "config.hardware.device"]


def read(session: Session, hosts: Sequence[HostFacts], wanted: Sequence[Ids]) -> list[PassthroughHost]:
    """Read the devices of all hosts, and the users of devices with the wanted ids."""
    subject = Operation("read the PCI devices of the hosts")
    paths = [*PATHS, REBINDS] if session.has("7.0") else PATHS
    found = {
        moid_of(reference): values
        for reference, values in session.read(subject, [host.reference for host in hosts], paths)
    }
    made = [_host(host, found.get(host.moid, {})) for host in hosts]
    concerned = [host.moid for host in made if any(device.ids in wanted for device in host.devices)]
    vms = [vm for host in hosts if host.moid in concerned for vm in host.vms]
    known = {
        moid_of(reference): values
        for reference, values in session.read(Operation("read the VMs of the hosts"), vms, VM_PATHS)
    }
    return [
        shown.with_users(_users(session, host, shown, known)) if host.moid in concerned else shown
        for host, shown in zip(hosts, made, strict=True)
    ]


def _host(host: HostFacts, found: Properties) -> PassthroughHost:
    hardware = {device.id: device for device in found.get("hardware.pciDevice") or []}
    devices = []
    for info in found.get("config.pciPassthruInfo") or []:
        device = hardware.get(info.id)
        if device is None:
            continue
        devices.append(
            PassthroughDevice(
                address=info.id,
                # The ids are signed shorts (vsphere.md 1.6).
                ids=(device.vendorId & 0xFFFF, device.deviceId & 0xFFFF),
                name=str(device.deviceName or ""),
                capable=bool(info.passthruCapable),
                enabled=bool(info.passthruEnabled),
                active=bool(info.passthruActive),
                dependent=str(info.dependentDevice or info.id),
                label=str(getattr(info, "hardwareLabel", None) or ""),
            )
        )
    return PassthroughHost(
        moid=host.moid,
        name=host.name,
        connected=host.connected,
        rebinds=bool(found.get(REBINDS)),
        devices=tuple(sorted(devices, key=lambda device: device.address)),
        reference=host.reference,
        system=found.get("configManager.pciPassthruSystem"),
    )


def _users(
    session: Session, host: HostFacts, shown: PassthroughHost, vms: Mapping[str, Properties]
) -> dict[str, list[str]]:
    """Return the names of the VMs that use each device. If it is not known which device a VM uses, list it for all."""
    users: dict[str, list[str]] = {}
    gpus = {normal_address(gpu.address): gpu for gpu in host.gpus}
    listed = {vm for gpu in host.gpus for vm in gpu.vms}
    for device in shown.devices:
        gpu = gpus.get(normal_address(device.address))
        for vm in gpu.vms if gpu else ():
            users.setdefault(device.address, []).append(_name(vms, vm))
    for vm in map(moid_of, host.vms):
        values = vms.get(vm, {})
        running = str(values.get("runtime.powerState")) == "poweredOn"
        for address in _held(session, shown, values, running=running, unlisted=vm not in listed, gpus=gpus):
            users.setdefault(address, []).append(_name(vms, vm))
    return users


def _held(
    session: Session,
    shown: PassthroughHost,
    values: Properties,
    *,
    running: bool,
    unlisted: bool,
    gpus: Mapping[str, Any],
) -> Iterator[str]:
    kind = session.vim.vm.device.VirtualPCIPassthrough
    dynamic = kind.DynamicBackingInfo if session.has("7.0") else None
    for device in values.get("config.hardware.device") or []:
        backing = device.backing if isinstance(device, kind) else None
        if isinstance(backing, kind.DeviceBackingInfo):
            # Such a device belongs to one host, also while the VM is off.
            yield from (
                pci_device.address
                for pci_device in shown.devices
                if normal_address(pci_device.address) == normal_address(backing.id)
            )
        elif dynamic and isinstance(backing, dynamic) and running:
            ids = {(allowed.vendorId & 0xFFFF, allowed.deviceId & 0xFFFF) for allowed in backing.allowedDevice}
            possible = [
                pci_device.address for pci_device in shown.devices if pci_device.active and pci_device.ids in ids
            ]
            assigned = str(backing.assignedId or "")
            yield from [address for address in possible if address in assigned] or possible
        elif isinstance(backing, kind.VmiopBackingInfo) and running and unlisted:
            # Hosts may list the VMs of their GPUs late.
            yield from (
                pci_device.address for pci_device in shown.devices if normal_address(pci_device.address) in gpus
            )


def _name(vms: Mapping[str, Properties], moid: str) -> str:
    return str(vms.get(moid, {}).get("name") or moid)
