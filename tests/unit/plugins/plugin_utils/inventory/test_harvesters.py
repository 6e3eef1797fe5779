"""Rancher's clusters become the hosts that playbooks reach Harvesters by."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory import harvesters

from tests.unit.plugins.module_utils.harvester.server import Server


def cluster(name: str, *, label: str | None = "harvester", provider: str | None = None, **more: Any) -> dict[str, Any]:
    status = {"provider": provider} if provider else {}
    labels = {"provider.cattle.io": label} if label else None
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"displayName": f"{name}-shown"},
        "status": status,
    } | more


def test_only_harvesters_are_hosts() -> None:
    found = harvesters.records(
        [
            cluster("c-b", label=None, provider="harvester"),
            cluster("c-a"),
            cluster("local", label="rke2"),
            # Somebody's label on a cluster that is something else.
            cluster("c-c", provider="rke2"),
            cluster("c-d", label=None),
        ]
    )
    assert [(record["id"], record["name"]) for record in found] == [("c-a", "c-a-shown"), ("c-b", "c-b-shown")]


def test_a_cluster_is_ready_when_rancher_says_so() -> None:
    def ready(status: Any) -> bool:
        (record,) = harvesters.records([cluster("c-a", status=status)])
        return bool(record["ready"])

    assert ready({"conditions": [{"type": "Ready", "status": "True"}]})
    assert not ready({"conditions": [{"type": "Ready", "status": "False"}]})
    assert not ready({"conditions": None})
    assert not ready(None)


def test_a_cluster_without_a_name_has_its_id() -> None:
    (record,) = harvesters.records([cluster("c-a", spec=None)])
    assert record["name"] == "c-a"


def test_variables_are_those_that_playbooks_use() -> None:
    (record,) = harvesters.records([cluster("c-m-1")])
    found = harvesters.variables(record, "https://rancher.example/", "/ca.crt")
    assert found["harvester_host"] == "https://rancher.example/k8s/clusters/c-m-1"
    assert found["harvester_ca_cert"] == found["rancher_gpu_cluster_ca_cert"] == "/ca.crt"
    assert found["rancher_gpu_cluster_harvester"] == "c-m-1"
    assert "harvester_ca_cert" not in harvesters.variables(record, "https://rancher.example/", None)


@pytest.mark.parametrize(
    "url",
    [
        "https://rancher.example",
        "https://rancher.example/",
        "https://rancher.example/v3",
        "https://rancher.example/dashboard/",
        "https://rancher.example/k8s/clusters/local",
    ],
)
def test_any_address_of_rancher_will_do(url: str) -> None:
    assert harvesters.front_of(url) == "https://rancher.example"


def test_all_clusters_take_one_request() -> None:
    server = Server(lambda _asked: (200, {"items": [cluster(f"c-{number}") for number in range(1000)]}))
    found = harvesters.read({"url": server.url, "token": "token-x:secret"})
    server.stop()
    assert len(found) == 1000
    (asked,) = server.asked
    assert asked.path == "/k8s/clusters/local/apis/management.cattle.io/v3/clusters"
    assert asked.headers["Authorization"] == "Bearer token-x:secret"


def test_what_is_not_rancher_is_told() -> None:
    server = Server(lambda _asked: (404, {"message": "the server could not find the requested resource"}))
    with pytest.raises(FleetError, match="is not Rancher"):
        harvesters.read({"url": server.url, "token": "x"})
    server.stop()
    with pytest.raises(FleetError, match="is not the address of Rancher"):
        harvesters.read({"url": "rancher", "token": "x"})
