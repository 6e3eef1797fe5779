"""The workflow on Harvester, job after job as AWX runs it: by answers of its survey and injected credentials."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.integration.api import Json
from tests.integration.playbooks import credentials
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
    (workflow,) = (one for one in WORKFLOWS if "Harvester" in one["name"])
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
