"""From nothing to a CUDA job that passed, by roles alone, through Rancher's address and with its token."""

from __future__ import annotations

import base64
import importlib.util
import json
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from tests.integration.api import NODES
from tests.integration.modules.playbooks import Json, Playbooks, Result
from tests.integration.ranchers import CLUSTERS, CONFIGS, FOUR_Q, MACHINES, TOKENS, Cluster, Rancher

CREDENTIALS = "/api/v1/namespaces/cattle-global-data/secrets"
PROVIDER = "/api/v1/namespaces/fleet-default/secrets/harvesterconfig-demo"
OPERATOR = "/api/v1/namespaces/gpu-operator"
JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
CHARTS = "/apis/helm.cattle.io/v1/namespaces/kube-system/helmcharts"
POLICIES = "/apis/nvidia.com/v1/clusterpolicies"
OURS = {"app.kubernetes.io/managed-by": "vgpu.fleet", "vgpu.fleet/owner": "vgpu.fleet"}
PASSWORD, LICENCE_TOKEN = "hunter2-in-user-data", "token-of-the-licence-server"
ROLES = ("rancher_gpu_cluster", "gpu_operator", "gpu_smoke_test")

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ansible_collections.kubernetes") is None, reason="kubernetes.core is not installed"
)


def named(role: str, **variables: Any) -> Json:
    return {f"{role}_{name}": value for name, value in variables.items()}


def cluster(rancher: Rancher, **changes: Any) -> Json:
    given = {
        "ca_cert": rancher.env["LAB_RANCHER_CA_FILE"],
        "name": "demo",
        "harvester": rancher.env["LAB_RANCHER_HARVESTER_ID"],
        "kubernetes_version": "v1.34.1+rke2r1",
        "pool_defaults": {
            "image": "default/image-ubuntu",
            "networks": ["default/vlan1"],
            "ssh_user": "ubuntu",
            "user_data": f"#cloud-config\npassword: {PASSWORD}\n",
        },
        "pools": [
            {"name": "control", "quantity": 1, "roles": ["etcd", "control_plane", "worker"]},
            {
                "name": "gpu",
                "quantity": 2,
                "vgpus": [{"profile": "A2-4Q"}],
                "labels": {"accelerator": "vgpu"},
                "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
            },
        ],
        "wait_timeout": 300,
        **changes,
    }
    return named("rancher_gpu_cluster", **given)


TOKEN = "{{ lookup('ansible.builtin.env', 'RANCHER_TOKEN_KEY') }}"
CONNECTION = "{{ rancher_gpu_cluster_result.connection | combine({'api_key': rancher_token}) }}"


def operator(connection: Any = CONNECTION, **changes: Any) -> Json:
    given = {
        "connection": connection,
        "driver_repository": "registry.example/nvidia",
        "driver_version": "570.172.08",
        "licence_token": LICENCE_TOKEN,
        "wait_timeout": 300,
        **changes,
    }
    return named("gpu_operator", **given)


def whole(rancher: Rancher) -> list[Json]:
    given = (
        cluster(rancher),
        operator(gpus="{{ rancher_gpu_cluster_result.gpus }}"),
        named("gpu_smoke_test", connection=CONNECTION, wait_timeout=300),
    )
    return [{"role": f"vgpu.fleet.{role}", "vars": variables} for role, variables in zip(ROLES, given, strict=True)]


def play(roles: list[Json]) -> Json:
    return {"vars": {"rancher_token": TOKEN}, "roles": roles}


def trying(role: str, variables: Json) -> Json:
    """The role, whose failure is looked at and does not end the play."""
    told = {"ansible.builtin.debug": {"msg": "it failed, as it should"}}
    call = {"ansible.builtin.include_role": {"name": f"vgpu.fleet.{role}"}, "vars": variables}
    return {"block": [call], "rescue": [told]}


def failures(results: list[Result]) -> list[str]:
    """What failed, of a loop the items that did."""
    failed = [item for one in results if one.failed for item in one.get("results") or [one]]
    return [str(one.get("msg", "")) for one in failed if one.get("failed")]


def fact(results: list[Result], name: str) -> Any:
    (found,) = [one["ansible_facts"][name] for one in results if name in (one.get("ansible_facts") or {})]
    return found


def offered(node: Json) -> str:
    return str(node["status"]["allocatable"].get("nvidia.com/gpu", "0"))


def connection(rancher: Rancher) -> Json:
    identity = rancher.local.read(f"{CLUSTERS}/demo")["status"]["clusterName"]
    return {
        "host": f"{rancher.env['RANCHER_URL']}/k8s/clusters/{identity}",
        "api_key": rancher.env["RANCHER_TOKEN_KEY"],
        "ca_cert": rancher.env["LAB_RANCHER_CA_FILE"],
    }


def licences(guest: Cluster, kind: str = "secrets") -> list[Json]:
    """The license objects that the role has created."""
    found = guest.items(f"{OPERATOR}/{kind}")
    return [one for one in found if (one["metadata"].get("labels") or {}).get("vgpu.fleet/licence") == "gpu-operator"]


def everything(rancher: Rancher, guest: Cluster) -> list[Any]:
    """The state of all that the roles write: its generation where somebody else writes the status."""
    kept = [*rancher.local.items(CONFIGS), rancher.local.read(f"{CREDENTIALS}/cc-demo"), rancher.local.read(PROVIDER)]
    kept += [guest.read(OPERATOR), *licences(guest)]
    counted = [rancher.local.read(f"{CLUSTERS}/demo"), guest.read(f"{CHARTS}/gpu-operator")]
    return [one["metadata"]["resourceVersion"] for one in kept] + [one["metadata"]["generation"] for one in counted]


def from_nothing(rancher: Rancher, plays: Playbooks) -> Cluster:
    made = plays.play(play(whole(rancher)))
    output = made[-1]["output"]
    assert not failures(made), output
    for secret in (rancher.env["RANCHER_TOKEN_KEY"], PASSWORD, LICENCE_TOKEN):
        assert secret not in output
        assert secret not in json.dumps([{**one, "output": ""} for one in made])
    tested = fact(made, "gpu_smoke_test_result")
    assert [one["node"] for one in tested] == rancher.running("gpu")
    assert all(one["passed"] and "Test PASSED" in one["log"] and one["seconds"] >= 0 for one in tested)
    assert fact(made, "gpu_operator_result") == {"gpus": dict.fromkeys(rancher.running("gpu"), 1)}

    guest = rancher.guest("demo")
    assert len(guest.items(NODES)) == 3
    assert guest.items(JOBS) == []
    assert guest.read(OPERATOR)["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    (licence,) = licences(guest)
    assert set(licence["data"]) == {"client_configuration_token.tok", "gridd.conf"}
    assert all(one["licensed"] and one["licence_expires"] == "2026-12-24T08:05:09Z" for one in tested)
    spec = rancher.local.read(f"{CLUSTERS}/demo")["spec"]
    assert spec["cloudCredentialSecretName"] == "cattle-global-data:cc-demo"
    provider = spec["rkeConfig"]["machineSelectorConfig"][0]["config"]
    assert provider == {
        "cloud-provider-name": "harvester",
        "cloud-provider-config": "secret://fleet-default:harvesterconfig-demo",
    }
    assert rancher.local.read(PROVIDER)["metadata"]["annotations"]["v2prov-secret-authorized-for-cluster"] == "demo"
    assert [FOUR_Q in one.get("vgpuInfo", "") for one in rancher.local.items(CONFIGS)].count(True) == 1
    made_by_us = [*rancher.local.items(CONFIGS), *map(rancher.local.read, (f"{CREDENTIALS}/cc-demo", PROVIDER))]
    assert all(one["metadata"]["labels"].items() >= OURS.items() for one in made_by_us)

    rancher.mark()
    before = everything(rancher, guest)
    again = plays.play(play(whole(rancher)))
    assert not any(one.changed or one.failed for one in again), again[-1]["output"]
    assert everything(rancher, guest) == before
    # kubernetes.core asks for what is there already, which changes nothing.
    assert set(rancher.writes()) <= {"patch clusters"}
    return guest


def test_from_nothing_to_test_passed_and_what_is_told_when_something_is_missing(
    rancher: Rancher, plays: Playbooks
) -> None:
    rancher.mark()
    predicted = plays.play(play(whole(rancher)[:1]), check=True)
    assert not failures(predicted), predicted[-1]["output"]
    assert rancher.writes() == []
    guest = from_nothing(rancher, plays)
    (plain,), there = rancher.running("control"), connection(rancher)
    dry_run_of_what_is_there(rancher, plays, there)
    many = {**cluster(rancher)["rancher_gpu_cluster_pools"][1], "quantity": 5}
    other = {**many, "name": "other", "quantity": 2}
    more = {**many, "name": "more", "quantity": 1}
    before = everything(rancher, guest)
    told = failures(
        plays.run_all(
            trying("gpu_smoke_test", named("gpu_smoke_test", connection=there, nodes=[plain])),
            trying("gpu_smoke_test", named("gpu_smoke_test", connection=there, nodes=["nobody"])),
            trying("gpu_operator", operator(there, driver_repository="")),
            trying("gpu_operator", operator(there, driver_repository="nvcr.io/nvidia")),
            trying("gpu_operator", operator(there, licence_token="", licence_secret="none")),
            trying("rancher_gpu_cluster", cluster(rancher, pools=[many])),
            trying("rancher_gpu_cluster", cluster(rancher, pools=[other, more])),
            trying("rancher_gpu_cluster", cluster(rancher, kubernetes_version="")),
        )
    )
    assert len(told) == 8, told
    assert f"Node {plain} did not pass: it offers no nvidia.com/gpu" in told[0]
    assert "no CUDA-capable device" in told[0]
    assert "There is no node nobody" in told[1]
    assert "gpu_operator_driver_repository" in told[2]
    assert told[2] == told[3]
    assert "gpu-operator/none" in told[4]
    assert "does not fit" in told[5]
    # Either of them fits alone.
    assert "more" in told[6]
    assert "rancher_gpu_cluster_kubernetes_version" in told[7]
    assert everything(rancher, guest) == before

    expired_credential(rancher, plays)
    unlicensed_and_renewed(rancher, plays, guest, there)
    waiting_in_vain(rancher, plays, guest, there)
    gone = plays.play(
        {"roles": [{"role": "vgpu.fleet.rancher_gpu_cluster", "vars": cluster(rancher, state="absent", pools=[])}]}
    )
    assert not failures(gone), gone[-1]["output"]
    assert not rancher.vms()
    assert rancher.local.items(CONFIGS) == []
    assert rancher.local.find(f"{CREDENTIALS}/cc-demo") is rancher.local.find(PROVIDER) is None


def expired_credential(rancher: Rancher, plays: Playbooks) -> None:
    """H8: the token of the role's own credential expires, nothing can be scaled then, and the role renews it."""
    secret = f"{CREDENTIALS}/cc-demo"

    def token() -> str:
        content = base64.b64decode(
            rancher.local.read(secret)["data"]["harvestercredentialConfig-kubeconfigContent"]
        ).decode()
        return str(yaml.safe_load(content)["users"][0]["user"]["token"].partition(":")[0])

    def run() -> tuple[list[Result], str]:
        results = plays.run_all(trying("rancher_gpu_cluster", cluster(rancher, wait=False)))
        assert not failures(results), results[-1]["output"]
        return results, token()

    first = token()
    expires = rancher.local.read(f"{TOKENS}/{first}")["expiresAt"]
    assert datetime.fromisoformat(expires) > datetime.now(UTC) + timedelta(days=29)
    soon = (datetime.now(UTC) + timedelta(days=11)).strftime("%Y-%m-%dT%H:%M:%SZ")
    rancher.local.write(f"{TOKENS}/{first}", {"expiresAt": soon})
    assert run()[1] == first
    soon = (datetime.now(UTC) + timedelta(days=9)).strftime("%Y-%m-%dT%H:%M:%SZ")
    rancher.local.write(f"{TOKENS}/{first}", {"expiresAt": soon})
    drift = {
        "vgpu_drift_rancher_url": rancher.env["RANCHER_URL"],
        "vgpu_drift_rancher_ca_cert": rancher.env["LAB_RANCHER_CA_FILE"],
    }
    harvester = {"host": rancher.env["RANCHER_URL"] + "/k8s/clusters/" + rancher.env["LAB_RANCHER_HARVESTER_ID"]}
    reported = plays.play(
        {
            "module_defaults": {"group/vgpu.fleet.harvester": harvester},
            "roles": [{"role": "vgpu.fleet.vgpu_drift", "vars": drift}],
        }
    )
    assert not failures(reported), reported[-1]["output"]
    assert "credential_expiring" in json.dumps(reported)
    results, second = run()
    assert second != first
    assert any(one.changed for one in results)
    expiries = [
        one["ansible_facts"]["__rancher_gpu_cluster_expiry"]["expires"]
        for one in results
        if "__rancher_gpu_cluster_expiry" in one.get("ansible_facts", {})
    ]
    # The run that renews the credential returns the expiry of the new one.
    assert (expiries[0], expiries[-1]) == (soon, rancher.local.read(f"{TOKENS}/{second}")["expiresAt"])
    assert run()[1] == second
    # It has expired: machines neither come nor go.
    rancher.local.write(f"{TOKENS}/{second}", {"expiresAt": "2026-01-01T00:00:00Z"})
    (gone, *_rest) = rancher.running("gpu")
    rancher.local.delete(f"{MACHINES}/{gone}")
    rancher.until(lambda: "DeleteError: Unauthorized" in json.dumps(rancher.local.find(f"{MACHINES}/{gone}")))
    assert run()[1] not in (first, second)
    rancher.until(lambda: rancher.local.find(f"{MACHINES}/{gone}") is None)
    rancher.ready("demo")
    # From 2.12 on Rancher itself keeps the token, whatever its expiry says.
    rancher.set("server-version", "v2.12.0")
    rancher.local.delete(secret)
    _results, last = run()
    rancher.until(lambda: rancher.local.read(f"{TOKENS}/{last}")["ttl"] == 0)
    rancher.local.write(f"{TOKENS}/{last}", {"expiresAt": "2026-01-01T00:00:00Z"})
    assert run()[1] == last


def driver_is_ready(pod: Json) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions") or []}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def ready_drivers(guest: Cluster, before: Json, nodes: Collection[str]) -> list[int]:
    """The number of ready driver pods after each change since then, in the API server's own record.

    Pods of nodes that were replaced stay for a while and do not count.
    """

    def is_driver(pod: Json) -> bool:
        labels = pod["metadata"].get("labels") or {}
        return labels.get("app") == "nvidia-driver-daemonset" and pod["spec"].get("nodeName") in nodes

    ready = {pod["metadata"]["name"]: driver_is_ready(pod) for pod in before["items"] if is_driver(pod)}
    counts = [sum(ready.values())]
    for change in guest.changes(f"{OPERATOR}/pods", before["metadata"]["resourceVersion"]):
        if is_driver(change.object):
            ready[change.name] = not change.gone and driver_is_ready(change.object)
            counts.append(sum(ready.values()))
    return counts


def unlicensed_and_renewed(rancher: Rancher, plays: Playbooks, guest: Cluster, there: Json) -> None:
    """M1: a license that the server refuses is told by the smoke test, and a new token replaces the driver pods."""
    smoke = named("gpu_smoke_test", connection=there, wait_timeout=300)
    (before,) = licences(guest)
    pods = guest.read(f"{OPERATOR}/pods")
    everyone = plays.run_all(trying("gpu_operator", operator(there, licence_token="an expired token")))
    assert not failures(everyone), everyone[-1]["output"]
    # One driver pod is replaced at a time, and the role ends when all of them have the new license.
    nodes = rancher.running("gpu")
    counts = ready_drivers(guest, pods, nodes)
    assert (counts[0], min(counts), counts[-1], len(nodes)) == (2, 1, 2, 2)
    (refused,) = licences(guest)
    assert refused["metadata"]["name"] != before["metadata"]["name"]
    (told,) = failures(plays.run_all(trying("gpu_smoke_test", smoke)))
    for node in rancher.running("gpu"):
        assert f"Node {node} did not pass: GPU 00000000:02:00.0 has license status Unlicensed (Unrestricted)" in told
    assert "Test PASSED" in told
    ignored = plays.run_all(trying("gpu_smoke_test", {**smoke, "gpu_smoke_test_licence": False}))
    assert not failures(ignored), ignored[-1]["output"]
    # Charts before v25.10.0 know ConfigMaps only.
    older = plays.run_all(
        trying("gpu_operator", operator(there, chart_version="v25.3.4")), trying("gpu_smoke_test", smoke)
    )
    assert not failures(older), older[-1]["output"]
    assert licences(guest) == []
    assert len(licences(guest, "configmaps")) == 1
    newer = plays.run_all(trying("gpu_operator", operator(there)), trying("gpu_smoke_test", smoke))
    assert not failures(newer), newer[-1]["output"]
    assert licences(guest, "configmaps") == []
    assert [one["metadata"]["name"] for one in licences(guest)] == [before["metadata"]["name"]]
    (unknown,) = failures(plays.run_all(trying("gpu_operator", operator(there, chart_version=""))))
    assert "is not a version" in unknown


def test_a_cloud_provider_of_somebody_else_is_left_alone(rancher: Rancher, plays: Playbooks) -> None:
    """As Rancher's pages write it, with the Secret in its own words."""
    rancher.make_cluster("demo")
    theirs = {
        "cloud-provider-name": "harvester",
        "cloud-provider-config": "secret://fleet-default:harvesterconfigabcde",
    }
    config = {"machineSelectorConfig": [{"config": {**theirs, "protect-kernel-defaults": False}}]}
    rancher.local.write(f"{CLUSTERS}/demo", {"spec": {"rkeConfig": config}})
    adopted = plays.run_all(trying("rancher_gpu_cluster", no_machines(rancher, adopt=True)))
    assert not failures(adopted), adopted[-1]["output"]
    there = rancher.local.read(f"{CLUSTERS}/demo")["spec"]["rkeConfig"]
    assert there["machineSelectorConfig"] == config["machineSelectorConfig"]
    assert not there.get("chartValues")
    assert rancher.local.find(PROVIDER) is None
    rancher.local.delete(f"{CREDENTIALS}/cc-demo")


def no_machines(rancher: Rancher, **changes: Any) -> Json:
    """A cluster whose pools have no machines, for what is about other objects."""
    pools = [{"name": "control", "quantity": 0, "roles": ["etcd", "control_plane", "worker"]}]
    return cluster(rancher, pools=pools, wait=False, **changes)


def test_rc1_rc2_secrets_and_configs_of_others_are_neither_used_nor_deleted(rancher: Rancher, plays: Playbooks) -> None:
    role, local = "rancher_gpu_cluster", rancher.local
    harvester = rancher.env["LAB_RANCHER_HARVESTER_ID"]

    def credential(name: str, identity: str) -> None:
        content = {"harvestercredentialConfig-clusterId": identity}
        local.make(CREDENTIALS, {"metadata": {"name": name}, "type": "Opaque", "stringData": content})

    def told(results: list[Result]) -> str:
        (result,) = [fact(results, "rancher_gpu_cluster_result")]
        return " ".join(result["kept"])

    # A leftover of another Harvester, one that nobody marked, and a cluster of somebody else.
    credential("cc-demo", "c-m-elsewhere")
    credential("cc-five5", harvester)
    rancher.make_cluster("theirs")
    rancher.mark()
    refused = failures(
        plays.run_all(
            trying(role, no_machines(rancher)),
            trying(role, no_machines(rancher, name="five5")),
            trying(role, no_machines(rancher, name="theirs")),
            trying(role, no_machines(rancher, name="theirs", state="absent")),
            trying(role, cluster(rancher, pools=[{"name": "a", "quantiti": 1}], pool_defaults={"memory": 8})),
        )
    )
    assert len(refused) == 5, refused
    assert "does not know these options" in refused[4]
    assert ": memory, quantiti. It knows: name, state, quantity" in refused[4]
    assert f"Secret cattle-global-data/cc-demo is for Harvester c-m-elsewhere, not for {harvester}" in refused[0]
    assert "Secret cattle-global-data/cc-five5 exists and was not made by this collection" in refused[1]
    assert "Cluster fleet-default/theirs exists and was not made by this role" in refused[2]
    assert refused[2] == refused[3]
    assert rancher.writes() == []

    # The user's own credential, and the config of a pool that another cluster refers to as well.
    local.delete(f"{CREDENTIALS}/cc-demo")
    credential("cc-demo", harvester)
    given = no_machines(rancher, credential="cattle-global-data:cc-demo")
    made = plays.run_all(trying(role, given))
    assert not failures(made), made[-1]["output"]
    (config,) = local.items(CONFIGS)
    rancher.make_cluster(
        "two", rancher.pool("a", 0, config["metadata"]["name"]), credential="cattle-global-data:cc-demo"
    )
    absent = {**given, "rancher_gpu_cluster_state": "absent"}
    early = plays.run_all(trying(role, absent))
    assert not failures(early), early[-1]["output"]
    assert "Secret fleet-default/harvesterconfig-demo: Rancher needs it until the machines are gone" in told(early)
    assert local.find(PROVIDER) is not None
    late = plays.run_all(
        trying(role, {**absent, "rancher_gpu_cluster_wait": True, "rancher_gpu_cluster_credential": ""})
    )
    assert not failures(late), late[-1]["output"]
    assert "Secret cattle-global-data/cc-demo: two uses it" in told(late)
    assert f"HarvesterConfig fleet-default/{config['metadata']['name']}: two/a uses it" in told(late)
    assert local.find(PROVIDER) is None
    assert local.find(f"{CREDENTIALS}/cc-demo") is not None
    assert [one["metadata"]["name"] for one in local.items(CONFIGS)] == [config["metadata"]["name"]]
    for name in ("cc-demo", "cc-five5"):
        local.delete(f"{CREDENTIALS}/{name}")


def dry_run_of_what_is_there(rancher: Rancher, plays: Playbooks, there: Json) -> None:
    """Of all three roles: nothing would change, and no job is run."""
    rancher.mark()
    roles = whole(rancher)
    for role, name in zip(roles[1:], ROLES[1:], strict=True):
        role["vars"] |= named(name, connection=there)
    roles[1]["vars"]["gpu_operator_gpus"] = {}
    again = plays.play(play(roles), check=True)
    assert not any(one.changed or one.failed for one in again), again[-1]["output"]
    assert rancher.writes() == []


def waiting_in_vain(rancher: Rancher, plays: Playbooks, guest: Cluster, there: Json) -> None:
    """A driver that is not in the image, and more machines than vGPUs, neither of which can end by itself."""
    unwanted = operator(there, driver_in_image=True)

    def not_ready() -> bool:
        (policy,) = guest.items(POLICIES)
        return policy["status"]["state"] == "notReady"

    with rancher.real_time():
        rancher.change_pool("demo", "gpu", quantity=5)
        vm = rancher.short_of_vgpus("gpu")
        short = trying("rancher_gpu_cluster", cluster(rancher, pools=[{"name": "gpu"}], wait_timeout=1))
        (machines,) = failures(plays.run_all(short, trying("gpu_operator", {**unwanted, "gpu_operator_wait": False})))
    rancher.until(not_ready)
    (driver,) = failures(plays.run_all(trying("gpu_operator", {**unwanted, "gpu_operator_wait_timeout": 1})))
    assert f"VM default/{vm} cannot start" in machines
    assert f"Insufficient {FOUR_Q}" in machines
    assert "none is loaded on the node" in driver


def test_from_nothing_to_test_passed_up_to_1_7(rancher_mdev: Rancher, plays: Playbooks) -> None:
    rancher, guest = rancher_mdev, from_nothing(rancher_mdev, plays)
    without = trying("gpu_operator", operator(connection(rancher), state="absent"))
    gone = plays.run_all(without, without)
    assert not failures(gone), gone[-1]["output"]
    assert [one.changed for one in gone].count(True) == 2
    assert guest.items(CHARTS) == []
    assert licences(guest) == []
    rancher.until(lambda: all(offered(node) == "0" for node in guest.items(NODES)))
