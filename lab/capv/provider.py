"""The provider for vSphere: machines become VMs of vCenter, with their devices and conditions."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

from lab.capv.conditions import drop, set_condition
from lab.capv.resources import CLUSTER_LABEL, CONTROL_PLANE_LABEL, SECRET, Resources
from lab.capv.vcenter import OperationFailed, VCenter
from lab.kubernetes.client import Json
from lab.rancher.world import World

DETACHED = "PCIDevicesDetached"
DETACHED_TEXT = "PCI devices removed after VM was powered on"
# Reasons of v1beta2 for those of v1beta1. Most of them became one.
NEW_REASONS = {"CloningFailed": "TaskFailed", "PoweringOnFailed": "TaskFailed", "TaskFailure": "TaskFailed"}
ADDRESS = "10.52.1.10"


class Provider:
    def __init__(self, world: World, resources: Resources) -> None:
        self._world = world
        self._r = resources
        self._sessions: dict[tuple[str, str, str], VCenter] = {}

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    @property
    def _provisioned(self) -> str:
        return "VirtualMachineProvisioned" if self._r.new else "VMProvisioned"

    # Clusters
    async def cluster_ready(self, cluster: Json) -> bool:
        """Log in to vCenter with the cluster's identity, and return whether that succeeded."""
        found = self._infrastructure(cluster)
        if found is None:
            return False
        try:
            await self._session(found)
        except OperationFailed as error:
            await self._cluster_status(found, ready=False, message=str(error))
            return False
        await self._own_secret(found)
        await self._cluster_status(found, ready=True)
        return True

    def _infrastructure(self, cluster: Json) -> Json | None:
        reference = cluster["spec"].get("infrastructureRef") or {}
        return self._world[self._r.vsphere_cluster].get(
            str(reference.get("name") or ""), cluster["metadata"]["namespace"]
        )

    async def _cluster_status(self, found: Json, *, ready: bool, message: str = "") -> None:
        conditions = (found.get("status") or {}).get("conditions") or []
        reason = "" if ready else "VCenterUnreachable"
        changed = set_condition(conditions, "VCenterAvailable", ready, reason, message, new=self._r.new)
        status = {"ready": ready, "conditions": changed}
        await self._world.write_status(self._r.vsphere_cluster, found, status)

    def _secret(self, found: Json) -> Json:
        identity = found["spec"].get("identityRef") or {}
        secret = self._world[SECRET].get(str(identity.get("name") or ""), found["metadata"]["namespace"])
        if identity.get("kind") != "Secret" or secret is None:
            raise OperationFailed("VCenterUnreachable", f"identity {identity.get('name')!r} not found")
        return secret

    async def _session(self, found: Json) -> VCenter:
        data = self._secret(found).get("data") or {}
        user, password = (base64.b64decode(data.get(key) or "").decode() for key in ("username", "password"))
        key = (str(found["spec"].get("server") or ""), user, password)
        if key not in self._sessions:
            self._sessions[key] = await asyncio.to_thread(VCenter, *key)
        return self._sessions[key]

    async def _own_secret(self, found: Json) -> None:
        """Become the owner of the identity's Secret, which the provider deletes with the cluster."""
        secret, owner = self._secret(found), reference_to(self._r.vsphere_cluster.api_version, found)
        owners = secret["metadata"].get("ownerReferences") or []
        if owner not in owners:
            await self._world[SECRET].patch(secret, {"metadata": {"ownerReferences": [*owners, owner]}})

    async def delete_cluster(self, cluster: Json) -> None:
        found = self._infrastructure(cluster)
        if found is None:
            return
        owner = reference_to(self._r.vsphere_cluster.api_version, found)
        for secret in self._world[SECRET].all():
            if owner in (secret["metadata"].get("ownerReferences") or []):
                await self._world.remove(SECRET, secret["metadata"]["name"], secret["metadata"]["namespace"])
        await self._world.remove(self._r.vsphere_cluster, found["metadata"]["name"], found["metadata"]["namespace"])

    # Machines
    async def machine(self, cluster: Json, machine: Json, own: Json, *, initialized: bool) -> Json | None:
        """Reconcile the VM of a machine. Return the VSphereVM once the VM runs with all devices."""
        first = CONTROL_PLANE_LABEL in machine["metadata"]["labels"]
        if not initialized and not first:
            await self._machine_status(own, False, "WaitingForControlPlaneInitialized")
            return None
        vm = self._world[self._r.vm].get(own["metadata"]["name"], own["metadata"]["namespace"])
        if vm is None:
            vm = await self._make_vm(cluster, own)
        infrastructure = self._infrastructure(cluster)
        if infrastructure is None:
            return None
        try:
            session = await self._session(infrastructure)
            host, detached = await asyncio.to_thread(self._bring_up, session, vm)
        except OperationFailed as error:
            reason = NEW_REASONS.get(error.reason, error.reason) if self._r.new else error.reason
            await self._vm_status(vm, False, reason, str(error))
            await self._machine_status(own, False, reason, str(error))
            raise
        await self._vm_status(vm, True, host=host, detached=detached)
        await self._machine_status(own, True)
        return None if detached else vm

    async def _make_vm(self, cluster: Json, own: Json) -> Json:
        metadata = own["metadata"]
        spec = {key: value for key, value in own["spec"].items() if key not in ("providerID", "failureDomain")}
        infrastructure = self._infrastructure(cluster) or {"spec": {}}
        body = {
            "metadata": {
                "name": metadata["name"],
                "labels": {CLUSTER_LABEL: metadata["labels"][CLUSTER_LABEL]},
                "ownerReferences": [reference_to(self._r.vsphere_machine.api_version, own)],
            },
            "spec": {"server": infrastructure["spec"].get("server") or ""} | spec,
        }
        return await self._world[self._r.vm].create(body, metadata["namespace"])

    @staticmethod
    def _bring_up(session: VCenter, vm: Json) -> tuple[str, bool]:
        """Clone the VM, add its devices and power it on. Return its host, and whether a running VM lost devices."""
        spec = vm["spec"]
        found = session.find(vm["metadata"]["name"])
        if found is None:
            found = session.create(vm["metadata"]["name"], spec)
        detached = False
        if found.runtime.powerState != "poweredOn":
            session.add_devices(found, spec)
            session.power_on(found)
        else:
            detached = session.lacks_devices(found, spec)
        return str(found.runtime.host.name), detached

    async def _vm_status(
        self, vm: Json, ready: bool, reason: str = "", message: str = "", *, host: str = "", detached: bool = False
    ) -> None:
        conditions = (vm.get("status") or {}).get("conditions") or []
        conditions = set_condition(conditions, self._provisioned, ready, reason, message, new=self._r.new)
        conditions = drop(conditions, DETACHED)
        if detached:
            conditions = set_condition(conditions, DETACHED, False, "NotFound", DETACHED_TEXT, new=self._r.new)
        status: dict[str, Any] = {"ready": ready and not detached, "conditions": conditions}
        if ready:
            status |= {"host": host, "addresses": [ADDRESS], "cloneMode": "fullClone"}
        await self._world.write_status(self._r.vm, self._current(self._r.vm, vm), status)

    async def _machine_status(self, own: Json, ready: bool, reason: str = "", message: str = "") -> None:
        own = self._current(self._r.vsphere_machine, own)
        conditions = (own.get("status") or {}).get("conditions") or []
        # In v1beta1 the machine has the state of its VM without the text (CAPV#1920).
        text = message if self._r.new else ""
        changed = set_condition(conditions, self._provisioned, ready, reason, text, new=self._r.new)
        done = {"initialization": {"provisioned": ready}} if self._r.new else {"ready": ready}
        await self._world.write_status(self._r.vsphere_machine, own, {"conditions": changed} | done)

    def _current(self, resource: Any, thing: Json) -> Json:
        return self._world[resource].get(thing["metadata"]["name"], thing["metadata"]["namespace"]) or thing

    async def delete_machine(self, cluster: Json, name: str) -> None:
        namespace = cluster["metadata"]["namespace"]
        infrastructure = self._infrastructure(cluster)
        if infrastructure is not None:
            session = await self._session(infrastructure)
            await asyncio.to_thread(self._destroy, session, name)
        await self._world.remove(self._r.vm, name, namespace)
        await self._world.remove(self._r.vsphere_machine, name, namespace)

    @staticmethod
    def _destroy(session: VCenter, name: str) -> None:
        found = session.find(name)
        if found is not None:
            session.destroy(found)


def reference_to(api_version: str, thing: Json) -> Json:
    metadata = thing["metadata"]
    return {"apiVersion": api_version, "kind": thing["kind"], "name": metadata["name"], "uid": metadata["uid"]}
