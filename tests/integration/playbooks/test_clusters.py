"""From bare hosts to GPU clusters and back, by the playbooks alone, as AWX runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.integration.api import VMS
from tests.integration.labs import Lab
from tests.integration.modules.permissions import Automation
from tests.integration.playbooks.runs import CHECKOUT, Runs

DEMO: dict[str, Any] = yaml.safe_load((CHECKOUT / "demo/cluster.yml").read_text())
# Here is no Rancher.
CLUSTER = {name: value for name, value in DEMO.items() if not name.startswith(("rancher_", "gpu_operator_"))}
SECRET = "do-not-tell"


def test_bare_harvester_hosts_become_a_gpu_cluster_and_go_back(bare: Lab, runs: Runs) -> None:
    vms = [{**vm, "user_data": f"#cloud-config\npassword: {SECRET}"} for vm in CLUSTER["harvester_gpu_vm_vms"]]
    cluster = {**CLUSTER, "harvester_gpu_vm_vms": vms}
    rehearsal = runs.playbook("harvester_gpu_cluster", cluster, check=True)
    assert (rehearsal.status, rehearsal.tasks) == (
        "successful",
        ["GPUs are found", "The driver is ready on every GPU node"],
    )

    made = runs.playbook("harvester_gpu_cluster", cluster)
    assert made.status == "successful", made.shown
    profiles = made.artifacts["vgpu_capacity"]["localhost"]["profiles"]
    assert profiles["A2-4Q"] == {"there": 4, "in_use": 3, "claimed": 0, "free": 1, "creatable": 3}
    assert {node: bare.amounts(node)["nvidia.com/NVIDIA_A2-4Q"] for node in ("gpu-a", "gpu-b")} == {
        "gpu-a": 2,
        "gpu-b": 2,
    }
    assert SECRET not in made.shown
    assert SECRET not in str(made.events)

    bare.mark()
    again = runs.playbook("harvester_gpu_cluster", cluster, options="--skip-tags report")
    assert (again.status, again.changed) == ("successful", 0)
    assert [event for event in bare.audit() if "dryRun=All" not in event["requestURI"]] == []

    refused = runs.playbook("teardown", cluster)
    assert "vgpu_teardown_confirm" in refused.failure
    gone = runs.playbook("teardown", {**cluster, "vgpu_teardown_confirm": "true"})
    assert gone.status == "successful", gone.shown
    assert bare.items(VMS) == []
    assert sum(sum(bare.amounts(node).values()) for node in ("gpu-a", "gpu-b")) == 0


def test_bare_esxi_hosts_become_machines_for_a_bootstrap_role_and_go_back(
    bare: Lab, runs: Runs, tmp_path: Path
) -> None:
    inventory = tmp_path / "machines.yml"
    addressed = {"name": "VM Network", "ip": ["192.0.2.11/24"]}
    first, second = CLUSTER["vsphere_gpu_vm_vms"]
    cluster = {
        **CLUSTER,
        "vsphere_gpu_vm_vms": [{**first, "networks": [addressed]}, second],
        "vsphere_gpu_cluster_inventory": str(inventory),
    }
    rehearsal = runs.playbook("vsphere_gpu_cluster", cluster, check=True)
    assert (rehearsal.status, rehearsal.tasks) == ("successful", ["The GPUs are shared direct"])

    made = runs.playbook("vsphere_gpu_cluster", cluster)
    assert made.status == "successful", made.shown
    assert yaml.safe_load(inventory.read_text())["gpu_machines"]["hosts"] == {
        "worker-1": {"ansible_host": "192.0.2.11", "vgpu_profiles": ["A40-24C"]},
        "worker-2": {"ansible_host": "worker-2", "vgpu_profiles": ["A40-8Q"]},
    }
    counts = made.artifacts["vgpu_capacity"]["localhost"]["profiles"]
    assert {name: count["in_use"] for name, count in counts.items()} == {"A40-24C": 1, "A40-8Q": 2}
    again = runs.playbook("vsphere_gpu_cluster", cluster)
    assert (again.status, again.changed) == ("successful", 0)
    # A cluster that the machines have become is tested, here one without GPUs.
    guest = {**cluster, "guest_kubeconfig": str(bare.run.kubeconfig("admin"))}
    tested = runs.playbook("vsphere_gpu_cluster", guest, options="--tags smoke")
    assert "No node offers nvidia.com/gpu" in tested.failure, tested.shown

    gone = runs.playbook("teardown", {**cluster, "vgpu_teardown_confirm": "true", "vgpu_teardown_platform": "vsphere"})
    assert gone.status == "successful", gone.shown
    left = runs.playbook("capacity", {"vgpu_capacity_platform": "vsphere"})
    assert left.artifacts["vgpu_capacity"]["localhost"]["profiles"] == {}


def test_a_request_that_is_refused_ends_the_run_with_its_reason(bare: Lab, runs: Runs) -> None:
    """The user may switch addons on and read GPUs, but not all that belongs to them, as shows once it is there."""
    user = Automation(bare)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-addons", "vgpu-fleet-version", without=["pcideviceclaims"])
    refused = runs.playbook(
        "harvester_gpu_cluster", {**CLUSTER, "harvester_kubeconfig": str(user.kubeconfig)}, options="--tags node"
    )
    assert "pcideviceclaims" in refused.failure, refused.shown
    assert refused.failed_task == "GPUs have been looked for"
    user.withdraw()
