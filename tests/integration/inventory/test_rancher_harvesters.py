"""vgpu.fleet.rancher_harvesters: all Harvesters of a Rancher, as the playbooks reach them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.inventory.inventories import Inventories
from tests.integration.ranchers import Rancher

PLUGIN = "rancher_harvesters"
MANAGEMENT = "/apis/management.cattle.io/v3/clusters"


@pytest.fixture
def second(rancher: Rancher) -> Iterator[Rancher]:
    """Another Harvester, which was imported and has not connected."""
    labels = {"provider.cattle.io": "harvester", "site": "edge"}
    body = {
        "apiVersion": "management.cattle.io/v3",
        "kind": "Cluster",
        "metadata": {"name": "c-m-second", "labels": labels},
        "spec": {"displayName": "edge 1"},
    }
    rancher.local.make(MANAGEMENT, body)
    yield rancher
    rancher.local.delete(f"{MANAGEMENT}/c-m-second")


def options(rancher: Rancher) -> dict[str, str]:
    return {"ca_cert": rancher.env["LAB_RANCHER_CA_FILE"]}


def test_each_harvester_is_a_host_with_how_to_reach_it(second: Rancher, inventories: Inventories) -> None:
    keyed = [{"key": "rancher_harvester_labels.site | default('nowhere')", "prefix": "site"}]
    file = inventories.file("all", {**options(second), "keyed_groups": keyed}, PLUGIN)
    second.mark()
    assert inventories.graph(file).splitlines() == [
        "@all:",
        "  |--@ungrouped:",
        "  |--@harvesters:",
        "  |  |--edge_1",
        "  |  |--harvester",
        "  |--@site_edge:",
        "  |  |--edge_1",
        "  |--@site_nowhere:",
        "  |  |--harvester",
    ]
    assert second.requests("u-lab-admin") == [("list", "clusters")]
    found = inventories.hosts(file)["harvester"]
    identity = second.env["LAB_RANCHER_HARVESTER_ID"]
    assert found["harvester_host"] == f"{second.env['RANCHER_URL']}/k8s/clusters/{identity}"
    assert (found["rancher_harvester_id"], found["rancher_harvester_ready"]) == (identity, True)
    assert found["harvester_api_key"] == "{{ lookup('ansible.builtin.env', 'RANCHER_TOKEN_KEY') }}"
    ready = inventories.file("ready", {**options(second), "ready_only": True}, PLUGIN)
    assert list(inventories.hosts(ready)) == ["harvester"]


def test_playbooks_run_on_all_harvesters_without_a_list_by_hand(rancher: Rancher, inventories: Inventories) -> None:
    file = inventories.file("all", options(rancher), PLUGIN)
    done = inventories.run(
        *("ansible-playbook", "vgpu.fleet.capacity", "-i", file, "-e", "vgpu_fleet_hosts=harvesters"),
        K8S_AUTH_KUBECONFIG="",
        KUBECONFIG="",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "A2-4Q" in done.stdout
    assert rancher.env["RANCHER_TOKEN_KEY"] not in done.stdout + done.stderr


def test_the_token_is_a_variable_only_if_that_is_asked_for(rancher: Rancher, inventories: Inventories) -> None:
    token = rancher.env["RANCHER_TOKEN_KEY"]
    written = {**options(rancher), "token": token}
    file = inventories.file("written", written, PLUGIN)
    done = inventories.run("ansible-inventory", "--list", "-i", file, RANCHER_TOKEN_KEY="")
    assert done.returncode == 0, done.stderr
    assert token not in done.stdout + done.stderr
    assert "harvester_api_key" not in done.stdout
    assert "have no harvester_api_key" in " ".join(done.stderr.split())
    file = inventories.file("written", {**written, "expose_token": True}, PLUGIN)
    assert inventories.hosts(file)["harvester"]["harvester_api_key"] == token
    template = "{{ lookup('ansible.builtin.env', 'OTHER_TOKEN') }}"
    file = inventories.file("template", {**options(rancher), "token": template}, PLUGIN)
    hosts = inventories.hosts(file, RANCHER_TOKEN_KEY="", OTHER_TOKEN=token)
    assert hosts["harvester"]["harvester_api_key"] == template
    shown = inventories.rendered(file, "harvester_api_key | hash('sha256')", RANCHER_TOKEN_KEY="", OTHER_TOKEN=token)
    assert len(shown) == 1
    assert shown[0] == _digest(token)


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def test_errors_are_one_sentence_and_a_hint(rancher: Rancher, inventories: Inventories) -> None:
    file = inventories.file("all", options(rancher), PLUGIN)
    assert "does not accept the credentials" in inventories.refusal(file, RANCHER_TOKEN_KEY="token-x:wrong")
    assert "The API key of Rancher is missing. Set token, or RANCHER_TOKEN_KEY." in inventories.refusal(
        file, RANCHER_TOKEN_KEY=""
    )
    assert "The address of Rancher is missing. Set url, or RANCHER_URL." in inventories.refusal(file, RANCHER_URL="")
    assert "Not allowed to read /apis/management.cattle.io/v3/clusters" in inventories.refusal(
        file, RANCHER_TOKEN_KEY=rancher.key_of("u-reader")
    )
    kubernetes = inventories.file("other", {"url": rancher.lab.run.read()["server"], "validate_certs": False}, PLUGIN)
    assert "Traceback" not in inventories.refusal(kubernetes)
