# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The objects of a cluster in the API versions of its management cluster. Pure."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from .ownership import CLUSTER_NAME, marks
from .request import ClusterRequest, KubeVip, MachineGroup
from .versions import BOOTSTRAP, CONTROL_PLANE, CORE, ApiVersions

Json = dict[str, Any]

HASH_ANNOTATION = "vgpu.fleet/content-hash"
RESOURCE_SET_TYPE = "addons.cluster.x-k8s.io/resource-set"
DEPLOYMENT_NAME = "cluster.x-k8s.io/deployment-name"
MACHINE_DEFAULTS = {"cloneMode": "fullClone", "os": "Linux"}
POD_CIDRS = ("192.168.0.0/16",)
CONTAINERD = "/var/run/containerd/containerd.sock"
KUBE_VIP_MANIFEST = "/etc/kubernetes/manifests/kube-vip.yaml"
# Cloud-init replaces the expressions in braces with the name that the provider gives the machine.
SET_HOSTNAME = (
    'hostnamectl set-hostname "{{ ds.meta_data.hostname }}"',
    'echo "::1 ipv6-localhost ipv6-loopback localhost6" >/etc/hosts',
    'echo "127.0.0.1 {{ ds.meta_data.hostname }} {{ local_hostname }} localhost" >>/etc/hosts',
)
# From Kubernetes 1.29 on, admin.conf has no permissions before kubeadm init has ended (kube-vip#684).
SUPER_ADMIN = (
    f"if [ -f /run/kubeadm/kubeadm.yaml ]; then sed -i 's#/etc/kubernetes/admin.conf#/etc/kubernetes/super-admin.conf#'"
    f" {KUBE_VIP_MANIFEST}; fi"
)
SUPER_ADMIN_SINCE = (1, 29)


def deployment_name(cluster: str, pool: str) -> str:
    return f"{cluster}-{pool}"


def objects(request: ClusterRequest, versions: ApiVersions) -> list[Json]:
    """Return all objects in the order in which to write them. Controllers begin when the last, the Cluster, exists."""
    found = []
    if request.identity is None:
        found.append(_credentials(request, versions))
    found.append(_vsphere_cluster(request, versions))
    found += [machine_template(request, group, versions) for group in request.groups]
    found += [_config_template(request, pool, versions) for pool in request.groups if not pool.is_control_plane]
    found.append(_control_plane(request, versions))
    found += [_deployment(request, pool, versions) for pool in request.groups if not pool.is_control_plane]
    if request.addons:
        found += [*_addon_secrets(request, versions), _resource_set(request, versions)]
    return [*found, _cluster(request, versions)]


def _object(request: ClusterRequest, versions: ApiVersions, kind: str, name: str, content: Json) -> Json:
    metadata: Json = {"name": name, "namespace": request.namespace, "labels": marks(request.owner, request.name)}
    if kind != "Secret":
        # Not for secrets: a hash helps to guess a short password.
        metadata["annotations"] = {HASH_ANNOTATION: digest(content)}
    return {"apiVersion": versions.api_version(kind), "kind": kind, "metadata": metadata, **content}


def digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _named_by_content(prefix: str, content: Json) -> str:
    """Return a name that other content does not have: templates cannot be changed, only replaced."""
    return f"{prefix}-{digest(content)[:8]}"


def _credentials(request: ClusterRequest, versions: ApiVersions) -> Json:
    data = {"username": request.username, "password": request.password}
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return _object(request, versions, "Secret", f"{request.name}-vcenter", {"type": "Opaque", "data": encoded})


def _vsphere_cluster(request: ClusterRequest, versions: ApiVersions) -> Json:
    identity = dict(request.identity or {"kind": "Secret", "name": f"{request.name}-vcenter"})
    spec: Json = {
        "server": request.server,
        "controlPlaneEndpoint": {"host": request.host, "port": request.port},
        "identityRef": identity,
    }
    if request.thumbprint:
        spec["thumbprint"] = request.thumbprint
    return _object(request, versions, "VSphereCluster", request.name, {"spec": spec})


# Machines
def machine_spec(group: MachineGroup) -> Json:
    """Return the spec of a machine. Keys for the VMX file that the user sets take precedence over computed ones."""
    spec = {**MACHINE_DEFAULTS, **group.machine}
    keys = {**group.vmx_keys, **(group.machine.get("customVMXKeys") or {})}
    if keys:
        spec["customVMXKeys"] = {key: str(value) for key, value in sorted(keys.items())}
    if group.devices:
        spec["pciDevices"] = [device.as_capv() for device in group.devices]
    return spec


def template_name(request: ClusterRequest, group: MachineGroup) -> str:
    return _named_by_content(f"{request.name}-{group.name}", machine_spec(group))


def machine_template(request: ClusterRequest, group: MachineGroup, versions: ApiVersions) -> Json:
    content = {"spec": {"template": {"spec": machine_spec(group)}}}
    return _object(request, versions, "VSphereMachineTemplate", template_name(request, group), content)


# Bootstrap
def arguments(values: Mapping[str, str], *, new: bool) -> Any:
    """Return arguments of a component: a mapping in v1beta1, a list since v1beta2."""
    return [{"name": name, "value": value} for name, value in values.items()] if new else dict(values)


def _node_registration(group: MachineGroup, *, new: bool) -> Json:
    kubelet = {"cloud-provider": "external"}
    if group.labels:
        kubelet["node-labels"] = ",".join(f"{key}={value}" for key, value in sorted(group.labels.items()))
    registration: Json = {
        "name": "{{ local_hostname }}",
        "criSocket": CONTAINERD,
        "kubeletExtraArgs": arguments(kubelet, new=new),
    }
    if group.taints is not None:
        registration["taints"] = [dict(taint) for taint in group.taints]
    return registration


def _kubeadm(request: ClusterRequest, group: MachineGroup, specific: Json) -> Json:
    config: Json = {**specific, "preKubeadmCommands": [*SET_HOSTNAME, *specific.get("preKubeadmCommands", ())]}
    if request.ssh_keys:
        user = {"name": request.ssh_user, "sudo": "ALL=(ALL) NOPASSWD:ALL", "sshAuthorizedKeys": list(request.ssh_keys)}
        config["users"] = [user]
    whole: Json = merged(config, group.kubeadm)
    return whole


def merged(base: Any, over: Any) -> Any:
    """Merge mappings in depth and append lists. Other values of `over` replace those of `base`."""
    if isinstance(base, Mapping) and isinstance(over, Mapping):
        return {**base, **{key: merged(base[key], value) if key in base else value for key, value in over.items()}}
    if isinstance(base, list) and isinstance(over, Sequence) and not isinstance(over, str):
        return [*base, *over]
    return over


def _config_template(request: ClusterRequest, pool: MachineGroup, versions: ApiVersions) -> Json:
    content = _config_content(request, pool, new=versions.is_new(BOOTSTRAP))
    return _object(request, versions, "KubeadmConfigTemplate", config_template_name(request, pool), content)


def config_template_name(request: ClusterRequest, pool: MachineGroup) -> str:
    # The name does not depend on the API version: an upgrade of the management cluster must not replace machines.
    return _named_by_content(f"{request.name}-{pool.name}", _config_content(request, pool, new=True))


def _config_content(request: ClusterRequest, pool: MachineGroup, *, new: bool) -> Json:
    registration = _node_registration(pool, new=new)
    config = _kubeadm(request, pool, {"joinConfiguration": {"nodeRegistration": registration}})
    return {"spec": {"template": {"spec": config}}}


def _control_plane(request: ClusterRequest, versions: ApiVersions) -> Json:
    group, new = request.control_plane, versions.is_new(CONTROL_PLANE)
    registration = _node_registration(group, new=new)
    specific: Json = {
        "clusterConfiguration": {
            "controllerManager": {"extraArgs": arguments({"cloud-provider": "external"}, new=new)},
        },
        "initConfiguration": {"nodeRegistration": registration},
        "joinConfiguration": {"nodeRegistration": registration},
    }
    if request.kube_vip:
        specific["files"] = [kube_vip_file(request, request.kube_vip)]
        if _minor(request.kubernetes_version) >= SUPER_ADMIN_SINCE:
            specific["preKubeadmCommands"] = [SUPER_ADMIN]
    reference = versions.reference(CONTROL_PLANE, "VSphereMachineTemplate", template_name(request, group))
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": group.surge}}
    spec: Json = {
        "replicas": group.replicas,
        "version": request.kubernetes_version,
        "kubeadmConfigSpec": _kubeadm(request, group, specific),
        "machineTemplate": {"spec": {"infrastructureRef": reference}} if new else {"infrastructureRef": reference},
        **({"rollout": {"strategy": strategy}} if new else {"rolloutStrategy": strategy}),
    }
    return _object(request, versions, "KubeadmControlPlane", request.name, {"spec": spec})


def kube_vip_file(request: ClusterRequest, vip: KubeVip) -> Json:
    """Return the static pod that announces the address of the control plane."""
    settings = {
        "vip_arp": "true",
        "port": str(request.port),
        "vip_interface": vip.interface,
        "vip_subnet": "32",
        "cp_enable": "true",
        "cp_namespace": "kube-system",
        "vip_leaderelection": "true",
        "address": request.host,
    }
    container = {
        "name": "kube-vip",
        "image": vip.image,
        "args": ["manager"],
        "env": [{"name": name, "value": value} for name, value in settings.items()],
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}},
        "volumeMounts": [{"mountPath": "/etc/kubernetes/admin.conf", "name": "kubeconfig"}],
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "kube-vip", "namespace": "kube-system"},
        "spec": {
            "hostNetwork": True,
            # The address that kube-vip announces does not answer before kube-vip runs.
            "hostAliases": [{"ip": "127.0.0.1", "hostnames": ["kubernetes"]}],
            "containers": [container],
            "volumes": [{"name": "kubeconfig", "hostPath": {"path": "/etc/kubernetes/admin.conf"}}],
        },
    }
    content = json.dumps(pod, indent=2)
    return {"path": KUBE_VIP_MANIFEST, "owner": "root:root", "permissions": "0644", "content": content}


def _minor(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.lstrip("v").split(".")[:2])


def _deployment(request: ClusterRequest, pool: MachineGroup, versions: ApiVersions) -> Json:
    name = deployment_name(request.name, pool.name)
    strategy = rolling(pool.surge)
    config = config_template_name(request, pool)
    labels = {CLUSTER_NAME: request.name, DEPLOYMENT_NAME: name}
    spec: Json = {
        "clusterName": request.name,
        "replicas": pool.replicas,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "clusterName": request.name,
                "version": request.kubernetes_version,
                "bootstrap": {"configRef": versions.reference(CORE, "KubeadmConfigTemplate", config)},
                "infrastructureRef": versions.reference(CORE, "VSphereMachineTemplate", template_name(request, pool)),
            },
        },
        **({"rollout": {"strategy": strategy}} if versions.is_new(CORE) else {"strategy": strategy}),
    }
    return _object(request, versions, "MachineDeployment", name, {"spec": spec})


def rolling(surge: int) -> Json:
    """Return the strategy of a deployment. Without a surge, a machine has to go before the next is created."""
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": 0 if surge else 1}}


# The cluster and its addons
def _cluster(request: ClusterRequest, versions: ApiVersions) -> Json:
    network: Json = {"pods": {"cidrBlocks": list(request.pod_cidrs or POD_CIDRS)}}
    if request.service_cidrs:
        network["services"] = {"cidrBlocks": list(request.service_cidrs)}
    spec = {
        "clusterNetwork": network,
        "controlPlaneRef": versions.reference(CORE, "KubeadmControlPlane", request.name),
        "infrastructureRef": versions.reference(CORE, "VSphereCluster", request.name),
    }
    return _object(request, versions, "Cluster", request.name, {"spec": spec})


def _addon_name(request: ClusterRequest, name: str) -> str:
    return f"{request.name}-addon-{name}"


def _addon_secrets(request: ClusterRequest, versions: ApiVersions) -> list[Json]:
    return [
        _object(
            request,
            versions,
            "Secret",
            _addon_name(request, addon.name),
            {"type": RESOURCE_SET_TYPE, "data": {"manifest": base64.b64encode(addon.manifest.encode()).decode()}},
        )
        for addon in request.addons
    ]


def _resource_set(request: ClusterRequest, versions: ApiVersions) -> Json:
    spec = {
        "strategy": "Reconcile",
        "clusterSelector": {"matchLabels": {CLUSTER_NAME: request.name}},
        "resources": [{"kind": "Secret", "name": _addon_name(request, addon.name)} for addon in request.addons],
    }
    return _object(request, versions, "ClusterResourceSet", f"{request.name}-addons", {"spec": spec})
