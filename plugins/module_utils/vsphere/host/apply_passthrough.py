# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a passthrough plan to the hosts and wait for the result."""

from __future__ import annotations

from typing import Any

from ...errors import FleetError
from .. import waiting
from ..faults import Operation
from ..session import Properties, Session
from .passthrough import PassthroughChange, PassthroughDevice, PassthroughPlan
from .plan import NoManager

LABELS_SINCE = "7.0.2"


def apply(session: Session, plan: PassthroughPlan, *, seconds: float) -> None:
    """Switch the devices of each host with one call. Wait where the host does not need a reboot."""
    for change in plan.changes:
        if change.host.system is None:
            raise NoManager("PCI devices", change.host.name)
    for done, change in enumerate(plan.changes):
        name = change.host.name
        subject = Operation(f"switch passthrough of PCI devices of host {name}", host=name)
        try:
            session.call(
                subject,
                change.host.system.UpdatePassthruConfig,
                [_config(session, device) for device in change.devices],
            )
        except FleetError as error:
            error.changed = done > 0 or not error.certain
            raise
    for change in plan.changes:
        if change.host.rebinds and seconds > 0:
            _await(session, change, seconds)


def _config(session: Session, device: PassthroughDevice) -> Any:
    """Build the setting of a device. Repeat its label, which would be cleared otherwise."""
    config = session.vim.host.PciPassthruConfig(id=device.address, passthruEnabled=device.enabled)
    if device.label and session.has(LABELS_SINCE):
        config.hardwareLabel = device.label
    return config


def _await(session: Session, change: PassthroughChange, seconds: float) -> None:
    wanted = {device.address: device.enabled for device in change.devices}

    def done(seen: Properties) -> bool:
        shown = {info.id: info for info in seen.get("config.pciPassthruInfo") or []}
        return all(address in shown and shown[address].passthruActive == wanted[address] for address in wanted)

    waiting.until_holds(
        session,
        Operation(f"show the PCI devices of host {change.host.name}", host=change.host.name),
        change.host.reference,
        ["config.pciPassthruInfo"],
        done,
        timeout=seconds,
    )
