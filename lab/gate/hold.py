"""Count the requests of a client, and hold the client after one of them, so that something can happen at that point."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.gate.verdict import REVIEW

READS = ("GET", "HEAD", "OPTIONS")


@dataclass
class Hold:
    """Hold the answer of request number `after`, which is carried out, and every later request, which is not yet.

    Only requests whose User-Agent contains `agent` count, and with `writes` only those that change something.
    With `after` 0 requests are only counted.
    """

    after: int = 0
    writes: bool = False
    agent: str = ""
    # All requests that count, in the order of their answers.
    seen: list[str] = field(default_factory=list)
    reached: bool = False
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def held(self) -> bool:
        return self.reached and not self._released.is_set()

    def release(self) -> None:
        self._released.set()

    async def arrived(self, agent: str) -> None:
        """Wait while the client is held. Call this before a request is passed on."""
        if self.held and self.agent in agent:
            await self._released.wait()

    async def answered(self, method: str, path: str, query: Mapping[str, str], agent: str) -> None:
        """Count a request that was carried out, and wait if it is the one to hold."""
        if not self._counts(method, path, query, agent):
            return
        self.seen.append(f"{method} {path}{'?watch' if query.get('watch') else ''}")
        if len(self.seen) == self.after:
            self.reached = True
        if self.held:
            await self._released.wait()

    def _counts(self, method: str, path: str, query: Mapping[str, str], agent: str) -> bool:
        if self.agent not in agent:
            return False
        return not self.writes or not (method in READS or "dryRun" in query or REVIEW.match(path))
