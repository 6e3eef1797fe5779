"""A cluster on vSphere from nothing: hosts, objects of Cluster API, machines with devices, and a test of their GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.lab_capv.management import Management
from tests.integration.playbooks.runs import Run, Runs

Json = dict[str, Any]
PLAYBOOK = "vsphere_gpu_cluster"
HOSTS = {"vsphere_gpu_host_cluster": "gpu", "vsphere_gpu_host_hosts": ["esx1", "esx2"]}


def result(run: Run) -> Json:
    """Return what the role recorded."""
    return facts(run, "capv_gpu_cluster_result")


def facts(run: Run, name: str) -> Json:
    found = [event["event_data"]["res"].get("ansible_facts") or {} for event in run.results("runner_on_ok")]
    return next(one[name] for one in reversed(found) if name in one)


def pool(*vgpus: str, replicas: int = 1, **more: Any) -> Json:
    return {"name": "gpu", "replicas": replicas, "vgpus": [{"profile": profile} for profile in vgpus], **more}


def test_bare_hosts_become_a_cluster_whose_gpus_pass_a_test(
    serving: Callable[..., Management], runs: Runs, tmp_path: Path
) -> None:
    management = serving("v1beta2", guests=True)
    kubeconfig = tmp_path / "ml.yaml"
    variables = management.variables | HOSTS
    variables |= {
        "capv_gpu_cluster_pools": [pool("A40-24C", replicas=2)],
        "capv_gpu_cluster_kubeconfig": str(kubeconfig),
        "gpu_operator_driver_repository": "registry.example/nvidia",
        "gpu_operator_driver_version": "570.172.08",
        "gpu_operator_licence_token": "a-token",
    }
    made = runs.playbook(PLAYBOOK, variables, options="--skip-tags report")
    assert made.status == "successful", made.shown
    machines = result(made)["machines"]
    assert [(one["pool"], one["state"]) for one in machines] == [
        ("control-plane", "ready"),
        ("gpu", "ready"),
        ("gpu", "ready"),
    ]
    assert {one["devices"][0]["profile"] for one in machines if one["devices"]} == {"nvidia_a40-24c"}
    vms = management.vms()
    workers = [vms[one["vm"]] for one in machines if one["pool"] == "gpu"]
    assert [(one["power"], one["locked"], one["vgpus"]) for one in workers] == [
        ("poweredOn", True, ["nvidia_a40-24c"])
    ] * 2
    # Without these keys a VM with a profile of this size does not start.
    assert all(one["extra"]["pciPassthru.use64bitMMIO"] == "TRUE" for one in workers)
    (tested,) = made.artifacts["gpu_smoke_test"].values()
    assert [one["passed"] for one in tested] == [True, True], tested
    assert kubeconfig.stat().st_mode & 0o077 == 0
    password = variables["capv_gpu_cluster_password"]
    assert password not in json.dumps([event["event_data"].get("res") for event in made.events])

    management.mark()
    again = runs.playbook(PLAYBOOK, variables, options="--tags host,capv")
    assert (again.status, again.changed) == ("successful", 0), again.tasks
    assert management.writes() == []
