"""State that all simulated components share: clock, version, hosts and cached API objects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from lab.clock import Clock
from lab.harvester import resources as r
from lab.harvester.hardware import Host
from lab.harvester.journal import Journal
from lab.harvester.names import resource_name
from lab.harvester.versions import Version
from lab.kubernetes.client import Client, Json
from lab.kubernetes.informer import Informer
from lab.kubernetes.resource import Resource
from lab.scenarios.scenario import Scenario

DEVICE_RESOURCES = (r.SRIOV_GPU, r.VGPU, r.PCI_DEVICE, r.CLAIM, r.DEVICE_NODE)
MIG_RESOURCES = (r.MIG,)
CORE_RESOURCES = (r.NODE, r.KUBEVIRT, r.VM, r.VMI, r.ADDON, r.DAEMON_SET, r.POD)


@dataclass
class Cluster:
    clock: Clock
    version: Version
    scenario: Scenario
    admin: Client
    pcidevices: Client
    hosts: dict[str, Host]
    informers: dict[Resource, Informer] = field(default_factory=dict)
    driver_ready: Callable[[str], str | None] = lambda node: None
    journal: Journal = field(default_factory=Journal)
    # Whether KubeVirt's list of permitted devices loses what the controllers write to it, and what it has lost.
    loses_permits: bool = False
    lost_permits: list[Json] = field(default_factory=list)
    _synced: int = 0
    _tasks: dict[Resource, asyncio.Task[None]] = field(default_factory=dict)

    @property
    def device_resources(self) -> tuple[Resource, ...]:
        return DEVICE_RESOURCES + (MIG_RESOURCES if self.version.mig else ())

    def __getitem__(self, resource: Resource) -> Informer:
        return self.informers[resource]

    def watch(self, *resources: Resource, client: Client | None = None) -> None:
        for resource in resources:
            if resource not in self.informers:
                informer = Informer(client or self.admin, resource, indexed=(r.NODENAME_LABEL, r.PARENT_LABEL))
                self.informers[resource] = informer
                self._tasks[resource] = asyncio.get_running_loop().create_task(informer.run())

    async def watched(self) -> None:
        await asyncio.gather(*(informer.ready.wait() for informer in self.informers.values()))

    async def sync(self) -> None:
        """Wait until the cache contains all writes of other clients so far."""
        answer = await self.admin.get("/api/v1/namespaces", params={"limit": "1"})
        revision = int(answer["metadata"]["resourceVersion"])
        if revision == self._synced:
            return
        own = self.journal.complete(self._synced, revision)
        if own is None:
            await asyncio.gather(*(informer.sync() for informer in self.informers.values()))
        else:
            await asyncio.gather(*(self._seen(path, written) for written, path in own.items()))
        self._synced = revision

    async def _seen(self, path: str, revision: int) -> None:
        for resource, informer in self.informers.items():
            if resource.holds(path):
                await informer.reached(revision)

    def vgpu_resource(self, type_name: str) -> str:
        return resource_name(type_name, upper_case=self.version.upper_case_resources)
