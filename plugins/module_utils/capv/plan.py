# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Comparison of the objects of a cluster with the requested ones: what to write and what to delete. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import FleetError, join_names
from . import manifests
from .machines import CLONED_FROM, ClusterObjects, records
from .ownership import belongs, is_ours, whose
from .request import ClusterRequest
from .versions import ApiVersions

Json = dict[str, Any]

CREATE, UPDATE, DELETE = "create", "update", "delete"
# Kinds that the provider or Cluster API never changes. Content decides their name.
TEMPLATES = ("VSphereMachineTemplate", "KubeadmConfigTemplate")
READ_KINDS = (
    "Cluster",
    "VSphereCluster",
    "KubeadmControlPlane",
    "MachineDeployment",
    "MachineSet",
    "Machine",
    "VSphereMachineTemplate",
    "KubeadmConfigTemplate",
    "VSphereMachine",
    "VSphereVM",
    "ClusterResourceSet",
    "Secret",
)


class NotOurs(FleetError):
    code = "not_owned"


@dataclass(frozen=True)
class Step:
    action: str
    kind: str
    name: str
    # The object to write; what is secret in it is never shown.
    body: Json = field(default_factory=dict, repr=False)
    # The uid of an object to delete: a new object of that name is not the one that was read.
    uid: str = ""

    @property
    def said(self) -> str:
        return f"{self.action} {self.kind} {self.name}"


@dataclass(frozen=True)
class Namespace:
    """All objects of a namespace that matter for clusters, by kind and name."""

    by_kind: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)

    def get(self, kind: str, name: str) -> Json | None:
        return self.by_kind.get(kind, {}).get(name)

    def all(self, kind: str) -> list[Json]:
        return list(self.by_kind.get(kind, {}).values())

    def machine_objects(self, cluster: str) -> ClusterObjects:
        prefix = f"{cluster}-"
        pools = {name: name.removeprefix(prefix) for name in self.by_kind.get("MachineDeployment", {})}
        return ClusterObjects(self.all("Machine"), self.all("VSphereMachine"), self.all("VSphereVM"), pools)


@dataclass(frozen=True)
class Plan:
    steps: tuple[Step, ...] = ()
    # Sentences about objects that stay although they could be expected to go.
    kept: tuple[str, ...] = ()
    # Names of the groups whose machines are replaced.
    rolls: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        return bool(self.steps)


# Creating and changing
def plan(request: ClusterRequest, versions: ApiVersions, there: Namespace) -> Plan:
    """Return the steps to the requested cluster. Raise NotOurs for objects of these names that others made."""
    wanted = manifests.objects(request, versions)
    existing = [(body, there.get(body["kind"], body["metadata"]["name"])) for body in wanted]
    foreign = [found for _body, found in existing if found and not is_ours(found, request.owner, request.name)]
    if foreign:
        raise _refusal(foreign, "so the cluster is not created", hint="Choose another name for the cluster.")
    steps = [step for body, found in existing if (step := _step(body, found))]
    gone, kept = _pools(request, there)
    unused = unused_templates(request, there, wanted, ignoring=[step.name for step in gone])
    rolls = tuple(group.name for group in request.groups if _rolls(request, group.name, there))
    return Plan((*steps, *gone, *unused), tuple(kept), rolls)


def _refusal(foreign: Sequence[Json], consequence: str, hint: str) -> NotOurs:
    said = "; ".join(f"{item['kind']} {item['metadata']['name']} exists and {whose(item)}" for item in foreign)
    return NotOurs(f"{said}, {consequence}.", hint=hint)


def _step(body: Json, found: Json | None) -> Step | None:
    kind, name = str(body["kind"]), str(body["metadata"]["name"])
    if found is None:
        return Step(CREATE, kind, name, body)
    if kind in TEMPLATES:
        return None
    content = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    # The hash shows that a field is not requested any more, which the object alone does not.
    same = contained(content, found) and ("annotations" not in body["metadata"] or _noted(body) == _noted(found))
    return None if same else Step(UPDATE, kind, name, body)


def _noted(thing: Json) -> str | None:
    return (thing["metadata"].get("annotations") or {}).get(manifests.HASH_ANNOTATION)


def contained(wanted: Any, found: Any) -> bool:
    """Return whether an object has the requested values. It may have further fields, such as defaults."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(contained(value, found.get(key)) for key, value in wanted.items())
    if isinstance(wanted, (list, tuple)):
        return (
            isinstance(found, (list, tuple))
            and len(found) == len(wanted)
            and all(contained(one, other) for one, other in zip(wanted, found, strict=True))
        ) or (not wanted and found is None)
    return bool(wanted == found) or (wanted in ("", False) and found is None)


def updated(found: Json, body: Json) -> Json:
    """Return the object as it is to be written: our fields replaced, all others as they are."""
    metadata = dict(found["metadata"])
    for key in ("labels", "annotations"):
        if body["metadata"].get(key):
            metadata[key] = {**(metadata.get(key) or {}), **body["metadata"][key]}
    metadata.pop("managedFields", None)
    changed: Json = {key: value for key, value in found.items() if key != "status"} | {
        "metadata": metadata,
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
    }
    for key, value in body.items():
        if key == "spec":
            changed["spec"] = {**(found.get("spec") or {}), **value}
        elif key not in ("apiVersion", "kind", "metadata"):
            changed[key] = value
    return changed


def _pools(request: ClusterRequest, there: Namespace) -> tuple[list[Step], list[str]]:
    """Return the deletion of pools with state absent, and a sentence for each further pool."""
    gone, kept = [], []
    absent = {manifests.deployment_name(request.name, pool.name) for pool in request.pools if pool.absent}
    present = {manifests.deployment_name(request.name, pool.name) for pool in request.pools if not pool.absent}
    for deployment in there.all("MachineDeployment"):
        name = str(deployment["metadata"]["name"])
        if (deployment.get("spec") or {}).get("clusterName") != request.name or name in present:
            continue
        if name not in absent:
            kept.append(f"MachineDeployment {name} stays: the request does not mention it.")
        elif not is_ours(deployment, request.owner, request.name):
            kept.append(f"MachineDeployment {name} stays: it {whose(deployment)}.")
        elif "deletionTimestamp" not in deployment["metadata"]:
            gone.append(_deletion("MachineDeployment", deployment))
    return gone, kept


def unused_templates(
    request: ClusterRequest, there: Namespace, wanted: Iterable[Json], *, ignoring: Iterable[str] = ()
) -> list[Step]:
    """Return the deletion of templates of ours that nothing refers to any more."""
    used = referenced(there) | {(body["kind"], body["metadata"]["name"]) for body in wanted}
    return [
        _deletion(kind, found)
        for kind in TEMPLATES
        for found in there.all(kind)
        if is_ours(found, request.owner, request.name)
        and "deletionTimestamp" not in found["metadata"]
        and (kind, found["metadata"]["name"]) not in used
    ]


def referenced(there: Namespace) -> set[tuple[str, str]]:
    """Return kind and name of the templates in use. Machines keep the name of the template they were made from."""
    found: set[tuple[str, str]] = set()
    for kind in ("MachineDeployment", "MachineSet"):
        for item in there.all(kind):
            spec = (((item.get("spec") or {}).get("template") or {}).get("spec")) or {}
            found.add(("VSphereMachineTemplate", str((spec.get("infrastructureRef") or {}).get("name") or "")))
            config = ((spec.get("bootstrap") or {}).get("configRef") or {}).get("name")
            found.add(("KubeadmConfigTemplate", str(config or "")))
    for control_plane in there.all("KubeadmControlPlane"):
        found.add(("VSphereMachineTemplate", control_plane_template(control_plane)))
    for vsphere_machine in there.all("VSphereMachine"):
        notes = vsphere_machine["metadata"].get("annotations") or {}
        found.add(("VSphereMachineTemplate", str(notes.get(CLONED_FROM) or "")))
    return found


def control_plane_template(control_plane: Mapping[str, Any]) -> str:
    template = (control_plane.get("spec") or {}).get("machineTemplate") or {}
    reference = template.get("infrastructureRef") or (template.get("spec") or {}).get("infrastructureRef") or {}
    return str(reference.get("name") or "")


def _rolls(request: ClusterRequest, group: str, there: Namespace) -> bool:
    """Return whether machines of the group exist that were made from another template."""
    wanted = next(
        manifests.template_name(request, candidate) for candidate in request.groups if candidate.name == group
    )
    for record in records(there.machine_objects(request.name), request.name):
        if record.group == group and record.template and record.template != wanted:
            return True
    return False


# Removing
def removal(request: ClusterRequest, there: Namespace, *, foreign_pools: bool) -> Plan:
    """Return the deletion of a cluster. Cluster API deletes all pools with it, so refuse those of others."""
    cluster = there.get("Cluster", request.name)
    if cluster is not None:
        if not is_ours(cluster, request.owner, request.name):
            raise _refusal([cluster], "so it is not deleted", hint="Delete it yourself if nobody needs it.")
        others = [
            deployment
            for deployment in there.all("MachineDeployment")
            if (deployment.get("spec") or {}).get("clusterName") == request.name
            and not is_ours(deployment, request.owner, request.name)
        ]
        if others and not foreign_pools:
            names = join_names(other["metadata"]["name"] for other in others)
            raise NotOurs(
                f"Cluster {request.name} has pools that this collection did not make: {names}. They would be deleted"
                " with it.",
                hint="Delete them first, or set delete_foreign_pools to true.",
            )
    steps = [_deletion("Cluster", cluster)] if cluster is not None else []
    return Plan((*steps, *_leftovers(request, there)), tuple(_kept(request, there)))


def _deletion(kind: str, item: Mapping[str, Any]) -> Step:
    metadata = item["metadata"]
    return Step(DELETE, kind, str(metadata["name"]), uid=str(metadata.get("uid") or ""))


def _leftovers(request: ClusterRequest, there: Namespace) -> list[Step]:
    """Return the objects that Cluster API leaves behind, and those of a run that ended before it made the Cluster."""
    kinds = ("MachineDeployment", "KubeadmControlPlane", *TEMPLATES, "VSphereCluster", "ClusterResourceSet", "Secret")
    return [
        _deletion(kind, item)
        for kind in kinds
        for item in there.all(kind)
        if is_ours(item, request.owner, request.name)
    ]


def _kept(request: ClusterRequest, there: Namespace) -> list[str]:
    return [
        f"{kind} {item['metadata']['name']} stays: it {whose(item)}."
        for kind in (*TEMPLATES, "Secret")
        for item in there.all(kind)
        if belongs(item, request.name)
        and not is_ours(item, request.owner, request.name)
        # Cluster API made these, and deletes them with the cluster.
        and not item["metadata"].get("ownerReferences")
    ]
