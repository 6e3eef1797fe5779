"""Provisioned clusters: a pool becomes a MachineDeployment, MachineSets and Machines; config changes roll it out."""

from __future__ import annotations

from typing import Any

from lab.harvester.node.kubelet import timestamp
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.workqueue import WorkQueue
from lab.rancher import machine_flags, resources as r
from lab.rancher.driver.operations import random_part
from lab.rancher.guest.clusters import Guests
from lab.rancher.provisioning import machines, names, rollout
from lab.rancher.provisioning.machines import Machines
from lab.rancher.provisioning.rollout import next_replicas
from lab.rancher.world import World

FINALIZER = "wrangler.cattle.io/provisioning-cluster-remove"


class Clusters:
    def __init__(self, rancher: World, guests: Guests) -> None:
        self._rancher = rancher
        self._guests = guests

    def run(self) -> None:
        self._queue = WorkQueue(self._rancher.clock, "clusters", self._reconcile, workers=4)

        def cluster_noticed(old: Json | None, new: Json | None) -> None:
            if new is not None:
                self._queue.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")

        def part_noticed(old: Json | None, new: Json | None) -> None:
            thing = new or old or {}
            name = (thing["metadata"].get("labels") or {}).get(r.CLUSTER_NAME_LABEL)
            if name:
                self._queue.add(f"{thing['metadata']['namespace']}/{name}")

        def config_noticed(old: Json | None, new: Json | None) -> None:
            for cluster in self._rancher[r.CLUSTER].all():
                cluster_noticed(None, cluster)

        self._rancher[r.CLUSTER].listen(cluster_noticed)
        self._rancher[r.CONFIG].listen(config_noticed)
        for resource in (r.DEPLOYMENT, r.MACHINE_SET, r.MACHINE):
            self._rancher[resource].listen(part_noticed)

    async def _reconcile(self, key: str) -> None:
        namespace, name = key.split("/")
        cluster = self._rancher[r.CLUSTER].get(name, namespace)
        if cluster is None:
            return
        if "deletionTimestamp" in cluster["metadata"]:
            await self._end(cluster)
            return
        config = cluster["spec"].get("rkeConfig")
        if config is None:
            return
        if FINALIZER not in (cluster["metadata"].get("finalizers") or []):
            cluster = await self._rancher[r.CLUSTER].patch(cluster, {"metadata": {"finalizers": [FINALIZER]}})
        cluster = await self._registered(cluster)
        trouble = []
        wanted = set()
        for pool in config.get("machinePools") or []:
            # A pool without machines counts as no pool.
            if pool.get("quantity", 1) == 0:
                continue
            wanted.add(pool["name"])
            said = await self._pool(cluster, pool)
            if said:
                trouble.append(said)
        await self._drop_pools(cluster, wanted)
        await self._tell(cluster, trouble)

    async def _registered(self, cluster: Json) -> Json:
        if (cluster.get("status") or {}).get("clusterName"):
            return cluster
        identity = f"c-m-{random_part()}{random_part()[:3]}"
        await self._rancher[r.MANAGEMENT_CLUSTER].create(
            {
                "metadata": {"name": identity, "labels": {"provider.cattle.io": "rke2"}},
                "spec": {"displayName": cluster["metadata"]["name"], "fleetWorkspaceName": r.CLUSTERS_NAMESPACE},
            }
        )
        return await self._rancher[r.CLUSTER].patch(
            cluster, {"status": {"clusterName": identity, "ready": False}}, subresource="status"
        )

    # Pools
    async def _pool(self, cluster: Json, pool: Json) -> str:
        namespace, cluster_name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
        config_name = (pool.get("machineConfigRef") or {}).get("name", "")
        config = self._rancher[r.CONFIG].get(config_name, namespace)
        if config is None:
            return f'harvesterconfigs.rke-machine-config.cattle.io "{config_name}" not found'
        if not any(pool.get(role) for role in r.ROLE_LABELS):
            return (
                f"at least one role of etcd, control-plane or worker must be assigned to machinePool [{pool['name']}]"
            )
        if trouble := await self._take_ownership(cluster, config):
            return trouble
        content = machine_flags.content_of(config, pool.get("dynamicSchemaSpec"))
        digest = machine_flags.digest_of({"config": config_name, "content": content})
        deployment = await self._deployment(cluster, pool, self._template_name(cluster_name, pool, digest))
        if pool.get("paused"):
            return ""
        template = await self._template(deployment, digest, content)
        new = await self._machine_set(deployment, digest, template)
        sets = {one["metadata"]["name"]: one for one in self._sets(deployment)}
        sets[new["metadata"]["name"]] = new
        counts = {name: self._count(one) for name, one in sets.items()}
        quantity = int(pool.get("quantity", 1))
        allowed = rollout.limits(pool.get("rollingUpdate"), quantity)
        for name, replicas in next_replicas(quantity, allowed, new["metadata"]["name"], counts).items():
            sets[name] = await self._rancher[r.MACHINE_SET].patch(sets[name], {"spec": {"replicas": replicas}})
        for name, one in sets.items():
            await self._scale(one, pool)
            if name != new["metadata"]["name"] and not one["spec"]["replicas"] and not self._machines(one):
                await self._rancher.remove(r.MACHINE_SET, name, namespace)
        await self._count_up(deployment, list(sets.values()), new["metadata"]["name"])
        return ""

    @staticmethod
    def _template_name(cluster: str, pool: Json, digest: str) -> str:
        return names.concatenated(names.concatenated(cluster, pool["name"]), digest)

    async def _take_ownership(self, cluster: Json, config: Json) -> str:
        """Make the first cluster that uses a machine config its only owner, as Rancher's takeOwnership does."""
        name = cluster["metadata"]["name"]
        owners = config["metadata"].get("ownerReferences") or []
        for owner in owners:
            if (owner["kind"], owner["apiVersion"]) == (r.CLUSTER.kind, r.CLUSTER.api_version):
                path = f"{config['metadata']['namespace']}/{config['metadata']['name']}"
                if owner["name"] != name:
                    return (
                        f"can not use {path} [{r.CONFIG.kind}] because it is already owned by cluster {owner['name']}"
                    )
                return ""
        owner = {
            "apiVersion": r.CLUSTER.api_version,
            "kind": r.CLUSTER.kind,
            "name": name,
            "uid": cluster["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        try:
            await self._rancher[r.CONFIG].patch(config, {"metadata": {"ownerReferences": [*owners, owner]}})
        except ApiError as error:
            if error.status != 404:
                raise
        return ""

    async def _deployment(self, cluster: Json, pool: Json, template: str) -> Json:
        namespace, cluster_name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
        name = names.concatenated(cluster_name, pool["name"])
        labels = {
            r.CLUSTER_NAME_LABEL: cluster_name,
            r.DEPLOYMENT_LABEL: name,
            r.POOL_LABEL: pool["name"],
            **{label: "true" for role, label in r.ROLE_LABELS.items() if pool.get(role)},
        }
        limits = pool.get("rollingUpdate") or {}
        spec = {
            "clusterName": cluster_name,
            "replicas": int(pool.get("quantity", 1)),
            "paused": bool(pool.get("paused")),
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {
                    "maxSurge": limits.get("maxSurge", rollout.DEFAULT_SURGE),
                    "maxUnavailable": limits.get("maxUnavailable", rollout.DEFAULT_UNAVAILABLE),
                },
            },
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "clusterName": cluster_name,
                    "infrastructureRef": {
                        "apiVersion": r.TEMPLATE.api_version,
                        "kind": r.TEMPLATE.kind,
                        "name": template,
                        "namespace": namespace,
                    },
                },
            },
        }
        found = self._rancher[r.DEPLOYMENT].get(name, namespace)
        if found is None:
            metadata = {
                "name": name,
                "namespace": namespace,
                # Labels of the pool; the pool's name is in the template only.
                "labels": {
                    r.CLUSTER_NAME_LABEL: cluster_name,
                    **(pool.get("labels") or {}),
                    **(pool.get("machineDeploymentLabels") or {}),
                },
            }
            return await self._rancher[r.DEPLOYMENT].create({"metadata": metadata, "spec": spec}, namespace)
        if found["spec"] != spec:
            found = await self._rancher[r.DEPLOYMENT].patch(found, {"spec": spec})
        return found

    async def _template(self, deployment: Json, digest: str, content: Json) -> str:
        namespace = deployment["metadata"]["namespace"]
        name = names.concatenated(deployment["metadata"]["name"], digest)
        if self._rancher[r.TEMPLATE].get(name, namespace) is None:
            labels = {r.CLUSTER_NAME_LABEL: deployment["spec"]["clusterName"]}
            await self._rancher[r.TEMPLATE].create(
                {
                    "metadata": {"name": name, "namespace": namespace, "labels": labels},
                    "spec": {"template": {"spec": content}},
                },
                namespace,
            )
        return name

    async def _machine_set(self, deployment: Json, digest: str, template: str) -> Json:
        for one in self._sets(deployment):
            if one["metadata"]["labels"].get(r.TEMPLATE_HASH_LABEL) == digest:
                return one
        namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
        labels = deployment["spec"]["template"]["metadata"]["labels"] | {r.TEMPLATE_HASH_LABEL: digest}
        spec = {
            "clusterName": deployment["spec"]["clusterName"],
            "replicas": 0,
            "template": {
                "metadata": {"labels": labels},
                "spec": deployment["spec"]["template"]["spec"],
            },
        }
        metadata = {"name": names.generated(name, random_part()), "namespace": namespace, "labels": labels}
        return await self._rancher[r.MACHINE_SET].create({"metadata": metadata, "spec": spec}, namespace)

    def _sets(self, deployment: Json) -> list[Json]:
        name, namespace = deployment["metadata"]["name"], deployment["metadata"]["namespace"]
        return [
            one
            for one in self._rancher.labelled(r.MACHINE_SET, r.DEPLOYMENT_LABEL, name)
            if one["metadata"]["namespace"] == namespace and "deletionTimestamp" not in one["metadata"]
        ]

    def _machines(self, machine_set: Json) -> list[Json]:
        return self._rancher.labelled(r.MACHINE, r.SET_LABEL, machine_set["metadata"]["name"])

    def _staying(self, machine_set: Json) -> list[Json]:
        return [one for one in self._machines(machine_set) if "deletionTimestamp" not in one["metadata"]]

    def _count(self, machine_set: Json) -> rollout.Machines:
        ready = sum(Machines.available(one) for one in self._staying(machine_set))
        return rollout.Machines(machine_set["spec"]["replicas"], min(ready, machine_set["spec"]["replicas"]))

    async def _scale(self, machine_set: Json, pool: Json) -> None:
        staying = self._staying(machine_set)
        namespace = machine_set["metadata"]["namespace"]
        surplus = len(staying) - machine_set["spec"]["replicas"]
        template = self._rancher[r.TEMPLATE].get(
            machine_set["spec"]["template"]["spec"]["infrastructureRef"]["name"], namespace
        )
        for _ in range(-surplus):
            name = names.generated(machine_set["metadata"]["name"], random_part())
            content = ((template or {}).get("spec") or {}).get("template", {}).get("spec") or {}
            machine, infra = machines.body(name, namespace, machine_set, pool, content)
            await self._rancher[r.INFRA_MACHINE].create(infra, namespace)
            await self._rancher[r.MACHINE].create(machine, namespace)
        # Remove machines that are not ready first.
        for machine in sorted(staying, key=lambda one: (Machines.available(one), one["metadata"]["name"]))[
            : max(surplus, 0)
        ]:
            await self._rancher.remove(r.MACHINE, machine["metadata"]["name"], namespace)

    async def _count_up(self, deployment: Json, sets: list[Json], new: str) -> None:
        counts = {one["metadata"]["name"]: self._count(one) for one in sets}
        for one in sets:
            count = counts[one["metadata"]["name"]]
            there = len(self._staying(one))
            status = {"replicas": there, "readyReplicas": count.available, "availableReplicas": count.available}
            await self._rancher.write_status(r.MACHINE_SET, one, status)
        ready = sum(count.available for count in counts.values())
        status = {
            "replicas": sum(len(self._staying(one)) for one in sets),
            "updatedReplicas": len(self._staying(next(one for one in sets if one["metadata"]["name"] == new))),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "unavailableReplicas": max(deployment["spec"]["replicas"] - ready, 0),
        }
        await self._rancher.write_status(r.DEPLOYMENT, deployment, status)

    async def _drop_pools(self, cluster: Json, wanted: set[str]) -> bool:
        """Delete pools that are no longer declared, and return whether all of them are gone."""
        namespace, name = cluster["metadata"]["namespace"], cluster["metadata"]["name"]
        clean = True
        for deployment in self._rancher.labelled(r.DEPLOYMENT, r.CLUSTER_NAME_LABEL, name):
            if deployment["spec"]["template"]["metadata"]["labels"][r.POOL_LABEL] in wanted:
                continue
            clean = False
            sets = self._sets(deployment)
            for machine in (one for machine_set in sets for one in self._machines(machine_set)):
                if "deletionTimestamp" not in machine["metadata"]:
                    await self._rancher.remove(r.MACHINE, machine["metadata"]["name"], namespace)
            for machine_set in sets:
                if not self._machines(machine_set):
                    await self._rancher.remove(r.MACHINE_SET, machine_set["metadata"]["name"], namespace)
            if not self._sets(deployment):
                await self._rancher.remove(r.DEPLOYMENT, deployment["metadata"]["name"], namespace)
        return clean

    # The cluster itself
    async def _tell(self, cluster: Json, trouble: list[str]) -> None:
        name = cluster["metadata"]["name"]
        everyone = self._rancher.labelled(r.MACHINE, r.CLUSTER_NAME_LABEL, name)
        waiting = list(trouble)
        waiting += [
            f"machine {machine['metadata']['name']}: {_said(machine)}"
            for machine in everyone
            if not Machines.available(machine)
        ]
        pools = [pool for pool in cluster["spec"]["rkeConfig"].get("machinePools") or [] if pool.get("quantity", 1)]
        for role, called in (("etcdRole", "etcd"), ("controlPlaneRole", "control plane"), ("workerRole", "worker")):
            if not any(pool.get(role) for pool in pools):
                waiting.append(f"waiting for at least one {called} node")
        ready = not waiting and bool(everyone)
        said = "; ".join(waiting)
        conditions = [
            _condition(cluster, kind, ready, said if kind != "Ready" or not ready else "")
            for kind in ("Ready", "Updated", "Provisioned")
        ]
        status: Json = {
            "ready": ready or bool((cluster.get("status") or {}).get("ready") and not trouble),
            "conditions": conditions,
            "observedGeneration": cluster["metadata"].get("generation", 1),
        }
        if ready:
            status["clientSecretName"] = f"{name}-kubeconfig"
        await self._rancher.write_status(r.CLUSTER, cluster, status)

    async def _end(self, cluster: Json) -> None:
        if not await self._drop_pools(cluster, set()):
            return
        identity = (cluster.get("status") or {}).get("clusterName")
        if identity:
            await self._guests.stop(identity)
            await self._rancher.remove(r.MANAGEMENT_CLUSTER, identity)
        for template in self._rancher.labelled(r.TEMPLATE, r.CLUSTER_NAME_LABEL, cluster["metadata"]["name"]):
            await self._rancher.remove(r.TEMPLATE, template["metadata"]["name"], template["metadata"]["namespace"])
        await self._rancher.drop_finalizers(r.CLUSTER, cluster)
        # Rancher's own cluster runs no garbage collector, so its work is done here.
        for config in self._rancher[r.CONFIG].all():
            owners = config["metadata"].get("ownerReferences") or []
            if owners and all(owner["uid"] == cluster["metadata"]["uid"] for owner in owners):
                await self._rancher.remove(r.CONFIG, config["metadata"]["name"], config["metadata"]["namespace"])


def _said(machine: Json) -> str:
    status = machine.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition["status"] != "True" and condition.get("message"):
            return str(condition["message"])
    return f"waiting for it, it is {status.get('phase') or 'pending'}"


def _condition(cluster: Json, kind: str, ready: bool, message: str) -> Json:
    said: dict[str, Any] = {"type": kind, "status": str(ready) if not message else "Unknown", "message": message}
    if kind == "Ready" and not ready:
        said["status"] = "False"
    for one in (cluster.get("status") or {}).get("conditions") or []:
        if one["type"] == kind and all(one.get(key) == value for key, value in said.items()):
            return dict(one)
    return said | {"lastUpdateTime": timestamp()}


def credential_of(cluster: Json, pool: str, secrets: dict[str, Json]) -> tuple[Json | None, str]:
    """Return the credential of a pool's machines, or an error. The pool's credential overrides the cluster's."""
    entries = (cluster["spec"].get("rkeConfig") or {}).get("machinePools") or []
    own = [str(one.get("cloudCredentialSecretName") or "") for one in entries if one.get("name") == pool]
    reference = "".join(own) or str(cluster["spec"].get("cloudCredentialSecretName") or "")
    namespace, _, name = reference.rpartition(":")
    secret = secrets.get(f"{namespace or r.CREDENTIALS_NAMESPACE}/{name}")
    return secret, "" if secret else f'secrets "{name}" not found'
