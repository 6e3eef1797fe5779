# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan of all changes to a VM, computed first. Provides the check mode result, the diff and the order of steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...read.device_groups import GroupOffer
from . import devices as vm_devices, requirements as vm_prepare
from .devices import DeviceDiff, PciRequest
from .mark import OWNER, STAGE
from .model import OFF, ON, VmState
from .power import ABSENT, NEVER, POWERED_ON, PowerPlan, power_plan
from .requirements import SettingsChange


@dataclass(frozen=True)
class DesiredVm:
    """The requested VM, with profiles in vSphere spelling. None leaves a setting unchanged."""

    state: str
    vgpus: Mapping[str, int] | None = None
    pci_devices: Sequence[PciRequest] | None = None
    device_groups: Mapping[str, int] | None = None
    # The device groups that the hosts offer, by name.
    group_offers: Mapping[str, GroupOffer] = field(default_factory=dict, hash=False, repr=False)
    exclusive: bool = True
    prepare: bool = True
    power_cycle: str = NEVER
    discard_suspended: bool = False
    cpus: int | None = None
    memory_mb: int | None = None
    annotation: str | None = None
    # extraConfig to write: the mark, and the cloud-init data of an unfinished VM. Values can be secret.
    options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)


@dataclass(frozen=True)
class VmPlan:
    """The changes to a VM. `machine` is the current VM, or the template of a new VM."""

    machine: VmState
    state: str
    devices: DeviceDiff = field(default_factory=DeviceDiff)
    preparation: SettingsChange = field(default_factory=SettingsChange)
    hardware: Mapping[str, Any] = field(default_factory=dict, hash=False)
    power: PowerPlan = field(default_factory=PowerPlan)
    # Settings that the devices require and the VM lacks, if the task disables prepare.
    lacking: tuple[str, ...] = ()
    creates: bool = False
    options: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    @property
    def deletes(self) -> bool:
        return self.state == ABSENT

    @property
    def reconfigures(self) -> bool:
        prepared = self.preparation.lock_memory or self.preparation.extra_config
        return bool(self.devices.changed or self.hardware or prepared or self.options)

    @property
    def upgrades(self) -> bool:
        return bool(self.preparation.upgrade_to)

    @property
    def changed(self) -> bool:
        return self.creates or self.deletes or self.reconfigures or self.upgrades or self.power.changed

    @property
    def restarts(self) -> bool:
        return bool(self.power.stop and self.power.start)

    def diff(self, name: str = "", more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the output for --diff. `more` are further settings of a new VM."""
        if self.deletes:
            return {"before": describe(self.machine), "after": {}}
        if self.creates:
            after = {**describe(self.machine), **self._after(), "name": name, **(more or {}), "power": self.power.after}
            return {"before": {}, "after": after}
        return {"before": self._before(), "after": self._after()}

    @property
    def _marks(self) -> dict[str, str]:
        """Return the marks, which are the only options that may be shown."""
        shown = {"owner": OWNER, "stage": STAGE}
        return {name: self.options[key] for name, key in shown.items() if key in self.options}

    def _before(self) -> dict[str, Any]:
        machine, before = self.machine, dict(self.preparation.before)
        before |= {name: getattr(machine.mark, name) or None for name in self._marks}
        before |= {name: getattr(machine, name) for name in self.hardware}
        if self.devices.changed:
            before |= _devices(machine, grouped=self.devices.groups_change)
        if self.power.changed:
            before["power"] = machine.power
        return before

    def _after(self) -> dict[str, Any]:
        after = {**self.preparation.after, **self.hardware, **self._marks}
        if self.devices.changed:
            after["vgpus"] = dict(sorted(self.devices.vgpu_counts.items()))
            after["pci_devices"] = [str(request) for request in self.devices.pci]
        if self.devices.groups_change:
            after["device_groups"] = dict(sorted(self.devices.groups.items()))
        if self.power.changed:
            after["power"] = self.power.after
        return after


def plan(machine: VmState, wish: DesiredVm, api_version: tuple[int, ...], *, creates: bool = False) -> VmPlan:
    if wish.state == ABSENT:
        return VmPlan(machine, ABSENT, power=_power(machine, wish, []))
    devices = device_diff(machine, wish)
    memory_mib = machine.memory_mb if wish.memory_mb is None else wish.memory_mb
    needs = vm_prepare.needs_of(
        devices.all_vgpus,
        devices.all_pci,
        memory_mib=memory_mib,
        api_version=api_version,
        grouped=bool(devices.groups),
    )
    # More memory can require a larger MMIO region for the devices that the VM has already.
    memory_grows = memory_mib > machine.memory_mb
    manages = memory_grows or any(asked is not None for asked in (wish.vgpus, wish.pci_devices, wish.device_groups))
    preparation = vm_prepare.prepare(machine, needs) if manages else SettingsChange()
    if devices.grows or memory_grows:
        vm_prepare.refuse_without_efi(machine, needs, creating=creates)
    lacking: tuple[str, ...] = ()
    if not wish.prepare:
        preparation, lacking = SettingsChange(), tuple(preparation.words)
    hardware = _hardware(machine, wish)
    options = {key: value for key, value in wish.options.items() if machine.extra_config.get(key) != value}
    made = VmPlan(
        machine, wish.state, devices, preparation, hardware, lacking=lacking, creates=creates, options=options
    )
    if creates:
        start = wish.state == POWERED_ON
        return replace(made, power=PowerPlan(start=start, after=ON if start else OFF))
    return replace(made, power=_power(machine, wish, why_off(made)))


def device_diff(machine: VmState, wish: DesiredVm) -> DeviceDiff:
    return vm_devices.diff(
        machine,
        wish.vgpus,
        wish.pci_devices,
        groups=wish.device_groups,
        offers=wish.group_offers,
        exclusive=wish.exclusive,
    )


def why_off(made: VmPlan) -> list[str]:
    """Return the changes that require a powered-off VM."""
    reasons = []
    devices, machine, hardware = made.devices, made.machine, made.hardware
    added = [
        *devices.add_vgpus,
        *map(str, devices.add_pci),
        *(f"device group {device_group.name}" for device_group in devices.add_groups),
    ]
    if added:
        reasons.append(f"add {_counts(added)}")
    removed = [device.profile or str(vm_devices.request_of(device)) for device in devices.remove]
    removed += [f"device group {group.name}" for group in devices.remove_groups]
    if removed:
        reasons.append(f"remove {_counts(removed)}")
    # Locking the memory reservation and writing extraConfig do not require a powered-off VM.
    if made.upgrades:
        reasons.append(f"the hardware version becomes vmx-{made.preparation.upgrade_to}")
    if "cpus" in hardware and not (machine.cpu_hot_add and hardware["cpus"] > machine.cpus):
        reasons.append(f"the CPUs become {hardware['cpus']}")
    # vSphere does not hot-add memory to VMs with passthrough devices, regardless of the VM's settings.
    grows_hot = machine.memory_hot_add and not machine.devices
    if "memory_mb" in hardware and not (grows_hot and hardware["memory_mb"] > machine.memory_mb):
        reasons.append(f"the memory becomes {hardware['memory_mb']} MB")
    return reasons


def describe(machine: VmState) -> dict[str, Any]:
    enabled, size = vm_prepare.mmio_settings(machine.extra_config)
    return {
        "name": machine.name,
        "power": machine.power,
        "cpus": machine.cpus,
        "memory_mb": machine.memory_mb,
        "memory_reservation_locked": machine.memory_locked,
        "hardware_version": f"vmx-{machine.hardware_version}",
        "firmware": machine.firmware,
        "mmio_64bit": enabled,
        "mmio_size_gb": size or None,
        **_devices(machine),
    }


def _devices(machine: VmState, *, grouped: bool = False) -> dict[str, Any]:
    requests = sorted(vm_devices.request_of(device) for device in machine.managed if device.allowed)
    shown: dict[str, Any] = {
        "vgpus": dict(sorted(machine.vgpus.items())),
        "pci_devices": [str(request) for request in requests],
    }
    if grouped or machine.groups:
        shown["device_groups"] = dict(sorted(Counter(group.name for group in machine.groups).items()))
    return shown


def _hardware(machine: VmState, wish: DesiredVm) -> dict[str, Any]:
    asked = {"cpus": wish.cpus, "memory_mb": wish.memory_mb, "annotation": wish.annotation}
    return {name: value for name, value in asked.items() if value is not None and value != getattr(machine, name)}


def _power(machine: VmState, wish: DesiredVm, reasons: Sequence[str]) -> PowerPlan:
    return power_plan(
        machine, wish.state, reasons, power_cycle=wish.power_cycle, discard_suspended=wish.discard_suspended
    )


def _counts(names: Sequence[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))
