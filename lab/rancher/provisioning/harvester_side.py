"""Prerequisites of machines on Harvester: the images that machine pools use, and the cloud provider's role."""

from __future__ import annotations

from lab.harvester import images
from lab.harvester.cluster import Cluster as Harvester
from lab.harvester.controllers.volumes import CLAIMS_ANNOTATION
from lab.kubernetes import custom_resources
from lab.kubernetes.client import Json
from lab.rancher import definitions

IMAGE = f"{images.NAMESPACE}/image-ubuntu"
IMAGE_WITH_DRIVER = f"{images.NAMESPACE}/image-ubuntu-grid"
VM_NETWORK = images.VM_NETWORK
CLOUD_PROVIDER_ROLE = "harvesterhci.io:cloudprovider"


async def seed(harvester: Harvester) -> None:
    client = harvester.admin
    await custom_resources.install(client, definitions.harvester_definitions())
    await images.add_images(harvester, (IMAGE, IMAGE_WITH_DRIVER))
    rules = [{"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["get", "list", "watch"]}]
    role = {"metadata": {"name": CLOUD_PROVIDER_ROLE}, "rules": rules}
    await client.create_if_absent("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)


def has_driver(vm: Json) -> bool:
    """Return whether the VM's image contains the guest driver and its license."""
    return IMAGE_WITH_DRIVER in ((vm["metadata"].get("annotations") or {}).get(CLAIMS_ANNOTATION) or "")
