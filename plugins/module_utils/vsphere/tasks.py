# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""vCenter tasks: start them, wait for them and convert their faults into errors."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ..errors import FleetError
from . import waiting as watch
from .faults import Operation, VsphereError, error_from, moid_of
from .session import Properties, Session

STATE = ["info.state"]
ENDING = ["info.error", "info.result"]
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
    result = wait_all(session, {task: subject}, timeout=timeout)[task]
    if isinstance(result, VsphereError):
        raise result
    return result


def wait_all(session: Session, tasks: Mapping[Any, Operation], *, timeout: float = 600) -> dict[Any, Any]:
    """Wait for all tasks and return the result or error of each task.

    Errors are returned instead of raised, since the other tasks continue.
    """
    if not tasks:
        return {}

    def done(seen: watch.Seen) -> bool:
        return not _pending(seen)

    deadline = time.monotonic() + timeout
    try:
        subject = next(iter(tasks.values()))
        try:
            seen = watch.until(session, subject, list(tasks), PATHS, done, timeout=timeout, describe=_progress)
        except VsphereError as error:
            if not error.unreadable:
                raise
            # One of the tasks ended with something that pyVmomi cannot parse. Wait for their states alone.
            left = max(0, deadline - time.monotonic())
            seen = watch.until(session, subject, list(tasks), STATE, done, timeout=left, describe=_progress)
            ended = [task for task in seen if task not in _pending(seen)]
            seen.update({task: seen[task] | _ending(session, task, tasks[task], seen[task]) for task in ended})
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
    return {task: _task_result(session, seen[task], subject) for task, subject in tasks.items()}


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


def _ending(session: Session, task: Any, subject: Operation, state: Properties) -> Properties:
    """Return the error and the result of one task that has ended, from the XML if pyVmomi cannot parse them."""
    failed = state["info.state"] == "error"
    try:
        ((_task, found),) = session.read(subject, [task], ENDING)
        return found
    except VsphereError:
        faults = session.unparsed_faults(subject, task, "info.error" if failed else "info.result")
        if not faults:
            raise
    if failed:
        return {"info.error": faults[0]}
    raise error_from(faults[0], subject, session.name_of)


def _task_result(session: Session, seen: Properties, subject: Operation) -> Any:
    if seen["info.state"] != "error":
        return seen.get("info.result")
    return error_from(seen.get("info.error"), subject, session.name_of)
