"""Simulated time keeps the order of events, whatever its pace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lab.clock import Clock, Throttle, Turn, background

Story = Callable[[Clock], Awaitable[None]]


def play(story: Story, *, speed: float = 0.0) -> None:
    async def run() -> None:
        clock = Clock(speed)
        driver = asyncio.get_running_loop().create_task(clock.run())
        try:
            await asyncio.wait_for(story(clock), 20)
        finally:
            driver.cancel()

    asyncio.run(run())


def test_nothing_happens_before_its_time_and_everything_due_happens_in_order() -> None:
    seen: list[tuple[float, str]] = []

    async def sleeper(clock: Clock, name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        seen.append((clock.now, name))

    async def story(clock: Clock) -> None:
        for name, seconds in (("late", 3.0), ("early", 1.0), ("never", 99.0)):
            background(clock, sleeper(clock, name, seconds))
        await clock.advance(0.5)
        assert seen == []
        await clock.advance(9.5)

    play(story)
    assert seen == [(1.0, "early"), (3.0, "late")]


def test_a_clock_that_is_stopped_stays_where_it_was_and_what_is_set_off_then_waits() -> None:
    """Otherwise all that is set off after the stop happens at once, until the time is made up for."""
    seen: list[str] = []

    async def story(clock: Clock) -> None:
        await asyncio.sleep(0.05)
        shown = clock.now
        clock.set_speed(0)
        assert clock.now >= shown > 1
        clock.call_later(1.0, lambda: seen.append("after the stop"))
        await asyncio.sleep(0.05)
        assert seen == []
        await clock.advance(1.5)

    play(story, speed=200.0)
    assert seen == ["after the stop"]


@pytest.mark.parametrize("speed", [0.0, 200.0])
def test_work_at_one_moment_is_done_before_the_next_moment_comes(speed: float) -> None:
    """A reaction that takes real time does not let simulated time pass."""
    seen: list[str] = []

    async def slow(clock: Clock) -> None:
        await clock.sleep(1.0)
        await asyncio.sleep(0.05)
        seen.append("reaction to the first")

    async def story(clock: Clock) -> None:
        background(clock, slow(clock))
        clock.call_later(1.5, lambda: seen.append("second"))
        await clock.advance(5.0)

    play(story, speed=speed)
    assert seen == ["reaction to the first", "second"]


def test_waiting_for_idle_ends_although_something_is_always_due() -> None:
    async def story(clock: Clock) -> None:
        def again() -> None:
            clock.call_later(0.001, again)

        again()
        await clock.idle()

    play(story, speed=1000.0)


def test_a_cancelled_sleeper_gives_the_clock_back() -> None:
    async def story(clock: Clock) -> None:
        async def sleeper() -> None:
            await clock.sleep(10.0)

        task = background(clock, sleeper())
        await clock.advance(1.0)
        task.cancel()
        assert await clock.advance(20.0) == pytest.approx(21.0)

    play(story)


def test_a_turn_is_taken_by_one_at_a_time_and_its_waiters_do_not_stop_time() -> None:
    seen: list[tuple[str, float]] = []

    async def story(clock: Clock) -> None:
        turn = Turn(clock)

        async def holder(name: str) -> None:
            async with turn:
                await clock.sleep(5.0)
                seen.append((name, clock.now))

        for name in "abc":
            background(clock, holder(name))
        await clock.advance(30.0)

    play(story)
    assert seen == [("a", 5.0), ("b", 10.0), ("c", 15.0)]


def test_a_throttle_lets_a_burst_through_and_then_five_a_second() -> None:
    times: list[float] = []

    async def story(clock: Clock) -> None:
        throttle = Throttle(clock)

        async def requests() -> None:
            for _ in range(15):
                await throttle.take()
                times.append(round(clock.now, 3))

        background(clock, requests())
        await clock.advance(60.0)

    play(story)
    assert times == [0.0] * 10 + [0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.mark.parametrize(("side_by_side", "order"), [(False, "a a b b"), (True, "a b a b")])
def test_what_is_due_at_the_same_moment_comes_one_after_the_other_unless_side_by_side(
    side_by_side: bool, order: str
) -> None:
    seen: list[str] = []

    async def worker(clock: Clock, name: str) -> None:
        await clock.sleep(1.0)
        seen.append(name)
        await asyncio.sleep(0.01)
        seen.append(name)

    async def story(clock: Clock) -> None:
        clock.side_by_side = side_by_side
        for name in ("a", "b"):
            background(clock, worker(clock, name))
        await clock.advance(2.0)

    play(story)
    assert " ".join(seen) == order


def test_within_the_burst_a_request_takes_its_latency() -> None:
    times: list[float] = []

    async def story(clock: Clock) -> None:
        throttle = Throttle(clock, latency=0.02)

        async def requests() -> None:
            for _ in range(3):
                await throttle.take()
                times.append(round(clock.now, 3))

        background(clock, requests())
        await clock.advance(1.0)

    play(story)
    assert times == [0.02, 0.04, 0.06]
