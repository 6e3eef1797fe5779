"""The lab clock: events happen in the order of their due times, at any speed.

Time only moves on while nothing is going on: a coroutine that works holds the clock, one that sleeps or waits
does not. So speeding time up, or stepping it by hand, never changes the order of events.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any


@dataclass
class _Timer:
    due: float
    fire: Callable[[], None]
    cancelled: bool = False


class Clock:
    """Let `speed` simulated seconds pass per real second; with 0, only `advance` moves the time."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        # What is due at the same moment happens one after the other, so that a story has one order of events; where
        # nobody watches, at the same time, which is faster.
        self.side_by_side = False
        self._started = time.monotonic()
        self._offset = 0.0
        self._now = 0.0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._order = itertools.count()
        self._working = 0
        self._changed = asyncio.Event()
        self._idle_waiters: list[tuple[float, asyncio.Future[None]]] = []

    @property
    def now(self) -> float:
        if self._working or not self.speed:
            return self._now
        limit = self._limit()
        return max(self._now, min(limit, self._timers[0][0]) if self._timers else limit)

    @property
    def next_due(self) -> float | None:
        """Return when the next known event is due."""
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _limit(self) -> float:
        return self._offset + (time.monotonic() - self._started) * self.speed

    def set_speed(self, speed: float) -> None:
        # What is set off from now on is due after the moment that was shown, also if nothing has happened for a while.
        self._now = self.now
        self._offset, self._started, self.speed = self._now, time.monotonic(), speed
        self._changed.set()

    # A coroutine holds the clock from begin() to end().
    def begin(self) -> None:
        self._now = self.now
        self._working += 1

    def end(self) -> None:
        self._working -= 1
        if not self._working:
            self._changed.set()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Timer:
        timer = _Timer(self.now + max(seconds, 0.0), callback)
        heapq.heappush(self._timers, (timer.due, next(self._order), timer))
        self._changed.set()
        return timer

    async def sleep(self, seconds: float) -> None:
        """Release the clock, and take it again when the time has come."""
        await self.park(lambda wake: self.call_later(seconds, wake))

    async def park(self, arrange: Callable[[Callable[[], None]], Any]) -> None:
        """Wait, without holding the clock, until `wake` is called; then hold it again."""
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                self.begin()
                woken.set_result(None)

        arranged = arrange(wake)
        self.end()
        try:
            await woken
        except asyncio.CancelledError:
            if not woken.done() or woken.cancelled():
                self.begin()
            if isinstance(arranged, _Timer):
                arranged.cancelled = True
            raise

    async def run(self) -> None:
        while True:
            self._changed.clear()
            if self._working:
                await self._changed.wait()
                continue
            self._release_idle_waiters()
            limit = self._limit()
            if self._timers and (self._timers[0][2].cancelled or self._timers[0][0] <= limit):
                due = self._fire_next()
                while self.side_by_side and self._timers and self._timers[0][0] == due:
                    self._fire_next()
                await asyncio.sleep(0)
                continue
            pause = None
            if self._timers and self.speed:
                pause = (self._timers[0][0] - limit) / self.speed
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), pause)

    def _fire_next(self) -> float:
        due, _, timer = heapq.heappop(self._timers)
        if not timer.cancelled:
            self._now = max(self._now, due)
            timer.fire()
        return due

    async def idle(self) -> None:
        """Wait until no coroutine works and all due events have happened.

        By now, not at that moment: with a fast clock and much to do something may always be due.
        """
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle_waiters.append((self._limit(), waiter))
        self._changed.set()
        await waiter

    def _release_idle_waiters(self) -> None:
        while self._timers and self._timers[0][2].cancelled:
            heapq.heappop(self._timers)
        next_due = self._timers[0][0] if self._timers else float("inf")
        for due, waiter in self._idle_waiters:
            if next_due > due and not waiter.done():
                waiter.set_result(None)
        self._idle_waiters = [(due, waiter) for due, waiter in self._idle_waiters if not waiter.done()]

    async def advance(self, seconds: float) -> float:
        await self.idle()
        if not self.speed:
            # With a standing clock the limit is where the last advance ended.
            self._now = max(self._now, self._limit())
        self._offset += seconds
        await self.idle()
        if not self.speed:
            self._now = max(self._now, self._limit())
        return self.now


class Turn:
    """A lock whose waiters do not hold the clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held = False
        self._waiting: deque[Callable[[], None]] = deque()

    async def __aenter__(self) -> None:
        if self._held:
            await self._clock.park(self._waiting.append)
        self._held = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held = False
        if self._waiting:
            self._held = True
            self._waiting.popleft()()


class Throttle:
    """client-go's default limit on requests: five a second after a burst of ten, for the whole process.

    Within the burst a request takes the `latency` of a network.
    """

    def __init__(self, clock: Clock, *, per_second: float = 5.0, burst: int = 10, latency: float = 0.0) -> None:
        self._clock = clock
        self._per_second = per_second
        self._burst = burst
        self._latency = latency
        self._tokens = float(burst)
        self._filled = clock.now

    async def take(self, requests: int = 1) -> None:
        now = self._clock.now
        self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._per_second)
        self._filled = now
        self._tokens -= requests
        pause = max(-self._tokens / self._per_second, self._latency)
        if pause > 0:
            await self._clock.sleep(pause)


def background(clock: Clock, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run a coroutine that holds the clock while it works."""
    clock.begin()
    task = asyncio.get_running_loop().create_task(work)
    # A callback rather than a finally clause: a task cancelled before its first step never enters its body.
    task.add_done_callback(lambda _: clock.end())
    return task
