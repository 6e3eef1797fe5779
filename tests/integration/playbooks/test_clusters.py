"""From bare hosts to GPU clusters and back, by the playbooks alone, as AWX runs them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.integration.api import VMS
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import writes
from tests.integration.modules.permissions import Automation
from tests.integration.playbooks.runs import CHECKOUT, INSTALLED, Runs

DEMO: dict[str, Any] = yaml.safe_load((CHECKOUT / "demo/cluster.yml").read_text())
# This lab has neither Rancher nor Cluster API.
ELSEWHERE = ("rancher_", "gpu_operator_", "capv_")
CLUSTER = {name: value for name, value in DEMO.items() if not name.startswith(ELSEWHERE)}
SECRET = "do-not-tell"
HOST_STEPS = {"Set the graphics type of the GPUs to shared", "Show the step that follows once the VMs are deleted"}


def test_bare_harvester_hosts_become_a_gpu_cluster_and_go_back(bare: Lab, runs: Runs, tmp_path: Path) -> None:
    vms = [{**vm, "user_data": f"#cloud-config\npassword: {SECRET}"} for vm in CLUSTER["harvester_gpu_vm_vms"]]
    cluster = {**CLUSTER, "harvester_gpu_vm_vms": vms}
    # Whoever makes a cluster of the VMs writes its kubeconfig later.
    later = {**cluster, "guest_kubeconfig": str(tmp_path / "guest.yaml")}
    # F2: the first step of the workflow in AWX.
    capacity = runs.playbook("capacity")
    assert (capacity.status, capacity.artifacts) == ("successful", {"vgpu_capacity": {"localhost": {"profiles": {}}}})
    assert "No GPU is known yet, because the addon pcidevices-controller is not enabled." in capacity.shown
    required = runs.playbook("capacity", {"vgpu_capacity_require": True})
    assert (required.status, "pcidevices-controller" in required.failure) == ("failed", True)
    rehearsal = runs.playbook("harvester_gpu_cluster", later, check=True)
    assert (rehearsal.status, rehearsal.tasks) == (
        "successful",
        [
            "Enable the pcidevices-controller addon",
            "Enable the nvidia-driver-toolkit addon and wait for the driver on every GPU node",
        ],
    )

    made = runs.playbook("harvester_gpu_cluster", cluster)
    assert made.status == "successful", made.shown
    profiles = made.artifacts["vgpu_capacity"]["localhost"]["profiles"]
    assert profiles["A2-4Q"] == {"total": 4, "in_use": 3, "claimed": 0, "free": 1, "creatable": 3}
    assert {node: bare.amounts(node)["nvidia.com/NVIDIA_A2-4Q"] for node in ("gpu-a", "gpu-b")} == {
        "gpu-a": 2,
        "gpu-b": 2,
    }
    assert SECRET not in made.shown
    assert SECRET not in str(made.events)

    bare.mark()
    again = runs.playbook("harvester_gpu_cluster", cluster, options="--skip-tags report")
    assert (again.status, again.changed) == ("successful", 0)
    # U13: how long a run that changes nothing is.
    assert again.lines <= 130, again.shown
    assert len(again.skipped) <= 24, again.skipped
    assert writes(bare) == []

    refused = runs.playbook("teardown", cluster)
    assert "vgpu_teardown_confirm" in refused.failure
    # T2: the dry run shows the step for the GPUs as well, although the VMs still use them.
    foreseen = runs.playbook("teardown", cluster, check=True)
    assert (foreseen.status, foreseen.tasks[-1]) == (
        "successful",
        "Show the steps that follow once the VMs are deleted",
    )
    assert "Disable SR-IOV on GPU gpu-b-000008000." in foreseen.shown
    gone = runs.playbook("teardown", {**cluster, "vgpu_teardown_confirm": "true"})
    assert gone.status == "successful", gone.shown
    assert bare.items(VMS) == []
    assert not any(bare.gpu(gpu)["spec"]["enabled"] for gpu in ("gpu-a-000008000", "gpu-b-000008000"))
    assert bare.find("/api/v1/namespaces/default/secrets/trainer-cloudinit") is None
    assert sum(sum(bare.amounts(node).values()) for node in ("gpu-a", "gpu-b")) == 0


def test_bare_esxi_hosts_become_machines_for_a_bootstrap_role_and_go_back(
    bare: Lab, runs: Runs, tmp_path: Path
) -> None:
    inventory = tmp_path / "machines.yml"
    addressed = {"name": "VM Network", "ip": ["192.0.2.11/24"]}
    secret = {"user_data": f"#cloud-config\npassword: {SECRET}"}
    first, second = CLUSTER["vsphere_gpu_vm_vms"]
    cluster = {
        **CLUSTER,
        "vsphere_gpu_vm_vms": [{**first, "networks": [addressed], "cloud_init": secret}, second],
        "vsphere_gpu_cluster_inventory": str(inventory),
    }
    # A2: without a cluster or hosts the playbook ends before it has changed anything.
    unnamed = {name: value for name, value in cluster.items() if name != "vsphere_gpu_host_cluster"}
    refused = runs.playbook("vsphere_gpu_cluster", unnamed)
    assert "vsphere_gpu_host_cluster or vsphere_gpu_host_hosts" in refused.failure, refused.shown
    assert refused.changed == 0
    rehearsal = runs.playbook("vsphere_gpu_cluster", cluster, check=True)
    assert (rehearsal.status, rehearsal.tasks) == ("successful", ["Set the graphics type of the GPUs to shared direct"])

    made = runs.playbook("vsphere_gpu_cluster", cluster)
    assert made.status == "successful", made.shown
    assert yaml.safe_load(inventory.read_text())["gpu_machines"]["hosts"] == {
        "worker-1": {
            "ansible_host": "192.0.2.11",
            "vgpu_profiles": ["A40-24C"],
            "vgpu_cluster_host": "localhost",
        },
        "worker-2": {
            "ansible_host": "worker-2",
            "vgpu_profiles": ["A40-8Q", "A40-8Q"],
            "vgpu_cluster_host": "localhost",
        },
    }
    assert SECRET not in made.shown
    assert SECRET not in str(made.events)
    counts = made.artifacts["vgpu_capacity"]["localhost"]["profiles"]
    assert {name: count["in_use"] for name, count in counts.items()} == {"A40-24C": 1, "A40-8Q": 2}
    again = runs.playbook("vsphere_gpu_cluster", cluster)
    assert (again.status, again.changed) == ("successful", 0)
    assert again.lines <= 140, again.shown
    assert len(again.skipped) <= 18, again.skipped
    handed_on_by_two_vcenters(cluster, runs, tmp_path)
    # A cluster that the machines have become is tested, here one without GPUs.
    guest = {**cluster, "guest_kubeconfig": str(bare.run.kubeconfig("admin"))}
    tested = runs.playbook("vsphere_gpu_cluster", guest, options="--tags smoke")
    assert "No node offers nvidia.com/gpu" in tested.failure, tested.shown

    platform = {"all": {"hosts": {"localhost": {"vgpu_teardown_platform": "vsphere"}}}}
    confirmed = {**cluster, "vgpu_teardown_confirm": "true"}
    # A2: the hosts are left alone unless they are named, and the dry run shows their step although VMs are in the way.
    unnamed = {name: value for name, value in confirmed.items() if name != "vsphere_gpu_host_cluster"}
    foreseen = runs.playbook("teardown", confirmed, inventory=platform, check=True)
    assert (foreseen.status, foreseen.tasks[-1] in HOST_STEPS) == ("successful", True), foreseen.tasks
    # A VM that is not declared uses a host: nothing is deleted before that is refused.
    some = {**confirmed, "vsphere_gpu_vm_vms": [first]}
    refused = runs.playbook("teardown", some, inventory=platform)
    assert (refused.status, refused.changed) == ("failed", 0), refused.shown
    assert second["name"] in refused.failure
    left = runs.playbook("capacity", {"vgpu_capacity_platform": "vsphere"}).artifacts["vgpu_capacity"]["localhost"]
    assert {name: count["in_use"] for name, count in left["profiles"].items()} == {"A40-24C": 1, "A40-8Q": 2}
    gone = runs.playbook("teardown", unnamed, inventory=platform)
    assert (gone.status, set(gone.tasks) & HOST_STEPS) == ("successful", set()), gone.shown
    again = runs.playbook("teardown", confirmed, inventory=platform)
    assert (again.status, again.tasks) == ("successful", ["Set the graphics type of the GPUs to shared"]), again.shown
    left = runs.playbook("capacity", {"vgpu_capacity_platform": "vsphere"})
    assert left.artifacts["vgpu_capacity"]["localhost"]["profiles"] == {}


def handed_on_by_two_vcenters(cluster: dict[str, Any], runs: Runs, folder: Path) -> None:
    """The machines of both are bootstrapped, by a role that notes what it was told about each. Both have a worker-2."""
    role, notes = folder / "bootstrap", folder / "notes"
    (role / "tasks").mkdir(parents=True)
    notes.mkdir()
    note = {
        "dest": f"{notes}/{{{{ inventory_hostname }}}}",
        "content": "{{ vgpu_cluster_host }} {{ vgpu_profiles | join(' ') }} {{ ansible_facts.system }}",
        "mode": "0600",
    }
    (role / "tasks/main.yml").write_text(yaml.safe_dump([{"name": "Note", "ansible.builtin.copy": note}]))
    first, second = cluster["vsphere_gpu_vm_vms"]
    vcenters = {"east": {"vsphere_gpu_vm_vms": [first, second]}, "west": {"vsphere_gpu_vm_vms": [second]}}
    common = {name: value for name, value in cluster.items() if name != "vsphere_gpu_vm_vms"}
    done = runs.playbook(
        "vsphere_gpu_cluster",
        {
            **common,
            "vgpu_fleet_hosts": "vcenters",
            "vsphere_gpu_cluster_bootstrap_role": str(role),
            # What the lab's machines lack is somebody who answers.
            "ansible_connection": "local",
        },
        inventory={"vcenters": {"hosts": vcenters}},
        options="--tags bootstrap",
    )
    assert done.status == "successful", done.shown
    assert set(done.tasks) == {"Write the VMs to an inventory file", "Note"}
    assert {file.name: file.read_text() for file in notes.iterdir()} == {
        "worker-1": "east A40-24C Linux",
        "east-worker-2": "east A40-8Q A40-8Q Linux",
        "west-worker-2": "west A40-8Q A40-8Q Linux",
    }
    written = yaml.safe_load((folder / "machines.yml").read_text())["gpu_machines"]["hosts"]
    assert set(written) == {"worker-1", "east-worker-2", "west-worker-2"}


def test_the_cluster_that_rancher_makes_is_not_tested_before_it_is_known(runs: Runs) -> None:
    refused = runs.playbook("harvester_gpu_cluster", DEMO, options="--tags smoke")
    assert (
        "The connection to cluster ml is known only after Rancher has created it. Add the tag cluster."
        in refused.failure
    ), refused.shown


def test_every_playbook_is_found_by_its_full_name() -> None:
    """In the collection as it is installed, in one run for all of them."""
    names = [f"vgpu.fleet.{file.stem}" for file in sorted((CHECKOUT / "playbooks").glob("*.yml"))]
    assert len(names) == 9
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED), "ANSIBLE_LOCALHOST_WARNING": "false"}
    checked = subprocess.run(
        ["ansible-playbook", "--syntax-check", *names],
        cwd=INSTALLED,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count(f"playbook: {INSTALLED}/") == len(names)


def test_a_request_that_is_refused_ends_the_run_with_its_reason(bare: Lab, runs: Runs) -> None:
    """The user may switch addons on and read GPUs, but not all that belongs to them, as shows once it is there."""
    user = Automation(bare)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-addons", "vgpu-fleet-version", without=["pcideviceclaims"])
    refused = runs.playbook(
        "harvester_gpu_cluster", {**CLUSTER, "harvester_kubeconfig": str(user.kubeconfig)}, options="--tags node"
    )
    assert "pcideviceclaims" in refused.failure, refused.shown
    assert refused.failed_task == "Wait until the nodes report their GPUs"
    user.withdraw()
