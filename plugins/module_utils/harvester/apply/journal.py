# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Journal on the objects that a run changes: the id of the run, its request, and the state to restore.

The journal is an annotation on GPUs (SRIOVGPUDevice) and VMs. The controllers and webhooks of Harvester and KubeVirt
ignore unknown annotations, and the controllers update only the status of these objects, so the journal persists. Every
write carries the resourceVersion of the object that was read: if two runs want the same object, only one gets it.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from types import TracebackType
from typing import Any

from ...errors import FleetError, join_names
from ...kube.client import ApiClient, Conflict, Json, NotFound
from ...kube.objects import key_of
from ...progress import reporting
from .. import paths as r

JOURNAL = r.JOURNAL_ANNOTATION
# Changes every few seconds while the run is active. A change can be detected without comparing clocks.
ALIVE = "vgpu.fleet/journal-alive"
BEAT_SECONDS = 5.0
DEAD_SECONDS = 16.0
POLL_SECONDS = 1.0

PLANNED, CHANGING, UNDOING, DONE, UNREADABLE = "planned", "changing", "undoing", "done", "unreadable"
# The run has failed and ended: no process is active, and the change has to be finished or undone.
STOPPED = "stopped"
ATTEMPTS = 10
VM_PATHS = "/apis/kubevirt.io/v1/namespaces/"
# Returns the merge patch for an object, or None if the object needs no change.
Change = Callable[[Json], "Json | None"]


class Held(FleetError):
    code = "journal_held"


class Lost(FleetError):
    """Another run has taken over the journal of this run. This run must not write any more."""

    code = "journal_lost"


@dataclass(frozen=True)
class Entry:
    """The journal on one object. `before` is the state to restore, empty until the run is about to change the object.

    `gpus` and `vms` are changed together with the object, `task` describes what the run does.
    """

    run: str
    request: str
    started: str
    by: str
    phase: str = PLANNED
    gpus: tuple[str, ...] = ()
    vms: tuple[str, ...] = ()
    before: Json | None = None
    after: Json | None = None
    task: str = ""

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def of(cls, item: Json) -> Entry | None:
        """Return the journal of an object, or None if it has none."""
        text = (item["metadata"].get("annotations") or {}).get(JOURNAL)
        if text is None:
            return None
        try:
            read = json.loads(text)
            return cls(**{**read, "gpus": tuple(read["gpus"]), "vms": tuple(read["vms"])})
        except (ValueError, TypeError, KeyError):
            # An unreadable journal still belongs to a run.
            return cls("", "", "", "somebody", phase=UNREADABLE)


def digest(request: Mapping[str, object]) -> str:
    """Return a digest that is equal for equal requests."""
    return hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()[:16]


def vm_path(key: str) -> str:
    namespace, name = key.split("/")
    return f"{VM_PATHS}{namespace}/virtualmachines/{name}"


def gpu_path(name: str) -> str:
    return f"{r.GPUS}/{name}"


def said(path: str) -> str:
    """Return the name of an object for messages."""
    if path.startswith(VM_PATHS):
        namespace, _kind, name = path.removeprefix(VM_PATHS).split("/")
        return f"VM {namespace}/{name}"
    return f"GPU {path.rsplit('/', 1)[-1]}"


def entries(gpus: Iterable[Json], vms: Iterable[Json]) -> dict[str, Entry]:
    """Return all journal entries by the path of their object."""
    places = [(gpu_path(key_of(gpu)), gpu) for gpu in gpus] + [(vm_path(key_of(vm)), vm) for vm in vms]
    return {path: entry for path, item in places if (entry := Entry.of(item))}


def refuse_held(gpus: Iterable[Json] = (), vms: Iterable[Json] = ()) -> None:
    """Refuse to change objects in the journal of a run, active or interrupted."""
    runs = by_run(entries(gpus, vms))
    if runs:
        raise Held(
            f"The objects belong to {'; '.join(map(described, runs.values()))}.",
            hint="Wait for that run, or run its task again to finish it, or undo it with take_over: true.",
        )


def by_run(found: Mapping[str, Entry]) -> dict[str, dict[str, Entry]]:
    runs: dict[str, dict[str, Entry]] = {}
    for path, entry in sorted(found.items()):
        runs.setdefault(entry.run, {})[path] = entry
    return runs


def as_record(found: Mapping[str, Entry]) -> Json:
    """Return the record of one run for results."""
    first = next(iter(found.values()))
    phases = {entry.phase for entry in found.values()}
    ordered = [phase for phase in (UNREADABLE, UNDOING, CHANGING, STOPPED, PLANNED, DONE) if phase in phases]
    return {
        "run": first.run,
        "started": first.started,
        "by": first.by,
        "task": first.task,
        "phase": ordered[0],
        "gpus": sorted(path.rsplit("/", 1)[-1] for path in found if path.startswith(r.GPUS)),
        "vms": sorted(said(path).removeprefix("VM ") for path in found if path.startswith(VM_PATHS)),
    }


def described(found: Mapping[str, Entry]) -> str:
    """Return the description of one run for messages."""
    record = as_record(found)
    if record["phase"] == UNREADABLE:
        return f"an unreadable journal (annotation {JOURNAL}) of {join_names(map(said, found))}"
    vms = f", VMs {join_names(record['vms'])}" if record["vms"] else ""
    gpus = f"GPUs {join_names(record['gpus'])}" if record["gpus"] else "no GPU"
    task = f", task {record['task']}" if record["task"] else ""
    return (
        f"run {record['run']}, started {record['started']} ({_age(record['started'])} ago) by {record['by']},"
        f" phase {record['phase']}, {gpus}{vms}{task}"
    )


def _age(started: str) -> str:
    try:
        seconds = (datetime.now(timezone.utc) - datetime.fromisoformat(started)).total_seconds()
    except (ValueError, TypeError):
        return "an unknown time"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def who() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


class Keeper:
    """The journal entries of this run. Use as a context manager: while it is open, the run reports that it is alive."""

    def __init__(self, api: ApiClient, run: str) -> None:
        self._api = api
        self.run = run
        self.held: dict[str, Entry] = {}
        self._uids: dict[str, Any] = {}
        self._lost = ""
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._beat = 0
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Keeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._thread:
            self._thread.join(BEAT_SECONDS)

    # Writing
    def take(self, path: str, entry: Entry, *, over: str | None = None) -> Json | None:
        """Write an entry unless the object carries the entry of another run, other than the run `over`.

        Return the object, or None if it was deleted.
        """
        body = {"annotations": {JOURNAL: replace(entry, run=self.run).text()}}
        written = self.write(path, lambda _item: {"metadata": body}, over=over)
        if written is not None:
            with self._lock:
                self.held[path] = replace(entry, run=self.run)
                self._uids[path] = written["metadata"].get("uid")
            self._show_alive()
        return written

    def drop(self, path: str) -> None:
        """Remove the entry of this run."""
        with self._lock:
            self.held.pop(path, None)
            self._uids.pop(path, None)
        body = {"metadata": {"annotations": {JOURNAL: None, ALIVE: None}}}
        with suppress(Lost, Held):
            self.write(path, lambda item: body if Entry.of(item) else None)

    def write(self, path: str, change: Change, *, over: str | None = None) -> Json | None:
        """Change an object unless it carries another run's journal. Return the object, or None if it was deleted."""
        for _attempt in range(ATTEMPTS):
            item = self.read(path)
            if item is None or self._uids.get(path, item["metadata"].get("uid")) != item["metadata"].get("uid"):
                # The object was deleted. Another object may have its name now.
                return None
            self._check(path, Entry.of(item), over)
            body = change(item)
            if body is None:
                return item
            revision = {"resourceVersion": item["metadata"].get("resourceVersion")}
            try:
                return self._api.patch(path, {**body, "metadata": {**(body.get("metadata") or {}), **revision}})
            except NotFound:
                return None
            except Conflict:
                continue
        raise Conflict(f"{said(path)} changes faster than it can be written.", status=409, hint="Run it again.")

    def read(self, path: str) -> Json | None:
        if not path.startswith(r.GPUS):
            return self._api.get_or_none(path)
        # Read a list of one object: the permission to list is sufficient.
        name = path.rsplit("/", 1)[-1]
        items = self._api.get(r.GPUS, fieldSelector=f"metadata.name={name}").get("items") or []
        return next((item for item in items if item["metadata"]["name"] == name), None)

    def _check(self, path: str, found: Entry | None, over: str | None) -> None:
        mine = path in self.held
        if found is None:
            if mine:
                raise Lost(f"The journal of this run on {said(path)} is gone: somebody else has removed it.")
        elif found.run not in (self.run, over):
            text = described({path: found})
            if mine:
                raise Lost(f"{said(path)} was taken over by {text}.", hint="This run has stopped where it was.")
            raise Held(f"{said(path)} belongs to {text}.", hint="Nothing was changed. Try again when it has ended.")

    # Heartbeat
    def _show_alive(self) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._go_on_beating, daemon=True)
                self._thread.start()

    def _go_on_beating(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            # The API server may be unavailable for a moment.
            with suppress(FleetError):
                self.beat()

    def beat(self) -> None:
        """Write one heartbeat to the first object of this run."""
        with self._lock:
            if self._lost:
                return
            path = min(self.held, key=lambda path: (path.startswith(VM_PATHS), path), default=None)
            if path is not None:
                self._beat += 1
                answer = self._api.patch(path, {"metadata": {"annotations": {ALIVE: str(self._beat)}}})
                found = Entry.of(answer)
                if found is None or found.run != self.run:
                    self._lost = path

    def stop_if_lost(self) -> None:
        if self._lost:
            raise Lost(
                f"Somebody else has taken over or removed the journal of this run on {said(self._lost)}.",
                hint="This run has stopped where it was.",
            )


def wait_for_end(api: ApiClient, run: str, seconds: float) -> str:
    """Wait until a run has ended or has no heartbeat. Return `gone`, `dead`, or `alive` after the timeout."""
    deadline = time.monotonic() + max(seconds, DEAD_SECONDS + POLL_SECONDS)
    seen, since = _signs(api, run), time.monotonic()
    with reporting(lambda: f"waiting for run {run} to end", lambda: deadline - time.monotonic()):
        while seen:
            if time.monotonic() - since >= DEAD_SECONDS:
                return "dead"
            if time.monotonic() >= deadline:
                return "alive"
            time.sleep(POLL_SECONDS)
            found = _signs(api, run)
            if found != seen:
                seen, since = found, time.monotonic()
    return "gone"


def _signs(api: ApiClient, run: str) -> dict[str, str]:
    gpus, vms = api.together([lambda: api.get(r.GPUS), lambda: api.get(r.VMS)])
    return {
        key_of(item): f"{entry.phase} {(item['metadata'].get('annotations') or {}).get(ALIVE)}"
        for answer in (gpus, vms)
        for item in answer.get("items") or []
        if (entry := Entry.of(item)) and entry.run == run
    }
