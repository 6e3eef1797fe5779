"""What happened to objects, in the exact order in which it happened: the API server's own record of changes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.integration.api import Api, Json


@dataclass(frozen=True)
class Change:
    revision: int
    kind: str
    name: str
    gone: bool
    object: Json

    def __str__(self) -> str:
        return f"{self.revision} {'-' if self.gone else '+'} {self.kind} {self.name}"


def now(api: Api) -> str:
    """A point in time, for `changes`."""
    return str(api.get("/api/v1/namespaces", limit=1).body["metadata"]["resourceVersion"])


def changes(api: Api, since: str, collections: Iterable[str]) -> list[Change]:
    """All changes in the collections since then; writes that changed nothing leave no trace."""
    with ThreadPoolExecutor() as pool:
        found = pool.map(lambda collection: _changes_of(api.again(), since, collection), collections)
        return sorted((change for some in found for change in some), key=lambda change: change.revision)


def _changes_of(api: Api, since: str, collection: str) -> list[Change]:
    lines = api.lines(collection, watch=1, resourceVersion=since, timeoutSeconds=1)
    return [_change(json.loads(line)) for line in lines if line.strip()]


def _change(event: Json) -> Change:
    thing = event["object"]
    metadata = thing["metadata"]
    return Change(int(metadata["resourceVersion"]), thing["kind"], metadata["name"], event["type"] == "DELETED", thing)


def first(happened: list[Change], condition: Callable[[Change], Any]) -> int:
    """The place in a list of changes at which something became true for the first time."""
    return next(index for index, change in enumerate(happened) if condition(change))


def sequences(happened: list[Change], state: Callable[[Change], Any]) -> dict[str, list[Any]]:
    """For each object the states it went through, without repetitions."""
    result: dict[str, list[Any]] = {}
    for change in happened:
        states = result.setdefault(f"{change.kind}/{change.name}", [])
        current = None if change.gone else state(change)
        if not states or states[-1] != current:
            states.append(current)
    return result
