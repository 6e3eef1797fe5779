# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Records of GPUs and VMs before a change, the device entries that VMs get, and the batches of a journal. Pure."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ...fleet.model import Fleet, Gpu
from ...kube.client import Json
from .. import paths as r
from ..apply import journal
from ..apply.journal import DONE, PLANNED, Entry
from ..vm import model as vm_devices
from ..vm.model import FIELDS, VmState

MANUAL, ALWAYS = "Manual", "Always"
RUN_FIELDS = ("running", "runStrategy")


@dataclass(frozen=True)
class GpuRecord:
    """A GPU before the change: its vGPUs by device, with their owners, and whether SR-IOV was enabled."""

    name: str
    vgpus: tuple[tuple[str, str], ...]
    sriov: bool
    owners: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, gpu: Gpu) -> GpuRecord:
        return cls(gpu.name, tuple(sorted(_enabled(gpu).items())), gpu.sharing, tuple(sorted(_owners(gpu).items())))

    def as_dict(self) -> Json:
        return {"vgpus": [list(vgpu) for vgpu in self.vgpus], "sriov": self.sriov, "owners": dict(self.owners)}

    @classmethod
    def read(cls, name: str, before: Json) -> GpuRecord:
        return cls(
            name,
            tuple((device, profile) for device, profile in before["vgpus"]),
            bool(before["sriov"]),
            tuple(sorted((before.get("owners") or {}).items())),
        )

    @property
    def owner_by_device(self) -> dict[str, str | None]:
        """Return the owner of each vGPU that the GPU had, or None if it had no mark."""
        owners = dict(self.owners)
        return {device: owners.get(device) for device, _profile in self.vgpus}

    def differs(self, fleet: Fleet) -> bool:
        """Return whether the layout is another one now. Owner marks do not count: no VM has to stop to restore them."""
        now = self._now(fleet)
        return now is None or _enabled(now) != dict(self.vgpus) or now.sharing != self.sriov

    def lost_marks(self, fleet: Fleet) -> dict[str, tuple[str, str | None]]:
        """Return the vGPUs whose owner mark is missing or another one now: the mark before and the current mark."""
        now = self._now(fleet)
        owners = _owners(now) if now else {}
        enabled = _enabled(now) if now else {}
        return {
            device: (owner, owners.get(device))
            for device, owner in self.owners
            if device in enabled and owners.get(device) != owner
        }

    def _now(self, fleet: Fleet) -> Gpu | None:
        return next((gpu for gpu in fleet.gpus if gpu.name == self.name), None)


def _enabled(gpu: Gpu) -> dict[str, str]:
    return {slot.name: slot.profile or slot.wanted or "" for slot in gpu.slots if slot.wanted}


def _owners(gpu: Gpu) -> dict[str, str]:
    return {slot.name: slot.owner for slot in gpu.slots if slot.wanted and slot.owner}


@dataclass(frozen=True)
class VmRecord:
    """A VM before the change, and the vGPUs that it gets.

    `run` holds the run fields of its spec, `ran` is whether to start it again, and `ready` whether it was Running, so
    that the run waits for it.
    """

    path: str
    run: Mapping[str, Any]
    ran: bool
    ready: bool
    devices: Mapping[str, list[Json]]
    note: str | None
    gets: Mapping[str, int]

    @classmethod
    def of(cls, machine: VmState, gets: Mapping[str, int]) -> VmRecord:
        spec, status = machine.vm.get("spec") or {}, machine.vm.get("status") or {}
        told = spec.get("running") is True or spec.get("runStrategy") == ALWAYS
        shown = status.get("printableStatus") or "Stopped"
        return cls(
            path=machine.path,
            run={name: spec[name] for name in RUN_FIELDS if name in spec},
            ran=machine.running or told or shown != "Stopped",
            ready=phase_of(machine.instance) == "Running",
            devices=copy.deepcopy(machine.devices),
            note=machine.note_text,
            gets=dict(gets),
        )

    def before(self) -> Json:
        return {
            "run": dict(self.run),
            "ran": self.ran,
            "ready": self.ready,
            "devices": dict(self.devices),
            "note": self.note,
        }

    @classmethod
    def read(cls, path: str, entry: Entry) -> VmRecord:
        return cls(path, gets=(entry.after or {}).get("vgpus") or {}, **(entry.before or {}))

    @property
    def manual(self) -> bool:
        return self.run.get("runStrategy") == MANUAL

    @property
    def run_patch(self) -> Json:
        """Return the patch that restores the run setting of a VM. Its two fields exclude each other."""
        return {name: self.run.get(name) for name in RUN_FIELDS}


def phase_of(instance: Json | None) -> str:
    return str(((instance or {}).get("status") or {}).get("phase") or "")


def with_devices(machine: VmState, devices: Mapping[str, list[Json]]) -> VmState:
    """Return the VM as if its spec requested these devices."""
    vm = copy.deepcopy(machine.vm)
    domain = vm.setdefault("spec", {}).setdefault("template", {}).setdefault("spec", {}).setdefault("domain", {})
    domain["devices"] = {**(domain.get("devices") or {}), **{name: list(devices.get(name) or []) for name in FIELDS}}
    return machine.with_vm(vm, machine.instance)


def without_vgpus(machine: VmState) -> dict[str, list[Json]]:
    return {name: [device for device in machine.devices[name] if not machine.type_of(device)] for name in FIELDS}


def put_into(machine: VmState, devices: Mapping[str, list[Json]]) -> dict[str, list[Json]]:
    """Return the device entries of a VM with its vGPUs replaced by these. All other entries stay as they are now."""
    recorded = with_devices(machine, devices)
    if without_vgpus(recorded) == without_vgpus(machine):
        return recorded.devices
    vgpus = {name: [device for device in recorded.devices[name] if machine.type_of(device)] for name in FIELDS}
    return {name: without_vgpus(machine)[name] + vgpus[name] for name in FIELDS}


def given(machine: VmState, gets: Mapping[str, int], device_names: Iterable[str]) -> dict[str, list[Json]]:
    """Return the devices of a VM that gets these vGPUs. Entries keep their name, tag and options; the profile changes.

    A name that Harvester generated from a device describes that device, so an entry with another profile does not
    keep it.
    """
    if machine.vgpus == Counter(gets):
        return machine.devices
    made = set(device_names)
    left = Counter(gets)
    kept = Counter[str]()
    missing = sorted((left - machine.vgpus).elements())
    exchanged: dict[str, list[Json]] = {name: [] for name in FIELDS}
    for name in FIELDS:
        for device in machine.devices[name]:
            type_name = machine.type_of(device)
            if type_name is None or kept[type_name] < left[type_name]:
                kept[type_name or ""] += 1
                exchanged[name].append(device)
            elif missing:
                label = device.get("name", "")
                resource = machine.version.resource(missing.pop(0))
                exchanged[name].append({**device, "deviceName": resource, "name": "" if label in made else label})
    return dict(vm_devices.plan(with_devices(machine, exchanged), gets, restart=False).devices)


def same_entries(one: Mapping[str, list[Json]], other: Mapping[str, list[Json]]) -> bool:
    """Compare device entries across both fields: from 1.8 on, a webhook may move entries to the other field."""
    return [entry for name in FIELDS for entry in one[name]] == [entry for name in FIELDS for entry in other[name]]


@dataclass(frozen=True)
class Batch:
    """GPUs that are changed together, and the VMs that are stopped for the change."""

    gpus: tuple[GpuRecord, ...]
    vms: tuple[VmRecord, ...]

    @property
    def gpu_names(self) -> tuple[str, ...]:
        return tuple(gpu.name for gpu in self.gpus)

    @property
    def said(self) -> str:
        return ", ".join(self.gpu_names or [vm.path for vm in self.vms])

    @property
    def paths(self) -> list[str]:
        """Return the paths, VMs first: a GPU's journal, which records that the batch is done, must outlast theirs."""
        return [*(journal.vm_path(vm.path) for vm in self.vms), *map(journal.gpu_path, self.gpu_names)]


def batches_of(found: Mapping[str, Entry]) -> list[Batch]:
    """Return the batches that a run had begun, from its journal. Planned batches were not changed."""
    gpus = {path.rsplit("/", 1)[-1]: entry for path, entry in found.items() if path.startswith(r.GPUS)}
    vms = {journal.said(path).removeprefix("VM "): entry for path, entry in found.items() if path not in gpus}
    vms = {path: entry for path, entry in vms.items() if "/" in path}
    begun: list[Batch] = []
    for together in sorted({entry.gpus for entry in gpus.values() if entry.phase != PLANNED}):
        members = {name: gpus[name] for name in together if name in gpus}
        if any(entry.phase in (PLANNED, DONE) for entry in members.values()):
            # No VM is stopped before all GPUs are marked. Once a GPU is done, only the journal has to be removed.
            continue
        paths = sorted({path for entry in members.values() for path in entry.vms})
        begun.append(
            Batch(
                tuple(GpuRecord.read(name, entry.before or {}) for name, entry in sorted(members.items())),
                tuple(VmRecord.read(path, vms[path]) for path in paths if path in vms and vms[path].before),
            )
        )
    covered = {vm.path for batch in begun for vm in batch.vms}
    for path, entry in sorted(vms.items()):
        # The VM is changed without GPUs, or the GPU objects were created again and have lost the journal.
        alone = not any(name in gpus for name in entry.gpus)
        if entry.before and path not in covered and alone:
            begun.append(Batch((), (VmRecord.read(path, entry),)))
    return begun
