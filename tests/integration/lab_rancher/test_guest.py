"""A guest cluster: machines are its nodes, the GPU operator makes vGPUs usable, a CUDA job runs (peers 4.3, 4.4)."""

from __future__ import annotations

from typing import Any

import yaml

from tests.integration.api import NODES
from tests.integration.ranchers import CLUSTERS, CONTROL_ROLES, FOUR_Q, UNRELEASED, Cluster, Rancher

OPERATOR = "gpu-operator"
CHARTS = "/apis/helm.cattle.io/v1/namespaces/kube-system/helmcharts"
POLICY = "/apis/nvidia.com/v1/clusterpolicies/cluster-policy"
JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
SOCKET = [{"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}]
DRIVER = {"repository": "registry.example/nvidia", "version": "570.86.15", "licensingConfig": {"secretName": "licence"}}


def install(guest: Cluster, **values: Any) -> None:
    spec = {"chart": "nvidia/gpu-operator", "targetNamespace": OPERATOR, "valuesContent": yaml.safe_dump(values)}
    if guest.find(f"{CHARTS}/gpu-operator"):
        guest.write(f"{CHARTS}/gpu-operator", {"spec": spec})
    else:
        body = {"apiVersion": "helm.cattle.io/v1", "kind": "HelmChart", "metadata": {"name": "gpu-operator"}}
        guest.make(CHARTS, {**body, "spec": spec})


def state(guest: Cluster) -> tuple[str, str]:
    status = (guest.find(POLICY) or {}).get("status") or {}
    return status.get("state", ""), " ".join(one.get("message", "") for one in status.get("conditions") or [])


def waiting_reason(guest: Cluster, part: str) -> str:
    """Why the operator's pod does not run."""
    for pod in guest.items(f"/api/v1/namespaces/{OPERATOR}/pods"):
        if part in pod["metadata"]["name"]:
            containers = pod["status"].get("containerStatuses") or [{}]
            return str(((containers[0].get("state") or {}).get("waiting") or {}).get("reason", ""))
    return ""


def run(rancher: Rancher, guest: Cluster, name: str, node: str, *, gpus: int) -> tuple[str, str]:
    """How the job's pod ended, and what it wrote."""
    limits = {"nvidia.com/gpu": gpus} if gpus else {}
    container = {
        "name": "cuda",
        "image": "nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04",
        "resources": {"limits": limits},
    }
    pod = {
        "restartPolicy": "Never",
        "runtimeClassName": "nvidia",
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    guest.make(JOBS, {"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": {"spec": pod}}})

    def ended() -> dict[str, Any] | None:
        for one in guest.items(PODS):
            if one["metadata"]["labels"].get("job-name") == name and one["status"]["phase"] in ("Succeeded", "Failed"):
                return one
        return None

    done = rancher.until(ended)
    return done["status"]["phase"], guest.text(f"{PODS}/{done['metadata']['name']}/log")


def test_from_vms_to_a_cuda_job_that_passed(rancher: Rancher) -> None:
    # The released driver cannot create two vGPUs on Harvester 1.8.
    rancher.use_driver(UNRELEASED)
    rancher.make_config("nc-cp")
    rancher.make_config("nc-gpu", FOUR_Q, FOUR_Q)
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    pools = (
        rancher.pool("cp", 1, "nc-cp", **CONTROL_ROLES),
        rancher.pool("gpu", 1, "nc-gpu", labels={"accelerator": "vgpu"}, taints=[taint]),
    )
    rancher.make_cluster("demo", *pools)
    guest = rancher.ready("demo")
    (gpu_node,), (plain,) = rancher.running("gpu"), rancher.running("cp")
    nodes = {node["metadata"]["name"]: node for node in guest.items(NODES)}
    assert set(nodes) == {gpu_node, plain}
    assert nodes[gpu_node]["metadata"]["labels"]["accelerator"] == "vgpu"
    assert taint.items() <= nodes[gpu_node]["spec"]["taints"][0].items()
    assert "node-role.kubernetes.io/control-plane" in nodes[plain]["metadata"]["labels"]
    assert "nvidia.com/gpu" not in nodes[gpu_node]["status"]["allocatable"]

    # What is missing is told one by one.
    guest.make("/api/v1/namespaces", {"metadata": {"name": OPERATOR}})
    install(guest)
    rancher.until(lambda: state(guest)[0] == "notReady" and "no public driver" in state(guest)[1])
    install(guest, driver=DRIVER)
    rancher.until(lambda: 'secret "licence" not found' in state(guest)[1])
    data = {"client_configuration_token.tok": "token", "gridd.conf": "FeatureType=1"}
    guest.make(f"/api/v1/namespaces/{OPERATOR}/secrets", {"metadata": {"name": "licence"}, "stringData": data})
    rancher.until(lambda: "containerd.sock" in state(guest)[1])
    rancher.until(lambda: waiting_reason(guest, "toolkit") == "CrashLoopBackOff")
    install(guest, driver={"enabled": False}, toolkit={"env": SOCKET})
    rancher.until(lambda: "none is loaded on the node" in state(guest)[1])
    install(guest, driver=DRIVER, toolkit={"env": SOCKET})
    rancher.until(lambda: state(guest)[0] == "ready")
    rancher.until(lambda: guest.read(f"{NODES}/{gpu_node}")["status"]["allocatable"].get("nvidia.com/gpu") == "2")
    assert "nvidia.com/gpu" not in guest.read(f"{NODES}/{plain}")["status"]["allocatable"]

    phase, log = run(rancher, guest, "passes", gpu_node, gpus=1)
    assert phase == "Succeeded"
    assert "Test PASSED" in log
    phase, log = run(rancher, guest, "fails", plain, gpus=0)
    assert phase == "Failed"
    assert "no CUDA-capable device" in log

    # Nodes go with their machines.
    rancher.change_pool("demo", "gpu", quantity=0)
    rancher.until(lambda: [node["metadata"]["name"] for node in guest.items(NODES)] == [plain])
    rancher.local.delete(f"{CLUSTERS}/demo")
    rancher.until(lambda: not rancher.vms())


def test_a_driver_in_the_image_needs_none_from_the_operator(rancher: Rancher) -> None:
    disk = f'{{"disks":[{{"imageName":"{rancher.env["LAB_RANCHER_IMAGE_WITH_DRIVER"]}","bootOrder":1,"size":40}}]}}'
    rancher.make_config("nc-all", FOUR_Q, diskInfo=disk)
    rancher.make_cluster("demo", rancher.pool("all", 1, "nc-all", **CONTROL_ROLES))
    guest = rancher.ready("demo")
    guest.make("/api/v1/namespaces", {"metadata": {"name": OPERATOR}})
    install(guest, driver={"enabled": False}, toolkit={"env": SOCKET})
    rancher.until(lambda: state(guest)[0] == "ready")
    (node,) = rancher.running("all")
    rancher.until(lambda: guest.read(f"{NODES}/{node}")["status"]["allocatable"].get("nvidia.com/gpu") == "1")
    assert run(rancher, guest, "passes", node, gpus=1)[0] == "Succeeded"
