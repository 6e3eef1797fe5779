# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan of host graphics changes. Pure.

A host has a default graphics type, an assignment policy, and for each GPU a graphics type and a vGPU mode. The policy
is effective immediately. Types and modes stay pending until Xorg or the host restarts, and on a GPU in use also until
its VMs release the GPU (vsphere.md 2.2).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...errors import FleetError, NothingSelected, join_names
from ...fleet import catalog
from ...fleet.profile import parse_or_none, vsphere_name
from ..read.fleet import Snapshot, boards_of
from ..read.inventory import (
    DIRECT,
    MIG_MODE,
    SHARED,
    SHARED_DIRECT,
    SPELT,
    TYPES,
    VGPU_MODES,
    ConfiguredGraphics,
    GpuFacts,
    HostFacts,
    ProfileFacts,
    configured,
    pending,
    pending_text,
)

MODES_SINCE = (8, 0, 3)
# Since this version, GPUs serve vGPUs without Xorg, which may not start.
XORG_OPTIONAL = (7, 0, 1)


class GpuInUse(FleetError):
    code = "gpu_in_use"
    vms: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "vms": list(self.vms)}


class VsgaInUse(GpuInUse):
    """A restart of Xorg would interrupt VMs."""

    code = "vsga_in_use"


class NotSettable(FleetError):
    code = "not_settable"


class HostUnavailable(FleetError):
    code = "host_unavailable"


class NoManager(FleetError):
    """vCenter offers no manager for a part of a host: the host has none, or the user may not read it."""

    code = "host_unmanaged"

    def __init__(self, part: str, host: str) -> None:
        super().__init__(
            f"The {part} of host {host} cannot be changed: vCenter does not offer a manager for them.",
            hint="Check that the host is connected, and that the user may read its configuration.",
        )


@dataclass(frozen=True)
class DeviceGraphicsRequest:
    address: str
    graphics_type: str | None = None
    vgpu_mode: str | None = None


@dataclass(frozen=True)
class HostGraphicsRequest:
    """The requested host graphics. None leaves a setting unchanged."""

    graphics_type: str | None = None
    assignment_policy: str | None = None
    vgpu_mode: str | None = None
    devices: tuple[DeviceGraphicsRequest, ...] = ()

    @classmethod
    def from_options(cls, params: Mapping[str, Any]) -> HostGraphicsRequest:
        return cls(
            graphics_type=_api(TYPES, params["graphics_type"]),
            assignment_policy=params["assignment_policy"],
            vgpu_mode=_api(VGPU_MODES, params["vgpu_mode"]),
            devices=tuple(
                DeviceGraphicsRequest(
                    normal_address(entry["pci_id"]),
                    _api(TYPES, entry.get("graphics_type")),
                    _api(VGPU_MODES, entry.get("vgpu_mode")),
                )
                for entry in params["devices"] or []
            ),
        )

    @property
    def empty(self) -> bool:
        return self == HostGraphicsRequest()

    @property
    def sets_modes(self) -> bool:
        return bool(self.vgpu_mode or any(device.vgpu_mode for device in self.devices))

    def device(self, address: str) -> DeviceGraphicsRequest:
        named = [device for device in self.devices if device.address == normal_address(address)]
        return named[-1] if named else DeviceGraphicsRequest(address)


def _api(names: Mapping[str, str], value: str | None) -> str | None:
    return names[value] if value else None


def normal_address(address: str) -> str:
    """Normalize a PCI address: `3b:00.0` and `0000:3B:00.0` are the same device."""
    address = address.strip().casefold()
    return address if address.count(":") > 1 else f"0000:{address}"


@dataclass(frozen=True)
class HostChange:
    """A host before and after a change. `restart` means that Xorg has to restart to make settings effective."""

    before: HostFacts
    after: HostFacts
    write: bool = False
    restart: bool = False
    # Whether the settings need Xorg. Without it, a host serves vGPUs but not vSphere's own virtual graphics.
    needs_xorg: bool = True

    @property
    def changed(self) -> bool:
        return self.write or self.restart

    @property
    def name(self) -> str:
        return self.before.name


@dataclass(frozen=True)
class Plan:
    """The changes of all GPU hosts, and the snapshot they are based on."""

    snapshot: Snapshot
    changes: tuple[HostChange, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return any(change.changed for change in self.changes)

    @property
    def restarts(self) -> list[str]:
        return [change.name for change in self.changes if change.restart]

    def preview(self) -> Snapshot:
        """Return the predicted snapshot after the changes."""
        hosts = tuple(change.after for change in self.changes)
        return Snapshot(replace(self.snapshot.inventory, hosts=hosts))

    def of_its_hosts(self, snapshot: Snapshot) -> Snapshot:
        """Return a later snapshot without the hosts that the plan does not concern."""
        chosen = {change.before.moid for change in self.changes}
        hosts = tuple(host for host in snapshot.inventory.hosts if host.moid in chosen)
        return Snapshot(replace(snapshot.inventory, hosts=hosts))

    # Results, each based on a snapshot of the hosts after the changes.
    def host_records(self, found: Snapshot) -> list[dict[str, Any]]:
        return [host_record(host, restarted=host.name not in self._to_restart) for host in found.inventory.hosts]

    @property
    def _to_restart(self) -> list[str]:
        """Return the hosts that this task configured without a restart of Xorg, which can still be enough."""
        return [change.name for change in self.changes if change.write and not change.restart]

    def left_to_do(self, found: Snapshot) -> list[str]:
        texts = [pending_text(host, restarted=host.name in self.restarts) for host in found.inventory.hosts]
        return [text for text in texts if text]

    def diff(self, found: Snapshot) -> dict[str, Any]:
        changed = [change for change in self.changes if change.changed]
        return {
            "before": {change.name: settings(change.before) for change in changed},
            "after": {change.name: settings(found.hosts[change.name]) for change in changed},
        }


def settings(host: HostFacts) -> dict[str, Any]:
    """Return the graphics settings of a host in the spelling of the options, for diffs."""
    return {
        "graphics_type": SPELT.get(host.default_type, host.default_type),
        "assignment_policy": host.policy,
        "devices": {
            gpu.address: {
                "graphics_type": SPELT.get(gpu.graphics_type, gpu.graphics_type),
                "configured_graphics_type": SPELT.get(
                    configured(host, gpu).graphics_type, configured(host, gpu).graphics_type
                ),
                **(
                    {
                        "vgpu_mode": SPELT.get(gpu.vgpu_mode, gpu.vgpu_mode),
                        "configured_vgpu_mode": SPELT.get(configured(host, gpu).vgpu_mode or "none"),
                    }
                    if gpu.vgpu_mode is not None
                    else {}
                ),
            }
            for gpu in sorted(host.gpus, key=lambda gpu: gpu.address)
        },
    }


def host_record(host: HostFacts, *, restarted: bool = False) -> dict[str, Any]:
    """Return the result record of a host. `restarted`: Xorg has had its restart, so pending settings need a reboot."""
    waiting = pending(host)
    in_use = {gpu.address for gpu in host.gpus if gpu.vms}
    shown = settings(host)
    return {
        "name": host.name,
        "cluster": host.cluster,
        "version": host.version,
        "graphics_type": shown["graphics_type"],
        "assignment_policy": shown["assignment_policy"],
        "devices": [
            {
                "pci_id": address,
                "vgpu_mode": None,
                "configured_vgpu_mode": None,
                **device,
                "pending": address in waiting,
            }
            for address, device in shown["devices"].items()
        ],
        "pending": bool(waiting),
        "reboot_required": bool(waiting if restarted else waiting & in_use),
    }


def unchanged(snapshot: Snapshot) -> Plan:
    """Return a plan that leaves the graphics of all GPU hosts as they are."""
    return Plan(snapshot, tuple(HostChange(host, host) for host in snapshot.inventory.gpu_hosts))


def plan(
    snapshot: Snapshot,
    request: HostGraphicsRequest,
    *,
    named: Sequence[str] = (),
    restart_xorg: bool = True,
    restart_pending: bool = False,
    interrupt_vsga: bool = False,
    force: bool = False,
) -> Plan:
    """Plan the changes of all GPU hosts of the snapshot, or raise an error before any change.

    `named` are hosts that the task selects by name. Such a host without a GPU is an error; other hosts without GPUs
    are skipped. Settings that an earlier task wrote may wait for a reboot, so Xorg restarts for them only with
    `restart_pending`.
    """
    hosts = _gpu_hosts(snapshot, named)
    _check_devices(hosts, request)
    warnings: list[str] = []
    changes: list[HostChange] = []
    in_use: list[str] = []
    interrupted: list[str] = []
    users: dict[str, None] = {}
    for host in hosts:
        after = _configure(host, request, warnings)
        write = _differs(host, after)
        touched = {gpu.address for gpu in host.gpus if configured(host, gpu) != configured(after, gpu)}
        for gpu in host.gpus:
            if gpu.address in touched and gpu.vms:
                names = join_names(_names(snapshot, gpu), limit=4)
                if force:
                    warnings.append(f"GPU {gpu.address} of host {host.name} is used by VM {names}: it changes later.")
                else:
                    in_use.append(f"GPU {gpu.address} of host {host.name} is used by VM {names}")
                    users.update(dict.fromkeys(_names(snapshot, gpu)))
        idle = {gpu.address for gpu in host.gpus if not gpu.vms}
        takes_effect = pending(after) & idle if restart_pending else pending(after) & idle & touched
        restart = restart_xorg and bool(takes_effect)
        if (write or restart) and not host.connected:
            raise HostUnavailable(
                f"Host {host.name} is not connected.", hint="Bring it back, or leave it out of esxi_hosts."
            )
        if restart and (vms := _vsga_vms(snapshot, host)):
            text = f"A restart of Xorg on host {host.name} interrupts VM {join_names(vms, limit=4)}"
            if interrupt_vsga:
                warnings.append(f"{text}.")
            else:
                interrupted.append(text)
                users.update(dict.fromkeys(vms))
        changes.append(
            HostChange(host, _restarted(after) if restart else after, write, restart, _needs_xorg(after, touched))
        )
    if in_use:
        error = GpuInUse(
            f"{'; '.join(in_use)}.",
            hint="Power these VMs off or move them away first. With force the configuration is changed all the same and"
            " comes into force when they are gone and the host or Xorg has restarted.",
        )
        error.vms = tuple(users)
        raise error
    if interrupted:
        refusal = VsgaInUse(
            f"{'; '.join(interrupted)}, because it uses vSphere's own virtual graphics (vSGA).",
            hint="Nothing was changed. Power these VMs off or move them away, permit the interruption with"
            " interrupt_vsga, or leave the restart to a reboot with restart_xorg: false.",
        )
        refusal.vms = tuple(users)
        raise refusal
    return Plan(snapshot, tuple(changes), tuple(dict.fromkeys(warnings)))


def _gpu_hosts(snapshot: Snapshot, named: Sequence[str]) -> list[HostFacts]:
    hosts = snapshot.inventory.hosts
    without = [host.name for host in hosts if not host.gpus and host.name in named]
    found = [host for host in hosts if host.gpus]
    if without or not found:
        names = without or [host.name for host in hosts]
        raise NothingSelected(
            f"Host {join_names(names)} has no NVIDIA GPU.",
            hint="If there is one in it, it may be given away by DirectPath I/O or not be seen at all:"
            " look at the PCI devices of the host.",
        )
    return found


def _check_devices(hosts: Sequence[HostFacts], request: HostGraphicsRequest) -> None:
    there = {gpu.address.casefold() for host in hosts for gpu in host.gpus}
    for device in request.devices:
        if device.address not in there:
            raise NothingSelected(
                f"No GPU of host {join_names(host.name for host in hosts)} has the PCI id {device.address}.",
                hint=f"There are: {join_names(there, limit=20)}.",
            )
    if request.sets_modes:
        old = [host for host in hosts if host.numbers < MODES_SINCE]
        if old:
            versions = join_names(f"{host.name} has {host.version}" for host in old)
            raise NotSettable(
                f"A vGPU mode can be set since vSphere 8.0.3, and {versions}.", hint="Leave vgpu_mode out there."
            )


def _configure(host: HostFacts, request: HostGraphicsRequest, warnings: list[str]) -> HostFacts:
    devices = dict(host.configured)
    for gpu in host.gpus:
        asked = request.device(gpu.address)
        now = configured(host, gpu)
        if gpu.graphics_type == DIRECT:
            if asked.graphics_type or asked.vgpu_mode:
                raise NotSettable(
                    f"GPU {gpu.address} of host {host.name} is given away whole (DirectPath I/O).",
                    hint="Switch passthrough off for it first.",
                )
            continue
        kind = asked.graphics_type or request.graphics_type or now.graphics_type
        mode = asked.vgpu_mode or request.vgpu_mode
        if mode and gpu.vgpu_mode == MIG_MODE:
            if asked.vgpu_mode:
                raise NotSettable(
                    f"GPU {gpu.address} of host {host.name} is in MIG mode, which is not switched by vSphere.",
                    hint="Switch MIG off with nvidia-smi on the host first.",
                )
            warnings.append(f"GPU {gpu.address} of host {host.name} is in MIG mode and keeps it.")
            mode = None
        if asked.vgpu_mode and kind != SHARED_DIRECT:
            raise NotSettable(
                f"GPU {gpu.address} of host {host.name} would be shared, and only a shared direct GPU has a vGPU mode.",
                hint="Leave vgpu_mode out for it, or make it shared_direct.",
            )
        if kind != SHARED_DIRECT:
            mode = None
        devices[gpu.address] = ConfiguredGraphics(kind, mode or now.vgpu_mode)
    return replace(
        host,
        default_type=request.graphics_type or host.default_type,
        policy=request.assignment_policy or host.policy,
        configured=devices,
    )


def _differs(host: HostFacts, after: HostFacts) -> bool:
    return (
        host.default_type != after.default_type
        or host.policy != after.policy
        or any(configured(host, gpu) != configured(after, gpu) for gpu in host.gpus)
    )


def _names(snapshot: Snapshot, gpu: GpuFacts) -> list[str]:
    return [snapshot.holders[moid].path if moid in snapshot.holders else moid for moid in gpu.vms]


def _vsga_vms(snapshot: Snapshot, host: HostFacts) -> list[str]:
    """Return the running VMs that Xorg serves: VMs on a shared GPU, and VMs with 3D support on a host that has one."""
    shared = [gpu for gpu in host.gpus if gpu.graphics_type == SHARED]
    listed = {moid for gpu in shared for moid in gpu.vms}
    rendering = {vm.moid for vm in snapshot.inventory.vms if vm.host == host.moid and vm.running and vm.vsga}
    moids = listed | (rendering if shared else set())
    return sorted(snapshot.holders[moid].path if moid in snapshot.holders else moid for moid in moids)


def _needs_xorg(after: HostFacts, touched: Collection[str]) -> bool:
    """Return whether the new settings of a host need Xorg.

    Shared GPUs need it, and before 7.0 U1 also vGPUs (vsphere.md 2.5).
    """
    if not after.numbers or after.numbers < XORG_OPTIONAL:
        return True
    return any(configured(after, gpu).graphics_type == SHARED for gpu in after.gpus if gpu.address in touched)


def _restarted(host: HostFacts) -> HostFacts:
    """Predict the host after a restart of Xorg. The profiles of a newly shared direct GPU come from the catalog."""
    gpus = tuple(gpu if gpu.vms else _taking_effect(gpu, configured(host, gpu)) for gpu in host.gpus)
    after = replace(host, gpus=gpus)
    details, names = list(host.details), dict.fromkeys(host.profiles)
    for gpu, old in zip(gpus, host.gpus, strict=True):
        if gpu.graphics_type == SHARED_DIRECT != old.graphics_type:
            for name in _usual_profiles(host, old):
                names.setdefault(name)
                if gpu.device is not None and not any(detail.name == name for detail in details):
                    details.append(ProfileFacts(name, gpu.device, mig=False))
    return replace(after, profiles=tuple(names), details=tuple(details))


def _taking_effect(gpu: GpuFacts, wanted: ConfiguredGraphics) -> GpuFacts:
    mode = gpu.vgpu_mode
    if mode is not None and mode != MIG_MODE:
        mode = (wanted.vgpu_mode or "sameSize") if wanted.graphics_type == SHARED_DIRECT else "none"
    return replace(gpu, graphics_type=wanted.graphics_type, vgpu_mode=mode)


def _usual_profiles(host: HostFacts, gpu: GpuFacts) -> list[str]:
    names = [name for board in boards_of(host, gpu)[:1] for name in catalog.type_names(board)]
    return [vsphere_name(name) for name in names if (parsed := parse_or_none(name)) and not parsed.mig]
