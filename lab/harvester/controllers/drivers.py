"""NVIDIA driver pods: each node builds its driver, which takes time and may fail (harvester.md 11.3)."""

from __future__ import annotations

from collections.abc import Callable

from lab.harvester import resources as r
from lab.harvester.cluster import Cluster
from lab.harvester.controllers.addons import DRIVER_POD_LABELS, PLACEHOLDER, Addons
from lab.kubernetes.client import Json
from lab.scenarios.scenario import DRIVER_TOOLKIT

BUILD_SECONDS = 60.0


class Drivers:
    def __init__(self, cluster: Cluster, addons: Addons, look_again: Callable[[str], None]) -> None:
        self._cluster = cluster
        self._addons = addons
        self._look_again = look_again
        self._built: dict[str, float] = {}
        self.seeding = True
        self.broken: set[str] = set()
        self._failing: set[str] = set()

    def trouble(self, pod: Json) -> tuple[str, str] | None:
        """Return reason and message of a driver pod that is not ready."""
        if not _is_driver(pod):
            return None
        location = str(self._addons.values(DRIVER_TOOLKIT).get("driverLocation", ""))
        if PLACEHOLDER in location:
            return "CrashLoopBackOff", f"curl: (6) Could not resolve host: {PLACEHOLDER}"
        node = pod["spec"]["nodeName"]
        if node in self.broken:
            return "CrashLoopBackOff", "the NVIDIA driver does not build for this kernel"
        uid, now = pod["metadata"]["uid"], self._cluster.clock.now
        if uid not in self._built:
            self._built[uid] = now if self.seeding else now + BUILD_SECONDS
            if not self.seeding:
                self._cluster.clock.call_later(BUILD_SECONDS, lambda: self._look_again(node))
        if now < self._built[uid]:
            return "NotReady", "building the driver"
        return ("CrashLoopBackOff", "the build of the NVIDIA driver failed") if node in self._failing else None

    def build_again(self, node: str, *, fails: bool) -> None:
        """Restart the driver pod of a node, whose build then succeeds or fails."""
        (self._failing.add if fails else self._failing.discard)(node)
        for pod in self._cluster[r.POD].all():
            if _is_driver(pod) and pod["spec"].get("nodeName") == node:
                self._built.pop(pod["metadata"]["uid"], None)
        self._look_again(node)

    def values_changed(self) -> None:
        """Build all drivers again, because a rollout replaces every driver pod, in the DaemonSet's order."""
        self._built.clear()
        for node in self._cluster.hosts:
            self._look_again(node)

    def not_ready(self, node: str) -> str | None:
        """Return why `sriov-manage` cannot run on a node, or None."""
        for pod in self._cluster[r.POD].all():
            if _is_driver(pod) and pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]:
                conditions = (pod.get("status") or {}).get("conditions") or []
                if any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
                    return None
                return "the driver pod is not ready"
        return "no such file: /host/usr/lib/nvidia/sriov-manage"


def _is_driver(pod: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return DRIVER_POD_LABELS.items() <= labels.items()
