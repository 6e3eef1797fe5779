# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a host graphics plan to the hosts in parallel and wait for the result."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ...errors import FleetError, join_names
from .. import waiting as watch
from ..faults import Operation, VsphereError
from ..read import inventory
from ..read.fleet import Snapshot
from ..read.inventory import TYPES, HostFacts, in_force
from ..session import Session
from .plan import HostChange, NoManager, Plan

HOSTS_AT_ONCE = 8
XORG = "xorg"
# Errors of a restart that say nothing about Xorg.
UNRELATED = ("no_permission", "session_ended")


@dataclass(frozen=True)
class Applied:
    """The hosts after the changes, the hosts on which Xorg restarted, and warnings."""

    snapshot: Snapshot
    restarted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass
class _HostProgress:
    """The changes made to one host so far."""

    change: HostChange
    written: bool = False
    restarted: bool = False
    warning: str = ""
    error: FleetError | None = None


def apply(session: Session, plan: Plan, *, seconds: float) -> Applied:
    """Write the configuration, restart Xorg where needed, wait until the settings are effective and read the hosts."""
    todo = [change for change in plan.changes if change.changed]
    for change in todo:
        _refuse_unmanaged(change)
    with ThreadPoolExecutor(max_workers=min(len(todo), HOSTS_AT_ONCE)) as pool:
        made = list(pool.map(lambda change: _try(session, change), todo))
    failures = [progress.error for progress in made if progress.error]
    if failures:
        failures[0].changed = any(progress.written or progress.restarted for progress in made)
        raise failures[0]
    _await(session, [progress.change for progress in made if progress.change.restart], seconds)
    chosen = {change.before.moid for change in plan.changes}
    hosts = [host for host in inventory.read_hosts(session) if host.moid in chosen]
    return Applied(
        Snapshot(inventory.complete(session, hosts)),
        tuple(progress.change.name for progress in made if progress.restarted),
        tuple(progress.warning for progress in made if progress.warning),
    )


def _refuse_unmanaged(change: HostChange) -> None:
    """Raise an error if vCenter offers no manager for a part of the change."""
    managers = {
        "graphics": change.write and change.before.graphics_manager is None,
        "services": change.restart and change.before.service_system is None,
    }
    if missing := [name for name, lacking in managers.items() if lacking]:
        raise NoManager(" and ".join(missing), change.name)


def _try(session: Session, change: HostChange) -> _HostProgress:
    """Apply the change and keep its error, so that the failure of one host does not hide the other results."""
    progress = _HostProgress(change)
    try:
        _apply(session, progress)
    except FleetError as error:
        progress.error = error
    return progress


def _apply(session: Session, progress: _HostProgress) -> None:
    change = progress.change
    host = change.after
    if change.write:
        subject = Operation(f"configure the graphics of host {host.name}", host=host.name)
        session.call(subject, change.before.graphics_manager.UpdateGraphicsConfig, _config(session, host))
        progress.written = True
    if change.restart:
        _restart(session, progress)


def _restart(session: Session, progress: _HostProgress) -> None:
    """Restart Xorg. A failure is only a warning where the settings do not need Xorg (vsphere.md 2.5)."""
    change = progress.change
    subject = Operation(f"restart Xorg on host {change.name}", host=change.name)
    try:
        session.call(subject, change.before.service_system.RestartService, XORG)
    except VsphereError as error:
        if change.needs_xorg or error.code in UNRELATED:
            raise
        progress.warning = f"Xorg did not start on host {change.name}, which vGPUs do not need. {error}"
    else:
        progress.restarted = True


def _config(session: Session, host: HostFacts) -> Any:
    """Build the graphics configuration of a host.

    List all GPUs, since unlisted GPUs get the host default. Omit GPUs in passthrough mode, which have no type to set.
    """
    kind = session.vim.host.GraphicsConfig
    devices = []
    for address, wanted in sorted(host.configured.items()):
        if wanted.graphics_type not in TYPES.values():
            continue
        device = kind.DeviceType(deviceId=address, graphicsType=wanted.graphics_type)
        if wanted.vgpu_mode and session.has("8.0.3"):
            device.vgpuMode = wanted.vgpu_mode
        devices.append(device)
    return kind(
        hostDefaultGraphicsType=host.default_type,
        sharedPassthruAssignmentPolicy=host.policy,
        deviceType=devices,
    )


def _await(session: Session, changes: Sequence[HostChange], seconds: float) -> None:
    """Wait until the configured settings are effective on all GPUs without VMs, or until the timeout.

    Some settings become effective only after a reboot.
    """
    if not changes or seconds <= 0:
        return
    expected = {change.before.reference: change.after for change in changes}
    modes = session.has("8.0.3")

    def pending(seen: watch.Seen) -> list[str]:
        return [
            f"GPU {shown.address} of host {host.name}"
            for reference, host in expected.items()
            for shown in inventory.gpus_of(seen[reference].get("config.graphicsInfo"), modes=modes)
            if not shown.vms and shown.address in host.configured
            if not in_force(shown, host.configured[shown.address])
        ]

    def done(seen: watch.Seen) -> bool:
        return not pending(seen)

    def describe(seen: watch.Seen) -> str:
        left = pending(seen)
        return f"{join_names(left, limit=3)} not as configured yet" if left else ""

    names = ", ".join(host.name for host in expected.values())
    watch.until(
        session,
        Operation(f"show the graphics of host {names}", host=names),
        list(expected),
        ["config.graphicsInfo"],
        done,
        timeout=seconds,
        describe=describe,
    )
