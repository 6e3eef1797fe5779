"""When a recorded object, answer or message and ours agree."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from lab.replay.compare.bindings import Bindings
from lab.replay.compare.difference import differences, object_differences, same_message
from lab.replay.observe.normalized import normalized

UUIDS = ("6f2c52a4-0b6a-4a40-8a3e-0d8f7d2e9a11", "b3a1c9d0-77aa-4c1e-9f4e-2f1f0a5d6c22")


def live(kind: str = "VGPUDevice", *, generation: int = 7, uid: str = "u1", **sections: Any) -> dict[str, Any]:
    return {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": kind,
        "metadata": {
            "name": "gpu-a-000008004",
            "generation": generation,
            "uid": uid,
            "resourceVersion": "41",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [],
            "labels": {"nodename": "gpu-a"},
        },
        **sections,
    }


def recorded(generation: int = 2, **sections: Any) -> dict[str, Any]:
    return {
        "kind": "VGPUDevice",
        "metadata": {"name": "gpu-a-000008004", "generation": generation, "labels": {"nodename": "gpu-a"}},
        **sections,
    }


def test_what_differs_from_run_to_run_is_left_out() -> None:
    spec = {"enabled": True}
    assert not object_differences(recorded(spec=spec, status={}), live(spec=spec), Bindings())


def test_another_value_or_a_missing_one_is_a_difference_with_its_place() -> None:
    expected = recorded(spec={"enabled": True, "vGPUTypeName": "NVIDIA A2-4Q"})
    found = object_differences(expected, live(spec={"enabled": False}), Bindings(), "VGPUDevice/x")
    assert [str(difference) for difference in found] == [
        "VGPUDevice/x.spec.enabled: recorded true, ours false",
        "VGPUDevice/x.spec.vGPUTypeName: recorded NVIDIA A2-4Q, ours (absent)",
    ]


def test_an_extra_field_of_ours_is_a_difference() -> None:
    assert object_differences(recorded(spec={}), live(spec={"enabled": False}), Bindings())


def test_generations_agree_by_their_distance() -> None:
    bindings = Bindings()
    assert not object_differences(recorded(2), live(generation=7), bindings)
    assert not object_differences(recorded(3), live(generation=8), bindings)
    assert object_differences(recorded(3), live(generation=9), bindings)


def test_an_object_made_anew_counts_its_generations_anew() -> None:
    bindings = Bindings()
    assert not object_differences(recorded(5), live(generation=9, uid="old"), bindings)
    assert not object_differences(recorded(1), live(generation=1, uid="new"), bindings)
    assert object_differences(recorded(1), live(generation=9, uid="old"), bindings)


def test_the_same_placeholder_stands_for_the_same_uuid() -> None:
    bindings = Bindings()
    assert bindings.same_text("<uuid-1>", UUIDS[0])
    assert bindings.same_text("NVIDIA A2-4Q|vGPUConfigured|<uuid-1>", f"NVIDIA A2-4Q|vGPUConfigured|{UUIDS[0]}")
    assert not bindings.same_text("<uuid-1>", UUIDS[1])
    assert not bindings.same_text("<uuid-2>", UUIDS[0])
    assert not bindings.same_text("<uuid-2>", "746")


def test_a_part_of_an_object_is_compared_alone() -> None:
    ours = live(spec={"enabled": True}, status={"uuid": "746"})
    assert not object_differences({"spec": {"enabled": True}, "status": {"uuid": "746"}}, ours, Bindings())
    assert object_differences({"spec": {"enabled": True}, "status": {}}, ours, Bindings())


def test_an_object_that_did_not_exist_must_not_exist() -> None:
    absent = {"message": "not found", "reason": "NotFound", "code": 404}
    assert not object_differences(absent, None, Bindings())
    assert object_differences(absent, live(), Bindings())
    assert object_differences(recorded(), None, Bindings())


def node(capacity: dict[str, str], allocatable: dict[str, str], *labels: str) -> dict[str, Any]:
    amounts = {"cpu": "8", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "gpu-a",
            "labels": {"kubernetes.io/hostname": "gpu-a", "kubernetes.io/os": "linux", **dict.fromkeys(labels, "true")},
        },
        "status": {"capacity": {**amounts, **capacity}, "allocatable": {**amounts, **allocatable}},
    }


def test_of_a_node_only_gpu_resources_and_the_recorded_labels_count() -> None:
    expected = {"capacity": {"nvidia.com/NVIDIA_A2-4Q": "2"}, "allocatable": {"nvidia.com/NVIDIA_A2-4Q": "1"}}
    ours = node(expected["capacity"], expected["allocatable"])
    assert not object_differences(expected, ours, Bindings())
    whole = {
        "kind": "Node",
        "metadata": {"name": "gpu-a", "labels": {"kubernetes.io/hostname": "gpu-a"}},
        "status": expected,
    }
    assert not object_differences(whole, ours, Bindings())


def test_a_lingering_resource_of_a_node_is_a_difference() -> None:
    ours = node({"nvidia.com/NVIDIA_A2-4Q": "1"}, {"nvidia.com/NVIDIA_A2-4Q": "0"})
    assert object_differences({"capacity": {}, "allocatable": {}}, ours, Bindings())


@pytest.mark.parametrize(
    ("expected", "ours", "agree"),
    [
        (("0", "3"), ("0", "0"), True),
        (("0", "0"), ("0", "3"), True),
        (("0", "2"), ("0", "3"), False),
        (("1", "0"), ("1", "3"), False),
        (("1", "3"), ("0", "3"), False),
    ],
)
def test_the_capacity_of_a_plugin_that_has_ended_is_the_last_one_or_nothing(
    expected: tuple[str, str], ours: tuple[str, str], agree: bool
) -> None:
    name = "nvidia.com/NVIDIA_A2-4Q"
    recorded = {"allocatable": {name: expected[0]}, "capacity": {name: expected[1]}}
    assert (not object_differences(recorded, node({name: ours[1]}, {name: ours[0]}), Bindings())) is agree


def test_a_driver_label_that_the_recording_does_not_show_is_a_difference() -> None:
    ours = node({}, {}, "sriovgpu.harvesterhci.io/driver-needed")
    expected = {
        "kind": "Node",
        "metadata": {"name": "gpu-a", "labels": {"kubernetes.io/hostname": "gpu-a"}},
        "status": {"capacity": {}, "allocatable": {}},
    }
    assert object_differences(expected, ours, Bindings())


def test_a_resource_that_cannot_be_arranged_counts_only_once_it_changes() -> None:
    bindings = Bindings(inherited={"gpu-a": {"nvidia.com/NVIDIA_A2-4C": ("0", "0")}})
    zero = {"capacity": {"nvidia.com/NVIDIA_A2-4C": "0"}, "allocatable": {"nvidia.com/NVIDIA_A2-4C": "0"}}
    one = {"capacity": {"nvidia.com/NVIDIA_A2-4C": "1"}, "allocatable": {"nvidia.com/NVIDIA_A2-4C": "1"}}
    assert not object_differences(zero, node({}, {}), bindings)
    assert object_differences(one, node({}, {}), bindings)


def test_kubevirts_list_is_a_set() -> None:
    def kubevirt(*names: str) -> dict[str, Any]:
        entries = [{"pciVendorSelector": "10de:25b6", "resourceName": name} for name in names]
        return {
            "kind": "KubeVirt",
            "metadata": {"name": "kubevirt"},
            "spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": entries}}},
        }

    assert not object_differences(kubevirt("a", "b", "b"), kubevirt("b", "a"), Bindings())
    assert object_differences(kubevirt("a", "b"), kubevirt("a"), Bindings())
    nothing = copy.deepcopy(kubevirt())
    nothing["spec"]["configuration"]["permittedHostDevices"] = None
    assert not object_differences(nothing, kubevirt(), Bindings())


def test_owner_references_are_shown_by_kind_and_name_and_a_deletion_as_such() -> None:
    claim = live("PCIDeviceClaim")
    claim["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "PCIDevice", "name": "x", "uid": "y"}]
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    shown = normalized(claim)["metadata"]
    assert shown["ownerReferences"] == [{"kind": "PCIDevice", "name": "x"}]
    assert shown["deleting"] is True


@pytest.mark.parametrize(
    ("expected", "ours", "agree"),
    [
        (
            "device a is in use with VM u1 in namespace default",
            "device a is in use with VM u2 in namespace default",
            True,
        ),
        (
            "device a is in use with VM u1 in namespace default",
            "device b is in use with VM u2 in namespace default",
            False,
        ),
        (
            "device a is in use with VM u1 in namespace default",
            "device a is in use with VM stranger in namespace default",
            False,
        ),
        ("these vGPU devices [x-1, x-2] are using it", "these vGPU devices [x-2, x-1] are using it", True),
        ("these vGPU devices [x-1, x-2] are using it", "these vGPU devices [x-2, x-3] are using it", False),
        (
            'patch: Invalid value: "<the whole object as JSON>": strict',
            'patch: Invalid value: "{\\"a\\": 1}": strict',
            True,
        ),
        ("VGPUTypeName  A2 is not valid", "VGPUTypeName A2 is not valid", False),
    ],
)
def test_a_message_agrees_word_for_word_but_for_what_a_go_map_orders(expected: str, ours: str, agree: bool) -> None:
    assert same_message(expected, ours, Bindings(), lambda: {"u1", "u2"}) is agree


def test_a_number_is_not_its_text() -> None:
    assert differences({"requested": 1}, {"requested": "1"}, Bindings())
    assert differences({"enabled": True}, {"enabled": 1}, Bindings())
