"""The pcidevices process of one node, with its own queues, workers and rate limit, which end with the process."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from lab.clock import Throttle, Turn, background
from lab.harvester import resources as r
from lab.harvester.cluster import Cluster
from lab.harvester.hardware import Host
from lab.harvester.node.device_plugins import DeviceManager, DevicePlugin
from lab.harvester.pcidevices import claims, mig_configurations, node_scan, sriov_gpus, vgpus
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.resource import Resource
from lab.kubernetes.workqueue import WorkQueue

log = logging.getLogger(__name__)

# Seconds from the start of the process until it serves the webhook, as in the recordings, and from then until the
# first reconcile.
START_UP = 4.0
FIRST_RECONCILE = 0.2
# Duration of a request to the API server, which delays the reaction to a change.
REQUEST_SECONDS = 0.02
FIRST_CRASH_PAUSE = 10.0
LAST_CRASH_PAUSE = 300.0

Reconcile = Callable[["NodeProcess", Json], Awaitable[None]]


class NodeProcess:
    def __init__(self, cluster: Cluster, host: Host, devices: DeviceManager, on_change: Callable[[], None]) -> None:
        self.cluster = cluster
        self.host = host
        self.node = host.name
        self.devices = devices
        self.alive = False
        self.scanning = False
        self._on_change = on_change
        self._queues: dict[Resource, WorkQueue] = {}
        self._start: Any = None
        self._starting = False
        self._crashes = 0
        self.plugins: dict[str, DevicePlugin] = {}
        self._reconcilers: dict[Resource, Reconcile] = {
            r.SRIOV_GPU: sriov_gpus.reconcile,
            r.VGPU: vgpus.reconcile,
            r.CLAIM: claims.reconcile,
            r.DEVICE_NODE: node_scan.reconcile,
            **({r.MIG: mig_configurations.reconcile} if cluster.version.mig else {}),
        }

    def start(self, *, after: float = START_UP) -> None:
        if self.alive or self._start:
            return
        self._starting = True
        self._start = self.cluster.clock.call_later(after, self._begin)

    def start_after_crash(self) -> None:
        """Restart the process as a kubelet does: after ten seconds at first, then with increasing delays."""
        pause = min(FIRST_CRASH_PAUSE * 2**self._crashes, LAST_CRASH_PAUSE)
        self._crashes += 1
        self._start = self.cluster.clock.call_later(pause, self._start_again)

    def _start_again(self) -> None:
        self._start = None
        self.start()

    @property
    def running(self) -> bool:
        """Return whether the process exists, even if it is still starting."""
        return self.alive or self._starting

    def _begin(self) -> None:
        self._start = None
        self._starting = False
        self.alive = True
        self.throttle = Throttle(self.cluster.clock, latency=REQUEST_SECONDS)
        self.plugin_turn = Turn(self.cluster.clock)
        self.plugins = {}
        self._on_change()
        if not self.alive:
            return
        # The process serves the webhook before the first reconcile, whose writes the webhook may refuse.
        self._start = self.cluster.clock.call_later(FIRST_RECONCILE, self._reconcile_all)

    def _reconcile_all(self) -> None:
        self._start = None
        for resource in self._reconcilers:
            self._queues[resource] = WorkQueue(
                self.cluster.clock, f"{self.node} {resource.plural}", self._handler(resource)
            )
            for obj in self.cluster[resource].all():
                self.notice(resource, obj)
        background(self.cluster.clock, self._introduce())

    async def _introduce(self) -> None:
        """Create the object whose reconciliation is the node scan."""
        informer = self.cluster[r.DEVICE_NODE]
        if informer.get(self.node) is None:
            try:
                await informer.create({"metadata": {"name": self.node}, "spec": {}})
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    def kill(self) -> None:
        if self._start:
            self._start.cancelled = True
            self._start = None
        self._starting = False
        if not self.alive:
            return
        self.alive = False
        for queue in self._queues.values():
            queue.stop()
        self._queues = {}
        for plugin in self.plugins.values():
            plugin.stop()
        self.plugins = {}
        self._on_change()

    def notice(self, resource: Resource, obj: Json) -> None:
        """Handle a change of an object if the object belongs to the node of this process."""
        if resource in self._queues and self.owner(resource, obj) == self.node:
            queue, name, clock = self._queues[resource], obj["metadata"]["name"], self.cluster.clock
            if clock.side_by_side:
                queue.add(name)
            else:
                # The writer gets its response before a watch reports the change, so the writer continues first.
                clock.call_later(0.0, lambda: queue.add(name))

    @staticmethod
    def owner(resource: Resource, obj: Json) -> Any:
        if resource is r.DEVICE_NODE:
            return obj["metadata"]["name"]
        return (obj.get("spec") or {}).get("nodeName")

    def enqueue(self, resource: Resource, name: str, *, after: float = 0.0) -> None:
        if after:
            self._queues[resource].add_after(name, after)
        else:
            self._queues[resource].add(name)

    def _handler(self, resource: Resource) -> Callable[[str], Awaitable[None]]:
        async def handle(name: str) -> None:
            obj = self.cluster[resource].get(name)
            if obj is not None:
                await self._reconcilers[resource](self, obj)

        return handle

    # Rate-limited requests with the identity of the process.
    async def create(self, resource: Resource, body: Json) -> Json:
        await self.throttle.take()
        return await self.cluster[resource].create(body)

    async def replace(self, resource: Resource, obj: Json) -> Json:
        await self.throttle.take()
        return await self.cluster[resource].replace(obj)

    async def replace_status(self, resource: Resource, obj: Json, status: Json) -> Json:
        await self.throttle.take()
        if obj.get("status") == status:
            # The request would change nothing, but it still counts for the rate limit.
            return obj
        return await self.cluster[resource].replace(obj | {"status": status}, subresource="status")

    async def delete(self, resource: Resource, name: str) -> None:
        await self.throttle.take()
        try:
            await self.cluster[resource].delete(name)
        except ApiError as error:
            if error.status != 404:
                raise
