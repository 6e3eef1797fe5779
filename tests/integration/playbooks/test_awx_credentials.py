"""Playbooks run with what AWX injects of a credential, and what a survey or the inventory says: nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.integration.api import VMS
from tests.integration.labs import Lab
from tests.integration.playbooks import credentials
from tests.integration.playbooks.credentials import Injected
from tests.integration.playbooks.runs import Run, Runs
from tests.integration.warm_interpreter import Warm


def job(tmp_path: Path, warm: Warm, playbook: str, given: Injected, answers: dict[str, Any], **more: Any) -> Run:
    """As a job of AWX: an execution environment has no kubeconfig of its own."""
    environment = {**given.environment, "HOME": str(tmp_path)}
    done = Runs(tmp_path, environment, warm).playbook(playbook, {**given.variables, **answers}, **more)
    assert done.status == "successful", done.shown
    return done


def test_a_kubeconfig_and_a_survey_make_vms_on_harvester(lab: Lab, tmp_path: Path, warm: Warm) -> None:
    """The context is the kubeconfig's own."""
    content = lab.run.kubeconfig("admin").read_text()
    given = credentials.injected("Harvester kubeconfig", {"kubeconfig": content}, tmp_path)
    assert list(given.environment) == ["K8S_AUTH_KUBECONFIG"]
    answers = {
        "vgpu_fleet_hosts": "localhost",
        "harvester_gpu_node_profile": "A2-4Q",
        "harvester_gpu_node_count": 1,
        "harvester_gpu_vm_count": 1,
        "harvester_gpu_vm_prefix": "desk",
        "harvester_gpu_vm_profile": "A2-4Q",
        "vgpu_survey_harvester_vm": "{cpus: 2, memory_gib: 3, disks: [{container: registry.example/ubuntu}]}",
    }
    made = job(tmp_path, warm, "harvester_gpu_cluster", given, answers)
    assert made.artifacts["vgpu_capacity"]["localhost"]["profiles"]["A2-4Q"]["in_use"] == 1
    (vm,) = lab.items(VMS)
    spec = vm["spec"]["template"]["spec"]
    assert (vm["metadata"]["name"], spec["domain"]["cpu"]["cores"]) == ("desk-1", 2)
    assert [volume["containerDisk"]["image"] for volume in spec["volumes"]] == ["registry.example/ubuntu"]


def test_a_vcenter_and_a_survey_make_vms_on_vsphere(lab: Lab, tmp_path: Path, warm: Warm) -> None:
    given = credentials.vcenter(*(lab.env[name] for name in ("VMWARE_HOST", "VMWARE_USER", "VMWARE_PASSWORD")))
    answers = {
        "vgpu_fleet_hosts": "localhost",
        "vsphere_gpu_host_cluster": "gpu",
        "vsphere_gpu_vm_count": 1,
        "vsphere_gpu_vm_prefix": "desk",
        "vsphere_gpu_vm_profile": "A40-8Q",
        "vgpu_survey_vsphere_vm": "{template: ubuntu-22.04-efi, cluster: gpu, cpus: 2, memory_mb: 4096}",
        # A real one has its usual port.
        "vcenter_port": lab.env["VMWARE_PORT"],
    }
    made = job(tmp_path, warm, "vsphere_gpu_cluster", given, answers)
    assert made.artifacts["vgpu_capacity"]["localhost"]["profiles"]["A40-8Q"]["in_use"] == 1


def test_a_bearer_token_or_an_inventory_with_one_for_each_cluster_is_enough_to_read(
    lab: Lab, tmp_path: Path, warm: Warm
) -> None:
    address, authority = lab.env["LAB_API_SERVER"], lab.env["LAB_CA_FILE"]
    token = yaml.safe_load(lab.run.kubeconfig("viewer").read_text())["users"][0]["user"]["token"]
    given = credentials.bearer_token(address, token, Path(authority).read_text(), tmp_path)
    seen = job(tmp_path, warm, "capacity", given, {"vgpu_fleet_hosts": "localhost"}).artifacts["vgpu_capacity"]

    reached = {"harvester_host": address, "harvester_api_key": token, "harvester_ca_cert": authority}
    # What a credential gives does not get in the way of what the inventory says.
    other = credentials.injected("Harvester kubeconfig", {"kubeconfig": "no: cluster"}, tmp_path)
    inventory = {"harvesters": {"hosts": {"edge-1": {}, "edge-2": {}}, "vars": reached}}
    (tmp_path / "several").mkdir()
    answers = {"vgpu_fleet_hosts": "harvesters"}
    several = job(tmp_path / "several", warm, "capacity", other, answers, inventory=inventory)
    assert several.artifacts["vgpu_capacity"] == dict.fromkeys(("edge-1", "edge-2"), seen["localhost"])
    assert token not in several.shown


def test_a_rancher_token_is_injected_with_or_without_an_authority(tmp_path: Path) -> None:
    inputs = {"url": "https://rancher.example", "token": "token-abcde:secret"}
    environment = {"RANCHER_URL": "https://rancher.example", "RANCHER_TOKEN_KEY": "token-abcde:secret"}
    known = credentials.injected("Rancher token", inputs, tmp_path)
    assert known == Injected(environment, {"rancher_gpu_cluster_ca_cert": ""})
    private = credentials.injected("Rancher token", {**inputs, "ca_cert": "-----BEGIN"}, tmp_path)
    assert private.environment == environment
    assert Path(private.variables["rancher_gpu_cluster_ca_cert"]).read_text() == "-----BEGIN"
