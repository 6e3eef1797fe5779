from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import Forbidden
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher import client as module
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.client import Rancher

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
    return Rancher({"host": "https://rancher/k8s/clusters/local"}, "fleet-default").unscheduled({}, None)


def test_the_pod_knows_better_than_the_vm_what_is_in_its_way_now(harvester):
    harvester["instances"] = [instance("a", unscheduled(DISK)), instance("b", unscheduled(DISK))]
    # The first lacks a vGPU by now, the second has found a node.
    harvester["pods"] = [launcher("a", unscheduled(SHORT)), launcher("b", {"conditions": []})]
    assert told() == {"default/a": SHORT.rstrip(".")}


def test_who_may_not_read_pods_is_told_what_the_vm_says(harvester):
    harvester["instances"] = [instance("a", unscheduled(SHORT)), instance("b", {})]
    harvester["pods"] = Forbidden("no", status=403)
    assert told() == {"default/a": SHORT.rstrip(".")}
