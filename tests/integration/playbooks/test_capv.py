"""A pool of Cluster API on vSphere, with the lab's API server as the management cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.labs import Lab
from tests.integration.modules.beginnings import writes
from tests.integration.playbooks.runs import Runs

INFRASTRUCTURE, CLUSTER = "infrastructure.cluster.x-k8s.io", "cluster.x-k8s.io"
TEMPLATES = f"/apis/{INFRASTRUCTURE}/v1beta1/namespaces/default/vspheremachinetemplates"
DEPLOYMENTS = f"/apis/{CLUSTER}/v1beta1/namespaces/default/machinedeployments"
POOL: dict[str, Any] = {
    "vsphere_gpu_host_cluster": "gpu",
    "capv_gpu_pool_cluster": "ml",
    "capv_gpu_pool_deployment": "ml-md-0",
    "capv_gpu_pool_replicas": 2,
    "capv_gpu_pool_vgpus": [{"profile": "A40-8Q", "count": 2}, {"profile": "A40-8C"}],
    "capv_gpu_pool_machine": {"datacenter": "dc1", "template": "ubuntu-22.04-efi", "numCPUs": 8, "memoryMiB": 16384},
}
# The fields that a template has for devices, as CAPV 1.11 introduced them; everything else is let through.
DEVICE = {"type": "object", "properties": {name: {"type": "string"} for name in ("vGPUProfile", "customLabel")}}


def definition(group: str, kind: str, plural: str) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec: dict[str, Any] = dict(anything)
    if kind == "VSphereMachineTemplate":
        machine = {**anything, "properties": {"pciDevices": {"type": "array", "items": DEVICE}}}
        template = {"type": "object", "properties": {"spec": machine}}
        spec = {"type": "object", "properties": {"template": template}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture
def management(lab: Lab) -> Lab:
    kinds = [
        (INFRASTRUCTURE, "VSphereMachineTemplate", "vspheremachinetemplates"),
        (INFRASTRUCTURE, "VSphereMachine", "vspheremachines"),
        (CLUSTER, "MachineDeployment", "machinedeployments"),
    ]
    for kind in kinds:
        lab.api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(*kind))
    lab.until(lambda: lab.find(TEMPLATES) and lab.find(DEPLOYMENTS), real=True)
    body = {
        "apiVersion": f"{CLUSTER}/v1beta1",
        "kind": "MachineDeployment",
        "metadata": {"name": "ml-md-0", "namespace": "default"},
        "spec": {"replicas": 1, "template": {"spec": {"clusterName": "ml", "infrastructureRef": {"name": "old"}}}},
    }
    lab.make(DEPLOYMENTS, body)
    return lab


def test_the_deployment_uses_a_template_with_every_device_by_vcenters_name(management: Lab, runs: Runs) -> None:
    management.mark()
    rehearsal = runs.playbook("vsphere_gpu_cluster", POOL, check=True)
    assert rehearsal.status == "successful", rehearsal.shown
    assert writes(management) == []
    made = runs.playbook("vsphere_gpu_cluster", POOL)
    assert made.status == "successful", made.shown
    (template,) = management.items(TEMPLATES)
    spec = template["spec"]["template"]["spec"]
    profiles = [device["vGPUProfile"] for device in spec["pciDevices"]]
    assert sorted(profiles) == ["nvidia_a40-8c", "nvidia_a40-8q", "nvidia_a40-8q"]
    assert (spec["numCPUs"], spec["template"]) == (8, "ubuntu-22.04-efi")
    deployment = management.read(f"{DEPLOYMENTS}/ml-md-0")["spec"]
    assert deployment["replicas"] == 2
    assert deployment["template"]["spec"]["infrastructureRef"]["name"] == template["metadata"]["name"]
    assert deployment["template"]["spec"]["clusterName"] == "ml"
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}

    # Templates cannot be changed: other machines have another one, and the old one stays for those that are there.
    other = {**POOL, "capv_gpu_pool_vgpus": [{"profile": "A40-24C"}], "capv_gpu_pool_surge": 0}
    replaced = runs.playbook("vsphere_gpu_cluster", other, options="--tags capv")
    assert replaced.status == "successful", replaced.shown
    (newer,) = [one for one in management.items(TEMPLATES) if one["metadata"]["name"] != template["metadata"]["name"]]
    deployment = management.read(f"{DEPLOYMENTS}/ml-md-0")["spec"]
    assert deployment["template"]["spec"]["infrastructureRef"]["name"] == newer["metadata"]["name"]
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    again = runs.playbook("vsphere_gpu_cluster", other, options="--tags capv")
    assert (again.status, again.changed) == ("successful", 0), again.tasks
