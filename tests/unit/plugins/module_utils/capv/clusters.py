"""Requests and namespaces for the tests of Cluster API clusters."""

from __future__ import annotations

import copy
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.capv import manifests, plan as plans
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.plan import DELETE, Namespace, Plan
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.request import ClusterRequest, request_from
from ansible_collections.vgpu.fleet.plugins.module_utils.capv.versions import MARKERS, ApiVersions

Json = dict[str, Any]

NEW = ApiVersions(dict.fromkeys(MARKERS, "v1beta2"))
OLD = ApiVersions(dict.fromkeys(MARKERS, "v1beta1"))
MACHINE = {"template": "ubuntu", "network": {"devices": [{"networkName": "VM Network", "dhcp4": True}]}}


def params(**changed: Any) -> Json:
    """Return the options of a task for a cluster with one worker that has a vGPU."""
    return {
        "name": "ml",
        "namespace": "default",
        "state": "present",
        "owner": "vgpu.fleet",
        "kubernetes_version": "v1.34.1",
        "vcenter": {"server": "vcenter.example", "username": "capv", "password": "hush"},
        "control_plane_endpoint": {"host": "10.0.0.1", "port": 6443},
        "kube_vip": {"image": "kube-vip:1"},
        "pod_cidrs": None,
        "service_cidrs": None,
        "ssh_user": "capv",
        "ssh_authorized_keys": ["ssh-ed25519 AAAA"],
        "control_plane": {"machine": dict(MACHINE)},
        "pools": [{"name": "gpu", "machine": dict(MACHINE), "vgpus": [{"profile": "nvidia_a40-8q"}]}],
        "addons": None,
        **changed,
    }


def request(**changed: Any) -> ClusterRequest:
    return request_from(params(**changed))


def wanted(asked: ClusterRequest, versions: ApiVersions = NEW) -> dict[str, Json]:
    """Return the objects by kind and name."""
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in manifests.objects(asked, versions)}


def one_of(found: dict[str, Json], kind: str) -> Json:
    (single,) = [one for key, one in found.items() if key.startswith(f"{kind}/")]
    return single


def applied(plan: Plan, there: Namespace | None = None) -> Namespace:
    """Return the namespace after a plan, with a default that the server sets in each new spec."""
    by_kind = {kind: dict(found) for kind, found in (there.by_kind if there else {}).items()}
    for step in plan.steps:
        found = by_kind.setdefault(step.kind, {})
        if step.action == DELETE:
            found.pop(step.name, None)
        elif step.name in found:
            found[step.name] = plans.updated(found[step.name], step.body)
        else:
            body = copy.deepcopy(step.body)
            if "spec" in body:
                body["spec"]["defaulted"] = True
            found[step.name] = body
    return Namespace(by_kind)


def with_machine(there: Namespace, name: str, template: str, *, labels: Json, **status: Any) -> Namespace:
    """Return the namespace with a machine, its VSphereMachine and its VSphereVM."""
    machine = {
        "kind": "Machine",
        "metadata": {"name": name, "labels": labels},
        "spec": {"clusterName": "ml", "infrastructureRef": {"name": name}},
        "status": status,
    }
    own = {
        "kind": "VSphereMachine",
        "metadata": {"name": name, "annotations": {"cluster.x-k8s.io/cloned-from-name": template}},
        "spec": {},
    }
    vm = {
        "kind": "VSphereVM",
        "metadata": {"name": f"{name}-vm", "ownerReferences": [{"kind": "VSphereMachine", "name": name}]},
        "spec": {"pciDevices": [{"vGPUProfile": "nvidia_a40-8q"}]},
    }
    added = {"Machine": machine, "VSphereMachine": own, "VSphereVM": vm}
    by_kind = {kind: dict(found) for kind, found in there.by_kind.items()}
    for kind, body in added.items():
        by_kind.setdefault(kind, {})[body["metadata"]["name"]] = body
    return Namespace(by_kind)
