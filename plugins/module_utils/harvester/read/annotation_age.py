# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Age of a VM's allocation annotation: whether it was written for the current instance or for an earlier one.

Harvester's controller writes the annotation when it notices that the instance is Running, and leaves it when the VM
stops. Until then the annotation names the devices of the last run (harvester.md 12.4). The controller does not write it
again if the instance got the same devices as the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from .. import paths as r

Json = dict[str, Any]

# After this many seconds in the phase Running, the controller has written the annotation if it had to.
SETTLED_SECONDS = 300.0

# The fields of a VM that the controller writes: the annotation, and the names of devices when the instance ends.
_ANNOTATION = ("f:metadata", "f:annotations", f"f:{r.ALLOCATION_NOTE}")
_ANNOTATIONS = _ANNOTATION[:2]
_DEVICES = ("f:spec", "f:template", "f:spec", "f:domain", "f:devices")


def is_of_this_run(vm: Json, instance: Json, now: float | None, *, edited: bool = False) -> bool:
    """Return whether the annotation was written since the instance is Running, or would have been by now.

    Times have a resolution of one second, and equal times count as written since. The last write for an earlier
    instance is made before that instance is deleted, and the next instance needs seconds to become Running. If the
    devices of the VM were `edited` in the meantime, the time may be the time of the edit: from 1.9 on, Harvester also
    writes the annotation in the name of the user who edits a stopped VM.
    """
    since = running_since(instance)
    if since is None:
        return False
    written = written_at(vm)
    # The phase time comes from the node's clock, the creation time from the API server's clock.
    created = _seconds((instance.get("metadata") or {}).get("creationTimestamp")) or since
    if not edited and written is not None and written >= max(since, created):
        return True
    return now is not None and now - since >= SETTLED_SECONDS


def running_since(instance: Json) -> float | None:
    """Return when an instance became Running on its current node, or None if its status does not show it."""
    status = instance.get("status") or {}
    times = [
        _seconds(timestamp.get("phaseTransitionTimestamp"))
        for timestamp in status.get("phaseTransitionTimestamps") or []
        if timestamp.get("phase") == "Running"
    ]
    if not times or None in times:
        return None
    # A migration changes the devices without a change of the phase.
    times.append(_seconds((status.get("migrationState") or {}).get("endTimestamp")))
    return max(time for time in times if time is not None)


def written_at(vm: Json) -> float | None:
    """Return when the annotation was written, or None if the managed fields do not show it.

    The time of an entry is the time of its manager's last write to any of its fields. So only an entry with no other
    fields than those that Harvester's controller writes shows the time.
    """
    entries = (vm.get("metadata") or {}).get("managedFields") or []
    owners = [entry for entry in entries if _has_annotation(entry)]
    times = [_seconds(entry.get("time")) if _has_nothing_else(entry) else None for entry in owners]
    if not times or None in times:
        return None
    return min(time for time in times if time is not None)


def _has_annotation(entry: Json) -> bool:
    return _ANNOTATION in _leaves(entry.get("fieldsV1"))


def _has_nothing_else(entry: Json) -> bool:
    return all(
        leaf in (_ANNOTATION, _ANNOTATIONS) or leaf[: len(_DEVICES)] == _DEVICES
        for leaf in _leaves(entry.get("fieldsV1"))
    )


def _leaves(fields: object, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if not isinstance(fields, dict):
        return
    for name, below in fields.items():
        if name == ".":
            # The object itself, as after the first annotation was added.
            yield above
        elif below:
            yield from _leaves(below, (*above, name))
        else:
            yield (*above, name)


def _seconds(stamp: object) -> float | None:
    try:
        return datetime.fromisoformat(str(stamp).replace("Z", "+00:00")).timestamp() if stamp else None
    except ValueError:
        return None
