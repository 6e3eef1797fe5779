"""A Kubernetes API in memory with Harvester, Rancher and Cluster API, for tests that run modules thousands of times."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from ansible_collections.vgpu.fleet.plugins.module_utils.capv.versions import MARKERS, PLURALS
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r

from tests.unit.plugins.module_utils.capv import clusters
from tests.unit.plugins.module_utils.harvester import objects

Json = dict[str, Any]
HOST = "http://127.0.0.1:9"
PATH = re.compile(r"(/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/([^/]+))?/([^/]+)(?:/([^/]+))?(/.*)?")
RANCHER = "fleet-default"
CAPI = "v1beta2"
MERGES = ("application/merge-patch+json", "application/strategic-merge-patch+json")
RESOURCE = "nvidia.com/NVIDIA_A2-4Q"


def harvester() -> dict[str, list[Json]]:
    """Return two nodes: an A2 with vGPUs, of which a running VM has one, and an A100 that is cut."""
    vm = objects.vm("trainer", devices=[("vgpu-0", RESOURCE)], note=json.dumps({"gpus": {RESOURCE: ["n1-000008004"]}}))
    vm["metadata"]["resourceVersion"] = "5"
    vm["spec"]["runStrategy"] = "RerunOnFailure"
    large = objects.gpu("n2")
    cut = objects.vgpu(4, node="n2")
    cut["status"] = {"availableTypes": {"NVIDIA A100-1-5C": "1000", "NVIDIA A100-2-10C": "1001"}}
    migs = {
        "metadata": {"name": large["metadata"]["name"], "resourceVersion": "3"},
        "spec": {
            "enabled": True,
            "gpuAddress": "0000:08:00.0",
            "nodeName": "n2",
            "profileSpec": [{"name": "MIG 1g.5gb", "id": 19, "requested": 2}],
        },
        "status": {
            "status": "synced",
            "profileStatus": [
                {"name": "MIG 1g.5gb", "id": 19, "available": 5, "total": 7, "vGPUID": ["1000"]},
                {"name": "MIG 2g.10gb", "id": 14, "available": 2, "total": 3},
            ],
        },
    }
    device = {
        "metadata": {"name": "n1-000008000", "labels": {"nodename": "n1"}},
        "spec": {},
        "status": {"address": "0000:08:00.0", "deviceId": "25b6", "vendorId": "10de", "nodeName": "n1"},
    }
    return {
        r.GPUS: [objects.gpu("n1"), large],
        r.VGPUS: [
            objects.vgpu(4, asked=objects.Q4, configured=objects.Q4),
            objects.vgpu(5, asked=objects.Q4, configured=objects.Q4),
            *(objects.vgpu(number) for number in (6, 7)),
            cut,
        ],
        r.CLAIMS: [objects.claim(4), objects.claim(5)],
        r.PCI_DEVICES: [device],
        r.MIG_CONFIGURATIONS: [migs],
        r.NODES: [objects.node("n1", q4=2), objects.node("n2")],
        r.VMS: [vm, objects.vm("idle")],
        r.INSTANCES: [objects.started(vm, on="n1")],
        "/apis/kubevirt.io/v1/kubevirts": [objects.kubevirt(RESOURCE)],
        r.LAUNCHER_PODS: [objects.launcher("trainer", RESOURCE, owner="uid-trainer")],
        "/apis/harvesterhci.io/v1beta1/settings": [{"metadata": {"name": "server-version"}, "value": "v1.8.0"}],
        "/apis/harvesterhci.io/v1beta1/addons": [addon(r.PCIDEVICES_ADDON), addon(r.DRIVER_ADDON)],
        "/apis/apps/v1/daemonsets": [daemon_set(r.PCIDEVICES_DAEMONSET), daemon_set(r.DRIVER_DAEMONSET)],
        "/apis/harvesterhci.io/v1beta1/virtualmachineimages": [
            {
                "metadata": {"name": "image", "namespace": "default"},
                "spec": {"displayName": "ubuntu"},
                "status": {"storageClassName": "longhorn-image", "progress": 100, "virtualSize": 2361393152},
            }
        ],
        "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions": [
            {"metadata": {"name": "vlan1", "namespace": "default"}, "spec": {"config": '{"type": "bridge"}'}}
        ],
        "/apis/storage.k8s.io/v1/storageclasses": [{"metadata": {"name": "longhorn-image"}, "provisioner": "longhorn"}],
    }


def addon(name: str) -> Json:
    return {
        "metadata": {"name": name, "namespace": "harvester-system", "resourceVersion": "4"},
        "spec": {
            "enabled": True,
            "chart": name,
            "repo": "http://charts",
            "version": "1.8.0",
            "valuesContent": "a: 1\n",
        },
        "status": {"status": "AddonDeploySuccessful", "conditions": [{"type": "Completed", "status": "True"}]},
    }


def daemon_set(name: str) -> Json:
    return {
        "metadata": {"name": name, "namespace": "harvester-system", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"spec": {"containers": [{"image": "i"}]}}},
        "status": {
            "desiredNumberScheduled": 2,
            "numberReady": 2,
            "updatedNumberScheduled": 2,
            "numberAvailable": 2,
            "observedGeneration": 1,
        },
    }


def rancher() -> dict[str, list[Json]]:
    """Return a cluster with one pool, whose machine is there."""
    labels = {"cluster.x-k8s.io/cluster-name": "ml", "rke.cattle.io/rke-machine-pool-name": "gpu"}
    pool = {
        "name": "gpu",
        "quantity": 1,
        "workerRole": True,
        "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-ml-gpu"},
        "cloudCredentialSecretName": "cattle-global-data:cc-ml",
    }
    network = {"interfaces": [{"networkName": "default/vlan1", "model": "virtio"}]}
    return {
        "/apis/provisioning.cattle.io/v1/clusters": [
            {
                "metadata": {"name": "ml", "namespace": RANCHER, "resourceVersion": "8"},
                "spec": {"kubernetesVersion": "v1.32.4+rke2r1", "rkeConfig": {"machinePools": [pool]}},
                "status": {"ready": True},
            }
        ],
        "/apis/rke-machine-config.cattle.io/v1/harvesterconfigs": [
            {
                "metadata": {"name": "nc-ml-gpu", "namespace": RANCHER, "resourceVersion": "9"},
                "cpuCount": "4",
                "memorySize": "16",
                "vmNamespace": "default",
                "sshUser": "ubuntu",
                "diskInfo": json.dumps({"disks": [{"imageName": "default/image", "size": 40, "bootOrder": 1}]}),
                "networkInfo": json.dumps(network),
                "vgpuInfo": json.dumps({"vGPURequests": [{"name": "vgpu-0", "deviceName": RESOURCE}]}),
            }
        ],
        "/apis/cluster.x-k8s.io/v1beta1/machines": [
            {
                "metadata": {"name": "ml-gpu-1", "namespace": RANCHER, "labels": labels},
                "spec": {"clusterName": "ml", "infrastructureRef": {"name": "ml-gpu-1"}},
                "status": {"phase": "Running", "nodeRef": {"name": "ml-gpu-1"}},
            }
        ],
        "/apis/cluster.x-k8s.io/v1beta1/machinedeployments": [
            {
                "metadata": {"name": "ml-gpu", "namespace": RANCHER},
                "spec": {"clusterName": "ml", "replicas": 1, "template": {"metadata": {"labels": labels}}},
                "status": {"replicas": 1, "readyReplicas": 1},
            }
        ],
        "/apis/management.cattle.io/v3/nodedrivers": [
            {"metadata": {"name": "harvester"}, "spec": {"url": "https://example/v1.0.4/driver.tar.gz"}}
        ],
        "/apis/management.cattle.io/v3/settings": [{"metadata": {"name": "server-version"}, "value": "v2.12.1"}],
        "/api/v1/secrets": [
            {
                "metadata": {"name": "cc-ml", "namespace": "cattle-global-data"},
                "data": {"harvestercredentialConfig-clusterId": "Yy1tLTE="},
            }
        ],
    }


def cluster_api() -> dict[str, list[Json]]:
    """Return the objects of a cluster that capv_cluster made, with one machine."""
    found: dict[str, list[Json]] = {}
    for number, made in enumerate(clusters.wanted(clusters.request()).values()):
        group, plural = PLURALS[made["kind"]]
        path = f"/apis/{group}/{CAPI}/{plural}" if group else f"/api/v1/{plural}"
        metadata = {"namespace": "default", "resourceVersion": str(number + 20), **made["metadata"]}
        found.setdefault(path, []).append({**copy.deepcopy(made), "metadata": metadata})
    core, infrastructure = (f"/apis/{PLURALS[kind][0]}/{CAPI}" for kind in ("Machine", "VSphereVM"))
    labels = {"cluster.x-k8s.io/cluster-name": "ml", "cluster.x-k8s.io/deployment-name": "ml-gpu"}
    found[f"{core}/machines"] = [
        {
            "kind": "Machine",
            "metadata": {"name": "ml-gpu-1", "namespace": "default", "labels": labels},
            "spec": {"clusterName": "ml", "infrastructureRef": {"kind": "VSphereMachine", "name": "ml-gpu-1"}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    ]
    found[f"{infrastructure}/vspherevms"] = [
        {
            "kind": "VSphereVM",
            "metadata": {
                "name": "ml-gpu-1",
                "namespace": "default",
                "ownerReferences": [{"kind": "VSphereMachine", "name": "ml-gpu-1"}],
            },
            "spec": {"pciDevices": [{"vGPUProfile": "nvidia_a40-8q"}]},
            "status": {"ready": True},
        }
    ]
    return found


def everything() -> dict[str, list[Json]]:
    found = harvester()
    for more in (rancher(), cluster_api()):
        for path, items in more.items():
            found.setdefault(path, []).extend(items)
    return found


@dataclass
class World:
    """The objects by path of their collection, without a namespace, and the writes that a module sent."""

    objects: dict[str, list[Json]]
    # Whether writes are carried out or refused with 403.
    writable: bool = False
    writes: list[str] = field(default_factory=list)
    dry_runs: list[str] = field(default_factory=list)

    def send(self, method: str, path: str, query: Mapping[str, str], body: Any) -> Any:
        parsed = PATH.fullmatch(path.split("?", maxsplit=1)[0])
        if method == "GET":
            return self._read(path, parsed, query)
        where = f"{method} {path}" + (f"?{urlencode(query)}" if query else "")
        dry = query.get("dryRun") == "All" or "dryRun=All" in path
        (self.dry_runs if dry else self.writes).append(where)
        if not self.writable or parsed is None:
            return _answer(403, _status(403, f'things is forbidden: User "fuzz" cannot {method.lower()} resource'))
        return self._write(method, parsed, body, dry=dry)

    def _read(self, path: str, parsed: re.Match[str] | None, query: Mapping[str, str]) -> Any:
        if path == "/version":
            return _answer(200, {"gitVersion": "v1.32.4"})
        for group, marker in MARKERS.items():
            if path == f"/apis/{group}":
                return _answer(200, {"versions": [{"version": CAPI}, {"version": "v1beta1"}]})
            if path.startswith(f"/apis/{group}/") and path.count("/") == 3:
                return _answer(200, {"resources": [{"name": marker}]})
        if parsed is None:
            return _answer(404, _status(404, "the server could not find the requested resource"))
        if query.get("watch"):
            return _answer(200, None)
        found = list(self._found(parsed))
        if parsed[4]:
            return _answer(200, found[0]) if found else _answer(404, _status(404, f"{parsed[3]} not found"))
        if f"{parsed[1]}/{parsed[3]}" not in self.objects:
            return _answer(404, _status(404, "the server could not find the requested resource"))
        return _answer(200, {"metadata": {"resourceVersion": "100"}, "items": found})

    def _found(self, parsed: re.Match[str]) -> Iterator[Json]:
        for item in self.objects.get(f"{parsed[1]}/{parsed[3]}", ()):
            metadata = item.get("metadata") or {}
            if parsed[2] in (None, metadata.get("namespace")) and parsed[4] in (None, metadata.get("name")):
                yield item

    def _write(self, method: str, parsed: re.Match[str], body: Any, *, dry: bool) -> Any:
        collection = self.objects.setdefault(f"{parsed[1]}/{parsed[3]}", [])
        if method == "POST":
            made = copy.deepcopy(body)
            metadata = made.setdefault("metadata", {})
            metadata.setdefault("name", str(metadata.get("generateName") or "made") + "x")
            metadata.update(resourceVersion="200", **({"namespace": parsed[2]} if parsed[2] else {}))
            if not dry:
                collection.append(made)
            return _answer(201, made)
        there = next(self._found(parsed), None)
        if there is None:
            return _answer(404, _status(404, f"{parsed[3]} not found"))
        if method == "DELETE":
            if not dry:
                collection.remove(there)
            return _answer(200, {"kind": "Status", "status": "Success"})
        changed = copy.deepcopy(there)
        if parsed[5] is None and isinstance(body, dict):
            changed = _merged(changed, body) if method == "PATCH" else copy.deepcopy(body)
            changed.setdefault("metadata", {})["resourceVersion"] = "201"
        if not dry:
            collection[collection.index(there)] = changed
        return _answer(200, changed)


def _merged(old: Any, patch: Json) -> Json:
    made = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = _merged(made.get(key), value) if isinstance(value, dict) else value
    return made


def _status(code: int, message: str) -> Json:
    return {"kind": "Status", "status": "Failure", "message": message, "reason": "", "code": code}


def _answer(status: int, content: Any) -> Any:
    data = b"" if content is None else json.dumps(content).encode()
    return SimpleNamespace(
        status=status,
        data=data,
        headers={},
        chunked=True,
        stream=lambda **_options: iter([data] if status >= 400 else []),
        close=lambda: None,
    )
