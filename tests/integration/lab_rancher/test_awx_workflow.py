"""The workflows, job after job as AWX runs them: by answers of their surveys and injected credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from lab.programs import binaries
from lab.scenarios import scenario
from lab.vsphere import vcsim
from tests.integration.api import Json
from tests.integration.playbooks import credentials
from tests.integration.playbooks.credentials import Injected
from tests.integration.playbooks.runs import Run, Runs
from tests.integration.ranchers import CLUSTERS, Rancher
from tests.integration.warm_interpreter import Warm
from tests.unit.awx.data import TEMPLATES, WORKFLOWS

TOKEN_OF_THE_LICENCE = "a-token-of-the-licence-server"
MACHINE = {"image": "default/image-ubuntu", "networks": ["default/vlan1"], "ssh_user": "ubuntu"}
POOLS = [
    {"name": "control", "quantity": 1, "roles": ["etcd", "control_plane", "worker"], **MACHINE},
    {"name": "gpu", "quantity": 1, "vgpus": [{"profile": "A2-4Q"}], **MACHINE},
]
TAGS = (("job_tags", "--tags"), ("skip_tags", "--skip-tags"))


def run_of(step: Json, runs: Runs, variables: Json) -> Run:
    """The job of a step; variables of a workflow win over those of its job templates."""
    (template,) = (one for one in TEMPLATES if one["name"] == step["template"])
    done = runs.playbook(
        Path(template["playbook"]).stem,
        {**template.get("extra_vars", {}), **variables},
        check=step.get("job_type") == "check",
        options=" ".join(f"{option} {step[key]}" for key, option in TAGS if key in step),
    )
    assert done.status == "successful", done.shown
    assert TOKEN_OF_THE_LICENCE not in done.shown
    return done


def test_what_the_survey_asks_for_becomes_a_cluster_whose_gpus_work(
    rancher: Rancher, tmp_path: Path, warm: Warm
) -> None:
    (workflow,) = (one for one in WORKFLOWS if one["name"].startswith("GPU cluster on Harvester"))
    answers = {
        "vgpu_fleet_hosts": "localhost",
        "rancher_gpu_cluster_name": "ml",
        "rancher_gpu_cluster_kubernetes_version": "v1.34.1+rke2r1",
        "rancher_gpu_cluster_harvester": rancher.env["LAB_RANCHER_HARVESTER_ID"],
        "vgpu_survey_pools": yaml.safe_dump(POOLS),
        "gpu_operator_driver_repository": "registry.example/nvidia",
        "gpu_operator_driver_version": "570.172.08",
        "gpu_operator_licence_token": TOKEN_OF_THE_LICENCE,
    }
    assert set(workflow["required"]) <= set(answers) <= set(workflow["survey"])
    of_rancher = {
        "url": rancher.env["RANCHER_URL"],
        "token": rancher.env["RANCHER_TOKEN_KEY"],
        "ca_cert": Path(rancher.env["LAB_RANCHER_CA_FILE"]).read_text(),
    }
    of_harvester = {"kubeconfig": rancher.lab.run.kubeconfig("admin").read_text()}
    given = credentials.injected("Harvester kubeconfig", of_harvester, tmp_path)
    also = credentials.injected("Rancher token", of_rancher, tmp_path)
    runs = Runs(tmp_path, {**given.environment, **also.environment, "HOME": str(tmp_path)}, warm)

    artifacts: Json = {}
    for step in workflow["steps"]:
        if "approval" in step:
            # Whoever approves knows what there is, and nothing has been made.
            assert artifacts["vgpu_capacity"]["localhost"]["profiles"]["A2-4Q"]["free"] == 4
            plan = artifacts["vgpu_pool_plan"]["localhost"]
            assert plan["summary"] == "2 steps, no VM is stopped"
            assert plan["lines"][-1] == "2. Pool gpu of cluster ml: 1 machine with 1 x A2-4Q each"
            assert rancher.local.items(CLUSTERS) == []
        else:
            artifacts |= run_of(step, runs, {**artifacts, **answers, **also.variables}).artifacts
    tested = artifacts["gpu_smoke_test"]["localhost"]
    assert [(one["node"], one["passed"]) for one in tested] == [(node, True) for node in rancher.running("gpu")]
    # The machines on vSphere become a cluster by other means. Here it is the one that there is.
    identity = rancher.local.read(f"{CLUSTERS}/ml")["status"]["clusterName"]
    host = f"{of_rancher['url']}/k8s/clusters/{identity}"
    guest = credentials.bearer_token(host, of_rancher["token"], of_rancher["ca_cert"], tmp_path)
    with vcenter(tmp_path / "vcenter") as running:
        nodes = workflow_on_vsphere(running, guest, tmp_path, warm)
    assert nodes == rancher.running("gpu")


@contextmanager
def vcenter(folder: Path) -> Iterator[dict[str, str]]:
    """The vCenter of the default scenario, which the lab of these tests lacks, as variables of the environment."""
    inventory = vcsim.inventory_from_scenario(dict(scenario.load("default").vsphere))
    info = vcsim.start(folder, inventory, binary=binaries.ensure(["vgpu-vcsim"])["vgpu-vcsim"])
    try:
        yield vcsim.env(info)
    finally:
        vcsim.stop(folder)


def workflow_on_vsphere(running: dict[str, str], guest: Injected, folder: Path, warm: Warm) -> list[str]:
    """Run all steps of the workflow on vSphere. Return the nodes that passed the test of their GPUs."""
    (workflow,) = (one for one in WORKFLOWS if one["name"].startswith("GPU cluster on vSphere"))
    answers = {
        "vgpu_fleet_hosts": "localhost",
        "vsphere_gpu_host_cluster": "gpu",
        "vsphere_gpu_vm_count": 2,
        "vsphere_gpu_vm_prefix": "desk",
        "vsphere_gpu_vm_profile": "A40-8Q",
        "vgpu_survey_vsphere_vm": "{template: ubuntu-22.04-efi, cluster: gpu, cpus: 2, memory_mb: 4096}",
    }
    assert set(workflow["required"]) <= set(answers) <= set(workflow["survey"])
    page = folder / "plan.html"
    # Variables of the inventory. A real vCenter has its usual port.
    settings = {"vcenter_port": running["VMWARE_PORT"], "vgpu_plan_html": str(page)}
    given = credentials.vcenter(*(running[name] for name in ("VMWARE_HOST", "VMWARE_USER", "VMWARE_PASSWORD")))
    (folder / "vsphere").mkdir()
    (folder / "kubernetes").mkdir()
    on_vsphere = Runs(folder / "vsphere", {**given.environment, "HOME": str(folder)}, warm)
    on_kubernetes = Runs(folder / "kubernetes", {**guest.environment, "HOME": str(folder)}, warm)
    platforms = {one["name"]: one["platform"] for one in TEMPLATES}

    artifacts: Json = {}
    ran = []
    for step in workflow["steps"]:
        if "approval" in step:
            # Whoever approves is pointed to the plan, can read it as text and as a page, and nothing has been made.
            assert "vgpu_plan" in step["approval"]["description"]
            plan = artifacts["vgpu_plan"]["localhost"]
            assert plan["summary"] == "2 steps, no VM is stopped"
            assert [line.partition(". ")[2] for line in plan["lines"]] == [
                "Create VM desk-1 with 1 x A40-8Q",
                "Create VM desk-2 with 1 x A40-8Q",
            ]
            assert plan["page"] == str(page)
            assert "Create VM desk-2 with 1 x A40-8Q" in page.read_text()
            assert artifacts["vgpu_capacity"]["localhost"]["profiles"] == {}
        else:
            runs = on_kubernetes if platforms[step["template"]] == "kubernetes" else on_vsphere
            artifacts |= run_of(step, runs, {**artifacts, **settings, **answers}).artifacts
        ran.append(step["identifier"])
    assert ran == ["capacity", "dry_run", "approve", "provision", "smoke"]
    assert artifacts["vgpu_capacity"]["localhost"]["profiles"]["A40-8Q"]["in_use"] == 2
    tested = artifacts["gpu_smoke_test"]["localhost"]
    assert all(one["passed"] for one in tested)
    return [one["node"] for one in tested]
