"""Cluster API's own controllers: clusters, control planes, deployments and machines.

They are simulated. The real controller of the control plane looks after etcd in the pods of the new cluster, which the
lab's nodes do not run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
from typing import Any

from lab.capv.conditions import set_condition
from lab.capv.guests import Guests
from lab.capv.provider import Provider, reference_to
from lab.capv.resources import (
    CLONED_FROM,
    CLUSTER_LABEL,
    CONFIG_HASH,
    CONTROL_PLANE_LABEL,
    DEPLOYMENT_LABEL,
    FINALIZER,
    SECRET,
    SET_LABEL,
    Resources,
)
from lab.capv.vcenter import OperationFailed
from lab.kubernetes.client import Json
from lab.kubernetes.resource import Resource
from lab.kubernetes.workqueue import WorkQueue
from lab.rancher.provisioning.rollout import Machines, limits, next_replicas
from lab.rancher.world import World

log = logging.getLogger(__name__)

RETRY_SECONDS = 10.0
BOOT_SECONDS = 20.0
LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Clusters:
    def __init__(self, world: World, resources: Resources, provider: Provider, guests: Guests) -> None:
        self._world = world
        self._r = resources
        self._provider = provider
        self._guests = guests
        self._booted: set[str] = set()

    def run(self) -> None:
        self._queue = WorkQueue(self._world.clock, "clusters", self._reconcile, workers=1)
        for resource in self._r.watched:
            self._world[resource].listen(self._noticed)
        self.look_again()

    def look_again(self) -> None:
        for cluster in self._world[self._r.cluster].all():
            self._queue.add(_key(cluster))

    def _noticed(self, old: Json | None, new: Json | None) -> None:
        thing = new or old or {}
        metadata = thing["metadata"]
        labels = metadata.get("labels") or {}
        name = (thing.get("spec") or {}).get("clusterName") or labels.get(CLUSTER_LABEL)
        self._queue.add(f"{metadata.get('namespace')}/{name or metadata['name']}")

    # Reading
    def _of(self, resource: Resource, cluster: Json) -> list[Json]:
        """Return the objects of a cluster by name, the oldest first."""
        name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
        found = [
            one
            for one in self._world[resource].all()
            if one["metadata"]["namespace"] == namespace and one["spec"].get("clusterName") == name
        ]
        return sorted(found, key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]))

    def _infra(self, machine: Json) -> Json | None:
        return self._world[self._r.vsphere_machine].get(machine["metadata"]["name"], machine["metadata"]["namespace"])

    def _ready(self, machine: Json) -> bool:
        conditions = (machine.get("status") or {}).get("conditions") or []
        wanted = "NodeReady" if self._r.new else "NodeHealthy"
        return any(one["type"] == wanted and one["status"] == "True" for one in conditions)

    # Clusters
    async def _reconcile(self, key: str) -> None:
        namespace, name = key.split("/")
        cluster = self._world[self._r.cluster].get(name, namespace)
        if cluster is None:
            return
        if "deletionTimestamp" in cluster["metadata"]:
            await self._delete(cluster)
            return
        if not cluster["metadata"].get("finalizers"):
            await self._world[self._r.cluster].patch(cluster, {"metadata": {"finalizers": [_finalizer("cluster")]}})
        await self._adopt(cluster)
        if not await self._provider.cluster_ready(cluster):
            self._queue.add_after(key, RETRY_SECONDS)
            return
        control_plane = self._control_plane(cluster)
        machines = self._of(self._r.machine, cluster)
        for machine in machines:
            await self._machine(cluster, machine)
        if control_plane is not None:
            await self._scale_control_plane(cluster, control_plane)
        for deployment in self._of(self._r.deployment, cluster):
            await self._deploy(cluster, deployment)
        await self._orphans(cluster)
        await self._status(cluster)
        await self._addons(cluster)

    def _control_plane(self, cluster: Json) -> Json | None:
        reference = cluster["spec"].get("controlPlaneRef") or {}
        return self._world[self._r.control_plane].get(
            str(reference.get("name") or ""), cluster["metadata"]["namespace"]
        )

    async def _adopt(self, cluster: Json) -> None:
        """Become the owner of the objects that the cluster refers to, and of the templates of its machines."""
        owner, namespace = reference_to(self._r.cluster.api_version, cluster), cluster["metadata"]["namespace"]
        wanted: list[tuple[Resource, str]] = [
            (self._r.vsphere_cluster, str((cluster["spec"].get("infrastructureRef") or {}).get("name") or "")),
            (self._r.control_plane, str((cluster["spec"].get("controlPlaneRef") or {}).get("name") or "")),
        ]
        for deployment in self._of(self._r.deployment, cluster):
            spec = deployment["spec"]["template"]["spec"]
            wanted += [
                (self._r.deployment, deployment["metadata"]["name"]),
                (self._r.template, str(spec["infrastructureRef"]["name"])),
                (self._r.config_template, str((spec["bootstrap"].get("configRef") or {}).get("name") or "")),
            ]
        control_plane = self._control_plane(cluster)
        if control_plane is not None:
            wanted.append((self._r.template, self._template_of(control_plane)))
        for resource, name in wanted:
            found = self._world[resource].get(name, namespace)
            owners = (found or {"metadata": {}})["metadata"].get("ownerReferences") or []
            if found is not None and owner not in owners:
                await self._world[resource].patch(found, {"metadata": {"ownerReferences": [*owners, owner]}})

    async def _delete(self, cluster: Json) -> None:
        """Delete the machines first, then everything that belongs to the cluster."""
        name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
        for resource in (self._r.deployment, self._r.machine_set):
            for one in self._of(resource, cluster):
                await self._world.remove(resource, one["metadata"]["name"], namespace)
        for machine in self._of(self._r.machine, cluster):
            if "deletionTimestamp" not in machine["metadata"]:
                await self._world.remove(self._r.machine, machine["metadata"]["name"], namespace)
        for machine in self._of(self._r.machine, cluster):
            await self._delete_machine(cluster, machine)
        if self._of(self._r.machine, cluster):
            return
        await self._guests.stop(cluster)
        owner = reference_to(self._r.cluster.api_version, cluster)
        await self._provider.delete_cluster(cluster)
        for resource in (self._r.control_plane, self._r.template, self._r.config_template, SECRET):
            for one in self._world[resource].all():
                if owner in (one["metadata"].get("ownerReferences") or []):
                    await self._world.remove(resource, one["metadata"]["name"], namespace)
        await self._world.drop_finalizers(self._r.cluster, cluster)
        log.info("cluster %s is gone", name)

    async def _orphans(self, cluster: Json) -> None:
        """Delete the sets of deleted deployments, and the machines of deleted sets."""
        namespace = cluster["metadata"]["namespace"]
        for one in self._of(self._r.machine_set, cluster):
            name = one["metadata"]["labels"][DEPLOYMENT_LABEL]
            if self._world[self._r.deployment].get(name, namespace) is None:
                await self._world.remove(self._r.machine_set, one["metadata"]["name"], namespace)
        for machine in self._of(self._r.machine, cluster):
            owner = machine["metadata"]["labels"].get(SET_LABEL)
            gone = owner and self._world[self._r.machine_set].get(owner, namespace) is None
            if gone and "deletionTimestamp" not in machine["metadata"]:
                await self._world.remove(self._r.machine, machine["metadata"]["name"], namespace)

    # Machines
    async def _make_machine(self, cluster: Json, name: str, labels: Json, template: str, extra: Json) -> None:
        namespace = cluster["metadata"]["namespace"]
        found = self._world[self._r.template].get(template, namespace)
        if found is None:
            raise ValueError(f"VSphereMachineTemplate {template} not found")
        labels = labels | {CLUSTER_LABEL: cluster["metadata"]["name"]}
        group = "infrastructure.cluster.x-k8s.io"
        kind = {"apiGroup": group} if self._r.new else {"apiVersion": f"{group}/{self._r.version}"}
        own = await self._world[self._r.vsphere_machine].create(
            {
                "metadata": {"name": name, "labels": labels, "annotations": {CLONED_FROM: template}},
                "spec": found["spec"]["template"]["spec"],
            },
            namespace,
        )
        await self._world[self._r.machine].create(
            {
                "metadata": {
                    "name": name,
                    "labels": labels,
                    "annotations": extra.pop("annotations", {}),
                    "finalizers": [_finalizer("machine")],
                },
                "spec": {
                    "clusterName": cluster["metadata"]["name"],
                    "bootstrap": {"dataSecretName": name},
                    "infrastructureRef": kind | {"kind": own["kind"], "name": name},
                    **extra,
                },
            },
            namespace,
        )

    async def _machine(self, cluster: Json, machine: Json) -> None:
        if "deletionTimestamp" in machine["metadata"]:
            await self._delete_machine(cluster, machine)
            return
        own = self._infra(machine)
        if own is None:
            return
        initialized = self._guests.started(cluster)
        try:
            vm = await self._provider.machine(cluster, machine, own, initialized=initialized)
        except OperationFailed:
            self._queue.add_after(_key(cluster), RETRY_SECONDS)
            vm = None
        name = machine["metadata"]["name"]
        if vm is not None and name not in self._booted:
            await self._world.clock.sleep(BOOT_SECONDS)
            self._booted.add(name)
        joined, trouble = await self._guests.node(cluster, machine, own, running=vm is not None)
        await self._machine_status(machine, provisioned=vm is not None, joined=joined, trouble=trouble)

    async def _machine_status(self, machine: Json, *, provisioned: bool, joined: bool, trouble: str) -> None:
        name, new = machine["metadata"]["name"], self._r.new
        before = machine.get("status") or {}
        conditions = before.get("conditions") or []
        conditions = set_condition(
            conditions, "InfrastructureReady", provisioned, "" if provisioned else "NotReady", new=new
        )
        healthy = joined and not trouble
        kind, reason = ("NodeReady", "NodeNotReady") if new else ("NodeHealthy", "NodeConditionsFailed")
        if joined:
            conditions = set_condition(conditions, kind, healthy, "" if healthy else reason, trouble, new=new)
        status: Json = {"phase": "Running" if joined else "Provisioning", "conditions": conditions}
        if joined:
            node = {"name": name}
            status["nodeRef"] = node if new else node | {"kind": "Node", "apiVersion": "v1"}
        await self._world.write_status(self._r.machine, machine, status)

    async def _delete_machine(self, cluster: Json, machine: Json) -> None:
        name = machine["metadata"]["name"]
        try:
            await self._provider.delete_machine(cluster, name)
        except OperationFailed as error:
            log.info("machine %s: %s", name, error)
            self._queue.add_after(_key(cluster), RETRY_SECONDS)
            return
        await self._guests.remove_node(cluster, name)
        self._booted.discard(name)
        await self._world.drop_finalizers(self._r.machine, machine)
        # The cache has to know before anything counts machines.
        await self._world[self._r.machine].sync()

    # The control plane
    def _template_of(self, control_plane: Json) -> str:
        template = control_plane["spec"]["machineTemplate"]
        reference = template["spec"]["infrastructureRef"] if self._r.new else template["infrastructureRef"]
        return str(reference["name"])

    def _surge_of(self, control_plane: Json) -> int:
        spec = control_plane["spec"]
        strategy = (spec.get("rollout") or {}).get("strategy") if self._r.new else spec.get("rolloutStrategy")
        value = ((strategy or {}).get("rollingUpdate") or {}).get("maxSurge")
        return 1 if value is None else int(value)

    async def _scale_control_plane(self, cluster: Json, control_plane: Json) -> None:
        """Create and delete one machine at a time, and only while all others are ready."""
        spec, namespace = control_plane["spec"], cluster["metadata"]["namespace"]
        template, replicas = self._template_of(control_plane), int(spec.get("replicas") or 1)
        content = json.dumps([spec.get("kubeadmConfigSpec"), spec["version"]], sort_keys=True)
        wanted = hashlib.sha256(content.encode()).hexdigest()[:12]
        machines = [
            one for one in self._of(self._r.machine, cluster) if CONTROL_PLANE_LABEL in one["metadata"]["labels"]
        ]
        leaving = [one for one in machines if "deletionTimestamp" in one["metadata"]]
        current = [one for one in machines if self._is_current(one, template, wanted)]
        outdated = [one for one in machines if one not in current]
        surge = self._surge_of(control_plane)
        if not leaving and all(self._ready(one) for one in machines):
            if len(machines) < replicas or (outdated and surge and len(machines) < replicas + surge):
                extra = {"version": spec["version"], "annotations": {CONFIG_HASH: wanted}}
                name = f"{control_plane['metadata']['name']}-{_suffix()}"
                await self._make_machine(cluster, name, {CONTROL_PLANE_LABEL: ""}, template, extra)
            elif outdated and len(machines) > replicas - (0 if surge else 1):
                await self._world.remove(self._r.machine, outdated[0]["metadata"]["name"], namespace)
        ready = sum(self._ready(one) for one in machines)
        status: Json = {
            "observedGeneration": control_plane["metadata"]["generation"],
            "replicas": len(machines),
            "readyReplicas": ready,
            ("upToDateReplicas" if self._r.new else "updatedReplicas"): len(current),
        }
        if not self._r.new:
            status |= {"initialized": self._guests.started(cluster), "unavailableReplicas": len(machines) - ready}
        await self._world.write_status(self._r.control_plane, control_plane, status)

    def _is_current(self, machine: Json, template: str, config: str) -> bool:
        own = self._infra(machine) or {"metadata": {}}
        cloned = (own["metadata"].get("annotations") or {}).get(CLONED_FROM)
        return cloned == template and (machine["metadata"].get("annotations") or {}).get(CONFIG_HASH) == config

    # Deployments
    async def _deploy(self, cluster: Json, deployment: Json) -> None:
        if "deletionTimestamp" in deployment["metadata"]:
            return
        spec, name = deployment["spec"], deployment["metadata"]["name"]
        namespace, replicas = cluster["metadata"]["namespace"], int(spec.get("replicas") or 0)
        wanted = _set_name(name, spec["template"])
        sets = {
            one["metadata"]["name"]: one
            for one in self._of(self._r.machine_set, cluster)
            if one["metadata"]["labels"].get(DEPLOYMENT_LABEL) == name
        }
        if wanted not in sets:
            sets[wanted] = await self._make_set(cluster, deployment, wanted)
        by_set = {one: self._machines_of(cluster, one) for one in sets}
        strategy = (spec.get("rollout") or {}).get("strategy") if self._r.new else spec.get("strategy")
        allowed = limits((strategy or {}).get("rollingUpdate"), replicas)
        counted = {
            one: Machines(int(found["spec"].get("replicas") or 0), sum(self._ready(each) for each in by_set[one]))
            for one, found in sets.items()
        }
        for one, number in next_replicas(replicas, allowed, wanted, counted).items():
            sets[one] = await self._world[self._r.machine_set].patch(sets[one], {"spec": {"replicas": number}})
        for one, found in sets.items():
            await self._fill(cluster, found, by_set[one])
            if one != wanted and not found["spec"].get("replicas") and not by_set[one]:
                await self._world.remove(self._r.machine_set, one, namespace)
        machines = [machine for each in by_set.values() for machine in each]
        ready = sum(self._ready(machine) for machine in machines)
        status: Json = {
            "observedGeneration": deployment["metadata"]["generation"],
            "replicas": len(machines),
            "readyReplicas": ready,
            "availableReplicas": ready,
            ("upToDateReplicas" if self._r.new else "updatedReplicas"): len(by_set[wanted]),
        }
        await self._world.write_status(self._r.deployment, deployment, status)

    def _machines_of(self, cluster: Json, name: str) -> list[Json]:
        return [one for one in self._of(self._r.machine, cluster) if one["metadata"]["labels"].get(SET_LABEL) == name]

    async def _make_set(self, cluster: Json, deployment: Json, name: str) -> Json:
        labels = {CLUSTER_LABEL: cluster["metadata"]["name"], DEPLOYMENT_LABEL: deployment["metadata"]["name"]}
        template = deployment["spec"]["template"]
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "clusterName": cluster["metadata"]["name"],
                "replicas": 0,
                "selector": {"matchLabels": labels | {SET_LABEL: name}},
                "template": {"metadata": {"labels": labels | {SET_LABEL: name}}, "spec": template["spec"]},
            },
        }
        return await self._world[self._r.machine_set].create(body, cluster["metadata"]["namespace"])

    async def _fill(self, cluster: Json, found: Json, machines: list[Json]) -> None:
        staying = [one for one in machines if "deletionTimestamp" not in one["metadata"]]
        replicas = int(found["spec"].get("replicas") or 0)
        template = found["spec"]["template"]
        for _machine in range(replicas - len(staying)):
            extra = {"version": template["spec"]["version"]} if "version" in template["spec"] else {}
            await self._make_machine(
                cluster,
                f"{found['metadata']['name']}-{_suffix()}",
                template["metadata"]["labels"],
                str(template["spec"]["infrastructureRef"]["name"]),
                extra,
            )
        # Machines that are not ready go first.
        for machine in sorted(staying, key=self._ready)[: max(0, len(staying) - replicas)]:
            await self._world.remove(self._r.machine, machine["metadata"]["name"], machine["metadata"]["namespace"])

    # The rest
    async def _status(self, cluster: Json) -> None:
        initialized = self._guests.started(cluster)
        status: Json = {"phase": "Provisioned"}
        if self._r.new:
            status["initialization"] = {"infrastructureProvisioned": True, "controlPlaneInitialized": initialized}
        else:
            status |= {"infrastructureReady": True, "controlPlaneReady": initialized}
        await self._world.write_status(self._r.cluster, cluster, status)
        if initialized:
            await self._guests.publish_kubeconfig(cluster, reference_to(self._r.cluster.api_version, cluster))

    async def _addons(self, cluster: Json) -> None:
        labels = cluster["metadata"].get("labels") or {}
        for one in self._world[self._r.resource_set].all():
            selector = one["spec"]["clusterSelector"].get("matchLabels") or {}
            if one["metadata"]["namespace"] == cluster["metadata"]["namespace"] and selector.items() <= labels.items():
                for resource in one["spec"].get("resources") or []:
                    secret = self._world[SECRET].get(resource["name"], one["metadata"]["namespace"])
                    if secret is not None and await self._guests.apply(cluster, secret):
                        self._queue.add(_key(cluster))


def _key(thing: Json) -> str:
    return f"{thing['metadata']['namespace']}/{thing['metadata']['name']}"


def _finalizer(kind: str) -> str:
    return f"{kind}.{FINALIZER}"


def _suffix() -> str:
    return "".join(random.choices(LETTERS, k=5))


def _set_name(deployment: str, template: Any) -> str:
    digest = hashlib.sha256(json.dumps(template["spec"], sort_keys=True).encode()).hexdigest()
    return f"{deployment}-{digest[:5]}"
