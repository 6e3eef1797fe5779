"""Work queue of client-go on the lab clock: one worker at a time handles a key, with a back-off after failures."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from lab.clock import Clock, background

log = logging.getLogger(__name__)

FIRST_RETRY = 0.005
LAST_RETRY = 300.0

Handle = Callable[[str], Awaitable[None]]


class WorkQueue:
    def __init__(self, clock: Clock, name: str, handle: Handle, *, workers: int = 2) -> None:
        self._clock = clock
        self._name = name
        self._handle = handle
        self._waiting: deque[str] = deque()
        self._known: set[str] = set()
        self._busy: set[str] = set()
        self._failures: dict[str, int] = {}
        self._idle: deque[Callable[[], None]] = deque()
        self._tasks = [background(clock, self._work()) for _ in range(workers)]
        self._stopped = False

    def add(self, key: str) -> None:
        if self._stopped or key in self._known:
            return
        self._known.add(key)
        if key in self._busy:
            return
        self._waiting.append(key)
        if self._idle:
            self._idle.popleft()()

    def add_after(self, key: str, seconds: float) -> None:
        self._clock.call_later(seconds, lambda: self.add(key))

    def stop(self) -> None:
        self._stopped = True
        for task in self._tasks:
            task.cancel()

    async def _work(self) -> None:
        while True:
            while not self._waiting:
                await self._clock.park(self._idle.append)
            key = self._waiting.popleft()
            self._known.discard(key)
            self._busy.add(key)
            try:
                await self._handle(key)
                self._failures.pop(key, None)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # noqa: BLE001 - a handler may fail in any way, and is retried
                failures = self._failures.get(key, 0)
                self._failures[key] = failures + 1
                log.info("%s %s: %s", self._name, key, error)
                self.add_after(key, min(FIRST_RETRY * 2**failures, LAST_RETRY))
            finally:
                self._busy.discard(key)
                if key in self._known:
                    self._waiting.append(key)
