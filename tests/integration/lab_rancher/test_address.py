"""Rancher's address: tokens, the clusters behind it, and kubeconfigs (harvester.md 14.9)."""

from __future__ import annotations

import yaml

from tests.integration.api import NODES
from tests.integration.ranchers import CLUSTERS, Rancher

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_only_a_known_token_gets_in_and_only_to_clusters_that_exist(rancher: Rancher) -> None:
    stranger = rancher.api_with("token-lab:wrong")
    assert stranger.get(f"/k8s/clusters/local{CLUSTERS}").status == 401
    assert stranger.post("/v3/clusters/local", action="generateKubeconfig").status == 401
    missing = rancher.api.get("/k8s/clusters/c-m-nothing/api/v1/nodes")
    assert missing.status == 404
    assert "c-m-nothing" in missing.message


def test_the_harvester_is_behind_it_in_both_directions(rancher: Rancher) -> None:
    assert {node["metadata"]["name"] for node in rancher.harvester.items(NODES)} == {"gpu-a", "gpu-b"}
    rancher.harvester.make(CONFIG_MAPS, {"metadata": {"name": "from-rancher"}})
    assert rancher.lab.find(f"{CONFIG_MAPS}/from-rancher")
    rancher.harvester.delete(f"{CONFIG_MAPS}/from-rancher")


def test_a_watch_streams_through_it(rancher: Rancher) -> None:
    revision = rancher.harvester.read(CONFIG_MAPS)["metadata"]["resourceVersion"]
    prefix = f"/k8s/clusters/{rancher.env['LAB_RANCHER_HARVESTER_ID']}"
    rancher.harvester.make(CONFIG_MAPS, {"metadata": {"name": "watched"}})
    rancher.harvester.delete(f"{CONFIG_MAPS}/watched")
    lines = rancher.api.again().lines(f"{prefix}{CONFIG_MAPS}", watch=1, resourceVersion=revision, timeoutSeconds=3)
    assert any('"type":"ADDED"' in line and '"name":"watched"' in line for line in lines)


def test_a_cluster_without_control_plane_is_known_and_not_there(rancher: Rancher) -> None:
    rancher.make_config("nc-demo")
    rancher.make_cluster("demo", rancher.pool("work", 1, "nc-demo"))
    rancher.until(lambda: (rancher.local.read(f"{CLUSTERS}/demo").get("status") or {}).get("clusterName"))
    assert rancher.guest("demo").get(NODES).status == 503


def test_kubeconfigs_lead_back_through_it(rancher: Rancher) -> None:
    identity = rancher.env["LAB_RANCHER_HARVESTER_ID"]
    answer = rancher.api.post(f"/v3/clusters/{identity}", action="generateKubeconfig")
    config = yaml.safe_load(answer.body["config"])
    assert config["clusters"][0]["cluster"]["server"] == f"{rancher.env['RANCHER_URL']}/k8s/clusters/{identity}"
    name, _colon, secret = config["users"][0]["user"]["token"].partition(":")
    assert name.startswith("kubeconfig-u-lab-admin-")
    assert secret == rancher.env["RANCHER_TOKEN_KEY"].partition(":")[2]
    asked = {"clusterRoleName": "harvesterhci.io:cloudprovider", "namespace": "default", "serviceAccountName": "demo"}
    provider = rancher.api.post(f"/k8s/clusters/{identity}/v1/harvester/kubeconfig", asked)
    assert provider.status == 200
    assert yaml.safe_load(provider.body["text"])["clusters"][0]["cluster"]["server"] == rancher.env["LAB_API_SERVER"]
