"""rancher_gpu_pool through ansible-playbook, Rancher's address and a token."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.api import NODES, VMIS
from tests.integration.modules.permissions import USER, Automation, binding, collection, documented, rights
from tests.integration.modules.playbooks import Playbooks, Result, predicting
from tests.integration.ranchers import (
    CLUSTERS,
    CONFIGS,
    CONTROL_ROLES,
    FOUR_Q,
    RELEASED,
    UNRELEASED,
    Rancher,
)

MODULE = "rancher_gpu_pool"
SECRET = "hunter2-in-user-data"
POOL: dict[str, Any] = {
    "cluster": "demo",
    "name": "gpu",
    "quantity": 2,
    "vgpus": [{"profile": "A2-4Q"}],
    "cpus": 4,
    "memory_gib": 8,
    "image": "default/image-ubuntu",
    "networks": ["default/vlan1"],
    "ssh_user": "ubuntu",
    "user_data": f"#cloud-config\npassword: {SECRET}\n",
    "labels": {"accelerator": "vgpu"},
    "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
}


@pytest.fixture(params=["mdev", "vfio"])
def either(request: pytest.FixtureRequest) -> Rancher:
    """The test runs once per era."""
    found: Rancher = request.getfixturevalue("rancher" if request.param == "vfio" else "rancher_mdev")
    return found


def config(rancher: Rancher, name: str = "", pool: str = "gpu") -> dict[str, Any]:
    """A machine config by its name, or the one of a pool of cluster demo."""
    pools = rancher.local.read(f"{CLUSTERS}/demo")["spec"]["rkeConfig"]["machinePools"] if not name else []
    named = [str(one["machineConfigRef"]["name"]) for one in pools if one["name"] == pool]
    return rancher.local.read(f"{CONFIGS}/{name or named[0]}")


def requested(rancher: Rancher) -> list[list[str]]:
    """By VM, the names of its vGPU requests."""
    found = []
    for vm in rancher.vms():
        devices = vm["spec"]["template"]["spec"]["domain"]["devices"]
        found.append([one["name"] for one in [*(devices.get("gpus") or []), *(devices.get("hostDevices") or [])]])
    return found


TWO_EACH = {**POOL, "quantity": 1, "vgpus": [{"profile": "A2-4Q", "count": 2}]}


def running_with_two(rancher: Rancher) -> bool:
    """Whether the machine of the pool has two vGPUs and has booted."""
    return [len(names) for names in requested(rancher)] == [2] and [
        one["status"].get("phase") for one in rancher.lab.items(VMIS)
    ] == ["Running"]


def test_h7_two_vgpus_per_machine_work_on_1_7(rancher_mdev: Rancher, plays: Playbooks) -> None:
    rancher_mdev.make_cluster("demo")
    made = plays.task(MODULE, **TWO_EACH)
    assert made.changed, made.message
    rancher_mdev.until(lambda: running_with_two(rancher_mdev))


@pytest.mark.parametrize(("version", "code"), [("1.4.1", "cannot_boot"), ("1.4", "")])
def test_h7_two_vgpus_per_machine_do_not_boot_up_to_1_4_1(
    rancher_on: Callable[[str], Rancher], plays: Playbooks, version: str, code: str
) -> None:
    """The lab's 1.4 is 1.4.3. In 1.4.2 KubeVirt 1.3 came, where only the first vGPU gets a boot display."""
    rancher_on(version).make_cluster("demo")
    (said,) = plays.tasks(predicting(MODULE, {**TWO_EACH, "allow_multiple_vgpus": True}))
    assert said.code == code
    assert (code == "") is said.changed
    assert code == "" or "on Harvester 1.4.1: its KubeVirt gives each of them a boot display" in said.message


def test_h7_released_drivers_cannot_create_two_vgpus_on_1_8(rancher: Rancher, plays: Playbooks) -> None:
    rancher.make_cluster("demo")
    # What Rancher does if nobody refuses it: Harvester rejects the VM, and the next machine comes.
    rancher.make_config("nc-two", FOUR_Q, FOUR_Q)
    rancher.make_cluster("other", rancher.pool("two", 1, "nc-two"))
    rancher.until(lambda: any("gpus/1" in json.dumps(one.get("status")) for one in rancher.machines("two")))
    rancher.local.delete(f"{CLUSTERS}/other")
    refused, allowed = plays.tasks((MODULE, TWO_EACH), (MODULE, {**TWO_EACH, "allow_multiple_vgpus": True}))
    assert refused.code == allowed.code == "cannot_boot"
    assert "machine driver v0.7.2 writes them to gpus[]" in refused.message
    # The one that is not released works. Its version cannot be read.
    rancher.use_driver(UNRELEASED)
    unknown, made = plays.tasks((MODULE, TWO_EACH), (MODULE, {**TWO_EACH, "allow_multiple_vgpus": True}))
    assert unknown.code == "unknown_machine_driver"
    assert "allow_multiple_vgpus: true" in unknown.message
    assert made.changed, made.message
    rancher.until(lambda: running_with_two(rancher))
    # With the released driver again, more of these machines would not come.
    rancher.use_driver(RELEASED)
    more = {"cluster": "demo", "name": "gpu", "quantity": 2}
    grown, rolled, less = plays.tasks(
        (MODULE, more),
        (MODULE, {"cluster": "demo", "name": "gpu", "memory_gib": 16}),
        predicting(MODULE, {**more, "quantity": 0}),
    )
    assert grown.code == rolled.code == "cannot_boot"
    assert less.changed


def test_a_pool_with_a_long_name_is_waited_for(rancher: Rancher, plays: Playbooks) -> None:
    """Rancher shortens the name of its MachineDeployment, and adds a hash."""
    rancher.make_cluster("demo")
    name = "a-pool-whose-name-is-nearly-as-long-as-the-api-server-allows-it"
    everything = {key: value for key, value in POOL.items() if key not in ("vgpus", "taints", "labels")}
    roles = ["etcd", "control_plane", "worker"]
    waiting = {**everything, "name": name, "quantity": 1, "roles": roles, "wait": True, "wait_timeout": 300}
    made = plays.task(MODULE, **waiting)
    assert not made.failed, made.message
    assert [one["phase"] for one in made["pool"]["machines"]] == ["Running"]


def test_a_pool_of_another_harvester_takes_no_vgpus_from_this_one(rancher: Rancher, plays: Playbooks) -> None:
    body = {"metadata": {"name": "cc-far"}, "stringData": {"harvestercredentialConfig-clusterId": "c-m-far"}}
    rancher.local.make("/api/v1/namespaces/cattle-global-data/secrets", body)
    rancher.make_config("nc-far", FOUR_Q)
    rancher.make_config("nc-near", FOUR_Q)
    far = rancher.pool("far", 4, "nc-far", cloudCredentialSecretName="cattle-global-data:cc-far")
    rancher.make_cluster("demo", far)
    (fits,) = plays.tasks(predicting(MODULE, {**POOL, "quantity": 4}))
    assert fits.changed, fits.message
    assert "outside the versions" not in fits["output"]
    rancher.set("server-version", "v2.14.0")
    (newer,) = plays.tasks(predicting(MODULE, {**POOL, "quantity": 4}))
    assert "Rancher v2.14.0 is outside the versions" in newer["output"].replace("\n", " ")
    rancher.change_pool("demo", "far", cloudCredentialSecretName=rancher.env["LAB_RANCHER_CREDENTIAL"])
    (full,) = plays.tasks(predicting(MODULE, {**POOL, "quantity": 4}))
    assert full.code == "pool_does_not_fit"
    rancher.local.delete("/api/v1/namespaces/cattle-global-data/secrets/cc-far")


def test_a_pool_is_made_kept_scaled_and_removed(either: Rancher, plays: Playbooks) -> None:
    rancher = either
    rancher.make_cluster("demo")
    rancher.mark()
    predicted, _ = plays.tasks(predicting(MODULE, POOL), predicting(MODULE, {**POOL, "state": "absent"}))
    assert predicted.changed
    assert rancher.writes() == []
    made, again = plays.tasks((MODULE, POOL), (MODULE, POOL))
    assert rancher.writes() == ["create harvesterconfigs", "patch clusters"]
    assert made.changed
    assert not again.changed
    unknown = {"machines": [], "machine_config": None}
    assert {**predicted["pool"], **unknown} == {**made["pool"], **unknown}
    assert predicted["pool"]["machine_config"] is None
    assert made["pool"]["machine_config"].startswith("nc-demo-gpu-")
    assert made["pool"]["vgpus"][0]["spellings"]["resource"] == FOUR_Q
    assert SECRET not in made["output"]
    rancher.until(lambda: requested(rancher) == [["vgpu-0"], ["vgpu-0"]])
    # The released driver writes gpus, which 1.8 turns into hostDevices, and no labels of cluster and pool (harvester.md
    # 14.2 and 14.3).
    devices = [vm["spec"]["template"]["spec"]["domain"]["devices"] for vm in rancher.vms()]
    assert all(bool(one.get("gpus")) is not rancher.lab.vfio for one in devices)
    assert not any("guestcluster.harvesterhci.io/name" in vm["metadata"]["labels"] for vm in rancher.vms())
    rancher.until(lambda: len(rancher.lab.items(VMIS)) == 2)
    rancher.mark()
    more = {"cluster": "demo", "name": "gpu", "quantity": 3}
    scaled, less, wider = plays.tasks(
        (MODULE, more),
        (MODULE, {**more, "quantity": 1}),
        predicting(MODULE, {**more, "quantity": 1, "memory_gib": 16, "user_data": "#cloud-config\n{}\n"}),
    )
    assert scaled.changed
    assert not scaled["machines_replaced"]
    assert scaled["diff"] == {"before": {"quantity": 2}, "after": {"quantity": 3}}
    assert less["pool"]["quantity"] == 1
    assert wider["machines_replaced"]
    assert [(one["cluster"], one["pool"]) for one in wider["machines_replaced"]] == [("demo", "gpu")]
    assert any("will be replaced" in one for one in wider["diff"]["after"]["machines"]["demo/gpu"])
    assert SECRET not in wider["output"]
    assert rancher.writes() == ["patch clusters", "patch clusters"]
    rancher.until(lambda: len(rancher.vms()) == 1)
    gone, nothing = plays.tasks(
        (MODULE, {"cluster": "demo", "name": "gpu", "state": "absent", "wait": True, "wait_timeout": 300}),
        (MODULE, {"cluster": "demo", "name": "gpu", "state": "absent"}),
    )
    assert gone.changed
    assert not nothing.changed
    assert rancher.machines() == rancher.local.items(CONFIGS) == []


def test_a_pool_of_ranchers_pages_is_read_as_equal(rancher: Rancher, plays: Playbooks) -> None:
    """Any name of a request will do; a schema from before vGPUs keeps them from the machines, so it goes."""
    rancher.make_config("nc-x1", FOUR_Q)
    rancher.make_config("nc-x2", FOUR_Q)
    schema = json.dumps(
        {"resourceFields": {name: {} for name in ("cpuCount", "memorySize", "diskInfo", "networkInfo")}}
    )
    rancher.make_cluster(
        "demo", rancher.pool("gpu", 1, "nc-x1"), rancher.pool("old", 1, "nc-x2", dynamicSchemaSpec=schema)
    )
    rancher.until(lambda: len(rancher.vms()) == 2)
    rancher.mark()
    same = {
        key: POOL[key] for key in ("cluster", "name", "vgpus", "cpus", "memory_gib", "image", "networks", "ssh_user")
    }
    equal, none, cut = plays.tasks(
        (MODULE, {**same, "quantity": 1}),
        predicting(MODULE, {**same, "vgpus": []}),
        (MODULE, {**same, "name": "old"}),
    )
    assert not equal.changed
    assert [one["profile"] for one in equal["pool"]["vgpus"]] == ["NVIDIA A2-4Q"]
    assert none.changed
    assert none["pool"]["vgpus"] == []
    assert cut.changed
    assert cut["machines_replaced"]
    assert rancher.writes() == ["patch clusters"]
    rancher.until(lambda: sorted(map(len, requested(rancher)))[-2:] == [1, 1])
    assert config(rancher, "nc-x1")["vgpuInfo"] == config(rancher, "nc-x2")["vgpuInfo"]


def test_h1_no_machine_of_a_pool_that_was_not_asked_for_is_replaced(rancher: Rancher, plays: Playbooks) -> None:
    """A config of the name that a new pool's would have, and one that two pools refer to."""
    rancher.make_config("nc-demo-gpu", cpuCount="16")
    rancher.make_cluster(
        "demo",
        rancher.pool("workers", 2, "nc-demo-gpu", **CONTROL_ROLES),
        rancher.pool("more", 1, "nc-demo-gpu"),
    )
    rancher.until(lambda: len(rancher.machines()) == 3)
    workers = sorted(one["metadata"]["name"] for one in rancher.machines("workers"))
    (more,) = rancher.machines("more")
    before = config(rancher, "nc-demo-gpu")
    made, predicted, own = plays.tasks(
        (MODULE, {**POOL, "quantity": 1, "cpus": 2}),
        predicting(MODULE, {"cluster": "demo", "name": "more", "cpus": 2}),
        (MODULE, {"cluster": "demo", "name": "more", "cpus": 2}),
    )
    assert made.changed, made.message
    assert not made["machines_replaced"]
    replaced = [{"cluster": "demo", "pool": "more", "machines": [more["metadata"]["name"]]}]
    assert predicted["machines_replaced"] == own["machines_replaced"] == replaced
    assert set(own["diff"]["after"]["machines"]) == {"demo/more"}
    assert config(rancher, "nc-demo-gpu") == before
    assert config(rancher, pool="more")["cpuCount"] == "2"
    rancher.until(lambda: more["metadata"]["name"] not in [one["metadata"]["name"] for one in rancher.machines()])
    assert sorted(one["metadata"]["name"] for one in rancher.machines("workers")) == workers


def test_what_does_not_fit_or_makes_no_sense_is_refused_and_nothing_is_written(
    rancher: Rancher, plays: Playbooks
) -> None:
    rancher.make_cluster("demo", rancher.pool("cp", 0, "nc-none", etcdRole=True))
    # One that can create several vGPUs, so that these are a matter of room.
    rancher.use_driver(UNRELEASED)
    rancher.mark()

    def call(**changes: Any) -> tuple[str, dict[str, Any]]:
        return MODULE, {**POOL, **changes}

    refused = plays.tasks(
        call(quantity=5),
        call(vgpus=[{"profile": "A2-4Q", "count": 5}], allow_multiple_vgpus=True),
        call(vgpus=[{"profile": "A2-2Q"}]),
        call(vgpus=[{"profile": "A2-5Q"}]),
        call(vgpus=[{"profile": "A2-4Q"}, {"profile": "A2-8Q"}, {"profile": "L40S-4Q"}]),
        call(cluster="dem"),
        call(quantity=-1),
        call(networks=None),
        call(api_key="token-lab:wrong"),
        call(host="https://127.0.0.1:1/k8s/clusters/local"),
    )
    codes = [one.code for one in refused]
    assert codes[:4] == ["pool_does_not_fit", "no_room", "profile_not_offered", "unknown_profile"]
    assert codes[4:] == [
        "cannot_boot",
        "cluster_not_found",
        "invalid_pool",
        "invalid_pool",
        "unauthorized",
        "bad_connection",
    ]
    assert "of 5 machines with 1 x NVIDIA A2-4Q each, 1 would find no room" in refused[0].message
    assert "Did you mean demo?" in refused[5].message
    assert rancher.writes() == []

    # Two pools that fit alone and not together; the first one's machines may still be on their way.
    first, second = plays.tasks(call(quantity=3), call(name="more", quantity=2))
    assert first.changed
    assert second.code == "pool_does_not_fit"
    rancher.until(lambda: len(rancher.lab.items(VMIS)) == 3)
    third, full, surge = plays.tasks(
        call(name="more", quantity=2),
        call(quantity=4),
        call(quantity=4, memory_gib=16),
    )
    assert third.code == "pool_does_not_fit"
    assert "demo-gpu-" in third.message
    assert full.changed
    assert surge.code == "roll_would_hang"
    assert "max_surge: 0" in surge.message
    assert config(rancher)["memorySize"] == "8"

    # A node that is lost in between.
    rancher.lab.write(f"{NODES}/gpu-a", {"spec": {"unschedulable": True}})
    lost = plays.task(MODULE, **{**POOL, "quantity": 5})
    assert lost.code == "pool_does_not_fit"
    assert "gpu-a is cordoned" in lost.message


def test_the_documented_roles_are_enough_and_each_right_is_needed(rancher: Rancher, plays: Playbooks) -> None:
    rancher.make_cluster("demo")
    pool = {**POOL, "quantity": 1, "api_key": rancher.key_of(USER)}
    automation = Automation(rancher.lab)
    granted, made = set(), []
    try:
        automation.grant("vgpu-fleet-reader")
        nobody = plays.task(MODULE, **pool)
        for role in documented():
            if role["metadata"]["name"] in ("vgpu-fleet-pools", "vgpu-fleet-credentials"):
                bound = binding("Role", role["metadata"]["name"], role["metadata"]["namespace"])
                granted |= rights(role["rules"])
                for manifest in (role, bound):
                    made.append(f"{collection(manifest)}/{manifest['metadata']['name']}")
                    rancher.local.make(collection(manifest), manifest)
        rules = rancher.local.read(made[0])["rules"]
        rancher.local.write(made[0], {"rules": [{**rules[0], "verbs": ["list"]}, *rules[1:]]})
        rancher.mark()
        rancher.lab.mark()
        reader = plays.task(MODULE, **pool)
        rancher.local.write(made[0], {"rules": rules})
        done = plays.tasks(
            (MODULE, pool),
            (MODULE, {**pool, "memory_gib": 16}),
            (MODULE, {**pool, "state": "absent", "wait": True, "wait_timeout": 300}),
        )
        assert not [one.message for one in done if one.failed]
        assert set(rancher.requests(USER, granted_only=True)) == granted
        # Listed only where a card is off or shows no types.
        rare = {("list", "migconfigurations"), ("list", "pcidevices")}
        assert automation.used() == automation.granted - rare
    finally:
        automation.withdraw()
        for path in made:
            rancher.local.delete(path)
    assert nobody.code == reader.code == "forbidden"
    assert f'User "{USER}" cannot list resource' in nobody.message
    assert f'User "{USER}" cannot patch resource "clusters"' in reader.message


def test_machines_are_replaced_with_and_without_room_for_it(rancher: Rancher, plays: Playbooks) -> None:
    rancher.make_config("nc-cp")
    rancher.make_cluster("demo", rancher.pool("cp", 1, "nc-cp", **CONTROL_ROLES))
    rancher.ready("demo")
    waiting = {"wait": True, "wait_timeout": 300}
    (made,) = plays.tasks((MODULE, {**POOL, "quantity": 4, **waiting}))
    assert not made.failed, made.message
    old = {one["name"] for one in made["pool"]["machines"]}
    assert {one["phase"] for one in made["pool"]["machines"]} == {"Running"}
    change = {"cluster": "demo", "name": "gpu", "memory_gib": 16}
    # All vGPUs are in use: a new machine waits, an old one goes, and the new one gets its vGPU (M12).
    one_by_one = {"rolling_update": {"max_surge": "1", "max_unavailable": "1"}}
    hangs, rolled, again = plays.tasks(
        (MODULE, change), (MODULE, {**change, **one_by_one, **waiting}), (MODULE, {**change, **one_by_one, **waiting})
    )
    assert hangs.code == "roll_would_hang"
    assert rolled.changed, rolled.message
    assert rolled["machines_replaced"]
    assert old.isdisjoint({one["name"] for one in rolled["pool"]["machines"]})
    assert not again.changed
    # Another profile: four do not fit, two have room beside the old ones.
    profile = {"cluster": "demo", "name": "gpu", "vgpus": [{"profile": "A2-8Q"}]}
    four, two, last = plays.tasks(
        (MODULE, profile),
        (MODULE, {**profile, "quantity": 2, "rolling_update": {"max_unavailable": "0"}, **waiting}),
        (MODULE, {"cluster": "demo", "name": "cp", "state": "absent"}),
    )
    assert four.code == "pool_does_not_fit"
    assert two.changed, two.message
    assert [one["profile"] for one in two["pool"]["vgpus"]] == ["NVIDIA A2-8Q"]
    assert len(two["pool"]["machines"]) == 2
    assert last.code == "last_of_its_role"
    assert last_words(rancher, plays, profile).code == "timeout"


def last_words(rancher: Rancher, plays: Playbooks, profile: dict[str, Any]) -> Result:
    """Somebody has asked Rancher itself for more than there is: who waits for the pool is told which VM lacks what."""
    with rancher.real_time():
        rancher.change_pool("demo", "gpu", quantity=3)
        vm = rancher.short_of_vgpus("gpu")
        result = plays.task(MODULE, **{**profile, "wait": True, "wait_timeout": 1})
    assert f"VM default/{vm} cannot start" in result.message
    assert "Insufficient nvidia.com/NVIDIA_A2-8Q" in result.message
    return result
