# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Client for Rancher: clusters with their pools, machines, and the connection to their Harvester."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from ..errors import FleetError, did_you_mean, join_names
from ..harvester import paths as r
from ..harvester.cluster import Cluster
from ..harvester.read import snapshot as snapshots
from ..kube import connection as access
from ..kube.client import ApiClient, Forbidden, Json, NotFound
from ..kube.connection import ConnectionConfig
from ..kube.objects import ObjectList
from .compatibility import VERSION_SETTING
from .machine_config import MachineConfig
from .machine_driver import NODE_DRIVER, MachineDriver
from .ownership import CREDENTIALS_NAMESPACE, pool_entries
from .pool import Pool

PROXY = "/k8s/clusters/"
CREDENTIAL_PREFIX = "harvestercredentialConfig-"
CLUSTER_LABEL = "cluster.x-k8s.io/cluster-name"
POOL_LABEL = "rke.cattle.io/rke-machine-pool-name"


class ClusterNotFound(FleetError):
    code = "cluster_not_found"


class NoHarvester(FleetError):
    code = "no_harvester"


def clusters_path(namespace: str) -> str:
    return f"/apis/provisioning.cattle.io/v1/namespaces/{namespace}/clusters"


def configs_path(namespace: str) -> str:
    return f"/apis/rke-machine-config.cattle.io/v1/namespaces/{namespace}/harvesterconfigs"


def machines_path(namespace: str) -> str:
    return f"/apis/cluster.x-k8s.io/v1beta1/namespaces/{namespace}/machines"


def deployments_path(namespace: str) -> str:
    return f"/apis/cluster.x-k8s.io/v1beta1/namespaces/{namespace}/machinedeployments"


@dataclass(frozen=True)
class RancherSnapshot:
    """The lists of one read, all of one namespace, by `namespace/name`."""

    clusters: ObjectList
    configs: ObjectList
    machines: ObjectList

    def pools(self, cluster: Json) -> list[Pool]:
        return [self._pool(cluster, entry) for entry in pool_entries(cluster)]

    def _pool(self, cluster: Json, entry: Json) -> Pool:
        name = (entry.get("machineConfigRef") or {}).get("name", "")
        found = self.configs.items.get(f"{cluster['metadata']['namespace']}/{name}") or {}
        fields = {key: value for key, value in found.items() if key not in ("apiVersion", "kind", "metadata")}
        return Pool(entry, MachineConfig(fields))

    def machines_of(self, cluster: Json, pool: str) -> list[Json]:
        """Return the machines of a pool that are not being deleted, ordered by name."""
        return [
            machine
            for _key, machine in sorted(self.machines.items.items())
            if (machine["metadata"].get("labels") or {}).get(CLUSTER_LABEL) == cluster["metadata"]["name"]
            and (machine["metadata"].get("labels") or {}).get(POOL_LABEL) == pool
            and "deletionTimestamp" not in machine["metadata"]
        ]


def credential_reference(cluster: Json, entry: Json) -> str:
    """Return the cloud credential that Rancher creates a pool's machines with: the pool's own, or the cluster's."""
    spec = cluster.get("spec") or {}
    return str(entry.get("cloudCredentialSecretName") or spec.get("cloudCredentialSecretName") or "")


def is_deployment_of(deployment: Json, cluster: str, pool: str) -> bool:
    """Return whether a MachineDeployment belongs to a pool. Rancher shortens its name to 63 characters, with a hash."""
    spec = deployment.get("spec") or {}
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    return spec.get("clusterName") == cluster and labels.get(POOL_LABEL) == pool


def vm_of(machine: Json) -> str:
    """Return the name of a machine's VM: that of its infrastructure, in older versions not the machine's own."""
    reference = (machine.get("spec") or {}).get("infrastructureRef") or {}
    return str(reference.get("name") or machine["metadata"]["name"])


def _unscheduled(thing: Json) -> str:
    for condition in (thing.get("status") or {}).get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return str(condition.get("message") or "").rstrip(".")
    return ""


class Rancher:
    def __init__(self, params: Mapping[str, Any], namespace: str) -> None:
        self._params = params
        self._access = access.from_options(params)
        self.api = ApiClient(self._access, fail_fast=params.get("fail_fast", True))
        self.namespace = namespace
        self._credentials: dict[str, Json | None] = {}

    def read(self) -> RancherSnapshot:
        def listed(path: str) -> ObjectList:
            try:
                return ObjectList.of(self.api.get(path))
            except NotFound as error:
                raise ClusterNotFound(
                    f"{self._access.host} provisions no clusters on Harvester: it has no {path.rsplit('/', 1)[-1]}.",
                    hint="Connect to Rancher itself: https://rancher.example/k8s/clusters/local.",
                ) from error

        paths = (clusters_path(self.namespace), configs_path(self.namespace), machines_path(self.namespace))
        clusters, configs, machines = self.api.together([partial(listed, path) for path in paths])
        return RancherSnapshot(clusters, configs, machines)

    def find(self, reading: RancherSnapshot, name: str) -> Json:
        found = reading.clusters.items.get(f"{self.namespace}/{name}")
        if found is None:
            there = [key.split("/")[1] for key in reading.clusters.items]
            alike = did_you_mean(name, there, limit=2)
            hint = f"Did you mean {' or '.join(alike)}?" if alike else f"Clusters there: {join_names(there)}."
            raise ClusterNotFound(f"There is no cluster {name} in namespace {self.namespace}.", hint=hint)
        if (found.get("spec") or {}).get("rkeConfig") is None:
            raise ClusterNotFound(
                f"Cluster {name} was not provisioned by Rancher, so it has no machine pools.",
                hint="Imported clusters are changed where they were made.",
            )
        return found

    def machine_driver(self) -> MachineDriver:
        """Return the machine driver for Harvester that this Rancher uses."""
        try:
            return MachineDriver.of(self.api.get_or_none(NODE_DRIVER))
        except Forbidden:
            return MachineDriver(problem="this user must not read NodeDriver harvester")

    def version(self) -> str | None:
        """Return the version of this Rancher, or None if it cannot be read."""
        try:
            return str((self.api.get_or_none(VERSION_SETTING) or {}).get("value") or "") or None
        except Forbidden:
            return None

    # Harvester
    def credential(self, reference: str) -> Json | None:
        """Return the content of a cloud credential, or None if it is missing or must not be read."""
        if reference not in self._credentials:
            self._credentials[reference] = self._read_credential(reference)
        return self._credentials[reference]

    def _read_credential(self, reference: str) -> Json | None:
        namespace, _colon, name = reference.rpartition(":")
        try:
            secret = self.api.get_or_none(f"/api/v1/namespaces/{namespace or CREDENTIALS_NAMESPACE}/secrets/{name}")
        except Forbidden:
            return None
        if secret is None:
            return None
        try:
            return {
                key.removeprefix(CREDENTIAL_PREFIX): base64.b64decode(value).decode()
                for key, value in (secret.get("data") or {}).items()
                if key.startswith(CREDENTIAL_PREFIX)
            }
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return None

    def harvester_of(self, cluster: Json, entry: Json) -> str | None:
        """Return the id in Rancher of the Harvester on which a pool's machines are created, or None if unknown."""
        reference = credential_reference(cluster, entry)
        return (self.credential(reference) or {}).get("clusterId") if reference else None

    def harvester(self, cluster: Json, entry: Json, identity: str | None) -> Cluster:
        """Return the Harvester on which a pool's machines are created."""
        api, version = ApiClient(self._way(cluster, entry, identity)), self._params.get("harvester_version")
        return Cluster(api, snapshots.read(api, version), version)

    def unscheduled(self, cluster: Json, entry: Json, identity: str | None) -> dict[str, str]:
        """Return the scheduler's message for VMs that no node accepts, by namespace and name of the VM.

        A VM's own condition keeps the first obstacle, such as a disk that did not exist yet, and is not updated with
        the next. Its pod is.
        """
        api = ApiClient(self._way(cluster, entry, identity))
        instances = ObjectList.of(api.get(r.INSTANCES)).items.items()
        said = {path: _unscheduled(instance) for path, instance in instances}
        try:
            pods = api.get("/api/v1/pods", labelSelector="kubevirt.io=virt-launcher")["items"]
        except Forbidden:
            pods = []
        for pod in pods:
            # Long names are shortened in labels, but not in annotations.
            vm = (pod["metadata"].get("annotations") or {}).get("kubevirt.io/domain")
            said[f"{pod['metadata']['namespace']}/{vm}"] = _unscheduled(pod)
        return {path: text for path, text in said.items() if text}

    def _way(self, cluster: Json, entry: Json, identity: str | None) -> ConnectionConfig:
        identity = identity or self.harvester_of(cluster, entry)
        front, proxied, _local = self._access.host.partition(PROXY)
        if proxied and identity:
            return replace(self._access, host=f"{front}{PROXY}{identity}")
        reference = credential_reference(cluster, entry)
        content = (self.credential(reference) or {}).get("kubeconfigContent") if reference else None
        if not content:
            raise NoHarvester(
                f"It is unknown on which Harvester the machines of cluster {cluster['metadata']['name']} are created:"
                f" the cloud credential {reference or '(none)'} cannot be read, or does not name one.",
                hint="Set harvester_cluster to the id of the Harvester in Rancher, and connect through its proxy.",
            )
        import yaml

        return access.from_options({"kubeconfig": yaml.safe_load(content)})

    @cached_property
    def proxied(self) -> bool:
        return PROXY in self._access.host
