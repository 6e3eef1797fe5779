# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The vGPUs of a VirtualMachine, read from either field and written to the version's own (harvester.md 12.1). Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any

from ...fleet.profile import parse_or_none
from ...fleet.profile_resolver import ProfileResolver
from .. import paths as r
from ..read.vm_usage import devices_of, read_note
from ..version import HarvesterVersion

Json = dict[str, Any]

# Up to 1.7 vGPUs are in `gpus`, from 1.8 on in `hostDevices`, next to passed-through devices.
GPUS, HOST_DEVICES = "gpus", "hostDevices"
FIELDS = (GPUS, HOST_DEVICES)
NOTE_PARTS = {GPUS: "gpus", HOST_DEVICES: "hostdevices"}
ENDED = ("Succeeded", "Failed")


def described(vgpus: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(vgpus.items()) if count) or "no vGPUs"


def field_of(version: HarvesterVersion) -> str:
    return HOST_DEVICES if version.vendor_vfio else GPUS


@dataclass(frozen=True)
class VmState:
    """A VM with the devices that its spec requests, and those that its running instance, if any, was started with."""

    vm: Json
    instance: Json | None
    version: HarvesterVersion
    known: ProfileResolver

    @property
    def name(self) -> str:
        return str(self.vm["metadata"]["name"])

    @property
    def path(self) -> str:
        return f"{self.vm['metadata'].get('namespace', '')}/{self.name}"

    @property
    def efi(self) -> bool:
        template = (self.vm.get("spec") or {}).get("template") or {}
        domain = (template.get("spec") or {}).get("domain") or {}
        bootloader = (domain.get("firmware") or {}).get("bootloader") or {}
        return "efi" in bootloader and bootloader["efi"] is not None

    @property
    def running(self) -> bool:
        return self.instance is not None and (self.instance.get("status") or {}).get("phase") not in ENDED

    @property
    def node(self) -> str | None:
        return ((self.instance or {}).get("status") or {}).get("nodeName") if self.running else None

    @cached_property
    def devices(self) -> dict[str, list[Json]]:
        devices = devices_of(self.vm)
        return {name: list(devices.get(name) or []) for name in FIELDS}

    def type_of(self, device: Json) -> str | None:
        """Return the vGPU type that a device requests, or None for other devices, such as a passed-through GPU."""
        resource = device.get("deviceName") or ""
        known = self.known.by_resource(resource)
        if known:
            return known
        # Names that Harvester generates for PCI devices have no hyphens, so they never look like a profile.
        return resource if resource.startswith("nvidia.com/") and parse_or_none(resource) else None

    @property
    def vgpus(self) -> Counter[str]:
        """Return the types that the spec requests."""
        return self.types(self.devices)

    @property
    def running_vgpus(self) -> Counter[str]:
        """Return the types that the running instance was started with."""
        if not self.running:
            return Counter()
        domain = ((self.instance or {}).get("spec") or {}).get("domain") or {}
        devices = domain.get("devices") or {}
        return self.types({name: list(devices.get(name) or []) for name in FIELDS})

    def types(self, devices: Mapping[str, list[Json]]) -> Counter[str]:
        types = (self.type_of(device) for name in FIELDS for device in devices[name])
        return Counter(name for name in types if name)

    @property
    def restart_required(self) -> bool:
        """Return whether the instance runs with other vGPUs than the spec requests."""
        shown = "domain" in ((self.instance or {}).get("spec") or {})
        return self.running and shown and self.vgpus != self.running_vgpus

    @property
    def displays(self) -> int:
        """Return how many vGPUs of the spec have a boot display. A VM with more than one does not start."""
        return len(self.showing(self.devices[GPUS]))

    def showing(self, gpus: Sequence[Json]) -> list[int]:
        """Return the positions of vGPUs to which KubeVirt gives a boot display (a display with ramFB).

        Up to KubeVirt 1.2, each vGPU without options gets a boot display. From 1.3 on, the first vGPU gets it if no
        entry has a display setting. If any entry has one, entries without the setting get no display.
        """
        vgpus = [index for index, gpu in enumerate(gpus) if self.type_of(gpu)]
        if self.version.display_for_each_vgpu:
            return [index for index in vgpus if gpus[index].get("virtualGPUOptions") is None or _shows(gpus[index])]
        if all(_display(gpu) is None for gpu in gpus):
            return vgpus[:1]
        return [index for index in vgpus if _shows(gpus[index])]

    @property
    def note_text(self) -> str | None:
        return (self.vm["metadata"].get("annotations") or {}).get(r.ALLOCATION_NOTE)

    @cached_property
    def note(self) -> dict[str, dict[str, list[str]]] | None:
        """Return the devices by part and resource, or None if the annotation is invalid."""
        return read_note(self.note_text)

    def allocated(self) -> dict[str, list[str]]:
        """Return the devices that the running VM really has, by vGPU type."""
        found: dict[str, list[str]] = {}
        for resources in (self.note or {}).values() if self.running else ():
            for resource, devices in resources.items():
                type_name = self.type_of({"deviceName": resource})
                if type_name:
                    found.setdefault(type_name, []).extend(sorted(devices))
        return found

    @property
    def noted(self) -> bool:
        """Return whether the allocation annotation matches the devices of the spec."""
        return Counter({name: len(devices) for name, devices in self.allocated().items() if devices}) == self.vgpus

    def with_vm(self, vm: Json, instance: Json | None) -> VmState:
        return replace(self, vm=vm, instance=instance)


@dataclass(frozen=True)
class VmPlan:
    """The devices and the allocation annotation before and after. `restart` is whether the plan restarts the VM."""

    machine: VmState
    devices: Mapping[str, list[Json]]
    note_text: str | None
    restart: bool = False

    @property
    def writes(self) -> bool:
        return self.devices != self.machine.devices or self.note_text != self.machine.note_text

    @property
    def changed(self) -> bool:
        return self.writes or self.restart

    @property
    def vgpus(self) -> Counter[str]:
        return self.machine.types(self.devices)

    @property
    def restart_required(self) -> bool:
        """Return whether a restart is required after the plan was applied."""
        return self.machine.running and not self.restart and self.vgpus != self.machine.running_vgpus

    @property
    def patch(self) -> Json:
        """Return a merge patch that the API server refuses if the VM has changed since it was read."""
        metadata: Json = {"resourceVersion": self.machine.vm["metadata"].get("resourceVersion")}
        if self.note_text != self.machine.note_text:
            metadata["annotations"] = {r.ALLOCATION_NOTE: self.note_text}
        changed = {
            name: self.devices[name] or None for name in FIELDS if self.devices[name] != self.machine.devices[name]
        }
        patch: Json = {"metadata": metadata}
        if changed:
            patch["spec"] = {"template": {"spec": {"domain": {"devices": changed}}}}
        return patch

    @property
    def diff(self) -> Json:
        """Return the changes under the name of the VM, which a loop needs, with the restart and a changed annotation.

        An annotation that stays would read as if vGPUs that are removed were still there.
        """
        before, after = _only_filled(self.machine.devices), _only_filled(self.devices)
        if self.note_text != self.machine.note_text:
            before["allocation_note"], after["allocation_note"] = self.machine.note_text, self.note_text
        if self.restart:
            before["restarted"], after["restarted"] = False, True
        metadata = self.machine.vm["metadata"]
        header = f"VM {metadata.get('namespace', 'default')}/{metadata['name']}"
        return {"before_header": header, "after_header": header, "before": before, "after": after}


def _only_filled(devices: Mapping[str, list[Json]]) -> Json:
    return {name: devices[name] for name in FIELDS if devices[name]}


def plan(machine: VmState, target: Mapping[str, int], *, restart: bool) -> VmPlan:
    """Plan the exact count of each type in `target`, and no other types."""
    found = planned(machine, _arranged(machine, target))
    return replace(found, restart=restart and found.restart_required)


def planned(machine: VmState, devices: Mapping[str, list[Json]]) -> VmPlan:
    """Plan exactly these devices."""
    return VmPlan(machine, devices, _remaining_note(machine, devices))


def _arranged(machine: VmState, target: Mapping[str, int]) -> dict[str, list[Json]]:
    """Return the device entries for the target. Keep existing entries, the first of each type first."""
    field = field_of(machine.version)
    left = dict(target)
    kept: dict[str, list[Json]] = {name: [] for name in FIELDS}
    moved: list[Json] = []
    for name in FIELDS:
        for device in machine.devices[name]:
            type_name = machine.type_of(device)
            if type_name is None:
                kept[name].append(device)
            elif left.get(type_name, 0) > 0:
                left[type_name] -= 1
                if name == field:
                    kept[name].append(device)
                else:
                    moved.append({"name": device.get("name", ""), "deviceName": device.get("deviceName", "")})
    resources = [machine.version.resource(name) for name in sorted(left) for _nth in range(left[name])]
    kept[field] += moved + [{"name": "", "deviceName": resource} for resource in resources]
    _name(machine, kept)
    if field == GPUS:
        kept[GPUS] = _with_one_display(machine, kept[GPUS])
    return kept


def _name(machine: VmState, devices: dict[str, list[Json]]) -> None:
    """Give unnamed or duplicate entries a new name: a VM with two equal names does not boot. Keep all other names."""
    every = [device for name in FIELDS for device in devices[name]]
    taken = {device.get("name", "") for device in every}
    seen = {device.get("name", "") for device in every if machine.type_of(device) is None}
    fresh = (name for name in (f"vgpu-{number}" for number in count()) if name not in taken)
    for field in FIELDS:
        for index, device in enumerate(devices[field]):
            if machine.type_of(device) is None:
                continue
            name = device.get("name", "")
            if not name or name in seen:
                name = next(fresh)
                devices[field][index] = {**device, "name": name}
            seen.add(name)


def _with_one_display(machine: VmState, gpus: list[Json]) -> list[Json]:
    """Give one of several vGPUs the boot display, set explicitly on each entry for all versions of KubeVirt.

    A VM that can start and has the right vGPUs is not changed.
    """
    before = machine.devices[GPUS]
    if gpus == before and machine.displays <= 1:
        return gpus
    vgpus = [index for index, gpu in enumerate(gpus) if machine.type_of(gpu)]
    chosen = _keeping_display(machine, gpus, vgpus)
    if len(vgpus) == 1 and (chosen is None or machine.showing(gpus) == vgpus):
        return gpus
    return [_displaying(gpu, index == chosen) if index in vgpus else gpu for index, gpu in enumerate(gpus)]


def _keeping_display(machine: VmState, gpus: list[Json], vgpus: list[int]) -> int | None:
    """Return the vGPU that keeps or inherits the boot display, or None if the VM has none by choice."""
    before = machine.devices[GPUS]
    shown = [before[index].get("name") for index in machine.showing(before)]
    if not shown and any(machine.type_of(gpu) for gpu in before):
        return None
    return next((index for index in vgpus if gpus[index].get("name") in shown), min(vgpus, default=None))


def _display(gpu: Json) -> Json | None:
    """Return the display setting of an entry, or None if it has none."""
    display: Json | None = (gpu.get("virtualGPUOptions") or {}).get("display")
    return display


def _shows(gpu: Json) -> bool:
    """Return whether an entry has a boot display. Settings that the entry leaves out default to on."""
    display = _display(gpu)
    return (
        display is not None
        and display.get("enabled") is not False
        and (display.get("ramFB") or {}).get("enabled") is not False
    )


def _displaying(gpu: Json, enabled: bool) -> Json:
    display = dict(_display(gpu) or {})
    if _display(gpu) is not None and not enabled and not _shows(gpu):
        return gpu
    if enabled or "enabled" not in display:
        display["enabled"] = True
    display["ramFB"] = {**(display.get("ramFB") or {}), "enabled": enabled}
    return {**gpu, "virtualGPUOptions": {**(gpu.get("virtualGPUOptions") or {}), "display": display}}


def _remaining_note(machine: VmState, devices: Mapping[str, list[Json]]) -> str | None:
    """Return the annotation without devices that a stopped VM no longer requests.

    Up to 1.8, such devices cannot be disabled while the annotation names them (harvester.md 12.5).
    An annotation that is not JSON stops the controllers on all nodes, so it is removed as well (harvester.md 4.4).
    """
    if machine.running or machine.note_text is None or not machine.version.keeps_stale_annotations:
        return machine.note_text
    if machine.note is None:
        return None
    asked: dict[str, list[str]] = {}
    for name in FIELDS:
        for device in devices[name]:
            asked.setdefault(device.get("deviceName", ""), []).append(device.get("name", ""))
    remaining: dict[str, dict[str, list[str]]] = {}
    for part, resources in machine.note.items():
        for resource, noted in resources.items():
            names = asked.get(resource, [])
            # Prefer the devices that the spec names: Harvester wrote them there when the VM stopped.
            ordered = sorted(noted, key=lambda device: device not in names)[: len(names)]
            stay = [device for device in noted if device in ordered]
            if stay:
                remaining.setdefault(part, {})[resource] = stay
    if remaining == {part: resources for part, resources in machine.note.items() if resources}:
        return machine.note_text
    return json.dumps(remaining, separators=(",", ":")) if remaining else None
