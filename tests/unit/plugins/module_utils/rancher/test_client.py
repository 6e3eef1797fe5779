from __future__ import annotations

import base64

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import Forbidden
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher import client as module
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.client import Rancher, is_deployment_of

DISK, SHORT = "pod has unbound immediate PersistentVolumeClaims", "0/2 nodes: Insufficient nvidia.com/NVIDIA_A2-4Q."


def unscheduled(message):
    return {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}


def instance(name, status):
    return {"metadata": {"name": name, "namespace": "default", "resourceVersion": "1"}, "status": status}


def launcher(vm, status):
    return {"metadata": {"namespace": "default", "annotations": {"kubevirt.io/domain": vm}}, "status": status}


@pytest.fixture
def harvester(monkeypatch):
    """What the Harvester behind Rancher answers: instances, and pods or an error."""
    answers = {}

    class Api:
        def __init__(self, _access, **_options):
            pass

        def get(self, path, **_query):
            found = answers["pods" if path.endswith("/pods") else "instances"]
            if isinstance(found, Exception):
                raise found
            return {"metadata": {"resourceVersion": "1"}, "items": found}

    monkeypatch.setattr(module, "ApiClient", Api)
    monkeypatch.setattr(Rancher, "_way", lambda *_arguments: None)
    return answers


def told():
    return Rancher({"host": "https://rancher/k8s/clusters/local"}, "fleet-default").unscheduled({}, {}, None)


def test_the_pod_knows_better_than_the_vm_what_is_in_its_way_now(harvester):
    harvester["instances"] = [instance("a", unscheduled(DISK)), instance("b", unscheduled(DISK))]
    # The first lacks a vGPU by now, the second has found a node.
    harvester["pods"] = [launcher("a", unscheduled(SHORT)), launcher("b", {"conditions": []})]
    assert told() == {"default/a": SHORT.rstrip(".")}


def test_who_may_not_read_pods_is_told_what_the_vm_says(harvester):
    harvester["instances"] = [instance("a", unscheduled(SHORT)), instance("b", {})]
    harvester["pods"] = Forbidden("no", status=403)
    assert told() == {"default/a": SHORT.rstrip(".")}


CLUSTER = {"metadata": {"name": "demo"}, "spec": {"cloudCredentialSecretName": "cattle-global-data:cc-a"}}
OWN = {"name": "gpu", "cloudCredentialSecretName": "cattle-global-data:cc-b"}


class Secrets:
    """Cloud credentials for the Harvesters c-a and c-b, and a NodeDriver."""

    def __init__(self, node_driver=None):
        self.node_driver = node_driver

    def get_or_none(self, path):
        if path.endswith("/nodedrivers/harvester"):
            if isinstance(self.node_driver, Exception):
                raise self.node_driver
            return self.node_driver
        identity = path.rsplit("-", 1)[-1]
        encoded = base64.b64encode(f"c-{identity}".encode()).decode()
        return {"data": {"harvestercredentialConfig-clusterId": encoded}}


def rancher(node_driver=None):
    found = Rancher({"host": "https://rancher/k8s/clusters/local"}, "fleet-default")
    found.api = Secrets(node_driver)
    return found


@pytest.mark.parametrize(("entry", "identity"), [({"name": "gpu"}, "c-a"), (OWN, "c-b"), ({}, "c-a")])
def test_a_credential_of_the_pool_outranks_that_of_its_cluster(entry, identity):
    assert rancher().harvester_of(CLUSTER, entry) == identity
    assert rancher()._way(CLUSTER, entry, None).host == f"https://rancher/k8s/clusters/{identity}"


def test_h7_a_node_driver_that_must_not_be_read_is_unknown_and_says_so():
    assert rancher({"spec": {"url": "https://x/v1.0.6/docker-machine-driver-harvester.tgz"}}).machine_driver().version
    assert "must not read" in rancher(Forbidden("no", status=403)).machine_driver().problem
    assert "no NodeDriver" in rancher().machine_driver().problem


def test_a_machine_deployment_is_found_by_its_labels_since_long_names_are_hashed():
    labels = {"rke.cattle.io/rke-machine-pool-name": "gpu"}
    spec = {"clusterName": "demo", "template": {"metadata": {"labels": labels}}}
    deployment = {"metadata": {"name": "demo-12ab3"}, "spec": spec}
    assert is_deployment_of(deployment, "demo", "gpu")
    assert not is_deployment_of(deployment, "demo", "gpu2")
    assert not is_deployment_of(deployment, "other", "gpu")
    assert not is_deployment_of({"metadata": {"name": "demo-gpu"}, "spec": {}}, "demo", "gpu")
