"""Keep every version of each object, with the simulated time at which it was seen."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Key = tuple[str, str]

DEVICES = "/apis/devices.harvesterhci.io/v1beta1"
WATCHED = {
    "sriovgpudevices": f"{DEVICES}/sriovgpudevices",
    "vgpudevices": f"{DEVICES}/vgpudevices",
    "pcidevices": f"{DEVICES}/pcidevices",
    "pcideviceclaims": f"{DEVICES}/pcideviceclaims",
    "migconfigurations": f"{DEVICES}/migconfigurations",
    "nodes": "/api/v1/nodes",
    "kubevirts": "/apis/kubevirt.io/v1/kubevirts",
}
PLURAL = {
    "SRIOVGPUDevice": "sriovgpudevices",
    "VGPUDevice": "vgpudevices",
    "PCIDevice": "pcidevices",
    "PCIDeviceClaim": "pcideviceclaims",
    "MigConfiguration": "migconfigurations",
    "Node": "nodes",
    "KubeVirt": "kubevirts",
}


@dataclass(frozen=True)
class Version:
    revision: int
    at: float
    object: Json | None


class Snapshot:
    """All watched objects at one moment."""

    def __init__(self, objects: dict[Key, Json]) -> None:
        self._objects = objects

    def get(self, plural: str, name: str) -> Json | None:
        return self._objects.get((plural, name))

    def all(self, plural: str) -> dict[str, Json]:
        return {name: obj for (kind, name), obj in sorted(self._objects.items()) if kind == plural}

    def of_node(self, plural: str, node: str) -> dict[str, Json]:
        # By name, as nodeName and labels are among the things that recordings change.
        if plural == "nodes":
            return {node: obj} if (obj := self.get(plural, node)) else {}
        return {name: obj for name, obj in self.all(plural).items() if name.rpartition("-")[0] == node}


class History:
    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        # Objects up to this revision were there when the history began.
        self.base = 0
        self._versions: dict[Key, list[Version]] = {}
        self._lock = threading.Lock()

    def record(self, plural: str, event: str, obj: Json) -> None:
        metadata = obj["metadata"]
        version = Version(int(metadata["resourceVersion"]), self.now, None if event == "DELETED" else obj)
        with self._lock:
            self._insert((plural, metadata["name"]), version)

    def _insert(self, key: Key, version: Version) -> None:
        versions = self._versions.setdefault(key, [])
        place = bisect.bisect_left(versions, version.revision, key=lambda earlier: earlier.revision)
        if place < len(versions) and versions[place].revision == version.revision:
            return
        if version.object is None and place and versions[place - 1].object is None:
            return
        versions.insert(place, version)
        self.events += 1

    def merge(self, plural: str, listed: Json) -> None:
        """Add the objects of a list, which is newer than the events of the watch."""
        revision = int(listed["metadata"]["resourceVersion"])
        items = {item["metadata"]["name"]: item for item in listed.get("items") or []}
        kind = str(listed.get("kind", "")).removesuffix("List")
        for item in items.values():
            item.setdefault("kind", kind)
            item.setdefault("apiVersion", listed.get("apiVersion"))
            self.record(plural, "ADDED", item)
        with self._lock:
            for key, versions in self._versions.items():
                gone = key[0] == plural and key[1] not in items and versions[-1].object is not None
                if gone and versions[-1].revision < revision:
                    self._insert(key, Version(revision, self.now, None))

    def versions(self, key: Key) -> list[Version]:
        with self._lock:
            return list(self._versions.get(key, ()))

    @property
    def revision(self) -> int:
        with self._lock:
            return max((versions[-1].revision for versions in self._versions.values() if versions), default=0)

    def snapshot(self) -> Snapshot:
        with self._lock:
            latest = {key: versions[-1].object for key, versions in self._versions.items() if versions}
        return Snapshot({key: obj for key, obj in latest.items() if obj is not None})

    def find(
        self, key: Key, matches: Callable[[Json | None], bool], *, since: float, revision: int = 0
    ) -> Version | None:
        """Return the latest matching version that was current after `since`, and not before `revision`."""
        versions = self.versions(key) or [Version(0, 0.0, None)]
        until = float("inf")
        for version in reversed(versions):
            if until < since or version.revision < revision:
                return None
            if matches(version.object):
                return version
            until = version.at
        if versions[0].revision > self.base and until >= since and revision <= 0 and matches(None):
            return Version(0, 0.0, None)
        return None

    def first(self, key: Key, matches: Callable[[Json | None], bool], *, revision: int) -> Version | None:
        return next(
            (version for version in self.versions(key) if version.revision >= revision and matches(version.object)),
            None,
        )

    def moments(self, revision: int) -> Iterator[tuple[float, int, Snapshot]]:
        """Yield a snapshot at `revision` and after each later change. Each is valid until the next."""
        with self._lock:
            changes = sorted(
                ((version.revision, key, version) for key, versions in self._versions.items() for version in versions),
                key=lambda change: change[0],
            )
        objects: dict[Key, Json] = {}
        started = False
        at = 0.0
        for place, key, version in changes:
            if place > revision and not started:
                started = True
                yield at, revision, Snapshot(objects)
            if version.object is None:
                objects.pop(key, None)
            else:
                objects[key] = version.object
            at = version.at
            if started:
                yield version.at, place, Snapshot(objects)
        if not started:
            yield at, revision, Snapshot(objects)
