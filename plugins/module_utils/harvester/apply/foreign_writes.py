# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Detection of changes that another user or tool makes to the devices of a task, and of the writer."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import FleetError
from ...fleet.profile import parse_or_none
from ...kube.client import Json
from ...planning.capacity import Group, group_of
from ...planning.steps import ENABLE, Step
from .. import paths as r
from ..read.snapshot import Snapshot, parent_of, skips_mig

KINDS = {r.VGPUS: "vGPU", r.GPUS: "GPU", r.MIG_CONFIGURATIONS: "MIG configuration"}
# The API server takes a field manager's name from the client's User-Agent.
OWN_MANAGER = "vgpu.fleet"
# The fields that users and tools set. Controllers write only the status.
DECIDED = ("f:enabled", "f:vGPUTypeName", "f:profileSpec")


class ChangedByOther(FleetError):
    """A change by another user or tool to a device that the task is changing."""

    code = "changed_by_other"

    def __init__(self, path: str, name: str, item: Json | None, why: str = "") -> None:
        self.device = name
        self.value = str(decision(path, item)) if item is not None else "deleted"
        self.manager, self.time = last_writer(item) if item is not None else ("", "")
        who = f" by {self.manager}" if self.manager else " by somebody else"
        own = ", which is another task of this collection" if self.manager == OWN_MANAGER else ""
        when = f" at {self.time}" if self.time else ""
        what = "was deleted" if item is None else f"was set to {self.value}{who}{when}{own}"
        super().__init__(
            f"{KINDS.get(path, 'Object')} {name} {what}{f', {why}' if why else ''}.",
            hint="Nothing more is changed. Find out who else manages this GPU, then run the task again.",
        )

    def as_dict(self) -> dict[str, Any]:
        told = {"device": self.device, "value": self.value, "manager": self.manager, "time": self.time}
        return {**super().as_dict(), **told}


@dataclass(frozen=True)
class Decision:
    """The requested state of a device, without fields that controllers write."""

    enabled: bool
    details: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        said = ", ".join(f"{value} x {name}" if isinstance(value, int) else str(value) for name, value in self.details)
        return f"{'enabled' if self.enabled else 'disabled'}{f' ({said})' if said else ''}"


def decision(path: str, item: Json) -> Decision:
    spec = item.get("spec") or {}
    enabled = bool(spec.get("enabled"))
    if path == r.GPUS:
        return Decision(enabled, (("mode", "kept time-sliced"),) if skips_mig(item) else ())
    if not enabled:
        # The type and the instances have no meaning while the device is disabled.
        return Decision(enabled)
    if path == r.MIG_CONFIGURATIONS:
        entries = [(entry.get("name", ""), entry.get("requested") or 0) for entry in spec.get("profileSpec") or []]
        return Decision(enabled, tuple(sorted(entry for entry in entries if entry[1])))
    return Decision(enabled, (("type", spec.get("vGPUTypeName") or "no type"),))


def last_writer(item: Json) -> tuple[str, str]:
    """Return the field manager that last wrote the requested state of an object, and the time of the write."""
    found = [
        (str(entry.get("time") or ""), str(entry.get("manager") or ""))
        for entry in item["metadata"].get("managedFields") or []
        if not entry.get("subresource")
        and any(name in ((entry.get("fieldsV1") or {}).get("f:spec") or {}) for name in DECIDED)
    ]
    time, manager = max(found, default=("", ""))
    return manager, time


@dataclass
class _Guarded:
    """The expected request of a device: as read for the plan, and later as written by the task.

    `sent` is a write of the task that is not answered yet, `final` is the last write that the task will make.
    """

    expected: Decision
    revision: int = 0
    sent: Decision | None = None
    final: Decision | None = None
    written: bool = False

    def allows(self, found: Decision) -> bool:
        # Another user may request the same state. After the task has written, accept only the state that it wrote.
        return found in (self.expected, self.sent) or (found == self.final and not self.written)

    @property
    def why(self) -> str:
        if self.written or self.sent:
            return f"while this task needs it to be {self.sent or self.expected}"
        return f"after this task had been planned with it {self.expected}"


@dataclass
class ForeignWrites:
    """Tells the changes of other users from the changes of the task and of the controllers."""

    _guarded: dict[tuple[str, str], _Guarded] = field(default_factory=dict)
    # By GPU, the sizes of the vGPUs that the task enables there: a vGPU of another size would take their room.
    _sizes: dict[str, set[Group]] = field(default_factory=dict)
    _before: Mapping[str, Json] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(cls, snapshot: Snapshot, steps: Iterable[Step], awaited: Iterable[str] = ()) -> ForeignWrites:
        """Guard the devices that steps change and those whose state is awaited, as they were when the plan was made."""
        found = cls(_before=snapshot.vgpus.items)
        for step in steps:
            if step.slot:
                enabling = step.action == ENABLE
                final = Decision(enabling, (("type", step.after or ""),) if enabling else ())
                found._guard(r.VGPUS, snapshot.vgpus.items.get(step.slot), final)
            if step.action == ENABLE and (parsed := parse_or_none(step.after or "")):
                found._sizes.setdefault(step.gpu, set()).add(group_of(parsed.key))
            found._guard(r.GPUS, snapshot.gpus.items.get(step.gpu))
            found._guard(r.MIG_CONFIGURATIONS, snapshot.mig.items.get(step.gpu))
        for name in awaited:
            found._guard(r.VGPUS, snapshot.vgpus.items.get(name))
        return found

    def _guard(self, path: str, item: Json | None, final: Decision | None = None) -> None:
        if item is not None:
            key = (path, str(item["metadata"]["name"]))
            guarded = self._guarded.setdefault(key, _Guarded(decision(path, item), revision_of(item)))
            guarded.final = final or guarded.final

    def sending(self, path: str, item: Json, changed: Json) -> None:
        """Record a write before it is sent. `changed` is the object after the write."""
        with self._lock:
            name = str(item["metadata"]["name"])
            # A device that did not exist when the plan was made is new, and has no request to protect.
            new = Decision(False) if path == r.VGPUS else decision(path, item)
            guarded = self._guarded.setdefault((path, name), _Guarded(new))
            guarded.sent = decision(path, changed)

    def sent(self, path: str, answer: Json) -> None:
        """Record that a write was accepted."""
        with self._lock:
            key = (path, str(answer["metadata"]["name"]))
            self._guarded[key] = _Guarded(decision(path, answer), revision_of(answer), written=True)

    def inspect(self, path: str, name: str, item: Json | None) -> ChangedByOther | None:
        """Return the error for an object that another user has changed, or None if it is as the task left it."""
        with self._lock:
            guarded = self._guarded.get((path, name))
            if guarded is None:
                return self._in_the_way(path, item)
            if item is None:
                # Controllers also delete and create objects, when SR-IOV is switched: the next one of this name is new.
                del self._guarded[path, name]
                lost = path == r.VGPUS and guarded.expected.enabled
                return ChangedByOther(path, name, None, guarded.why) if lost else None
            # Older than the answer to our own write: a watch also delivers the changes since the list was read.
            if 0 < revision_of(item) <= guarded.revision:
                return None
            if guarded.allows(decision(path, item)):
                return None
            return ChangedByOther(path, name, item, guarded.why)

    def _in_the_way(self, path: str, item: Json | None) -> ChangedByOther | None:
        """Return the error for a vGPU of another size that another user enables next to the vGPUs of the task."""
        if path != r.VGPUS or item is None or not self._sizes:
            return None
        sizes = self._sizes.get(parent_of(item))
        now = decision(path, item)
        before = self._before.get(str(item["metadata"]["name"]))
        if not sizes or not now.enabled or (before is not None and decision(path, before) == now):
            return None
        parsed = parse_or_none((item.get("spec") or {}).get("vGPUTypeName") or "")
        if parsed is None or group_of(parsed.key) in sizes:
            return None
        why = "while this task enables vGPUs of another size on its GPU"
        return ChangedByOther(path, str(item["metadata"]["name"]), item, why)


def revision_of(item: Json) -> int:
    return int(item["metadata"].get("resourceVersion") or 0)
