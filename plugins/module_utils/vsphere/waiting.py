# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait for changes to object properties. vCenter reports changes, so polling is not needed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from ..progress import reporting
from .faults import Operation
from .session import Properties, Session

# Maximum duration of one request, so that proxies do not close the connection.
MAX_WAIT_SECONDS = 60
# Maximum number of logins in a row without an update between them.
MAX_LOGINS = 2

Seen = Mapping[Any, Properties]


def until(
    session: Session,
    subject: Operation,
    references: Sequence[Any],
    paths: Sequence[str],
    done: Callable[[Seen], bool],
    *,
    timeout: float,
    describe: Callable[[Seen], str] | None = None,
) -> dict[Any, Properties]:
    """Watch objects of one type until `done` or until the timeout. Return their last known properties.

    `describe` returns what is missing, for users who watch the task.
    """
    deadline = time.monotonic() + timeout
    subject = replace(subject, waiting=True)
    ended = 0
    seen: Seen = {reference: {} for reference in references}

    def progress() -> str:
        missing = describe(seen) if describe else ""
        return f"waiting for vCenter to {subject.doing}" + (f": {missing}" if missing else "")

    with reporting(progress, lambda: deadline - time.monotonic()):
        while True:
            watch = _Watch(session, subject, references, paths)
            seen = watch.seen
            try:
                watch.until(done, deadline)
                return watch.seen
            except session.vim.fault.NotAuthenticated:
                # The filter ended with its session. Log in, unless another thread already has, and create a new filter.
                ended = 1 if watch.updated else ended + 1
                with session.reporting(subject):
                    late = time.monotonic() >= deadline and session.stub.cookie == watch.cookie
                    if late or ended > MAX_LOGINS:
                        raise
                    session.reopen(watch.cookie)
            finally:
                watch.close()


def until_holds(
    session: Session,
    subject: Operation,
    reference: Any,
    paths: Sequence[str],
    holds: Callable[[Properties], bool],
    *,
    timeout: float,
) -> Properties | None:
    """Watch one object. Return its properties once `holds` is true for them, or None after the timeout."""
    seen = until(session, subject, [reference], paths, lambda seen: holds(seen[reference]), timeout=timeout)[reference]
    return seen if holds(seen) else None


class _Watch:
    """A property filter and its reported properties."""

    def __init__(self, session: Session, subject: Operation, references: Sequence[Any], paths: Sequence[str]) -> None:
        self._session = session
        self._subject = subject
        self._collector = session.content.propertyCollector
        self.seen: dict[Any, Properties] = {reference: {} for reference in references}
        self.updated = False
        wanted = session.objects_filter(references, paths)
        # Read the cookie first: if another thread logs in meanwhile, the filter may belong to the ended session.
        self.cookie = session.stub.cookie
        # Request whole properties instead of partial updates.
        self._filter = session.call(subject, self._collector.CreateFilter, wanted, False)

    def until(self, done: Callable[[Seen], bool], deadline: float) -> None:
        version, asked = "", False
        while True:
            left = deadline - time.monotonic()
            # The first response contains the current properties. Request it even if no time is left.
            if (version and done(self.seen)) or (asked and left <= 0):
                return
            asked = True
            update = self._next(version, max(1, int(min(left, MAX_WAIT_SECONDS))))
            if update is None:
                continue
            version = update.version
            for entry in (entry for changed in update.filterSet or [] for entry in changed.objectSet or []):
                with self._reporting():
                    self._session.raise_refusal(entry.missingSet)
                for change in entry.changeSet or []:
                    self.seen[entry.obj][change.name] = change.val
            self.updated = True

    def _next(self, version: str, seconds: int) -> Any:
        options = self._session.vmodl.query.PropertyCollector.WaitOptions(maxWaitSeconds=seconds)
        if self._session.stub.cookie != self.cookie:
            # Another thread has logged in. This filter no longer exists, and a wait would never return.
            raise self._session.vim.fault.NotAuthenticated
        with self._reporting():
            return self._collector.WaitForUpdatesEx(version, options)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Convert faults into errors, except for the end of the session."""
        ended: Any = self._session.vim.fault.NotAuthenticated
        try:
            yield
        except ended:
            raise
        except Exception:
            with self._session.reporting(self._subject):
                raise

    def close(self) -> None:
        with suppress(Exception):
            self._filter.Destroy()
