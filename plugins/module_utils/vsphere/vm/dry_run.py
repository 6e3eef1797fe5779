# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Dry runs of VM changes on the server, for check mode (vsphere.md 6.2)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .. import tasks
from ..faults import Operation, error_from, fault_names
from ..session import Session
from . import spec as vm_spec
from .decide.plan import VmPlan
from .find.read import VmSnapshot

SINCE = "6.7"
# Faults whose cause the plan removes before it changes devices.
WHILE_ON = ("InvalidPowerState", "DeviceHotPlugNotSupported")
WHILE_OLD = ("DeviceUnsupportedForVmVersion",)


def dry_run(session: Session, seen: VmSnapshot, plan: VmPlan) -> None:
    """Reject changes that the server would reject on every candidate host."""
    checker = session.content.vmCompatibilityChecker
    pool = seen.properties.get("resourcePool")
    if checker is None or pool is None or not session.has(SINCE):
        return
    name, profiles = plan.machine.name, tuple(sorted(set(plan.devices.all_vgpus)))
    if plan.reconfigures:
        spec = vm_spec.reconfiguration(session, plan, guarded=False)
        subject = Operation(f"change VM {name}", vm=name, profiles=profiles)
        forgiven = [*(WHILE_ON if plan.power.stop else ()), *(WHILE_OLD if plan.upgrades else ())]
        results = _check(session, subject, checker.CheckVmConfig_Task, spec, seen.reference, None, pool, None)
        _judge(session, subject, results, forgiven)
    elif plan.power.start and not plan.upgrades:
        subject = Operation(f"power VM {name} on", vm=name, profiles=profiles)
        results = _check(session, subject, checker.CheckPowerOn_Task, seen.reference, None, pool, None)
        _judge(session, subject, results, ())


def dry_run_clone(session: Session, subject: Operation, source: Any, folder: Any, name: str, spec: Any) -> None:
    """Dry-run the creation of a VM, on a server of any version."""
    checker = session.content.vmProvisioningChecker
    if checker is None:
        return
    results = _check(session, subject, checker.CheckClone_Task, source, folder, name, spec, None)
    _judge(session, subject, results, ())


def _check(session: Session, subject: Operation, method: Any, *args: Any) -> Any:
    """Return the results of a check, or None if the server does not offer it: a dry run is optional."""
    task = session.optional(subject, method, *args)
    return None if task is None else tasks.wait(session, task, subject)


def _judge(session: Session, subject: Operation, results: Any, forgiven: Collection[str]) -> None:
    hosts, errors = [], []
    for result in results or []:
        serious = [fault for fault in result.error or [] if not set(fault_names(fault)) & set(forgiven)]
        if not serious:
            return
        hosts.append(result.host)
        errors.append(serious[0])
    if len(errors) == 1:
        raise error_from(errors[0], subject, session.name_of)
    if errors:
        raise error_from(session.vim.fault.NoCompatibleHost(host=hosts, error=errors), subject, session.name_of)
