# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Owner marks and references of objects in Rancher, and which objects may be changed, reused or deleted. Pure."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
OWNER_LABEL = "vgpu.fleet/owner"
COLLECTION = "vgpu.fleet"
# Annotations, because names of clusters and pools may be longer than the value of a label.
CLUSTER_ANNOTATION = "vgpu.fleet/cluster"
POOL_ANNOTATION = "vgpu.fleet/pool"
HARVESTER_ANNOTATION = "vgpu.fleet/harvester"
CREDENTIAL_HARVESTER = "harvestercredentialConfig-clusterId"
CREDENTIALS_NAMESPACE = "cattle-global-data"
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, order=True)
class Reference:
    """A machine pool that refers to a machine config."""

    cluster: str
    pool: str

    def __str__(self) -> str:
        return f"{self.cluster}/{self.pool}"


def marks(owner: str) -> dict[str, str]:
    """Return the labels of an object that the collection creates."""
    return {MANAGED_BY_LABEL: COLLECTION, OWNER_LABEL: owner}


def is_ours(thing: Mapping[str, Any], owner: str) -> bool:
    labels = (thing.get("metadata") or {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in marks(owner).items())


def owner_of(thing: Mapping[str, Any]) -> str | None:
    """Return the owner in an object's mark, or None if the collection did not create the object."""
    labels = (thing.get("metadata") or {}).get("labels") or {}
    return str(labels.get(OWNER_LABEL) or "") if labels.get(MANAGED_BY_LABEL) == COLLECTION else None


def pool_entries(cluster: Mapping[str, Any]) -> list[Json]:
    return list(((cluster.get("spec") or {}).get("rkeConfig") or {}).get("machinePools") or [])


def references(clusters: Iterable[Mapping[str, Any]], config: str) -> set[Reference]:
    """Return all pools that refer to a machine config. Rancher looks for configs only in the cluster's namespace."""
    return {
        Reference(str(cluster["metadata"]["name"]), str(entry.get("name") or ""))
        for cluster in clusters
        for entry in pool_entries(cluster)
        if config and (entry.get("machineConfigRef") or {}).get("name") == config
    }


def owning_clusters(config: Mapping[str, Any]) -> set[str]:
    """Return the clusters that Rancher has made owners of a machine config. No other cluster can use the config."""
    return {
        str(reference.get("name"))
        for reference in (config.get("metadata") or {}).get("ownerReferences") or []
        if reference.get("kind") == "Cluster"
    }


def is_shared(clusters: Iterable[Mapping[str, Any]], config: Mapping[str, Any], mine: Reference) -> bool:
    """Return whether a change of the config could replace machines of other pools than `mine`."""
    others = references(clusters, str(config["metadata"]["name"])) - {mine}
    return bool(others or owning_clusters(config) - {mine.cluster})


def leftover(
    clusters: Sequence[Mapping[str, Any]], configs: Iterable[Mapping[str, Any]], mine: Reference, owner: str
) -> Json | None:
    """Return a config that an interrupted run created for this pool and that no pool refers to."""
    for config in configs:
        metadata = config["metadata"]
        notes = metadata.get("annotations") or {}
        if (
            is_ours(config, owner)
            and (notes.get(CLUSTER_ANNOTATION), notes.get(POOL_ANNOTATION)) == (mine.cluster, mine.pool)
            and not owning_clusters(config)
            and not references(clusters, str(metadata["name"]))
            and "deletionTimestamp" not in metadata
        ):
            return dict(config)
    return None


@dataclass(frozen=True)
class Removal:
    """The objects to delete with a cluster, and a sentence for each object that stays."""

    configs: list[str] = field(default_factory=list)
    secrets: list[Json] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)

    def as_dict(self) -> Json:
        return {"configs": self.configs, "secrets": self.secrets, "kept": self.kept}


def removal(
    cluster: str,
    *,
    namespace: str,
    owner: str,
    clusters: Sequence[Mapping[str, Any]],
    configs: Iterable[Mapping[str, Any]] = (),
    secrets: Iterable[Mapping[str, Any]] = (),
    named: str = "",
    gone: bool = True,
    complete: bool = True,
) -> Removal:
    """Return the objects that may be deleted with a cluster.

    `clusters` are those of all namespaces, with or without the cluster itself; `configs` are those of its namespace.
    `named` is a credential that the user named, which is never deleted. While the cluster is not `gone`, Rancher needs
    the Secrets to remove the machines. If the list of clusters is not `complete`, it is unknown who else uses them.
    """
    found = Removal()
    near = [item for item in clusters if item["metadata"]["namespace"] == namespace]
    mine = [item for item in near if item["metadata"]["name"] == cluster]
    others = [item for item in clusters if item not in mine]
    referred = {(entry.get("machineConfigRef") or {}).get("name") for item in mine for entry in pool_entries(item)}
    for config in configs:
        name = str(config["metadata"]["name"])
        made_for = (config["metadata"].get("annotations") or {}).get(CLUSTER_ANNOTATION)
        if name not in referred and not (is_ours(config, owner) and made_for == cluster):
            continue
        users = {str(reference) for reference in references(near, name) if reference.cluster != cluster}
        reason = _kept_because(config, owner, users | (owning_clusters(config) - {cluster}))
        if reason:
            found.kept.append(f"HarvesterConfig {namespace}/{name}: {reason}.")
        else:
            found.configs.append(name)
    for secret in secrets:
        metadata = secret["metadata"]
        path = f"{metadata['namespace']}/{metadata['name']}"
        users = {str(other["metadata"]["name"]) for other in others if _uses_secret(other, metadata)}
        reason = _kept_because(secret, owner, users)
        if named and _same_secret(named, metadata):
            reason = "rancher_gpu_cluster_credential names it"
        elif not reason and not complete:
            reason = "the clusters of other namespaces cannot be listed, so one of them may use it"
        elif not reason and not gone:
            reason = (
                "Rancher needs it until the machines are gone. To delete it, run the role with state absent again and"
                " rancher_gpu_cluster_wait: true"
            )
        if reason:
            found.kept.append(f"Secret {path}: {reason}.")
        else:
            found.secrets.append({"name": metadata["name"], "namespace": metadata["namespace"]})
    return found


def _kept_because(thing: Mapping[str, Any], owner: str, users: Iterable[str]) -> str:
    if listed := ", ".join(sorted(users)):
        return f"{listed} uses it"
    whose = owner_of(thing)
    if whose is None:
        return "this collection did not make it"
    return "" if whose == owner else f"its owner is {whose}"


def _same_secret(reference: str, metadata: Mapping[str, Any]) -> bool:
    namespace, _colon, name = reference.rpartition(":")
    return (namespace or CREDENTIALS_NAMESPACE, name) == (metadata["namespace"], metadata["name"])


def _uses_secret(cluster: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    spec = cluster.get("spec") or {}
    if _same_secret(str(spec.get("cloudCredentialSecretName") or ""), metadata):
        return True
    for entry in pool_entries(cluster):
        if _same_secret(str(entry.get("cloudCredentialSecretName") or ""), metadata):
            return True
    return f"secret://{metadata['namespace']}:{metadata['name']}" in _provider_configs(cluster)


def _provider_configs(cluster: Mapping[str, Any]) -> set[str]:
    rke = (cluster.get("spec") or {}).get("rkeConfig") or {}
    selected = [selector.get("config") or {} for selector in rke.get("machineSelectorConfig") or []]
    return {
        str(config.get("cloud-provider-config") or "") for config in [*selected, rke.get("machineGlobalConfig") or {}]
    }


def reuse_problem(
    secrets: Sequence[Mapping[str, Any]],
    *,
    owner: str,
    harvester: str,
    cluster: Mapping[str, Any] | None = None,
    adopt: bool = False,
) -> str:
    """Return why an existing Secret of the role's name cannot be used for the cluster, or an empty text if it can.

    The cluster may keep a Secret that it already uses, whoever created it, but never a Secret of another Harvester.
    """
    for secret in secrets:
        metadata = secret["metadata"]
        path, other = f"Secret {metadata['namespace']}/{metadata['name']}", _harvester_of(secret)
        if other and other != harvester:
            return (
                f"{path} is for Harvester {other}, not for {harvester}: the machines would be made there. Delete it if"
                " nobody needs it, or give the cluster another name."
            )
        used = cluster is not None and _uses_secret(cluster, metadata)
        whose = owner_of(secret)
        if used or adopt or whose == owner:
            continue
        made = "was not made by this collection" if whose is None else f"belongs to {whose}"
        return (
            f"{path} exists and {made}. Delete it if nobody needs it, set rancher_gpu_cluster_adopt: true to use it for"
            " this cluster, or give the cluster another name."
        )
    return ""


def _harvester_of(secret: Mapping[str, Any]) -> str:
    """Return the Harvester of a credential or a kubeconfig, or an empty text if unknown."""
    noted = (secret["metadata"].get("annotations") or {}).get(HARVESTER_ANNOTATION)
    encoded = (secret.get("data") or {}).get(CREDENTIAL_HARVESTER)
    try:
        return base64.b64decode(encoded).decode() if encoded else str(noted or "")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return str(noted or "")
