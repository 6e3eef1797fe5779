"""API server as the simulated components see it: cached objects, and the lab clock."""

from __future__ import annotations

import asyncio

from lab.clock import Clock
from lab.kubernetes.client import ApiError, Client, Json
from lab.kubernetes.informer import Informer
from lab.kubernetes.resource import Resource


class World:
    def __init__(self, clock: Clock, client: Client) -> None:
        self.clock = clock
        self.client = client
        self._informers: dict[Resource, Informer] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def __getitem__(self, resource: Resource) -> Informer:
        return self._informers[resource]

    def labelled(self, resource: Resource, label: str, value: str) -> list[Json]:
        everyone = self[resource].all()
        return [one for one in everyone if (one["metadata"].get("labels") or {}).get(label) == value]

    def watch(self, *resources: Resource) -> None:
        for resource in resources:
            self._informers[resource] = Informer(self.client, resource)
            self._tasks.append(asyncio.get_running_loop().create_task(self._informers[resource].run()))

    async def watched(self) -> None:
        await asyncio.gather(*(informer.ready.wait() for informer in self._informers.values()))

    async def sync(self) -> None:
        """Wait until the cache contains all writes of other clients so far."""
        await asyncio.gather(*(informer.sync() for informer in self._informers.values()))

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def write_status(self, resource: Resource, thing: Json, status: Json) -> None:
        """Write the changed parts of a status, and ignore an object that no longer exists."""
        current = thing.get("status") or {}
        changes = {key: value for key, value in status.items() if current.get(key) != value}
        if not changes:
            return
        try:
            await self[resource].patch(thing, {"status": changes}, subresource="status")
        except ApiError as error:
            if error.status != 404:
                raise

    async def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        try:
            await self[resource].delete(name, namespace)
        except ApiError as error:
            if error.status != 404:
                raise

    async def drop_finalizers(self, resource: Resource, thing: Json) -> None:
        try:
            await self.client.patch(
                resource.path(thing["metadata"]["name"], thing["metadata"].get("namespace", "")),
                {"metadata": {"finalizers": None}},
            )
        except ApiError as error:
            if error.status != 404:
                raise
