# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a pool's change writes, and whose machines Rancher replaces for it (H1). No vGPUs, so no Harvester."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import Conflict
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.objects import ObjectList
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.apply import PoolChange, PoolRef, PoolResult
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.client import (
    Rancher,
    RancherSnapshot,
    credential_reference,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.pool import InvalidPool, PoolRequest

Json = dict[str, Any]
NAMESPACE = "fleet-default"
OURS = {"app.kubernetes.io/managed-by": "vgpu.fleet", "vgpu.fleet/owner": "vgpu.fleet"}
NEW = PoolRequest(quantity=1, image="default/image", networks=["default/vlan1"])


def pool(name: str, config: str, quantity: int = 1) -> Json:
    reference = {"kind": "HarvesterConfig", "name": config}
    return {"name": name, "quantity": quantity, "workerRole": True, "machineConfigRef": reference}


class FakeApi:
    """An API server that keeps clusters and machine configs, and refuses what was read too long ago."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Json]] = {"clusters": {}, "harvesterconfigs": {}}
        self.writes: list[tuple[str, str]] = []
        self.version = 0
        # What somebody else does right before the next write.
        self.meanwhile: list[Any] = []

    def put(self, kind: str, name: str, content: Json, **metadata: Any) -> None:
        self.version += 1
        known = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{self.version}",
            "resourceVersion": str(self.version),
            **metadata,
        }
        self.objects[kind][name] = {"metadata": known, **content}

    def cluster(self, name: str, *pools: Json) -> None:
        self.put("clusters", name, {"spec": {"rkeConfig": {"machinePools": list(pools)}}})

    def _written(self, verb: str, name: str) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        self.writes.append((verb, name))

    def get(self, path: str) -> Json:
        kind = path.rsplit("/", 1)[-1]
        items = copy.deepcopy(list(self.objects[kind].values()))
        return {"metadata": {"resourceVersion": str(self.version)}, "items": items}

    def post(self, path: str, body: Json) -> Json:
        name = f"{body['metadata'].pop('generateName')}x{self.version}"
        self._written("create", name)
        metadata = body.pop("metadata")
        self.put(path.rsplit("/", 1)[-1], name, body, **metadata)
        return copy.deepcopy(self.objects["harvesterconfigs"][name])

    def patch(self, path: str, body: Json) -> Json:
        kind, name = path.split("/")[-2:]
        self._written("patch", name)
        thing, body = self.objects[kind][name], copy.deepcopy(body)
        if body.pop("metadata", {}).get("resourceVersion", None) not in (None, thing["metadata"]["resourceVersion"]):
            raise Conflict("changed", status=409)
        self.version += 1
        thing["metadata"]["resourceVersion"] = str(self.version)
        thing.update({key: value for key, value in body.items() if value is not None})
        for key in [key for key, value in body.items() if value is None]:
            thing.pop(key, None)
        return copy.deepcopy(thing)

    def delete(self, path: str, *, uid: str = "") -> None:
        kind, name = path.split("/")[-2:]
        self._written("delete", name)
        if uid not in ("", self.objects[kind][name]["metadata"]["uid"]):
            raise Conflict("Precondition failed: UID in precondition", status=409)
        del self.objects[kind][name]


class FakeRancher:
    namespace = NAMESPACE
    find = Rancher.find

    def version(self) -> str | None:
        return None

    def harvester_of(self, cluster: Json, entry: Json) -> str | None:
        return {"cc-a": "c-a", "cc-b": "c-b"}.get(credential_reference(cluster, entry))

    def __init__(self, api: FakeApi, machines: dict[tuple[str, str], int] | None = None) -> None:
        self.api = api
        self._machines = machines or {}

    def read(self) -> RancherSnapshot:
        lists = [ObjectList.of(self.api.get(kind)) for kind in ("clusters", "harvesterconfigs")]
        labels = ("cluster.x-k8s.io/cluster-name", "rke.cattle.io/rke-machine-pool-name")
        made = [
            {
                "metadata": {
                    "name": "-".join([*key, str(n)]),
                    "namespace": NAMESPACE,
                    "labels": dict(zip(labels, key, strict=True)),
                }
            }
            for key, count in self._machines.items()
            for n in range(count)
        ]
        return RancherSnapshot(*lists, ObjectList.of({"metadata": {"resourceVersion": "1"}, "items": made}))


def change(api: FakeApi, cluster: str, name: str, machines: dict[tuple[str, str], int] | None = None) -> PoolChange:
    return PoolChange(FakeRancher(api, machines), PoolRef(cluster, name), wait=False, seconds=1)  # type: ignore[arg-type]


def ensure(api: FakeApi, wish: PoolRequest, **more: Any) -> PoolResult:
    machines = more.pop("machines", None)
    return change(api, "demo", "gpu", machines).ensure(wish, None, check_mode=more.get("check_mode", False))


def config_of(api: FakeApi, cluster: str, name: str) -> str:
    pools = api.objects["clusters"][cluster]["spec"]["rkeConfig"]["machinePools"]
    return next(str(one["machineConfigRef"]["name"]) for one in pools if one["name"] == name)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


def test_h1_a_new_pool_never_takes_a_config_that_another_pool_uses(api: FakeApi) -> None:
    api.put("harvesterconfigs", "nc-demo-gpu", {"cpuCount": "16"})
    api.cluster("demo", pool("workers", "nc-demo-gpu", 2))
    result = ensure(api, NEW, machines={("demo", "workers"): 2}).as_result()
    assert (result["changed"], result["machines_replaced"]) == (True, [])
    assert api.objects["harvesterconfigs"]["nc-demo-gpu"]["cpuCount"] == "16"
    made = api.objects["harvesterconfigs"][config_of(api, "demo", "gpu")]
    assert made["metadata"]["name"].startswith("nc-demo-gpu-")
    assert made["metadata"]["labels"] == OURS
    assert result["pool"]["machine_config"] == made["metadata"]["name"]


def test_h1_clusters_and_pools_whose_names_run_together_have_configs_of_their_own(api: FakeApi) -> None:
    """Cluster prod with pool gpu-a, and cluster prod-gpu with pool a."""
    api.cluster("prod")
    api.cluster("prod-gpu")
    change(api, "prod", "gpu-a").ensure(NEW, None, check_mode=False)
    change(api, "prod-gpu", "a").ensure(NEW, None, check_mode=False)
    assert config_of(api, "prod", "gpu-a") != config_of(api, "prod-gpu", "a")


@pytest.mark.parametrize("sharing", ["pool", "cluster", "owner"])
def test_h1_a_pool_that_shares_its_config_gets_one_of_its_own(api: FakeApi, sharing: str) -> None:
    owners = [{"apiVersion": "provisioning.cattle.io/v1", "kind": "Cluster", "name": "other", "uid": "1"}]
    metadata = {"ownerReferences": owners} if sharing == "owner" else {}
    api.put("harvesterconfigs", "nc-shared", {"cpuCount": "4", "cpuModel": "host", "memorySize": "8"}, **metadata)
    also = [pool("also", "nc-shared")]
    api.cluster("demo", pool("gpu", "nc-shared"), *(also if sharing == "pool" else ()))
    if sharing == "cluster":
        api.cluster("other", *also)
    machines = {("demo", "gpu"): 1, ("demo", "also"): 3, ("other", "also"): 3}
    predicted = ensure(api, PoolRequest(cpus=8), machines=machines, check_mode=True)
    assert api.writes == []
    outcome = ensure(api, PoolRequest(cpus=8), machines=machines)
    assert outcome.replaced == predicted.replaced == [{"cluster": "demo", "pool": "gpu", "machines": ["demo-gpu-0"]}]
    assert outcome.diff["after"]["machines"] == {"demo/gpu": ["demo-gpu-0 will be replaced"]}
    assert any("nc-shared" in text and "not changed" in text for text in outcome.warnings)
    assert api.objects["harvesterconfigs"]["nc-shared"]["cpuCount"] == "4"
    own = api.objects["harvesterconfigs"][config_of(api, "demo", "gpu")]
    assert (own["cpuCount"], own["cpuModel"], own["memorySize"]) == ("8", "host", "8")
    # What only concerns the entry leaves the shared config in place.
    assert not ensure(api, PoolRequest(cpus=8)).change.changed


def test_h1_a_config_of_the_pool_alone_is_changed_in_place(api: FakeApi) -> None:
    api.put("harvesterconfigs", "nc-x1", {"cpuCount": "4"})
    api.cluster("demo", pool("gpu", "nc-x1"))
    outcome = ensure(api, PoolRequest(cpus=8), machines={("demo", "gpu"): 1})
    assert api.writes == [("patch", "nc-x1")]
    assert outcome.replaced[0]["pool"] == "gpu"


def test_h1_a_pool_that_begins_to_share_the_config_meanwhile_is_not_replaced(api: FakeApi) -> None:
    api.put("harvesterconfigs", "nc-x1", {"cpuCount": "4"})
    api.cluster("demo", pool("gpu", "nc-x1"))
    # Between the reading and the patch of the config comes the patch of the pool's entry.
    api.meanwhile = [lambda: api.cluster("other", pool("a", "nc-x1"))]
    ensure(api, PoolRequest(cpus=8, labels={"a": "b"}))
    assert api.objects["harvesterconfigs"]["nc-x1"]["cpuCount"] == "4"
    assert config_of(api, "demo", "gpu") != "nc-x1"


@pytest.mark.parametrize(
    ("labels", "pool_name", "reused"), [(OURS, "gpu", True), (OURS, "b", False), ({}, "gpu", False)]
)
def test_h1_a_leftover_is_reused_only_if_it_is_ours_and_was_made_for_the_pool(
    api: FakeApi, labels: Json, pool_name: str, reused: bool
) -> None:
    notes = {"vgpu.fleet/cluster": "demo", "vgpu.fleet/pool": pool_name}
    api.put("harvesterconfigs", "nc-demo-gpu-left", {"cpuCount": "1", "sshUser": "x"}, labels=labels, annotations=notes)
    api.cluster("demo")
    ensure(api, NEW)
    assert (config_of(api, "demo", "gpu") == "nc-demo-gpu-left") is reused
    left = api.objects["harvesterconfigs"]["nc-demo-gpu-left"]
    assert (left["cpuCount"], left.get("sshUser")) == (("2", None) if reused else ("1", "x"))


def test_h1_a_pool_that_somebody_else_made_meanwhile_is_changed_and_our_config_goes(api: FakeApi) -> None:
    api.cluster("demo")

    def made() -> None:
        api.put("harvesterconfigs", "nc-theirs", {"cpuCount": "2"})
        api.cluster("demo", pool("gpu", "nc-theirs"))

    api.meanwhile = [lambda: None, made]
    ensure(api, PoolRequest(quantity=1, image="default/image", networks=["default/vlan1"], cpus=4))
    assert set(api.objects["harvesterconfigs"]) == {"nc-theirs"}
    assert api.objects["harvesterconfigs"]["nc-theirs"]["cpuCount"] == "4"


@pytest.mark.parametrize(("labels", "others", "goes"), [(OURS, False, True), (OURS, True, False), ({}, False, False)])
def test_h1_a_config_goes_with_its_pool_only_if_it_is_ours_and_nobody_elses(
    api: FakeApi, labels: Json, others: bool, goes: bool
) -> None:
    api.put("harvesterconfigs", "nc-x1", {}, labels=labels)
    api.cluster("demo", pool("cp", "nc-cp"), pool("gpu", "nc-x1"))
    if others:
        api.cluster("other", pool("a", "nc-x1"))
    predicted = change(api, "demo", "gpu").remove(check_mode=True).warnings
    outcome = change(api, "demo", "gpu").remove(check_mode=False)
    assert ("nc-x1" not in api.objects["harvesterconfigs"]) is goes
    assert outcome.warnings == predicted
    assert any("nc-x1 stays" in text for text in predicted) is not goes


def test_h1_a_config_that_somebody_else_made_again_under_its_name_stays(api: FakeApi) -> None:
    api.put("harvesterconfigs", "nc-x1", {"cpuCount": "4"}, labels=OURS)
    api.cluster("demo", pool("cp", "nc-cp"), pool("gpu", "nc-x1"))
    # Before the deletion of the config comes the patch of the cluster.
    api.meanwhile = [lambda: None, lambda: api.put("harvesterconfigs", "nc-x1", {"cpuCount": "2"})]
    change(api, "demo", "gpu").remove(check_mode=False)
    assert api.writes[-1] == ("delete", "nc-x1")
    assert api.objects["harvesterconfigs"]["nc-x1"]["cpuCount"] == "2"


def test_h1_an_owner_that_no_label_can_hold_is_refused(api: FakeApi) -> None:
    api.cluster("demo")
    task = PoolChange(FakeRancher(api), PoolRef("demo", "gpu", owner="a b"), wait=False, seconds=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidPool, match="owner"):
        task.ensure(NEW, None, check_mode=False)
    assert api.writes == []


VGPU = '{"vGPURequests": [{"name": "vgpu-0", "deviceName": "nvidia.com/NVIDIA_A2-4Q"}]}'


def others(api: FakeApi, name: str, harvester: str | None = None) -> list[str]:
    """The pools that compete with a pool of cluster demo for its Harvester's vGPUs."""
    task = PoolChange(FakeRancher(api), PoolRef("demo", name, harvester), wait=False, seconds=1)  # type: ignore[arg-type]
    known = SimpleNamespace(by_resource=lambda resource: None)
    snapshot = SimpleNamespace(known=known, vms=ObjectList.of({"metadata": {"resourceVersion": "1"}, "items": []}))
    task.__dict__["_harvester_cluster"] = SimpleNamespace(snapshot=snapshot)
    return sorted(one.name for one in task._other_demands())


def test_a_pool_with_a_credential_of_its_own_is_counted_on_that_harvester(api: FakeApi) -> None:
    api.put("harvesterconfigs", "nc-x1", {"vgpuInfo": VGPU})
    far = {**pool("far", "nc-x1"), "cloudCredentialSecretName": "cc-b"}
    api.cluster("demo", pool("gpu", "nc-x1"), pool("near", "nc-x1"), far)
    api.cluster("other", pool("a", "nc-x1"), {**pool("b", "nc-x1"), "cloudCredentialSecretName": "cc-b"})
    api.cluster("unknown", pool("u", "nc-x1"))
    for name, credential in (("demo", "cc-a"), ("other", "cc-a"), ("unknown", "cc-unreadable")):
        api.objects["clusters"][name]["spec"]["cloudCredentialSecretName"] = credential
    assert others(api, "gpu") == ["demo/near", "other/a", "unknown/u"]
    assert others(api, "far") == ["other/b", "unknown/u"]


def test_a_harvester_that_is_not_that_of_the_credential_is_refused(api: FakeApi) -> None:
    api.put("harvesterconfigs", "nc-x1", {"vgpuInfo": VGPU})
    api.cluster("demo", {**pool("gpu", "nc-x1"), "cloudCredentialSecretName": "cc-b"})
    task = PoolChange(FakeRancher(api), PoolRef("demo", "gpu", "c-a"), wait=False, seconds=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidPool, match="cc-b of pool gpu is for Harvester c-b"):
        task.ensure(PoolRequest(quantity=2), None, check_mode=False)
    assert api.writes == []
