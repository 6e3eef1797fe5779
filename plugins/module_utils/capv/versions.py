# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""API versions of Cluster API and of its provider for vSphere, as the management cluster serves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import FleetError, join_names
from ..kube.client import ApiClient, Json

CORE = "cluster.x-k8s.io"
BOOTSTRAP = "bootstrap.cluster.x-k8s.io"
CONTROL_PLANE = "controlplane.cluster.x-k8s.io"
INFRASTRUCTURE = "infrastructure.cluster.x-k8s.io"
ADDONS = "addons.cluster.x-k8s.io"
SECRETS = ""

NEW, OLD = "v1beta2", "v1beta1"
# The newest first. Cluster API 1.16 does not serve v1beta1 any more.
KNOWN = (NEW, OLD)
# A resource of each group that has to be served: other providers share the group of the infrastructure.
MARKERS = {
    CORE: "machinedeployments",
    BOOTSTRAP: "kubeadmconfigtemplates",
    CONTROL_PLANE: "kubeadmcontrolplanes",
    INFRASTRUCTURE: "vspheremachinetemplates",
    ADDONS: "clusterresourcesets",
}
PLURALS = {
    "Cluster": (CORE, "clusters"),
    "MachineDeployment": (CORE, "machinedeployments"),
    "MachineSet": (CORE, "machinesets"),
    "Machine": (CORE, "machines"),
    "KubeadmConfigTemplate": (BOOTSTRAP, "kubeadmconfigtemplates"),
    "KubeadmControlPlane": (CONTROL_PLANE, "kubeadmcontrolplanes"),
    "VSphereCluster": (INFRASTRUCTURE, "vsphereclusters"),
    "VSphereMachineTemplate": (INFRASTRUCTURE, "vspheremachinetemplates"),
    "VSphereMachine": (INFRASTRUCTURE, "vspheremachines"),
    "VSphereVM": (INFRASTRUCTURE, "vspherevms"),
    "ClusterResourceSet": (ADDONS, "clusterresourcesets"),
    "Secret": (SECRETS, "secrets"),
}
# What a cluster with a control plane by kubeadm consists of.
KUBEADM_GROUPS = (CORE, BOOTSTRAP, CONTROL_PLANE, INFRASTRUCTURE)


class NotInstalled(FleetError):
    code = "cluster_api_missing"


@dataclass(frozen=True)
class ApiVersions:
    """The version to use of each API group."""

    by_group: Mapping[str, str]

    def serves(self, kind: str) -> bool:
        return PLURALS[kind][0] in (SECRETS, *self.by_group)

    def is_new(self, group: str) -> bool:
        return self.by_group[group] == NEW

    def api_version(self, kind: str) -> str:
        group, _plural = PLURALS[kind]
        return f"{group}/{self.by_group[group]}" if group else "v1"

    def path(self, kind: str, namespace: str, name: str = "") -> str:
        group, plural = PLURALS[kind]
        base = f"/apis/{group}/{self.by_group[group]}" if group else "/api/v1"
        return f"{base}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")

    def reference(self, by: str, kind: str, name: str) -> Json:
        """Return a reference from an object of group `by`. Since v1beta2 it names the group without a version."""
        group, _plural = PLURALS[kind]
        if self.is_new(by):
            return {"apiGroup": group, "kind": kind, "name": name}
        return {"apiVersion": self.api_version(kind), "kind": kind, "name": name}

    def as_dict(self) -> dict[str, str]:
        return dict(sorted(self.by_group.items()))


def discover(api: ApiClient, required: Iterable[str] = (CORE, INFRASTRUCTURE)) -> ApiVersions:
    """Return the newest version of each group that the management cluster serves and this collection knows.

    Groups that are not required may be missing: a control plane can come from another provider than kubeadm.
    """
    needed = frozenset(required)
    answers = api.together([_lookup(api, group, required=group in needed) for group in MARKERS])
    found = dict(zip(MARKERS, answers, strict=True))
    return ApiVersions({group: version for group, version in found.items() if version})


def _lookup(api: ApiClient, group: str, *, required: bool) -> Any:
    def look_up() -> str:
        try:
            return newest(api, group)
        except NotInstalled:
            if required:
                raise
            return ""

    return look_up


def newest(api: ApiClient, group: str) -> str:
    answer = api.get_or_none(f"/apis/{group}") or {}
    served = [str(entry.get("version")) for entry in answer.get("versions") or []]
    for version in KNOWN:
        if version in served:
            resources = (api.get_or_none(f"/apis/{group}/{version}") or {}).get("resources") or []
            if any(resource.get("name") == MARKERS[group] for resource in resources):
                return version
    if served:
        raise NotInstalled(
            f"The management cluster serves {MARKERS[group]}.{group} in none of the versions {', '.join(KNOWN)}."
            f" The group has: {join_names(served)}.",
            hint="Install or upgrade the provider with clusterctl.",
        )
    raise NotInstalled(
        f"The management cluster has no API group {group}.",
        hint="Install Cluster API and its provider for vSphere: clusterctl init --infrastructure vsphere.",
    )
