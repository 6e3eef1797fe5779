"""What VMs are created from: images with their storage classes, and a VM network. The lab simulates neither."""

from __future__ import annotations

import json
from collections.abc import Iterable

from lab.harvester import resources as r
from lab.harvester.cluster import Cluster
from lab.harvester.definitions import ANYTHING, STRING, condition, definition, fields, list_of
from lab.kubernetes import custom_resources
from lab.kubernetes.client import Json

NAMESPACE = "default"
IMAGE = f"{NAMESPACE}/ubuntu"
VM_NETWORK = f"{NAMESPACE}/vlan1"
STORAGE_CLASS = "harvester-longhorn"


def image_definitions() -> list[Json]:
    return [
        definition(
            "harvesterhci.io",
            "VirtualMachineImage",
            "virtualmachineimages",
            namespaced=True,
            spec=ANYTHING,
            status=fields(storageClassName=STRING, conditions=list_of(condition())),
        ),
        definition(
            "k8s.cni.cncf.io",
            "NetworkAttachmentDefinition",
            "network-attachment-definitions",
            version="v1",
            namespaced=True,
            spec=fields(config=STRING),
        ),
    ]


async def seed(cluster: Cluster) -> None:
    """Create the objects that a Harvester administrator creates before the first VM."""
    client = cluster.admin
    await custom_resources.install(client, image_definitions())
    await add_storage_class(cluster, STORAGE_CLASS)
    await add_images(cluster, [IMAGE])
    network = {
        "apiVersion": r.NETWORK.api_version,
        "kind": r.NETWORK.kind,
        "metadata": {"name": VM_NETWORK.split("/")[1]},
        "spec": {"config": json.dumps({"cniVersion": "0.3.1", "type": "bridge", "bridge": "mgmt-br", "vlan": 1})},
    }
    await client.create_if_absent(r.NETWORK.collection_in(NAMESPACE), network)


async def add_images(cluster: Cluster, images: Iterable[str]) -> None:
    """Create images that are ready, each with the storage class of its volumes."""
    client = cluster.admin
    for image in images:
        namespace, name = image.split("/")
        body = {
            "apiVersion": r.IMAGE.api_version,
            "kind": r.IMAGE.kind,
            "metadata": {"name": name},
            "spec": {"displayName": f"{name}.img", "sourceType": "upload"},
        }
        await client.create_if_absent(r.IMAGE.collection_in(namespace), body)
        await client.patch(
            f"{r.IMAGE.path(name, namespace)}/status", {"status": {"storageClassName": f"longhorn-{name}"}}
        )
        await add_storage_class(cluster, f"longhorn-{name}")


async def add_storage_class(cluster: Cluster, name: str) -> None:
    storage = {"metadata": {"name": name}, "provisioner": "driver.longhorn.io"}
    await cluster.admin.create_if_absent(r.STORAGE_CLASS.collection, storage)
