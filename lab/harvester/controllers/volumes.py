"""Volume claims of VMs: Harvester creates them from an annotation of the VM."""

from __future__ import annotations

import json

from lab.harvester import resources as r
from lab.harvester.cluster import Cluster
from lab.kubernetes.client import Json
from lab.kubernetes.workqueue import WorkQueue

CLAIMS_ANNOTATION = "harvesterhci.io/volumeClaimTemplates"
REMOVED_ANNOTATION = "harvesterhci.io/removedPersistentVolumeClaims"
BOUND_ANNOTATION = "pv.kubernetes.io/bind-completed"


class Volumes:
    """Volume claims that a VM's annotation requests, bound immediately, because the lab does not simulate storage.

    When the VM is deleted, the claims that another annotation names are deleted. Other claims stay.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def run(self) -> None:
        queue = WorkQueue(self._cluster.clock, "volumes", self._reconcile)

        def noticed(old: Json | None, new: Json | None) -> None:
            thing = new or old
            if thing is not None and CLAIMS_ANNOTATION in (thing["metadata"].get("annotations") or {}):
                self._known[_key(thing)] = thing
                queue.add(_key(thing))

        self._known: dict[str, Json] = {}
        self._cluster[r.VM].listen(noticed)
        for vm in self._cluster[r.VM].all():
            noticed(None, vm)

    async def _reconcile(self, key: str) -> None:
        vm = self._known[key]
        namespace, name = key.split("/")
        gone = self._cluster[r.VM].get(name, namespace) is None
        annotations = vm["metadata"]["annotations"]
        if gone:
            for claim in filter(None, annotations.get(REMOVED_ANNOTATION, "").split(",")):
                await self._remove(claim, namespace)
            del self._known[key]
            return
        for template in json.loads(annotations[CLAIMS_ANNOTATION]):
            await self._make(template, namespace)

    async def _make(self, template: Json, namespace: str) -> None:
        client, name = self._cluster.admin, template["metadata"]["name"]
        if await client.get_or_none(r.VOLUME_CLAIM.path(name, namespace)) is not None:
            return
        spec = template["spec"]
        volume = {
            "metadata": {"name": f"pvc-{name}"},
            "spec": {
                "capacity": spec["resources"]["requests"],
                "accessModes": spec["accessModes"],
                "storageClassName": spec["storageClassName"],
                "volumeMode": spec["volumeMode"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": name, "namespace": namespace},
                "hostPath": {"path": f"/lab/{name}"},
            },
        }
        await client.create_if_absent(r.VOLUME.collection, volume)
        claim = {"metadata": template["metadata"], "spec": spec | {"volumeName": f"pvc-{name}"}}
        await client.create_if_absent(r.VOLUME_CLAIM.collection_in(namespace), claim)
        await self._bind(name, namespace)

    async def _bind(self, name: str, namespace: str) -> None:
        """Bind the claim, because the controller manager takes seconds and a pod created meanwhile waits longer."""
        client, claim_path, volume_path = (
            self._cluster.admin,
            r.VOLUME_CLAIM.path(name, namespace),
            r.VOLUME.path(f"pvc-{name}"),
        )
        claim = await client.get_or_none(claim_path)
        if claim is None:
            return
        await client.patch(volume_path, {"spec": {"claimRef": {"uid": claim["metadata"]["uid"]}}})
        await client.patch(claim_path, {"metadata": {"annotations": {BOUND_ANNOTATION: "yes"}}})
        spec = claim["spec"]
        bound = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["resources"]["requests"]}
        await client.patch(f"{claim_path}/status", {"status": bound})
        await client.patch(f"{volume_path}/status", {"status": {"phase": "Bound"}})

    async def _remove(self, name: str, namespace: str) -> None:
        client = self._cluster.admin
        for path in (r.VOLUME_CLAIM.path(name, namespace), r.VOLUME.path(f"pvc-{name}")):
            if await client.get_or_none(path) is not None:
                await client.delete(path)


def _key(vm: Json) -> str:
    return f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"
