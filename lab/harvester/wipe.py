"""Deletion of all objects of a scenario from the API server, while all controllers are stopped."""

from __future__ import annotations

import asyncio

from lab.harvester import resources as r
from lab.kubernetes.client import ApiError, Client, Json
from lab.kubernetes.controlplane import VIEWER_ROLE
from lab.kubernetes.custom_resources import DEFINITIONS
from lab.kubernetes.resource import Resource
from lab.rundir import RunDir

WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
OURS = ("pcidevices-validator", "pcidevices-mutator", "harvester-validator", "harvester-mutator")
# Owners first, because they would create their dependents again.
ORDER = (
    r.VM,
    r.VMI,
    r.ADDON,
    r.DAEMON_SET,
    r.POD,
    r.SETTING,
    r.MIG,
    r.VGPU,
    r.SRIOV_GPU,
    r.PCI_DEVICE,
    r.CLAIM,
    r.DEVICE_NODE,
    r.NODE,
    r.VOLUME_CLAIM,
    r.VOLUME,
)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
# Bindings before the roles and accounts that they refer to.
RIGHTS = (
    Resource("ClusterRoleBinding", "clusterrolebindings", RBAC),
    Resource("RoleBinding", "rolebindings", RBAC, namespaced=True),
    Resource("ClusterRole", "clusterroles", RBAC),
    Resource("Role", "roles", RBAC, namespaced=True),
    Resource("ServiceAccount", "serviceaccounts", "/api/v1", namespaced=True),
)
BOOTSTRAPPED_LABEL = "kubernetes.io/bootstrapping"


def everything(run: RunDir, *, definitions: bool) -> None:
    """Delete all objects, and with `definitions` also the definitions of the device resources."""
    asyncio.run(_everything(run, definitions))


async def _everything(run: RunDir, definitions: bool) -> None:
    async with Client.from_kubeconfig(run.kubeconfig("harvester")) as client:
        await _forget_webhooks(client)
        for resource in ORDER:
            await empty(client, resource)
        await _forget_rights(client)
        kubevirt = r.KUBEVIRT.path("kubevirt", r.HARVESTER_NAMESPACE)
        await client.patch(kubevirt, {"spec": {"configuration": {"permittedHostDevices": None}}})
        if definitions:
            await _forget_definitions(client)


async def _forget_definitions(client: Client) -> None:
    names = [
        obj["metadata"]["name"]
        for obj in (await client.get(DEFINITIONS))["items"]
        if obj["spec"]["group"] == r.DEVICES_GROUP
    ]
    await asyncio.gather(*(_delete(client, f"{DEFINITIONS}/{name}") for name in names))
    while any([await client.get_or_none(f"{DEFINITIONS}/{name}") for name in names]):
        await asyncio.sleep(0.05)


async def _forget_webhooks(client: Client) -> None:
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        await asyncio.gather(*(_delete(client, f"{WEBHOOKS}/{kind}/{name}") for name in OURS))


async def _forget_rights(client: Client) -> None:
    """Delete the roles and accounts that users created, but not those of the API server and the lab."""
    for resource in RIGHTS:
        objects = (await client.get(resource.collection))["items"]
        await asyncio.gather(*(_remove(client, resource, obj) for obj in objects if not _is_built_in(obj)))


def _is_built_in(obj: Json) -> bool:
    metadata = obj["metadata"]
    labels = metadata.get("labels") or {}
    of_the_system = metadata.get("namespace", "").startswith("kube-")
    return of_the_system or BOOTSTRAPPED_LABEL in labels or metadata["name"] in (VIEWER_ROLE, "default")


async def empty(client: Client, resource: Resource) -> None:
    while True:
        try:
            objects = (await client.get(resource.collection))["items"]
        except ApiError as error:
            if error.status == 404:
                return
            raise
        if not objects:
            return
        await asyncio.gather(*(_remove(client, resource, obj) for obj in objects))


async def _remove(client: Client, resource: Resource, obj: Json) -> None:
    metadata = obj["metadata"]
    path = resource.path(metadata["name"], metadata.get("namespace", ""))
    if metadata.get("finalizers"):
        try:
            await client.patch(path, {"metadata": {"finalizers": None}})
        except ApiError as error:
            if error.status not in (404, 409):
                raise
    await _delete(client, path)


async def _delete(client: Client, path: str) -> None:
    try:
        await client.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    except ApiError as error:
        if error.status not in (404, 409):
            raise
