"""Requests that the gate counts, and clients that it holds after one of them."""

from __future__ import annotations

import asyncio

from lab.gate.hold import Hold

AGENT = "vgpu.fleet"
VGPU = "/apis/devices.harvesterhci.io/v1beta1/vgpudevices/gpu-a-000008004"
REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


async def _ends(waiting: asyncio.Future[None] | asyncio.Task[None]) -> bool:
    """Return whether something ends without being released."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return waiting.done()


def test_only_requests_of_the_client_are_counted_and_only_its_writes() -> None:
    async def count() -> tuple[list[str], list[str]]:
        everything, writes = Hold(agent=AGENT), Hold(agent=AGENT, writes=True)
        for hold in (everything, writes):
            await hold.answered("GET", VGPU, {}, AGENT)
            await hold.answered("GET", VGPU, {"watch": "1"}, AGENT)
            await hold.answered("POST", REVIEW, {}, AGENT)
            await hold.answered("PATCH", VGPU, {"dryRun": "All"}, AGENT)
            await hold.answered("PATCH", VGPU, {}, "kubectl")
            await hold.answered("PATCH", VGPU, {}, AGENT)
        return everything.seen, writes.seen

    everything, writes = asyncio.run(count())
    assert everything == [f"GET {VGPU}", f"GET {VGPU}?watch", f"POST {REVIEW}", f"PATCH {VGPU}", f"PATCH {VGPU}"]
    assert writes == [f"PATCH {VGPU}"]


def test_the_answer_of_one_request_is_held_and_every_later_request_until_the_release() -> None:
    async def hold_second() -> None:
        hold = Hold(after=2, agent=AGENT)
        await hold.answered("GET", VGPU, {}, AGENT)
        assert not hold.held
        second = asyncio.create_task(hold.answered("PATCH", VGPU, {}, AGENT))
        assert not await _ends(second)
        assert hold.held
        third = asyncio.create_task(hold.arrived(AGENT))
        other = asyncio.create_task(hold.arrived("kubectl"))
        assert not await _ends(third)
        assert await _ends(other)
        hold.release()
        await asyncio.gather(second, third)
        assert not hold.held
        # What follows is counted and not held.
        await hold.answered("GET", VGPU, {}, AGENT)
        assert len(hold.seen) == 3

    asyncio.run(hold_second())
