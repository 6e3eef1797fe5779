# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vCenter tasks: start them, wait for them and convert their faults into errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import waiting as watch
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import (
    Operation,
    VsphereError,
    error_from,
    moid_of,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Properties, Session

PATHS = ["info.state", "info.progress", "info.error", "info.result"]


class TaskTimeout(FleetError):
    code = "timeout"
    certain = False


def run(session: Session, subject: Operation, method: Any, *args: Any, timeout: float = 600, **kwargs: Any) -> Any:
    """Start one task and wait for its result."""
    task = session.call(subject, method, *args, **kwargs)
    return wait(session, task, subject, timeout=timeout)


def wait(session: Session, task: Any, subject: Operation, *, timeout: float = 600) -> Any:
    """Wait for a task and return its result. Raise its fault as an error."""
    outcome = wait_all(session, {task: subject}, timeout=timeout)[task]
    if isinstance(outcome, VsphereError):
        raise outcome
    return outcome


def wait_all(session: Session, tasks: Mapping[Any, Operation], *, timeout: float = 600) -> dict[Any, Any]:
    """Wait for all tasks and return the result or error of each task.

    Errors are returned instead of raised, since the other tasks continue.
    """
    if not tasks:
        return {}

    def done(seen: watch.Seen) -> bool:
        return not _pending(seen)

    try:
        subject = next(iter(tasks.values()))
        seen = watch.until(session, subject, list(tasks), PATHS, done, timeout=timeout, describe=_progress)
    except FleetError as error:
        # vCenter accepted the tasks. Only their progress cannot be read, so they may still succeed.
        error.certain = False
        raise
    late = _pending(seen)
    if late:
        parts = [f"to {tasks[task].doing} ({moid_of(task)} is {seen[task].get('info.state')})" for task in late]
        raise TaskTimeout(
            f"vCenter did not manage within {timeout:.0f} seconds {'; '.join(parts)}.",
            hint="The task goes on there. Look at it, or wait longer.",
        )
    return {task: _outcome(session, seen[task], subject) for task, subject in tasks.items()}


def _pending(seen: watch.Seen) -> list[Any]:
    return [task for task, properties in seen.items() if properties.get("info.state") not in ("success", "error")]


def _progress(seen: watch.Seen) -> str:
    """Return the state of the tasks that have not ended, with their percentage if vCenter reports it."""
    parts = []
    for task in _pending(seen):
        state, percent = seen[task].get("info.state"), seen[task].get("info.progress")
        if state:
            parts.append(f"{moid_of(task)} is {state}" + (f" at {percent} %" if percent else ""))
    return ", ".join(parts)


def _outcome(session: Session, seen: Properties, subject: Operation) -> Any:
    if seen["info.state"] != "error":
        return seen.get("info.result")
    return error_from(seen.get("info.error"), subject, session.name_of)
