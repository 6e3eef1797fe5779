"""A smoke test whose GPU is busy ends by itself, also after a run that was killed, and touches nobody's pods (SM1)."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.integration.api import NODES
from tests.integration.lab_rancher.test_gpu_cluster_role import connection, failures, named, trying
from tests.integration.lab_rancher.test_guest import JOBS, OPERATOR, PODS, SOCKET, install, state
from tests.integration.modules.playbooks import Json, Playbooks
from tests.integration.ranchers import CONTROL_ROLES, FOUR_Q, Cluster, Rancher

BUSY: Json = {
    "metadata": {"name": "training"},
    "spec": {
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {"name": "main", "image": "registry.example/training", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        ],
    },
}

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ansible_collections.kubernetes") is None, reason="kubernetes.core is not installed"
)


def busy_cluster(rancher: Rancher) -> Cluster:
    """One node, whose only GPU somebody uses."""
    disk = f'{{"disks":[{{"imageName":"{rancher.env["LAB_RANCHER_IMAGE_WITH_DRIVER"]}","bootOrder":1,"size":40}}]}}'
    rancher.make_config("nc-all", FOUR_Q, diskInfo=disk)
    rancher.make_cluster("demo", rancher.pool("all", 1, "nc-all", **CONTROL_ROLES))
    guest = rancher.ready("demo")
    guest.make("/api/v1/namespaces", {"metadata": {"name": OPERATOR}})
    install(guest, driver={"enabled": False}, toolkit={"env": SOCKET})
    rancher.until(lambda: state(guest)[0] == "ready")
    (node,) = rancher.running("all")
    rancher.until(lambda: guest.read(f"{NODES}/{node}")["status"]["allocatable"].get("nvidia.com/gpu") == "1")
    guest.make(PODS, BUSY)
    rancher.until(lambda: phase(guest, "training") == "Running")
    return guest


def phase(guest: Cluster, pod: str) -> str:
    return str(guest.read(f"{PODS}/{pod}")["status"].get("phase"))


def ended(guest: Cluster) -> dict[str, Any] | None:
    (job,) = guest.items(JOBS)
    found = [
        one for one in job["status"].get("conditions") or [] if one["type"] == "Failed" and one["status"] == "True"
    ]
    return found[0] if found else None


def test_a_job_that_waits_for_a_busy_gpu_is_told_and_ends_by_its_deadline(rancher: Rancher, plays: Playbooks) -> None:
    guest = busy_cluster(rancher)
    there = connection(rancher)
    # A job that is kept is what a run that was killed leaves behind.
    given = named("gpu_smoke_test", connection=there, wait_timeout=1, keep=True)
    (told,) = failures(plays.run_all(trying("gpu_smoke_test", given)))
    (node,) = rancher.running("all")
    assert f"Node {node} did not pass" in told
    assert "Insufficient nvidia.com/gpu" in told
    assert ended(guest) is None
    assert len(guest.items(PODS)) == 2

    # Kubernetes ends it, in real time: after twice the second that the run has waited, and a minute.
    assert rancher.until(lambda: ended(guest))["reason"] == "DeadlineExceeded"
    rancher.until(lambda: [one["metadata"]["name"] for one in guest.items(PODS)] == ["training"])
    assert phase(guest, "training") == "Running"

    # A run that is not killed takes its jobs along.
    (job,) = guest.items(JOBS)
    guest.delete(f"{JOBS}/{job['metadata']['name']}")
    rancher.until(lambda: guest.items(JOBS) == [])
    (told,) = failures(plays.run_all(trying("gpu_smoke_test", {**given, "gpu_smoke_test_keep": False})))
    assert f"Node {node} did not pass" in told
    rancher.until(lambda: guest.items(JOBS) == [])
    assert phase(guest, "training") == "Running"
