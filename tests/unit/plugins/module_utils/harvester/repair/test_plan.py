"""What a repair changes: KubeVirt's list of permitted devices, and claims that vGPUs left behind."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.in_use import (
    DeviceInUse,
    protect_running_vms,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.repair.plan import (
    ClaimRepair,
    ControllerMissing,
    DeviceMissing,
    InvalidRepair,
    NotLeftBehind,
    RepairRequest,
    repair_claims,
    repair_controllers,
    repair_permitted_devices,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.capacity import (
    AllowedChanges,
    classify_slots,
    max_additional,
)
from hypothesis import given, strategies as st

from tests.unit.plugins.module_utils.harvester.objects import (
    C4,
    Q4,
    Q8,
    claim,
    instance,
    kubevirt,
    node,
    snapshot,
    vgpu,
    vm,
)

RESOURCE, OTHER, THIRD = (f"nvidia.com/NVIDIA_A2-{kind}" for kind in ("4Q", "4C", "8Q"))
NAME = "n1-000008004"


def pci_device(name: str = NAME) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"vendorId": "10de", "deviceId": "25b6"}}


def of_a_vgpu(function: int = 4, **options: Any) -> dict[str, Any]:
    """A claim that Harvester has made for a vGPU."""
    made = claim(function, **options)
    owners = [{"kind": kind, "name": made["metadata"]["name"], "uid": "old"} for kind in ("PCIDevice", "VGPUDevice")]
    made["metadata"]["ownerReferences"] = owners
    return made


def lists(found: Any) -> list[str]:
    return [entry["resourceName"] for entry in found.after["pciHostDevices"]]


def test_m3_losses_are_added_and_duplicates_removed_and_nothing_else_changes() -> None:
    listed = kubevirt(OTHER, THIRD, THIRD)
    found = repair_permitted_devices(
        listed, snapshot(vgpus=[vgpu(asked=Q4, configured=Q4)], claims=[claim()]), {NAME: pci_device()}
    )
    assert found is not None
    assert lists(found) == [OTHER, THIRD, RESOURCE]
    assert (found.added, found.removed) == ((RESOURCE,), (THIRD,))
    assert found.after["pciHostDevices"][-1] == {
        "pciVendorSelector": "10de:25b6",
        "resourceName": RESOURCE,
        "externalResourceProvider": True,
    }
    assert list(found.patch["spec"]["configuration"]["permittedHostDevices"]) == ["pciHostDevices"]


def test_mediated_devices_are_listed_by_the_name_of_their_type() -> None:
    device = vgpu(asked=Q4, configured=Q4)
    device["status"]["uuid"] = "0-1-2"
    found = repair_permitted_devices(kubevirt(key="mediatedDevices"), snapshot("1.7", vgpus=[device]), {})
    assert found is not None
    assert found.after == {
        "mediatedDevices": [{"mdevNameSelector": Q4, "resourceName": RESOURCE, "externalResourceProvider": True}]
    }


def test_no_list_permits_everything_and_is_left_alone() -> None:
    taken = snapshot(vgpus=[vgpu(asked=Q4, configured=Q4)], claims=[claim()])
    assert repair_permitted_devices({"metadata": {}, "spec": {}}, taken, {NAME: pci_device()}) is None
    assert repair_permitted_devices(None, taken, {}) is None


@given(st.lists(st.sampled_from([RESOURCE, OTHER, THIRD]), max_size=8))
def test_a_repaired_list_needs_no_repair_and_has_lost_nothing(resources: list[str]) -> None:
    taken = snapshot(vgpus=[vgpu(asked=Q4, configured=Q4)], claims=[claim()])
    listed = kubevirt(*resources)
    found = repair_permitted_devices(listed, taken, {NAME: pci_device()})
    if found is None:
        assert RESOURCE in resources
        assert len(set(resources)) == len(resources)
        return
    listed["spec"]["configuration"]["permittedHostDevices"] |= found.after
    assert set(lists(found)) == {*resources, RESOURCE}
    assert repair_permitted_devices(listed, taken, {NAME: pci_device()}) is None


def removed(taken: Any, *claims: str, devices: tuple[str, ...] = (NAME,)) -> list[ClaimRepair]:
    request = RepairRequest(permitted_devices=False, claims=claims)
    found = {name: pci_device(name) for name in devices}
    return repair_claims(request, taken, protect_running_vms(taken.fleet), found)


def test_m4_a_claim_that_was_left_behind_gets_its_pci_device_as_only_owner() -> None:
    (found,) = removed(snapshot(vgpus=[vgpu()], claims=[of_a_vgpu()]), "n1-*")
    assert found.as_dict() == {"name": NAME, "node": "n1", "resource": RESOURCE}
    assert found.patch["metadata"]["ownerReferences"] == [
        {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "PCIDevice", "name": NAME, "uid": f"uid-{NAME}"}
    ]


def test_claims_of_existing_vgpus_and_claims_of_users_stay() -> None:
    used = snapshot(vgpus=[vgpu(asked=Q4, configured=Q4)], claims=[of_a_vgpu()])
    assert removed(used, "*") == []
    with pytest.raises(NotLeftBehind, match="its vGPU is NVIDIA A2-4Q"):
        removed(used, NAME)
    by_hand = {"metadata": {"name": NAME}, "spec": {"nodeName": "n1", "userName": "jo"}, "status": {}}
    assert removed(snapshot(vgpus=[vgpu()], claims=[by_hand]), "*") == []
    with pytest.raises(NotLeftBehind, match="jo created it"):
        removed(snapshot(vgpus=[vgpu()], claims=[by_hand]), NAME)


def test_a_claim_of_a_device_that_a_vm_refers_to_stays() -> None:
    machine = vm("v", devices=[(NAME, RESOURCE)])
    with pytest.raises(DeviceInUse, match="default/v"):
        removed(snapshot(vgpus=[vgpu()], claims=[of_a_vgpu()], vms=[machine]), "*")
    running = [instance("v", devices=[("any", RESOURCE)])]
    unnamed = vm("v", devices=[("any", RESOURCE)])
    with pytest.raises(DeviceInUse):
        removed(snapshot(vgpus=[vgpu()], claims=[of_a_vgpu()], vms=[unnamed], instances=running), "*")


def test_without_its_pci_device_a_claim_cannot_be_removed() -> None:
    with pytest.raises(DeviceMissing, match="Enable SR-IOV"):
        removed(snapshot(vgpus=[], claims=[of_a_vgpu()]), "*", devices=())


def test_a_claim_that_harvester_is_removing_is_left_alone_and_one_that_hangs_is_not() -> None:
    assert removed(snapshot(vgpus=[vgpu()], claims=[of_a_vgpu(going=True)]), "*") == []
    hanging = of_a_vgpu(going=True)
    hanging["metadata"]["ownerReferences"] = []
    (found,) = removed(snapshot(vgpus=[vgpu()], claims=[hanging]), "*")
    assert found.deleting


@pytest.mark.parametrize(
    "params",
    [
        {"permitted_devices": False, "claims": None, "controllers": None},
        {"permitted_devices": True, "claims": [], "controllers": None},
        {"permitted_devices": True, "claims": None, "controllers": []},
    ],
)
def test_a_request_for_nothing_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidRepair):
        RepairRequest.of(params)


def test_m4_one_leftover_claim_narrows_one_slot_and_not_the_gpu() -> None:
    left = snapshot(vgpus=[vgpu(number) for number in (4, 5, 6)], claims=[of_a_vgpu(6)], nodes=[node()])
    (gpu,) = left.fleet.gpus
    site = classify_slots(gpu, left.fleet.nodes[0])
    room = {name: max_additional(site, parse(name).key, name, AllowedChanges()) for name in (Q4, C4, Q8)}
    assert room == {Q4: 2, C4: 2, Q8: 2}


def test_a_gpu_with_leftover_claims_only_takes_their_type() -> None:
    left = snapshot(vgpus=[vgpu(4), vgpu(5)], claims=[of_a_vgpu(4), of_a_vgpu(5)], nodes=[node()])
    (gpu,) = left.fleet.gpus
    site = classify_slots(gpu, left.fleet.nodes[0])
    room = {name: max_additional(site, parse(name).key, name, AllowedChanges()) for name in (Q4, C4)}
    assert room == {Q4: 2, C4: 0}


# Controllers


def pod(where: str) -> dict[str, Any]:
    return {"metadata": {"name": f"pod-{where}"}, "spec": {"nodeName": where}}


def test_u15_only_controllers_of_selected_nodes_that_lost_count_are_restarted() -> None:
    """A vGPU that is not configured yet, or is offered, is no reason for a restart."""
    lost = vgpu(asked=Q4, configured=Q4)
    for request, devices, expected in (
        (("n1",), [lost], ["pod-n1"]),
        (("n*",), [lost], ["pod-n1"]),
        (("x*",), [lost], []),
        (("n1",), [vgpu(asked=Q4)], []),
        (("n1",), [vgpu()], []),
    ):
        seen = snapshot(vgpus=devices, claims=[claim()])
        found = repair_controllers(RepairRequest(False, None, request), seen, [pod("n1"), pod("n2")])
        assert [one.pod for one in found] == expected, request
    offered = snapshot(vgpus=[lost], claims=[claim()], nodes=[node(q4=1)])
    assert repair_controllers(RepairRequest(False, None, ("n1",)), offered, [pod("n1")]) == []


def test_u15_a_node_without_gpus_and_one_without_a_controller_are_refused() -> None:
    seen = snapshot(vgpus=[vgpu(asked=Q4, configured=Q4)], claims=[claim()])
    with pytest.raises(InvalidRepair, match="Node n7 in controllers has no GPU"):
        repair_controllers(RepairRequest(False, None, ("n7",)), seen, [pod("n1")])
    with pytest.raises(ControllerMissing, match="Node n1 has no pod of harvester-pcidevices-controller"):
        repair_controllers(RepairRequest(False, None, ("n1",)), seen, [])
