"""vgpu.fleet.gpu_vms on a Harvester: which machines are hosts, with which variables, and by how many requests."""

from __future__ import annotations

from typing import Any

from tests.integration import api as paths
from tests.integration.inventory.conftest import gpu_machine
from tests.integration.inventory.inventories import Inventories
from tests.integration.lab_harvester.machines import device, machine
from tests.integration.labs import Lab
from tests.integration.ranchers import FOUR_Q, UNRELEASED, Rancher

KEYED = {"keyed_groups": [{"key": "gpu_vm_profiles", "prefix": "profile"}, {"key": "gpu_vm_node", "prefix": "node"}]}
MANY = 1000
ALL_STATES = ["running", "starting", "stopping", "paused", "stopped"]


def test_a_running_machine_is_a_host_with_address_profile_node_and_gpu(trainer: Lab, inventories: Inventories) -> None:
    file = inventories.file("lab", KEYED)
    assert inventories.graph(file).splitlines() == [
        "@all:",
        "  |--@ungrouped:",
        "  |--@gpu_vms:",
        "  |  |--trainer.default",
        "  |--@profile_A2_4Q:",
        "  |  |--trainer.default",
        "  |--@node_gpu_a:",
        "  |  |--trainer.default",
    ]
    found = inventories.hosts(file)["trainer.default"]
    assert found["ansible_host"] == "10.52.0.10"
    assert found["gpu_vm_profiles"] == ["A2-4Q"]
    assert (found["gpu_vm_node"], found["gpu_vm_gpus"]) == ("gpu-a", ["gpu-a-000008000"])
    assert (found["gpu_vm_state"], found["gpu_vm_labels"], found["gpu_vm_cluster"]) == (
        "running",
        {"team": "ml"},
        "127.0.0.1",
    )
    (vgpu,) = found["gpu_vm_vgpus"]
    assert vgpu["device"] in [name["metadata"]["name"] for name in trainer.vgpus("gpu-a-000008000")]


def test_stopped_machines_are_hosts_if_they_are_asked_for(trainer: Lab, inventories: Inventories) -> None:
    found = inventories.hosts(inventories.file("all", {"states": ALL_STATES, "cluster_name": "berlin"}))
    assert sorted(found) == ["later.default.berlin", "trainer.default.berlin"]
    later = found["later.default.berlin"]
    assert (later["gpu_vm_state"], later["gpu_vm_profiles"], later["gpu_vm_cluster"]) == (
        "stopped",
        ["A2-4Q"],
        "berlin",
    )
    assert "ansible_host" not in later
    filters = {"states": ALL_STATES, "require_address": True, "profiles": ["nvidia_a2-4q"], "namespaces": ["def*"]}
    assert sorted(inventories.hosts(inventories.file("some", filters))) == ["trainer.default"]
    assert inventories.hosts(inventories.file("none", {"profiles": ["A2-8Q"]})) == {}


def test_a_machine_that_no_node_takes_yet_is_a_host_with_its_profile(lab: Lab, inventories: Inventories) -> None:
    waiting = machine("waiting", host_devices=[device(f"vgpu-{number}") for number in range(5)], run=True)
    lab.make(paths.VMS, waiting)
    lab.until(lambda: lab.find(f"{paths.VMIS}/waiting"))
    found = inventories.hosts(inventories.file("lab", {}))["waiting.default"]
    assert (found["gpu_vm_state"], found["gpu_vm_profiles"]) == ("starting", ["A2-4Q"])
    assert [one["device"] for one in found["gpu_vm_vgpus"]] == [None] * 5
    assert found["gpu_vm_address"] is None


def test_a_thousand_machines_take_as_many_requests_as_one(lab: Lab, inventories: Inventories) -> None:
    file = inventories.file("lab", {"states": ["stopped"]})
    counts = []
    for names in (["one"], [f"vm-{number:04}" for number in range(MANY)]):
        for name in names:
            lab.make(paths.VMS, gpu_machine(lab, name))
        lab.mark()
        found = inventories.hosts(file)
        asked = lab.audit(writes_only=False)
        counts.append(len(asked))
        assert {event["verb"] for event in asked} <= {"get", "list"}
    assert len(found) == MANY + 1
    assert counts[0] == counts[1] <= 10
    lab.api.delete(paths.VMS)


def test_groups_compose_and_strict(trainer: Lab, inventories: Inventories) -> None:
    constructed = {
        "compose": {"ansible_user": "'ubuntu'", "twice": "gpu_vm_vgpus | length * 2", "missing": "nothing.at.all"},
        "groups": {"ml": "gpu_vm_labels.team == 'ml'", "mine": "ansible_user == 'ubuntu'"},
        "hostnames": ["nothing.at.all", "gpu_vm_name + '-' + gpu_vm_cluster"],
        "group": "trainers",
    }
    file = inventories.file("lab", constructed)
    found = inventories.hosts(file)
    assert list(found) == ["trainer-127.0.0.1"]
    assert (found["trainer-127.0.0.1"]["ansible_user"], found["trainer-127.0.0.1"]["twice"]) == ("ubuntu", 2)
    assert "missing" not in found["trainer-127.0.0.1"]
    assert {"  |--@trainers:", "  |--@ml:", "  |--@mine:"} <= set(inventories.graph(file).splitlines())
    said = inventories.refusal(inventories.file("strict", {**constructed, "strict": True}))
    assert "The name of VM default/trainer of 127.0.0.1 cannot be composed" in said
    del constructed["hostnames"]
    said = inventories.refusal(inventories.file("strict", {**constructed, "strict": True}))
    assert "Could not set missing for host trainer.default" in said


def test_names_that_two_machines_would_have_are_refused(trainer: Lab, inventories: Inventories) -> None:
    alike = {"states": ALL_STATES, "hostnames": ["gpu_vm_namespace"]}
    said = inventories.refusal(inventories.file("alike", alike))
    assert "gives VM default/later of 127.0.0.1 and VM default/trainer of 127.0.0.1 the same name 'default'" in said
    assert "the reserved name 'localhost'" in inventories.refusal(
        inventories.file("local", {"hostnames": ["'localhost'"]})
    )


def test_a_cache_answers_without_requests_and_holds_no_secrets(trainer: Lab, inventories: Inventories) -> None:
    folder = inventories.folder / "cache"
    cached = {"cache": True, "cache_plugin": "ansible.builtin.jsonfile", "cache_connection": str(folder)}
    file = inventories.file("lab", cached)
    first = inventories.hosts(file)
    trainer.mark()
    assert inventories.hosts(file) == first
    assert trainer.audit(writes_only=False) == []
    # What is filtered is not what is cached.
    assert inventories.hosts(inventories.file("lab", {**cached, "states": ["stopped"]})).keys() == {"later.default"}
    assert trainer.audit(writes_only=False) == []
    # Somebody else's answer is another one.
    refused = inventories.refusal(file, K8S_AUTH_KUBECONFIG=str(trainer.run.kubeconfig("nobody")))
    assert "Not allowed to read" in refused
    assert inventories.run("ansible-inventory", "--list", "-i", file, "--flush-cache").returncode == 0
    assert trainer.audit(writes_only=False)
    (content,) = [path.read_text() for path in folder.iterdir()]
    assert "trainer" in content
    assert "PRIVATE KEY" not in content


def test_errors_are_one_sentence_and_a_hint(lab: Lab, inventories: Inventories) -> None:
    file = inventories.file("lab", {})
    said = inventories.refusal(file, K8S_AUTH_KUBECONFIG=str(lab.run.kubeconfig("expired")))
    assert "The API server does not accept the credentials." in said
    said = inventories.refusal(inventories.file("other", {"kubeconfig": "/nowhere"}))
    assert "The kubeconfig /nowhere cannot be read: No such file or directory." in said
    said = inventories.refusal(inventories.file("typo", {"profiles": ["A2"]}))
    assert "A2" in said
    assert "proxmox" in inventories.refusal(inventories.file("typo", {"platform": "proxmox"}))


def test_pools_have_their_cluster_and_pool(rancher: Rancher, inventories: Inventories) -> None:
    # Released drivers do not write the labels of cluster and pool.
    rancher.use_driver(UNRELEASED)
    rancher.make_config("gpu", FOUR_Q)
    rancher.make_cluster("demo", rancher.pool("gpu", 1, "gpu"))
    file = inventories.file("lab", {"keyed_groups": [{"key": "gpu_vm_guest_cluster"}]})

    def hosts() -> dict[str, Any]:
        found = inventories.hosts(file)
        return found if any(one["gpu_vm_state"] == "running" for one in found.values()) else {}

    ((name, found),) = rancher.until(hosts).items()
    assert name.startswith("demo-gpu-")
    assert (found["gpu_vm_guest_cluster"], found["gpu_vm_pool"]) == ("demo", "gpu")
    assert found["gpu_vm_profiles"] == ["A2-4Q"]
    through = {
        "host": f"{rancher.env['RANCHER_URL']}/k8s/clusters/{rancher.env['LAB_RANCHER_HARVESTER_ID']}",
        "api_key": "{{ lookup('ansible.builtin.env', 'RANCHER_TOKEN_KEY') }}",
        "ca_cert": rancher.env["LAB_RANCHER_CA_FILE"],
    }
    proxied = inventories.file("proxied", through)
    (other,) = inventories.hosts(proxied).values()
    assert other["gpu_vm_cluster"] == rancher.env["LAB_RANCHER_HARVESTER_ID"]
    # Both files mean the same machine, so its host is one.
    assert list(inventories.hosts(file, proxied)) == [name]
    assert rancher.env["RANCHER_TOKEN_KEY"] not in str(other)
