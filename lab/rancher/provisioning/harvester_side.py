"""Prerequisites of machines on Harvester: images, a network, and volumes created from a VM's annotation."""

from __future__ import annotations

import json

from lab.harvester import resources as h
from lab.harvester.cluster import Cluster as Harvester
from lab.kubernetes import custom_resources
from lab.kubernetes.client import Json
from lab.kubernetes.workqueue import WorkQueue
from lab.rancher import definitions, resources as r
from lab.rancher.driver.virtual_machine import CLAIMS_ANNOTATION, REMOVED_ANNOTATION

NAMESPACE = "default"
IMAGE = f"{NAMESPACE}/image-ubuntu"
IMAGE_WITH_DRIVER = f"{NAMESPACE}/image-ubuntu-grid"
VM_NETWORK = f"{NAMESPACE}/vlan1"
STORAGE_CLASS = "harvester-longhorn"
BOUND_ANNOTATION = "pv.kubernetes.io/bind-completed"
CLOUD_PROVIDER_ROLE = "harvesterhci.io:cloudprovider"


async def seed(harvester: Harvester) -> None:
    client = harvester.admin
    await custom_resources.install(client, definitions.harvester_definitions())
    for image in (IMAGE, IMAGE_WITH_DRIVER):
        name = image.split("/")[1]
        body = {
            "apiVersion": r.IMAGE.api_version,
            "kind": r.IMAGE.kind,
            "metadata": {"name": name},
            "spec": {"displayName": f"{name}.img", "sourceType": "upload"},
        }
        await client.create_if_absent(r.IMAGE.collection_in(NAMESPACE), body)
        await client.patch(
            f"{r.IMAGE.path(name, NAMESPACE)}/status", {"status": {"storageClassName": f"longhorn-{name}"}}
        )
    for name in (STORAGE_CLASS, *(f"longhorn-{image.split('/')[1]}" for image in (IMAGE, IMAGE_WITH_DRIVER))):
        storage = {"metadata": {"name": name}, "provisioner": "driver.longhorn.io"}
        await client.create_if_absent(r.STORAGE_CLASS.collection, storage)
    network = {
        "apiVersion": r.NETWORK.api_version,
        "kind": r.NETWORK.kind,
        "metadata": {"name": VM_NETWORK.split("/")[1]},
        "spec": {"config": json.dumps({"cniVersion": "0.3.1", "type": "bridge", "bridge": "mgmt-br", "vlan": 1})},
    }
    await client.create_if_absent(r.NETWORK.collection_in(NAMESPACE), network)
    rules = [{"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["get", "list", "watch"]}]
    role = {"metadata": {"name": CLOUD_PROVIDER_ROLE}, "rules": rules}
    await client.create_if_absent("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)


def has_driver(vm: Json) -> bool:
    """Return whether the VM's image contains the guest driver and its license."""
    return IMAGE_WITH_DRIVER in ((vm["metadata"].get("annotations") or {}).get(CLAIMS_ANNOTATION) or "")


class Volumes:
    """Volume claims that a VM's annotation requests, bound immediately, because the lab does not simulate storage.

    When the VM is deleted, the claims that another annotation names are deleted. Other claims stay.
    """

    def __init__(self, harvester: Harvester) -> None:
        self._harvester = harvester

    def run(self) -> None:
        queue = WorkQueue(self._harvester.clock, "volumes", self._reconcile)

        def noticed(old: Json | None, new: Json | None) -> None:
            thing = new or old
            if thing is not None and CLAIMS_ANNOTATION in (thing["metadata"].get("annotations") or {}):
                self._known[_key(thing)] = thing
                queue.add(_key(thing))

        self._known: dict[str, Json] = {}
        self._harvester[h.VM].listen(noticed)
        for vm in self._harvester[h.VM].all():
            noticed(None, vm)

    async def _reconcile(self, key: str) -> None:
        vm = self._known[key]
        namespace, name = key.split("/")
        gone = self._harvester[h.VM].get(name, namespace) is None
        annotations = vm["metadata"]["annotations"]
        if gone:
            for claim in filter(None, annotations.get(REMOVED_ANNOTATION, "").split(",")):
                await self._remove(claim, namespace)
            del self._known[key]
            return
        for template in json.loads(annotations[CLAIMS_ANNOTATION]):
            await self._make(template, namespace)

    async def _make(self, template: Json, namespace: str) -> None:
        client, name = self._harvester.admin, template["metadata"]["name"]
        if await client.get_or_none(r.CLAIM.path(name, namespace)) is not None:
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
        await client.create_if_absent(r.CLAIM.collection_in(namespace), claim)
        await self._bind(name, namespace)

    async def _bind(self, name: str, namespace: str) -> None:
        """Bind the claim, because the controller manager takes seconds and a pod created meanwhile waits longer."""
        client, claim_path, volume_path = (
            self._harvester.admin,
            r.CLAIM.path(name, namespace),
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
        client = self._harvester.admin
        for path in (r.CLAIM.path(name, namespace), r.VOLUME.path(f"pvc-{name}")):
            if await client.get_or_none(path) is not None:
                await client.delete(path)


def _key(vm: Json) -> str:
    return f"{vm['metadata']['namespace']}/{vm['metadata']['name']}"
