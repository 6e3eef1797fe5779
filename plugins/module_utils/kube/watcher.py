# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists that watches keep up to date, and waits for conditions on them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from functools import partial
from types import TracebackType

from .. import progress
from ..errors import FleetError
from .client import ApiClient, ApiError, Json, NotFound
from .connection import BadConnection
from .objects import ObjectList, key_of, whole

GONE = 410
PAUSE = 0.5
OPENING_SECONDS = 10.0
# A wait ends if the API server has not answered for this long: longer waiting is pointless.
GONE_SECONDS = 60.0
# How often to check for a cause that makes further waiting pointless: at most, and as a share of the time.
LOOK_SECONDS = 15.0
LOOK_SHARE = 0.05


class ApiServerGone(FleetError):
    """The API server stopped answering during a wait."""

    code = "api_server_gone"

    def __init__(self, host: str, since: float, reason: str) -> None:
        moment = time.strftime("%H:%M:%S", time.localtime(since))
        super().__init__(
            f"The API server {host} has not answered since {moment} ({reason.rstrip('.')}).",
            hint="Check that the cluster is up, and run the task again: it continues where it stopped.",
        )


class _Waiter:
    """A waiting thread that is woken only for changes of certain objects, with the names of the changed objects."""

    def __init__(self, lock: threading.RLock, names: Collection[str] | None) -> None:
        self.names = None if names is None else frozenset(names)
        self.changed: set[str] = set()
        self.condition = threading.Condition(lock)

    def notice(self, names: Collection[str]) -> None:
        found = names if self.names is None else self.names.intersection(names)
        if found:
            self.changed.update(found)
            self.condition.notify_all()


class Watcher:
    """The current state of a few resources of the cluster.

    Use as a context manager: `with Watcher(api, {r.VGPUS: snapshot.vgpus}, seconds=300) as seen:`. All waits share the
    time limit. Several threads may wait in parallel. The watches begin with `open`, or with the first wait that has to
    wait, and deliver all changes since the lists were read.

    `inspect` gets every object that is newer than the last one seen, or None if the object was deleted. An error that
    it returns ends all waits. `related` returns the name of another object whose waits depend on the object as well, or
    an empty text.

    `describe` returns the state of the wait in one line, for users who watch the task. `find_cause` returns an error
    if it is certain that waiting is pointless. That error ends all waits, unless the client is set not to fail fast. An
    API server that stops answering ends them as well.
    """

    inspect: Callable[[str, str, Json | None], FleetError | None] | None = None
    describe: Callable[[], str] | None = None
    find_cause: Callable[[], FleetError | None] | None = None

    def __init__(
        self,
        api: ApiClient,
        listings: Mapping[str, ObjectList],
        *,
        seconds: float,
        related: Callable[[Json], str] | None = None,
    ) -> None:
        self._api = api
        self._related = related
        self._deadline = time.monotonic() + seconds
        self._revisions = {path: listing.revision for path, listing in listings.items()}
        self._items = {path: dict(listing.items) for path, listing in listings.items()}
        self._lock = threading.RLock()
        self._waiters: set[_Waiter] = set()
        self._started = self._stopped = False
        self._over = threading.Event()
        self._unopened = set(self._items)
        self._failure: FleetError | None = None
        self._look_seconds = min(LOOK_SECONDS, max(PAUSE, seconds * LOOK_SHARE))
        self._last_answer = time.monotonic()
        self._last_error = ""

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        self._over.set()

    def open(self, *, seconds: float = OPENING_SECONDS) -> None:
        """Start the watches and return once the server has accepted all of them.

        Call this before the first write: a caller without permission to watch fails before anything has changed.
        """
        with self._lock:
            waiter = _Waiter(self._lock, ())
            self._waiters.add(waiter)
            deadline = min(self._deadline, time.monotonic() + seconds)
            try:
                self._start()
                # A proxy may delay the header of the answer until the first event. That is not a refusal.
                while self._unopened and not self._failure and (left := deadline - time.monotonic()) > 0:
                    waiter.condition.wait(left)
                self.raise_if_aborted()
            finally:
                self._waiters.discard(waiter)

    @property
    def unanswered(self) -> ApiServerGone | None:
        """Return the error to report if the API server does not answer any more."""
        if not self._last_error:
            return None
        silence = time.monotonic() - self._last_answer
        return ApiServerGone(self._api.host, time.time() - silence, self._last_error)

    @property
    def seconds_left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def get(self, path: str, name: str) -> Json | None:
        """Return an object as last seen, or None if it does not exist or its resource is not watched."""
        return self._items.get(path, {}).get(name)

    def items(self, path: str) -> dict[str, Json]:
        with self._lock:
            return dict(self._items[path])

    def listing(self, path: str) -> ObjectList:
        with self._lock:
            return ObjectList(dict(self._items[path]), self._revisions[path])

    def put(self, path: str, item: Json) -> None:
        """Store the answer to our own write, which the watch may not have delivered yet."""
        with self._lock:
            self._keep(path, item)

    def until(self, condition: Callable[[], bool], *, about: Collection[str] | None = None) -> bool:
        """Wait for a condition on the watched objects. Return False when the time is up.

        The condition is checked whenever an object changes, or only when an object named in `about` changes. A change
        of a vGPU device counts as a change of its GPU as well.
        """
        return not self.wait_for_all({"": condition}, {"": about})

    def wait_for_all(
        self,
        conditions: Mapping[Hashable, Callable[[], bool]],
        about: Mapping[Hashable, Collection[str] | None],
        *,
        seconds: float | None = None,
    ) -> set[Hashable]:
        """Wait for many conditions in parallel. Return those that were not met in time.

        `about` names the objects that each condition depends on, which keeps thousands of conditions cheap.
        """
        deadline = self._deadline if seconds is None else min(self._deadline, time.monotonic() + seconds)
        interested: dict[str, set[Hashable]] = {}
        always: set[Hashable] = set()
        for key, names in about.items():
            if names is None:
                always.add(key)
            for name in names or ():
                interested.setdefault(name, set()).add(key)
        with self._lock:
            waiter = _Waiter(self._lock, None if always else interested)
            self._waiters.add(waiter)
            try:
                pending = {key for key, condition in conditions.items() if not condition()}
                while pending:
                    if self._failure:
                        raise self._failure
                    left = deadline - time.monotonic()
                    if left <= 0:
                        break
                    self._start()
                    if not waiter.changed:
                        waiter.condition.wait(left)
                    touched = always.union(*(interested.get(name, ()) for name in waiter.changed))
                    waiter.changed.clear()
                    pending -= {key for key in touched & pending if conditions[key]()}
                return pending
            finally:
                self._waiters.discard(waiter)

    def abort(self, error: FleetError) -> None:
        """End all waits with an error."""
        with self._lock:
            self._failure = self._failure or error
            for waiter in self._waiters:
                waiter.condition.notify_all()

    def raise_if_aborted(self) -> None:
        """Raise the error that aborted the waits, if any."""
        if self._failure:
            raise self._failure

    def _start(self) -> None:
        if not self._started:
            self._started = True
            for path in self._items:
                threading.Thread(target=self._follow, args=(path,), daemon=True).start()
            threading.Thread(target=self._attend, daemon=True).start()

    def _attend(self) -> None:
        """Report progress, and end the waits as soon as waiting has become pointless."""
        reporter = progress.Reporter()
        looked = time.monotonic()
        while not self._over.wait(PAUSE) and self._wanted():
            if self.describe and progress.is_shown():
                reporter.update(self._description(self.describe), self.seconds_left)
            if self._api.fail_fast and time.monotonic() - looked >= self._look_seconds:
                looked = time.monotonic()
                error = self._gone() or (self.find_cause() if self.find_cause else None)
                if error:
                    self.abort(error)
                    return

    def _description(self, describe: Callable[[], str]) -> str:
        try:
            with self._lock:
                return describe()
        except FleetError:
            # The object of the wait was deleted. The wait itself detects and reports that.
            return ""

    def _gone(self) -> ApiServerGone | None:
        return self.unanswered if time.monotonic() - self._last_answer > GONE_SECONDS else None

    def _answered(self) -> None:
        self._last_answer, self._last_error = time.monotonic(), ""

    def _wanted(self) -> bool:
        return not self._stopped and self.seconds_left > 0

    def _follow(self, path: str) -> None:
        while self._wanted():
            began = time.monotonic()
            try:
                opened = partial(self._opened, path)
                for event in self._api.watch(path, self._revisions[path], self.seconds_left, opened=opened):
                    self._take(path, event)
                    if not self._wanted():
                        return
            except NotFound:
                # The resource definition was deleted or does not exist yet.
                self._opened(path)
                self._replace(path, ObjectList())
                time.sleep(PAUSE)
            except ApiError as error:
                if error.status == GONE:
                    self._read_again(path)
                elif error.status in (401, 403):
                    self.abort(error)
                    return
            except (BadConnection, ValueError) as error:
                # The connection ended in the middle of a line. The server returns in a moment, or the time runs out.
                self._last_error = str(error)
            if time.monotonic() - began < PAUSE:
                time.sleep(PAUSE)

    def _opened(self, path: str) -> None:
        self._answered()
        with self._lock:
            self._unopened.discard(path)
            for waiter in self._waiters:
                waiter.condition.notify_all()

    def _take(self, path: str, event: Json) -> None:
        self._answered()
        item = event["object"]
        if event["type"] == "ERROR":
            raise ApiError(str(item.get("message", "")), status=int(item.get("code", 500)))
        with self._lock:
            self._revisions[path] = str(item["metadata"]["resourceVersion"])
            if event["type"] == "DELETED":
                self._items[path].pop(key_of(item), None)
                self._inspect(path, key_of(item), None)
                self._tell(item)
            elif event["type"] != "BOOKMARK":
                self._keep(path, item)

    def _keep(self, path: str, item: Json) -> None:
        known = self._items[path].get(key_of(item))
        if known is None or _revision(item) >= _revision(known):
            item = whole(item)
            self._items[path][key_of(item)] = item
            self._inspect(path, key_of(item), item)
            self._tell(item)

    def _inspect(self, path: str, name: str, item: Json | None) -> None:
        error = self.inspect(path, name, item) if self.inspect else None
        if error:
            self.abort(error)

    def _tell(self, item: Json) -> None:
        names = [key_of(item)]
        if self._related and (related := self._related(item)):
            names.append(related)
        for waiter in self._waiters:
            waiter.notice(names)

    def _read_again(self, path: str) -> None:
        try:
            self._replace(path, ObjectList.of(self._api.get(path)))
        except (ApiError, BadConnection):
            return

    def _replace(self, path: str, listing: ObjectList) -> None:
        with self._lock:
            before = self._items[path]
            self._items[path] = dict(listing.items)
            self._revisions[path] = listing.revision
            for name, item in {**before, **listing.items}.items():
                self._inspect(path, name, listing.items.get(name))
                self._tell(item)


def _revision(item: Json) -> int:
    return int(item["metadata"].get("resourceVersion") or 0)
