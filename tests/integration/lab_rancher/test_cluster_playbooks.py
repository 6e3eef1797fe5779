"""The cluster playbooks to their end, a GPU sample that passed, as AWX runs them; and the way back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.lifecycle import up
from lab.rundir import RunDir
from tests.integration.api import VMS, Json
from tests.integration.labs import Lab
from tests.integration.playbooks.runs import CHECKOUT, Run, Runs
from tests.integration.ranchers import CLUSTERS, CONFIGS, CONTROL_ROLES, FOUR_Q, Rancher
from tests.integration.warm_interpreter import Warm

DEMO: Json = yaml.safe_load((CHECKOUT / "demo/cluster.yml").read_text())
CREDENTIAL = "/api/v1/namespaces/cattle-global-data/secrets/cc-ml"
PASSWORD = "hunter2-in-user-data"
USER_DATA = f"#cloud-config\npassword: {PASSWORD}\n"
# A VM that is of no concern to the cluster.
BYSTANDER = {"name": "bystander", "vgpus": [{"profile": "A2-4Q"}]}


def of_demo(*roles: str) -> Json:
    return {name: value for name, value in DEMO.items() if name.startswith(roles)}


def passed(run: Run, rancher: Rancher, pool: str) -> bool:
    """Whether the job's artifacts tell that just the pool's machines were tested, and how."""
    tested = run.artifacts["gpu_smoke_test"]["localhost"]
    return [one["node"] for one in tested] == rancher.running(pool) and all(one["passed"] for one in tested)


def vms(rancher: Rancher) -> dict[str, bool]:
    """Which there are, and whether they run."""
    return {vm["metadata"]["name"]: bool((vm.get("status") or {}).get("ready")) for vm in rancher.vms()}


@pytest.fixture
def untouched(running: Lab, tmp_path: Path) -> Iterator[Rancher]:
    """On Harvester 1.7, where nothing is enabled yet; the demo is about 1.8."""
    rancher = Rancher(running.begin(version="1.7"), tmp_path)
    yield rancher
    running.api.delete(f"{VMS}/{BYSTANDER['name']}")
    rancher.clean()


def test_from_bare_hosts_to_a_cluster_of_rancher_and_back(untouched: Rancher, tmp_path: Path, warm: Warm) -> None:
    rancher, lab = untouched, untouched.lab
    runs = Runs(tmp_path, rancher.env, warm)
    cluster = {
        **of_demo("rancher_", "gpu_operator_"),
        "rancher_gpu_cluster_ca_cert": rancher.env["LAB_RANCHER_CA_FILE"],
        "rancher_gpu_cluster_harvester": rancher.env["LAB_RANCHER_HARVESTER_ID"],
        "rancher_gpu_cluster_pool_defaults": {**DEMO["rancher_gpu_cluster_pool_defaults"], "user_data": USER_DATA},
        "harvester_gpu_node_layout": [{"profile": "A2-4Q", "count": 1, "per": "node"}],
    }
    with_vm = {**cluster, "harvester_gpu_vm_vms": [BYSTANDER]}

    made = runs.playbook("harvester_gpu_cluster", with_vm)
    assert made.status == "successful", made.shown
    assert passed(made, rancher, "gpu")
    counts = made.artifacts["vgpu_capacity"]["localhost"]["profiles"]["A2-4Q"]
    assert (counts["total"], counts["in_use"]) == (2, 1)
    for secret in (rancher.env["RANCHER_TOKEN_KEY"], PASSWORD, cluster["gpu_operator_licence_token"]):
        assert secret not in made.shown
        assert secret not in str(made.events)
    machines = set(rancher.running())
    rancher.until(lambda: vms(rancher) == dict.fromkeys({"bystander", *machines}, True))

    rancher.mark()
    again = runs.playbook("harvester_gpu_cluster", with_vm, options="--skip-tags report")
    assert (again.status, again.tasks) == ("successful", []), again.shown
    assert passed(again, rancher, "gpu")
    # kubernetes.core asks for what is there already, which changes nothing.
    assert set(rancher.writes()) <= {"patch clusters"}

    rancher.mark()
    refused = runs.playbook("teardown", cluster)
    assert "vgpu_teardown_confirm" in refused.failure
    foreseen = runs.playbook("teardown", cluster, check=True)
    assert foreseen.status == "successful", foreseen.shown
    assert foreseen.tasks[0] == "Delete the cluster and its machines"
    # T2: the machines are still there, and the step for the GPUs is shown all the same.
    assert foreseen.tasks[-1] == "Show the steps that follow once the VMs are deleted", foreseen.shown
    assert rancher.writes() == []
    assert rancher.running() == sorted(machines)

    # What a later stage would refuse is refused before the cluster goes. Its own machines are in nobody's way.
    confirmation = {"vgpu_teardown_confirm": "true"}
    for blocked, reason in (
        (
            {**with_vm, "harvester_gpu_vm_owner": "team-b"},
            "VM default/bystander belongs to owner vgpu.fleet, not to team-b.",
        ),
        ({**cluster, "vgpu_teardown_scope": "everything"}, "is in use by VM default/bystander."),
    ):
        told = runs.playbook("teardown", {**blocked, **confirmation})
        assert (told.status, told.changed) == ("failed", 0), told.shown
        assert reason in told.failure
        assert not any(machine in told.failure for machine in machines)
        assert (rancher.writes(), rancher.running()) == ([], sorted(machines))

    # The VM is not named: the cluster goes, and nothing that the VM uses.
    some = runs.playbook("teardown", {**cluster, **confirmation})
    assert some.status == "successful", some.shown
    assert "is in use by VM default/bystander. It is kept." in some.shown
    assert vms(rancher) == {"bystander": True}
    assert rancher.local.items(CLUSTERS) == rancher.local.items(CONFIGS) == []
    assert rancher.local.find(CREDENTIAL) is None
    assert sorted(sum(lab.amounts(node).values()) for node in ("gpu-a", "gpu-b")) == [0, 1]

    confirmed = {**with_vm, **confirmation}
    gone = runs.playbook("teardown", confirmed)
    assert gone.status == "successful", gone.shown
    assert lab.items(VMS) == []
    assert sum(sum(lab.amounts(node).values()) for node in ("gpu-a", "gpu-b")) == 0
    nothing = runs.playbook("teardown", confirmed)
    assert (nothing.status, nothing.tasks) == ("successful", []), nothing.shown


BOOTSTRAP = """
- name: The cluster's kubeconfig is fetched
  ansible.builtin.copy:
    src: "{{ kubeconfig_of_the_cluster }}"
    dest: "{{ guest_kubeconfig }}"
    mode: "0600"
  run_once: true
"""


@pytest.fixture(scope="module")
def vcenter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDir]:
    run = up.start(tmp_path_factory.mktemp("lab-vcenter"), scenario="demo/lab.yaml", only="vsphere")
    yield run
    up.stop(run)


def guest_with_a_gpu(rancher: Rancher) -> str:
    """A cluster of one machine that nobody has installed anything on; its kubeconfig."""
    rancher.make_config("nc-all", FOUR_Q)
    rancher.make_cluster("demo", rancher.pool("all", 1, "nc-all", **CONTROL_ROLES))
    rancher.ready("demo")
    identity = rancher.local.read(f"{CLUSTERS}/demo")["status"]["clusterName"]
    answer = rancher.api.post(f"/v3/clusters/{identity}?action=generateKubeconfig", {})
    return str(answer.body["config"])


def test_machines_on_vsphere_become_a_cluster_by_a_role_and_its_gpus_work(
    rancher: Rancher, vcenter: RunDir, tmp_path: Path, warm: Warm
) -> None:
    """The role finds them a cluster already, the lab's guest cluster, and fetches its kubeconfig."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(guest_with_a_gpu(rancher))
    role = tmp_path / "roles/bootstrap/tasks/main.yml"
    role.parent.mkdir(parents=True)
    role.write_text(BOOTSTRAP)
    inventory = {
        "all": {"hosts": {"localhost": {"ansible_connection": "local"}}},
        "gpu_machines": {"vars": {"ansible_connection": "local"}},
    }
    cluster = {
        **of_demo("vsphere_", "gpu_operator_"),
        "vsphere_gpu_cluster_bootstrap_role": "bootstrap",
        "guest_kubeconfig": str(tmp_path / "guest.yaml"),
        "kubeconfig_of_the_cluster": str(kubeconfig),
    }
    roles = {"ANSIBLE_ROLES_PATH": str(tmp_path / "roles")}
    runs = Runs(tmp_path, up.environment(vcenter) | roles, warm)

    rehearsal = runs.playbook("vsphere_gpu_cluster", cluster, check=True, inventory=inventory)
    assert (rehearsal.status, rehearsal.tasks) == (
        "successful",
        ["Set the graphics type of the GPUs to shared direct"],
    ), rehearsal.shown

    made = runs.playbook("vsphere_gpu_cluster", cluster, inventory=inventory)
    assert made.status == "successful", made.shown
    assert {"The cluster's kubeconfig is fetched", "Install the chart with a HelmChart object"} <= set(made.tasks)
    assert passed(made, rancher, "all")
    assert cluster["gpu_operator_licence_token"] not in str(made.events)

    again = runs.playbook("vsphere_gpu_cluster", cluster, inventory=inventory, options="--skip-tags report")
    assert (again.status, again.tasks) == ("successful", []), again.shown
    assert passed(again, rancher, "all")
    # A dry run reads the cluster, and runs nothing on it.
    foreseen = runs.playbook("vsphere_gpu_cluster", cluster, check=True, inventory=inventory)
    assert (foreseen.status, foreseen.tasks) == ("successful", []), foreseen.shown
    assert foreseen.artifacts["gpu_smoke_test"] == {"localhost": []}
