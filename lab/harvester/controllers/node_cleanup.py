"""Delete the devices of a node that is removed from the cluster (pcidevices' finalizer on core Nodes)."""

from __future__ import annotations

from collections.abc import Callable

from lab.harvester import resources as r
from lab.harvester.cluster import Cluster
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.resource import Resource
from lab.kubernetes.workqueue import WorkQueue


class NodeCleanup:
    """Node finalizer that any running pcidevices process handles; without a process, the node stays in deletion.

    The node also stays in deletion while one of its GPUs is enabled: the webhook refuses to delete the GPU as long as
    the node exists (harvester.md 10.2, rule 7), and the finalizer waits for the deletion. From source, not recorded.
    """

    def __init__(self, cluster: Cluster, somebody_is_up: Callable[[], bool]) -> None:
        self._cluster = cluster
        self._somebody_is_up = somebody_is_up

    def run(self) -> None:
        self._queue = WorkQueue(self._cluster.clock, "node cleanup", self._reconcile)
        self._cluster[r.NODE].listen(lambda old, new: self._notice(new))

    def look_again(self) -> None:
        for node in self._cluster[r.NODE].all():
            self._notice(node)

    def _notice(self, node: Json | None) -> None:
        if node is not None and _waits_for_cleanup(node):
            self._queue.add(node["metadata"]["name"])

    async def _reconcile(self, name: str) -> None:
        node = self._cluster[r.NODE].get(name)
        if node is None or not _waits_for_cleanup(node) or not self._somebody_is_up():
            return
        await self._delete(r.DEVICE_NODE, name)
        for claim in self._cluster[r.CLAIM].all():
            if claim["spec"].get("nodeName") == name:
                if r.CLAIM_FINALIZER in (claim["metadata"].get("finalizers") or []):
                    await self._cluster[r.CLAIM].patch(claim, {"metadata": {"finalizers": None}})
                await self._delete(r.CLAIM, claim["metadata"]["name"])
        for resource in (r.PCI_DEVICE, r.SRIOV_GPU, r.VGPU):
            for obj in self._cluster[resource].labelled(r.NODENAME_LABEL, name):
                await self._delete(resource, obj["metadata"]["name"])
                if not self._somebody_is_up():
                    # Deleting a GPU crashes all processes; they continue from here after their restart.
                    return
        left = [finalizer for finalizer in node["metadata"]["finalizers"] if finalizer != r.NODE_FINALIZER]
        await self._cluster.admin.patch(r.NODE.path(name), {"metadata": {"finalizers": left or None}})

    async def _delete(self, resource: Resource, name: str) -> None:
        try:
            await self._cluster[resource].delete(name)
        except ApiError as error:
            if error.status != 404:
                raise


def _waits_for_cleanup(node: Json) -> bool:
    metadata = node["metadata"]
    return "deletionTimestamp" in metadata and r.NODE_FINALIZER in (metadata.get("finalizers") or [])
