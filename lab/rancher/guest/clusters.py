"""Guest clusters: each gets its own control plane when its first control plane machine runs."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Awaitable, Callable

from lab.kubernetes.client import Json
from lab.programs import processes
from lab.rancher import resources as r
from lab.rancher.guest.cluster import Guest
from lab.rancher.world import World
from lab.rundir import RunDir

log = logging.getLogger(__name__)


class Guests:
    def __init__(self, run: RunDir, rancher: World, driver_in_image: Callable[[Json], bool]) -> None:
        self._run = run
        self._rancher = rancher
        self._driver_in_image = driver_in_image
        self.by_id: dict[str, Guest] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        # Called when nodes may have to be reconciled again.
        self.on_change: Callable[[], None] = lambda: None
        self.on_stop: Callable[[str], Awaitable[None]] | None = None

    async def of(self, machine: Json) -> Guest | None:
        """Return the machine's cluster; start its control plane if this machine is the first to provide it."""
        cluster = self._rancher[r.CLUSTER].get(machine["spec"]["clusterName"], machine["metadata"]["namespace"])
        identity = ((cluster or {}).get("status") or {}).get("clusterName")
        if not identity:
            return None
        labels = machine["metadata"].get("labels") or {}
        brings_one = all(r.ROLE_LABELS[role] in labels for role in ("etcdRole", "controlPlaneRole"))
        leaving = "deletionTimestamp" in machine["metadata"]
        async with self._turns.setdefault(identity, asyncio.Lock()):
            if identity not in self.by_id and brings_one and not leaving:
                # The lab clock is stopped meanwhile: the start takes real time, but no simulated time.
                began = time.monotonic()
                guest = await Guest.start(
                    folder(self._run, identity), self._run, self._rancher.clock, self._driver_in_image
                )
                log.info("control plane of %s is up after %.1f s", identity, time.monotonic() - began)
                self.by_id[identity] = guest
                guest.operator.on_change.append(self.on_change)
                self.on_change()
        return self.by_id.get(identity)

    async def stop(self, identity: str) -> None:
        guest = self.by_id.pop(identity, None)
        if guest is not None:
            await guest.stop()
            if self.on_stop is not None:
                await self.on_stop(identity)
            await asyncio.to_thread(_forget, folder(self._run, identity))

    async def close(self) -> None:
        """Stop the simulated parts of all guest clusters."""
        for guest in self.by_id.values():
            await guest.stop()

    async def sync(self) -> None:
        await asyncio.gather(*(guest.world.sync() for guest in self.by_id.values()))


def folder(run: RunDir, identity: str) -> RunDir:
    return RunDir(run.path / "guests" / identity)


def forget_all(run: RunDir) -> None:
    """Stop all guest clusters and delete their files."""
    for one in sorted((run.path / "guests").glob("*")):
        _forget(RunDir(one))


def _forget(guest: RunDir) -> None:
    if guest.exists():
        processes.stop_all(guest)
    shutil.rmtree(guest.path, ignore_errors=True)
