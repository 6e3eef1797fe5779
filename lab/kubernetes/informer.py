"""Caches of API objects that watches keep current, and writes that return when the cache contains them."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable
from typing import Any

import aiohttp

from lab.kubernetes.client import METADATA_ONLY, ApiError, Client, Json
from lab.kubernetes.resource import Resource

log = logging.getLogger(__name__)

# (old, new): old is None for a new object, new is None for a deleted one.
Listener = Callable[[Json | None, Json | None], None]

PATIENCE = 30.0


def key_of(obj: Json) -> str:
    metadata = obj["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def revision_of(obj: Json) -> int:
    return int(obj["metadata"].get("resourceVersion") or 0)


class Informer:
    def __init__(self, client: Client, resource: Resource, indexed: tuple[str, ...] = ()) -> None:
        # Labels with an index, because objects are often looked up by them.
        self._indexed = indexed
        self.resource = resource
        self.objects: dict[str, Json] = {}
        self.ready = asyncio.Event()
        self._client = client
        self._listeners: list[Listener] = []
        self._labelled: dict[tuple[str, str], dict[str, Json]] = {}
        self._revision = 0
        # Futures that wait for a revision, and below those that wait for another condition.
        self._writers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def get(self, name: str, namespace: str = "") -> Json | None:
        return self.objects.get(f"{namespace}/{name}" if namespace else name)

    def all(self) -> list[Json]:
        return list(self.objects.values())

    def labelled(self, label: str, value: str) -> list[Json]:
        assert label in self._indexed, label
        return list(self._labelled.get((label, value), {}).values())

    async def run(self) -> None:
        while True:
            try:
                await self._list()
                await self._watch()
            except ApiError as error:
                # 404: the definition does not exist yet; 410: the watch has to start again.
                if error.status not in (404, 410):
                    log.warning("%s: %s", self.resource.plural, error)
                await asyncio.sleep(0.2)
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                log.warning("%s: connection lost: %s", self.resource.plural, error)
                await asyncio.sleep(0.2)

    async def _list(self) -> None:
        answer = await self._client.get(self.resource.collection)
        items: dict[str, Json] = {}
        for item in answer["items"]:
            item.setdefault("kind", self.resource.kind)
            item.setdefault("apiVersion", self.resource.api_version)
            items[key_of(item)] = item
        for key in [k for k in self.objects if k not in items]:
            self._apply(self.objects[key], None)
        for item in items.values():
            self._apply(self.objects.get(key_of(item)), item)
        self._advance(int(answer["metadata"]["resourceVersion"]))
        self.ready.set()

    async def _watch(self) -> None:
        async for event in self._client.watch(self.resource.collection, str(self._revision)):
            obj = event["object"]
            if event["type"] == "ERROR":
                raise ApiError.from_status(obj.get("code", 500), obj)
            if event["type"] != "BOOKMARK":
                old = self.objects.get(key_of(obj))
                self._apply(old, None if event["type"] == "DELETED" else obj)
            self._advance(revision_of(obj))

    def _apply(self, old: Json | None, new: Json | None) -> None:
        if new is not None:
            if old is not None and revision_of(old) == revision_of(new):
                return
            # Managed fields take a quarter of the memory and are not used; a write without them does not change them.
            new["metadata"].pop("managedFields", None)
            self.objects[key_of(new)] = new
        elif old is not None:
            self.objects.pop(key_of(old), None)
        self._index(old, new)
        for listener in self._listeners:
            listener(old, new)

    def _index(self, old: Json | None, new: Json | None) -> None:
        before, after = ((obj and obj["metadata"].get("labels")) or {} for obj in (old, new))
        for label in self._indexed:
            if old is not None and label in before and before[label] != after.get(label):
                self._labelled[label, before[label]].pop(key_of(old), None)
            if new is not None and label in after:
                self._labelled.setdefault((label, after[label]), {})[key_of(new)] = new

    def _advance(self, revision: int) -> None:
        self._revision = max(self._revision, revision)
        while self._writers and self._writers[0][0] <= self._revision:
            _wake(heapq.heappop(self._writers)[-1])
        for condition, waiter in self._waiting:
            if condition():
                _wake(waiter)
        if self._waiting:
            self._waiting = [waiter for waiter in self._waiting if not waiter[1].done()]

    async def _until(self, condition: Callable[[], bool]) -> None:
        if not condition():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((condition, waiter))
            await asyncio.wait_for(waiter, PATIENCE)

    async def seen(self, written: Json) -> Json:
        await self.reached(revision_of(written))
        return written

    async def reached(self, revision: int) -> None:
        """Wait until the cache contains all changes of this resource up to a revision."""
        if self._revision < revision:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._writers, (revision, next(self._order), waiter))
            await asyncio.wait_for(waiter, PATIENCE)

    async def sync(self) -> None:
        """Wait until the cache contains all writes of other clients so far."""
        if not self.ready.is_set():
            return
        answer = await self._client.get(self.resource.collection, accept=METADATA_ONLY)
        revisions = {key_of(item): revision_of(item) for item in answer["items"] or []}
        await self._until(
            lambda: (
                all(k in self.objects and revision_of(self.objects[k]) >= r for k, r in revisions.items())
                or self._revision >= int(answer["metadata"]["resourceVersion"])
            )
        )
        listed = int(answer["metadata"]["resourceVersion"])
        await self._until(
            lambda: (
                all(k in revisions or revision_of(o) > listed for k, o in self.objects.items())
                or self._revision >= listed
            )
        )

    # Writes with the identity of this informer's client.
    async def create(self, body: Json, namespace: str = "") -> Json:
        body = {"apiVersion": self.resource.api_version, "kind": self.resource.kind, **body}
        return await self.seen(await self._client.create(self.resource.collection_in(namespace), body))

    async def replace(self, obj: Json, *, subresource: str = "") -> Json:
        metadata = obj["metadata"]
        path = self.resource.path(metadata["name"], metadata.get("namespace", ""))
        if subresource:
            path += f"/{subresource}"
        return await self.seen(await self._client.replace(path, obj))

    async def patch(self, obj: Json, body: Any, *, subresource: str = "") -> Json:
        metadata = obj["metadata"]
        path = self.resource.path(metadata["name"], metadata.get("namespace", ""))
        if subresource:
            path += f"/{subresource}"
        return await self.seen(await self._client.patch(path, body))

    async def delete(self, name: str, namespace: str = "") -> None:
        """Delete an object, and return when it is gone or has a deletion timestamp."""
        await self._client.delete(self.resource.path(name, namespace))
        key = f"{namespace}/{name}" if namespace else name
        await self._until(lambda: key not in self.objects or "deletionTimestamp" in self.objects[key]["metadata"])


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
