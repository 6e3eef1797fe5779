# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Conversion of plans into vSphere types."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from ..session import Session
from .decide.devices import DeviceDiff, PciRequest
from .decide.plan import VmPlan

# Keys of new devices are negative and only identify the devices within one request.
FIRST_KEY = -200
FIRST_GROUP_KEY = -1


def reconfiguration(session: Session, plan: VmPlan, *, guarded: bool = True) -> Any:
    """Return all changes as one request. If `guarded`, the server rejects it if the VM changed since it was read."""
    vim = session.vim
    spec = vim.vm.ConfigSpec()
    if guarded and plan.machine.change_version:
        spec.changeVersion = plan.machine.change_version
    changes = device_changes(session, plan.devices)
    if changes:
        spec.deviceChange = changes
    device_groups(session, spec, plan.devices)
    settings(session, spec, plan)
    return spec


def device_groups(session: Session, spec: Any, devices: DeviceDiff) -> None:
    """Add the list of all device groups that the VM will have to the specification, if the list changes.

    Devices of removed groups are removed in the same request (vsphere.md 1.4).
    """
    if not devices.groups_change:
        return
    vendor = session.vim.vm.VirtualDeviceGroups.VendorDeviceGroup
    kept = [vendor(groupInstanceKey=group.key, deviceGroupName=group.name) for group in devices.keep_groups]
    added = [
        vendor(groupInstanceKey=FIRST_GROUP_KEY - number, deviceGroupName=group.name)
        for number, group in enumerate(devices.add_groups)
    ]
    spec.deviceGroups = session.vim.vm.VirtualDeviceGroups(deviceGroup=kept + added)


def settings(session: Session, spec: Any, plan: VmPlan) -> None:
    """Add all settings of the plan except its devices to the specification."""
    hardware = plan.hardware
    if "cpus" in hardware:
        spec.numCPUs = hardware["cpus"]
    if "memory_mb" in hardware:
        spec.memoryMB = hardware["memory_mb"]
    if "annotation" in hardware:
        spec.annotation = hardware["annotation"]
    if plan.preparation.lock_memory:
        spec.memoryReservationLockedToMax = True
    written = {**plan.preparation.extra_config, **plan.options}
    if written:
        spec.extraConfig = options(session, written)


def options(session: Session, values: Any) -> list[Any]:
    return [session.vim.option.OptionValue(key=key, value=value) for key, value in sorted(values.items())]


def device_changes(session: Session, devices: DeviceDiff) -> list[Any]:
    """Return the device changes, removals first. Send no labels, since the server assigns them (vsphere.md 5.2)."""
    kind = session.vim.vm.device.VirtualPCIPassthrough
    change = session.vim.vm.device.VirtualDeviceSpec
    removed = [change(operation="remove", device=kind(key=device.key)) for device in devices.remove]
    backings = [kind.VmiopBackingInfo(vgpu=profile) for profile in devices.add_vgpus]
    backings += [_dynamic(session, request) for request in devices.add_pci]
    added = [
        change(operation="add", device=kind(key=FIRST_KEY - number, backing=backing))
        for number, backing in enumerate(backings)
    ]
    removed += [
        change(operation="remove", device=getattr(session.vim.vm.device, member.kind)(key=member.key))
        for group in devices.remove_groups
        for member in group.members
    ]
    first = FIRST_KEY - len(backings)
    grouped = [
        change(operation="add", device=_keyed(device, first - number))
        for number, device in enumerate(_group_devices(session, devices))
    ]
    return removed + added + grouped


def _group_devices(session: Session, devices: DeviceDiff) -> Iterator[Any]:
    """Yield the devices of the added groups, made from the templates of the host."""
    info = session.vim.vm.device.VirtualDevice.DeviceGroupInfo
    for number, group in enumerate(devices.add_groups):
        for template in group.templates:
            device = copy.copy(template)
            sequence = template.deviceGroupInfo.sequenceId
            device.deviceGroupInfo = info(groupInstanceKey=FIRST_GROUP_KEY - number, sequenceId=sequence)
            yield device


def _keyed(device: Any, key: int) -> Any:
    device.key = key
    return device


def _dynamic(session: Session, request: PciRequest) -> Any:
    kind = session.vim.vm.device.VirtualPCIPassthrough
    vendor, device = request.ids
    return kind.DynamicBackingInfo(
        deviceName="",
        allowedDevice=[kind.AllowedDevice(vendorId=vendor, deviceId=device)],
        customLabel=request.label or None,
    )
