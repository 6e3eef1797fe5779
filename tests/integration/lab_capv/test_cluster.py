"""Finding D: a cluster on vSphere from nothing, from hosts to machines with devices and a test of their GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.lab_capv.management import MACHINE, Management
from tests.integration.playbooks.runs import Run, Runs, kill_all

Json = dict[str, Any]
PLAYBOOK = "vsphere_gpu_cluster"
HOSTS = {"vsphere_gpu_host_cluster": "gpu", "vsphere_gpu_host_hosts": ["esx1", "esx2"]}
ONLY_CLUSTER = "--tags capv"
A100 = {"vendor_id": "10de", "device_id": "20b5"}


def result(run: Run) -> Json:
    """Return what the role recorded."""
    return facts(run, "capv_gpu_cluster_result")


def facts(run: Run, name: str) -> Json:
    found = [event["event_data"]["res"].get("ansible_facts") or {} for event in run.results("runner_on_ok")]
    return next(one[name] for one in reversed(found) if name in one)


def pool(*vgpus: str, replicas: int = 1, **more: Any) -> Json:
    return {"name": "gpu", "replicas": replicas, "vgpus": [{"profile": profile} for profile in vgpus], **more}


@pytest.fixture
def management(serving: Callable[..., Management], version: str) -> Management:
    """A management cluster that serves only this version. Its clusters run nothing."""
    return serving(version)


@pytest.fixture
def prepared(management: Management, runs: Runs) -> Management:
    """With hosts that serve vGPUs."""
    done = runs.playbook(PLAYBOOK, HOSTS, options="--tags host")
    assert done.status == "successful", done.shown
    management.mark()
    return management


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


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_both_versions_make_replace_and_remove_machines_of_both_kinds(
    version: str, prepared: Management, runs: Runs
) -> None:
    management = prepared
    variables = management.variables | {
        "capv_gpu_cluster_control_plane": {"pci_devices": [A100]},
        "capv_gpu_cluster_pools": [pool("A40-8Q", "A40-8Q", replicas=2)],
    }
    rehearsal = runs.playbook(PLAYBOOK, variables, options=ONLY_CLUSTER, check=True)
    assert rehearsal.status == "successful", rehearsal.shown
    assert rehearsal.changed == 1
    assert management.writes() == []
    made = runs.playbook(PLAYBOOK, variables, options=ONLY_CLUSTER)
    assert made.status == "successful", made.shown
    found = result(made)
    assert set(found["cluster"]["api_versions"].values()) == {version}
    vms = management.vms()
    by_pool = {one["pool"]: vms[one["vm"]] for one in found["machines"]}
    assert (by_pool["control-plane"]["pci"], by_pool["control-plane"]["locked"]) == (["10de:20b5"], True)
    assert by_pool["gpu"]["vgpus"] == ["nvidia_a40-8q"] * 2
    templates = management.names("template")

    # Other devices roll the pool, one machine at a time.
    other = variables | {"capv_gpu_cluster_pools": [pool("A40-24C", replicas=2)]}
    rolled = runs.playbook(PLAYBOOK, other, options=ONLY_CLUSTER)
    assert rolled.status == "successful", rolled.shown
    assert result(rolled)["replaced"] == ["gpu"]
    names = {one["name"] for one in result(rolled)["machines"] if one["pool"] == "gpu"}
    assert len(names) == 2
    assert not names & {one["name"] for one in found["machines"]}
    # The template of the old machines is gone, that of the control plane is still there.
    assert len(management.names("template")) == 2
    assert len(set(templates) & set(management.names("template"))) == 1
    settled = runs.playbook(PLAYBOOK, other, options=ONLY_CLUSTER)
    assert (settled.status, settled.changed) == ("successful", 0), settled.tasks

    spec = {"template": {"spec": MACHINE}}
    labels = {"cluster.x-k8s.io/cluster-name": "ml"}
    management.make("template", {"metadata": {"name": "theirs", "labels": labels}, "spec": spec})
    removed = runs.playbook(PLAYBOOK, other | {"capv_gpu_cluster_state": "absent"}, options=ONLY_CLUSTER)
    assert removed.status == "successful", removed.shown
    assert management.names("cluster") == management.names("deployment") == management.names("resource_set") == []
    assert management.names("template") == ["theirs"]
    assert ["theirs" in sentence for sentence in result(removed)["kept"]] == [True]
    assert management.vms() == {}


REFUSED = {
    "a template that is too old": (
        {"capv_gpu_cluster_machine": MACHINE | {"template": "old-bios"}},
        "hardware version 13",
    ),
    "a large profile without EFI": (
        {
            "capv_gpu_cluster_machine": MACHINE | {"template": "ubuntu-22.04-bios"},
            "capv_gpu_cluster_pools": [pool("A40-48Q")],
        },
        "EFI",
    ),
    "a profile that no host offers": (
        {"capv_gpu_cluster_pools": [pool("L4-24Q")], "capv_gpu_cluster_check_room": False},
        "No host offers",
    ),
    "a profile that does not exist": (
        {"capv_gpu_cluster_pools": [pool("A40-9Q")], "capv_gpu_cluster_check_room": False},
        "A40-9Q",
    ),
    "more machines than fit": ({"capv_gpu_cluster_pools": [pool("A40-48Q", replicas=5)]}, "A40-48Q|a40-48q"),
    "devices that are not there": (
        {"capv_gpu_cluster_pools": [{"name": "gpu", "pci_devices": [A100 | {"custom_label": "none"}]}]},
        "No host has 10de:20b5",
    ),
    "more devices than are free": (
        {"capv_gpu_cluster_pools": [{"name": "gpu", "replicas": 3, "pci_devices": [A100]}]},
        "not have enough free",
    ),
    "a field that the version lacks": (
        {"capv_gpu_cluster_machine": MACHINE | {"guestSoftPowerOffTimeoutSeconds": 60}},
        "guestSoftPowerOffTimeoutSeconds",
    ),
    "an even control plane": ({"capv_gpu_cluster_control_plane": {"replicas": 2}}, "control_plane.replicas"),
}


@pytest.mark.parametrize("version", ["v1beta1"])
def test_what_cannot_work_is_refused_before_anything_is_written(prepared: Management, runs: Runs) -> None:
    old = prepared
    for title, (changed, said) in REFUSED.items():
        variables = old.variables | {"capv_gpu_cluster_pools": [pool("A40-8Q")]} | changed
        refused = runs.playbook(PLAYBOOK, variables, options=ONLY_CLUSTER)
        assert refused.status == "failed", title
        assert re.search(said, refused.failure), (title, refused.failure)
    old.make("vsphere_cluster", {"metadata": {"name": "ml"}, "spec": {"server": "theirs"}})
    refused = runs.playbook(PLAYBOOK, old.variables, options=ONLY_CLUSTER)
    assert "VSphereCluster ml exists and was not made by this collection" in refused.failure
    assert old.writes() == []
    assert old.vms() == {}


@pytest.mark.parametrize("version", ["v1beta2"])
def test_a_run_that_was_killed_is_finished_by_the_next_and_a_failed_machine_is_named(
    prepared: Management, runs: Runs
) -> None:
    new = prepared
    variables = new.variables | {"capv_gpu_cluster_pools": [pool("A40-8Q")]}
    process = runs.started(PLAYBOOK, variables, options=["--tags", "capv"])
    new.until(lambda: new.items("vsphere_cluster"))
    kill_all(process)
    # As many A40-48Q as the hosts have GPUs, and one more: without the check of the room, the last does not start.
    greedy = variables | {
        "capv_gpu_cluster_pools": [pool("A40-48Q", replicas=5)],
        "capv_gpu_cluster_check_room": False,
    }
    failed = runs.playbook(PLAYBOOK, greedy, options=ONLY_CLUSTER)
    assert failed.status == "failed"
    error = failed.results("runner_on_failed")[-1]["event_data"]["res"]["error"]
    assert error["code"] == "machine_failed"
    broken = [one for one in error["machines"] if one["state"] == "failed"]
    assert broken
    assert all(one["reason"] == "TaskFailed" and one["message"] for one in broken), broken
    assert all(one["name"] in error["message"] for one in broken)
    repaired = runs.playbook(PLAYBOOK, variables, options=ONLY_CLUSTER)
    assert repaired.status == "successful", repaired.shown
    assert [one["state"] for one in result(repaired)["machines"]] == ["ready", "ready"]
    # The pool role gives the machines of a deployment that exists other devices, and deletes only its own templates.
    asked = {
        "capv_gpu_pool_connection": variables["capv_gpu_cluster_connection"],
        "capv_gpu_pool_cluster": "ml",
        "capv_gpu_pool_deployment": "ml-gpu",
        "capv_gpu_pool_machine": MACHINE,
        "capv_gpu_pool_vsphere_cluster": "gpu",
        "capv_gpu_pool_wait_timeout": 120,
    }
    before = set(new.names("template"))
    for profile, name in (("A40-8C", "nvidia_a40-8c"), ("NVIDIA A40-24C", "nvidia_a40-24c")):
        vgpus = {"capv_gpu_pool_vgpus": [{"profile": profile}], "capv_gpu_pool_check_room": False}
        given = runs.playbook(PLAYBOOK, asked | vgpus, options=ONLY_CLUSTER)
        assert given.status == "successful", given.shown
        (machine,) = facts(given, "capv_gpu_pool_result")["machines"]
        assert (machine["state"], machine["devices"][0]["profile"]) == ("ready", name)
        assert new.vms()[machine["vm"]]["vgpus"] == [name]
    assert before < set(new.names("template"))
    assert len(new.names("template")) == len(before) + 1
    # A surge needs room of its own: four GPUs are not enough for a fifth machine while four are replaced.
    full = variables | {"capv_gpu_cluster_pools": [pool("A40-48Q", replicas=4)]}
    assert runs.playbook(PLAYBOOK, full, options=ONLY_CLUSTER).status == "failed"
    removed = runs.playbook(PLAYBOOK, variables | {"capv_gpu_cluster_state": "absent"}, options=ONLY_CLUSTER)
    assert removed.status == "successful", removed.shown
    assert new.is_empty()
    assert new.vms() == {}
