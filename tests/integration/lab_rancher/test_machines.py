"""Pools become machines and VMs, roll, hang and come back, as harvester.md 14 and the recorded driver have it."""

from __future__ import annotations

import json

from tests.integration.api import VMIS, VMS
from tests.integration.ranchers import CLUSTERS, CONFIGS, CONTROL_ROLES, FOUR_Q, UNRELEASED, Rancher

PATIENCE = 640.0


def requests_of(vm: dict) -> list[dict]:
    devices = vm["spec"]["template"]["spec"]["domain"]["devices"]
    return [*(devices.get("gpus") or []), *(devices.get("hostDevices") or [])]


def test_machines_of_a_pool_ask_for_the_same_and_run(rancher: Rancher) -> None:
    """harvester.md 14.1 and 14.3: equal requests, and labels that are cut out of the machine's name."""
    rancher.use_driver(UNRELEASED)
    rancher.make_config("nc-demo", FOUR_Q)
    rancher.make_cluster("demo", rancher.pool("gpu", 2, "nc-demo"))
    rancher.until(lambda: len(rancher.lab.items(VMIS)) == 2)
    vms = rancher.until(lambda: len(found := rancher.vms()) == 2 and found)
    assert all(requests_of(vm) == [{"name": "provisioned", "deviceName": FOUR_Q}] for vm in vms)
    machines = {one["spec"]["infrastructureRef"]["name"] for one in rancher.machines("gpu")}
    assert {vm["metadata"]["name"] for vm in vms} == machines
    for vm in vms:
        name, labels = vm["metadata"]["name"], vm["metadata"]["labels"]
        assert labels["guestcluster.harvesterhci.io/name"] == "demo"
        assert labels["harvesterhci.io/machineSetName"] == "default-demo-gpu"
        assert labels["nodepool.harvesterhci.io/name"] == name.removeprefix("demo-").rsplit("-", 1)[0]
    rancher.until(lambda: {(one.get("status") or {}).get("phase") for one in rancher.machines()} == {"Provisioned"})
    assert {vmi["status"]["phase"] for vmi in rancher.lab.items(VMIS)} == {"Running"}


def test_a_pool_follows_its_quantity_and_goes_with_all_it_had(rancher: Rancher) -> None:
    rancher.make_config("nc-demo", FOUR_Q)
    rancher.make_cluster("demo", rancher.pool("gpu", 1, "nc-demo"), rancher.pool("work", 1, "nc-demo"))
    rancher.until(lambda: len(rancher.vms()) == 2)
    rancher.change_pool("demo", "gpu", quantity=3)
    rancher.until(lambda: len(rancher.machines("gpu")) == 3)
    rancher.change_pool("demo", "gpu", quantity=1)
    rancher.until(lambda: len(rancher.machines("gpu")) == 1)
    pools = [rancher.pool("work", 1, "nc-demo")]
    rancher.local.write(f"{CLUSTERS}/demo", {"spec": {"rkeConfig": {"machinePools": pools}}})
    rancher.until(lambda: not rancher.machines("gpu") and len(rancher.vms()) == 1)
    rancher.local.delete(f"{CLUSTERS}/demo")
    rancher.until(lambda: not rancher.machines() and not rancher.vms())
    # The controller removes the cluster after its machines.
    rancher.until(lambda: rancher.local.find(f"{CLUSTERS}/demo") is None)
    rancher.until(lambda: not rancher.lab.items("/api/v1/namespaces/default/persistentvolumeclaims"))


def test_a_changed_config_rolls_the_pool_and_new_machines_come_first(rancher: Rancher) -> None:
    """harvester.md 14.7: surge before delete; the config is changed in place."""
    rancher.make_config("nc-cp")
    rancher.make_config("nc-gpu", FOUR_Q)
    rancher.make_cluster("demo", rancher.pool("cp", 1, "nc-cp", **CONTROL_ROLES), rancher.pool("gpu", 2, "nc-gpu"))
    rancher.ready("demo")
    before = set(rancher.running("gpu"))
    point = rancher.lab.point()
    rancher.local.write(f"{CONFIGS}/nc-gpu", {"memorySize": "16"})
    rancher.until(lambda: before.isdisjoint(rancher.running("gpu")) and len(rancher.machines("gpu")) == 2)
    rancher.ready("demo")
    counts, vms = [], before | {one["metadata"]["name"] for one in rancher.machines("cp")}
    for change in rancher.lab.changes(point, VMS):
        if change.gone or change.name not in vms:
            (vms.discard if change.gone else vms.add)(change.name)
            counts.append(len(vms))
    assert counts[0] == 4
    assert min(counts) >= 3
    # The next one is made while the VM of one that was told to go is still on its way out.
    assert max(counts) <= 5
    memory = {vm["spec"]["template"]["spec"]["domain"]["resources"]["limits"]["memory"] for vm in rancher.vms()}
    assert memory == {"8Gi", "16Gi"}
    # Labels and limits of a pool leave its machines alone.
    after = set(rancher.running("gpu"))
    rancher.change_pool("demo", "gpu", labels={"tier": "gold"}, rollingUpdate={"maxSurge": 0, "maxUnavailable": 1})
    rancher.ready("demo")
    assert set(rancher.running("gpu")) == after


def test_with_all_vgpus_taken_a_roll_hangs_and_machines_are_made_again_and_again(rancher: Rancher) -> None:
    """harvester.md 14.2, 14.7 and harvester#8478: nothing asks what is free, and nothing gives up."""
    rancher.make_config("nc-cp")
    rancher.make_config("nc-gpu", FOUR_Q)
    pools = (rancher.pool("cp", 1, "nc-cp", **CONTROL_ROLES), rancher.pool("gpu", 4, "nc-gpu"))
    rancher.make_cluster("demo", *pools)
    rancher.ready("demo")
    old = set(rancher.running("gpu"))
    rancher.local.write(f"{CONFIGS}/nc-gpu", {"memorySize": "16"})
    first = rancher.until(lambda: {one["metadata"]["name"] for one in rancher.machines("gpu")} - old)
    rancher.until(lambda: rancher.lab.find(f"{VMIS}/{next(iter(first))}"))
    rancher.lab.advance(PATIENCE)
    second = rancher.until(lambda: {one["metadata"]["name"] for one in rancher.machines("gpu")} - old - first)
    assert len(second) == 1
    assert set(rancher.running("gpu")) == old

    def told() -> bool:
        said = json.dumps(rancher.local.read(f"{CLUSTERS}/demo")["status"]["conditions"])
        return any(
            one["metadata"]["name"] in said for one in rancher.machines("gpu") if one["metadata"]["name"] not in old
        )

    rancher.until(told)
    # An old one that may go first sets a vGPU free.
    rancher.change_pool("demo", "gpu", rollingUpdate={"maxSurge": 0, "maxUnavailable": 1})
    rancher.lab.advance(PATIENCE)
    rancher.until(lambda: old.isdisjoint(rancher.running("gpu")) and len(rancher.running("gpu")) == 4)


def test_a_schema_from_before_vgpus_takes_them_away(rancher: Rancher) -> None:
    """harvester.md 14.7: dynamicSchemaSpec."""
    rancher.make_config("nc-demo", FOUR_Q)
    old = json.dumps({"resourceFields": {name: {} for name in ("cpuCount", "memorySize", "diskInfo", "networkInfo")}})
    rancher.make_cluster("demo", rancher.pool("gpu", 1, "nc-demo", dynamicSchemaSpec=old))
    (vm,) = rancher.until(rancher.vms)
    assert requests_of(vm) == []


def test_what_the_driver_cannot_do_is_told_and_tried_again(rancher: Rancher) -> None:
    """The recordings x-image-missing and f-invalid-json, and a credential of a Harvester that is gone."""
    image = '{"disks":[{"imageName":"default/none","size":40,"bootOrder":1}]}'
    rancher.make_config("nc-image", diskInfo=image)
    rancher.make_config("nc-json", vgpuInfo="not json")
    rancher.make_cluster("demo", rancher.pool("image", 1, "nc-image"), rancher.pool("json", 1, "nc-json"))
    first = rancher.until(lambda: len(found := rancher.machines()) == 2 and {one["metadata"]["name"] for one in found})

    def said(text: str) -> bool:
        return text in json.dumps(rancher.local.read(f"{CLUSTERS}/demo").get("status") or {})

    rancher.until(lambda: said('virtualmachineimages.harvesterhci.io \\\\\\"none\\\\\\" not found') or said("none"))
    rancher.until(lambda: said("error unmarshalling vgpuInfo string"))
    rancher.until(lambda: first.isdisjoint({one["metadata"]["name"] for one in rancher.machines()}))
    assert rancher.vms() == []
    secrets = "/api/v1/namespaces/cattle-global-data/secrets"
    rancher.local.make(
        secrets,
        {
            "metadata": {"name": "cc-stale"},
            "stringData": {
                "harvestercredentialConfig-clusterId": "c-m-gone",
                "harvestercredentialConfig-clusterType": "imported",
            },
        },
    )
    rancher.make_config("nc-stale")
    rancher.make_cluster("stale", rancher.pool("work", 1, "nc-stale"), credential="cattle-global-data:cc-stale")
    rancher.until(lambda: "c-m-gone" in json.dumps(rancher.local.read(f"{CLUSTERS}/stale").get("status") or {}))
    rancher.local.delete(f"{secrets}/cc-stale")
