"""Life cycle of machines: a VM from the driver, a node in the guest cluster, and their removal."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.harvester import resources as h
from lab.harvester.cluster import Cluster as Harvester
from lab.harvester.node.kubelet import timestamp
from lab.kubernetes.client import Json
from lab.kubernetes.workqueue import WorkQueue
from lab.rancher import machine_flags, resources as r
from lab.rancher.driver import operations
from lab.rancher.driver.driver_flags import Driver, DriverError
from lab.rancher.guest.clusters import Guests
from lab.rancher.world import World

# The driver polls 120 times, every five seconds, until the VM runs and has an address (harvester.md 14.4).
PATIENCE = 600.0
LOOK = 5.0
# Seconds from the VM's address until its node joins.
BOOTSTRAP = 30.0
# Seconds from the failure of a machine until its deletion.
GIVE_UP = 10.0
FINALIZER = "machine.cluster.x-k8s.io"
UNAUTHORIZED = "Unauthorized"


@dataclass
class _Attempt:
    """State of the driver's wait for a VM."""

    namespace: str
    deadline: float


class Machines:
    def __init__(
        self,
        rancher: World,
        harvester: Harvester,
        guests: Guests,
        driver_release: Callable[[], Driver],
        credential_trouble: Callable[[Json, str], str],
    ) -> None:
        self._rancher = rancher
        self._harvester = harvester
        self._guests = guests
        self._driver = driver_release
        self._credential_trouble = credential_trouble
        self._attempts: dict[str, _Attempt] = {}
        self._booting: dict[str, float] = {}

    def run(self) -> None:
        self._queue = WorkQueue(self._rancher.clock, "machines", self._reconcile, workers=16)

        def noticed(old: Json | None, new: Json | None) -> None:
            if new is not None:
                self._queue.add(_key(new))

        def guest_noticed(old: Json | None, new: Json | None) -> None:
            thing = new or old
            if thing is not None:
                self.look_at(thing["metadata"]["name"])

        def credential_noticed(old: Json | None, new: Json | None) -> None:
            for machine in self._rancher[r.MACHINE].all():
                if "deletionTimestamp" in machine["metadata"]:
                    self._queue.add(_key(machine))

        self._rancher[r.MACHINE].listen(noticed)
        for resource in (r.SECRET, r.TOKEN):
            self._rancher[resource].listen(credential_noticed)
        self._harvester[h.VMI].listen(guest_noticed)
        self._harvester[h.VM].listen(guest_noticed)

    def look_at(self, name: str) -> None:
        for machine in self._rancher[r.MACHINE].all():
            if _infra(machine) == name:
                self._queue.add(_key(machine))

    def look_again(self) -> None:
        for machine in self._rancher[r.MACHINE].all():
            self._queue.add(_key(machine))

    @staticmethod
    def available(machine: Json) -> bool:
        running = (machine.get("status") or {}).get("phase") == "Running"
        return running and "deletionTimestamp" not in machine["metadata"]

    async def _reconcile(self, key: str) -> None:
        namespace, name = key.split("/")
        machine = self._rancher[r.MACHINE].get(name, namespace)
        if machine is None:
            return
        if "deletionTimestamp" in machine["metadata"]:
            await self._end(key, machine)
        elif (machine.get("status") or {}).get("phase") == "Failed":
            await self._rancher.clock.sleep(GIVE_UP)
            await self._rancher.remove(r.MACHINE, name, namespace)
        elif key not in self._attempts:
            await self._begin(key, machine)
        else:
            await self._go_on(key, machine)

    # Creation
    async def _begin(self, key: str, machine: Json) -> None:
        cluster = self._rancher[r.CLUSTER].get(machine["spec"]["clusterName"], machine["metadata"]["namespace"])
        infra = self._rancher[r.INFRA_MACHINE].get(_infra(machine), machine["metadata"]["namespace"])
        if cluster is None or infra is None:
            return
        await self._phase(machine, "Provisioning", "InfrastructureReady", "creating server of kind (HarvesterMachine)")
        name = _infra(machine)
        try:
            release = self._driver()
            trouble = self._credential_trouble(cluster, pool_of(machine))
            if trouble:
                raise DriverError("", trouble)
            flags = machine_flags.flags_of(
                infra.get("spec") or {},
                cluster=cluster["metadata"]["name"],
                cluster_id="",
                named=release.labels,
            )
            settings = await operations.create(self._harvester.admin, release, name, flags)
        except DriverError as error:
            await self._fail(machine, error.text)
            return
        self._attempts[key] = _Attempt(settings.namespace, self._rancher.clock.now + PATIENCE)
        self._queue.add_after(key, LOOK)

    async def _go_on(self, key: str, machine: Json) -> None:
        attempt = self._attempts[key]
        instance = self._harvester[h.VMI].get(_infra(machine), attempt.namespace)
        address = operations.address(instance)
        phase = (machine.get("status") or {}).get("phase")
        if phase == "Provisioning":
            if address:
                await self._phase(machine, "Provisioned", "InfrastructureReady", "", address=address)
                self._booting[key] = self._rancher.clock.now + BOOTSTRAP
                self._queue.add_after(key, BOOTSTRAP)
            elif not _cannot_start(instance):
                # The scheduler and KubeVirt take real time, which must not count for the driver's timeout.
                attempt.deadline = self._rancher.clock.now + PATIENCE
                self._queue.add_after(key, LOOK)
            elif self._rancher.clock.now >= attempt.deadline:
                await self._fail(
                    machine, "Too many retries waiting for machine to be Running.  Last error: " + _why(instance)
                )
            else:
                self._queue.add_after(key, LOOK)
        elif phase in ("Provisioned", "Running"):
            await self._follow_guest(key, machine, instance if address else None, attempt)

    async def _follow_guest(self, key: str, machine: Json, instance: Json | None, attempt: _Attempt) -> None:
        guest = await self._guests.of(machine)
        if guest is None or self._rancher.clock.now < self._booting.get(key, 0.0):
            return
        vm = self._harvester[h.VM].get(_infra(machine), attempt.namespace)
        ready = await guest.node(machine, vm, instance)
        if ready:
            reference = {"apiVersion": "v1", "kind": "Node", "name": _infra(machine)}
            await self._phase(machine, "Running", "NodeHealthy", "", node=reference)
        elif (machine.get("status") or {}).get("phase") == "Running":
            await self._phase(
                machine, "Provisioned", "NodeHealthy", "Condition Ready on node is reporting status Unknown"
            )

    async def _fail(self, machine: Json, text: str) -> None:
        """Mark the machine as failed; Rancher deletes and replaces it, without a limit on the attempts."""
        name = _infra(machine)
        message = (
            f"failed creating server [{machine['metadata']['namespace']}/{name}] of kind (HarvesterMachine) for machine"
            f" {machine['metadata']['name']} in infrastructure provider: CreateError: {text}"
        )
        await self._phase(
            machine, "Failed", "InfrastructureReady", message, failureMessage=message, failureReason="CreateError"
        )

    async def _phase(self, machine: Json, phase: str, condition: str, message: str, **more: Any) -> None:
        status: Json = {"phase": phase}
        if "address" in more:
            status["addresses"] = [{"type": "InternalIP", "address": more.pop("address")}]
            status["infrastructureReady"] = True
        if "node" in more:
            status["nodeRef"] = more.pop("node")
        conditions = {one["type"]: one for one in (machine.get("status") or {}).get("conditions") or []}
        said = {"type": condition, "status": "False" if message else "True", "message": message}
        before = conditions.get(condition) or {}
        if any(before.get(name, "") != value for name, value in said.items()):
            conditions[condition] = said | {"lastTransitionTime": timestamp()}
        await self._rancher.write_status(r.MACHINE, machine, status | {"conditions": list(conditions.values())} | more)

    # Removal
    async def _end(self, key: str, machine: Json) -> None:
        name = _infra(machine)
        infra = self._rancher[r.INFRA_MACHINE].get(name, machine["metadata"]["namespace"])
        attempt = self._attempts.get(key)
        namespace = attempt.namespace if attempt else ((infra or {}).get("spec") or {}).get("vmNamespace") or "default"
        guest = await self._guests.of(machine)
        if guest is not None:
            await guest.remove_node(name)
        # Read from the API server, because the cache may not contain a new VM yet.
        if await self._harvester.admin.get_or_none(h.VM.path(name, namespace)) is not None:
            if self._is_locked_out(machine):
                await self._phase(machine, "Deleting", "InfrastructureReady", _not_deleted(machine))
                return
            await operations.remove(self._harvester.admin, name, namespace)
            # The deletion of the VM triggers the next reconcile.
            return
        self._attempts.pop(key, None)
        self._booting.pop(key, None)
        await self._rancher.remove(r.INFRA_MACHINE, name, machine["metadata"]["namespace"])
        await self._rancher.drop_finalizers(r.MACHINE, machine)

    def _is_locked_out(self, machine: Json) -> bool:
        """Return whether the token has expired, so that the driver cannot delete its VM (rancher#44912)."""
        cluster = self._rancher[r.CLUSTER].get(machine["spec"]["clusterName"], machine["metadata"]["namespace"])
        return cluster is not None and self._credential_trouble(cluster, pool_of(machine)) == UNAUTHORIZED


def _not_deleted(machine: Json) -> str:
    return (
        f"failed deleting server [{machine['metadata']['namespace']}/{_infra(machine)}] of kind (HarvesterMachine) for"
        f" machine {machine['metadata']['name']} in infrastructure provider: DeleteError: {UNAUTHORIZED}"
    )


def pool_of(machine: Json) -> str:
    return str((machine["metadata"].get("labels") or {}).get(r.POOL_LABEL, ""))


def body(name: str, namespace: str, machine_set: Json, pool: Json, content: Json) -> tuple[Json, Json]:
    """Return a machine and its infrastructure object, which has the same name."""
    labels = machine_set["spec"]["template"]["metadata"]["labels"] | {r.SET_LABEL: machine_set["metadata"]["name"]}
    annotations = {}
    for field, annotation in (("labels", r.LABELS_ANNOTATION), ("taints", r.TAINTS_ANNOTATION)):
        if pool.get(field):
            annotations[annotation] = json.dumps(pool[field])
    machine = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
            "finalizers": [FINALIZER],
            "ownerReferences": [_owner(machine_set)],
        },
        "spec": {
            "clusterName": machine_set["spec"]["clusterName"],
            "infrastructureRef": {
                "apiVersion": r.INFRA_MACHINE.api_version,
                "kind": r.INFRA_MACHINE.kind,
                "name": name,
                "namespace": namespace,
            },
        },
    }
    return machine, {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": content}


def _owner(machine_set: Json) -> Json:
    metadata = machine_set["metadata"]
    return {
        "apiVersion": r.MACHINE_SET.api_version,
        "kind": "MachineSet",
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _key(machine: Json) -> str:
    return f"{machine['metadata']['namespace']}/{machine['metadata']['name']}"


def _infra(machine: Json) -> str:
    return str(machine["spec"]["infrastructureRef"]["name"])


def _cannot_start(instance: Json | None) -> bool:
    """Return whether the VM cannot be scheduled or has ended."""
    status = (instance or {}).get("status") or {}
    unschedulable = any(one.get("reason") == "Unschedulable" for one in status.get("conditions") or [])
    return unschedulable or status.get("phase") in ("Failed", "Succeeded")


def _why(instance: Json | None) -> str:
    if instance is None:
        return "Maximum number of retries (120) exceeded"
    conditions = (instance.get("status") or {}).get("conditions") or []
    said = [one["message"] for one in conditions if one.get("status") == "False" and one.get("message")]
    return said[0] if said else "Maximum number of retries (120) exceeded"
