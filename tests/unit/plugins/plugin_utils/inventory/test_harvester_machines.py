"""Objects of a Harvester cluster become machines with vGPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory import harvester_machines, machines

from tests.unit.plugins.module_utils.harvester import objects
from tests.unit.plugins.module_utils.harvester.objects import Q4, Q8

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
ERAS = {"1.7": "gpus", "1.8": "hostDevices"}
NOTE_PARTS = {"gpus": "gpus", "hostDevices": "hostdevices"}


@pytest.fixture(params=ERAS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def note(version: str, *devices: str) -> str:
    return json.dumps({NOTE_PARTS[ERAS[version]]: {RESOURCE: list(devices)}})


def read(version: str = "1.8", **lists: Any) -> dict[str, dict[str, Any]]:
    made = {
        "vgpus": [objects.vgpu(function, asked=Q4, configured=Q4) for function in (4, 5)],
        "claims": [objects.claim(function) for function in (4, 5)] if version == "1.8" else [],
        "nodes": [objects.node(q4=2)],
    }
    found = harvester_machines.records(objects.snapshot(version, **{**made, **lists}), "berlin")
    return {record["variables"]["name"]: machines.variables(record) for record in found}


def test_a_running_machine_has_the_devices_that_harvester_noted(version: str) -> None:
    vm = objects.vm("a", devices=[("x", RESOURCE)], note=note(version, "n1-000008005"), field=ERAS[version])
    found = read(version, vms=[vm], instances=[objects.started(vm)])["a"]
    assert found["gpu_vm_state"] == "running"
    assert found["gpu_vm_profiles"] == ["A2-4Q"]
    assert found["gpu_vm_gpus"] == ["n1-000008000"]
    assert (found["gpu_vm_node"], found["gpu_vm_cluster"], found["gpu_vm_namespace"]) == ("n1", "berlin", "default")
    assert found["gpu_vm_vgpus"] == [
        {
            "profile": "A2-4Q",
            "type": Q4,
            "device": "n1-000008005",
            "address": "0000:08:00.5",
            "gpu": "n1-000008000",
            "node": "n1",
        }
    ]


@pytest.mark.parametrize("phase", ["Pending", "Scheduling", "Scheduled"])
def test_a_starting_machine_has_its_profile_and_no_device_of_an_earlier_run(version: str, phase: str) -> None:
    vm = objects.vm("a", devices=[("x", RESOURCE)], note=note(version, "n1-000008004"), field=ERAS[version])
    found = read(version, vms=[vm], instances=[objects.started(vm, phase=phase)])["a"]
    assert found["gpu_vm_state"] == "starting"
    assert found["gpu_vm_profiles"] == ["A2-4Q"]
    (vgpu,) = found["gpu_vm_vgpus"]
    assert (vgpu["device"], vgpu["gpu"], vgpu["node"]) == (None, None, "n1")
    assert found["gpu_vm_gpus"] == []


def test_a_stopped_machine_has_neither_node_nor_device(version: str) -> None:
    vm = objects.vm("a", devices=[("x", RESOURCE)], note=note(version, "n1-000008004"), field=ERAS[version])
    found = read(version, vms=[vm])["a"]
    assert (found["gpu_vm_state"], found["gpu_vm_node"], found["gpu_vm_gpus"]) == ("stopped", None, [])
    assert found["gpu_vm_profiles"] == ["A2-4Q"]


@pytest.mark.parametrize("devices", [["n1-000008004"], ["n1-000008004", "gone"], ["n1-000008004", "n1-000008004"]])
def test_a_note_that_does_not_account_for_all_devices_says_nothing(devices: list[str]) -> None:
    vm = objects.vm("a", devices=[("x", RESOURCE), ("y", RESOURCE)], note=note("1.8", *devices))
    found = read(vms=[vm], instances=[objects.started(vm)])["a"]
    assert [one["device"] for one in found["gpu_vm_vgpus"]] == [None, None]


def test_a_device_on_another_node_or_of_two_machines_is_not_told() -> None:
    one, two = (objects.vm(name, devices=[("x", RESOURCE)], note=note("1.8", "n1-000008004")) for name in "ab")
    found = read(vms=[one, two], instances=[objects.started(one), objects.started(two)])
    assert [found[name]["gpu_vm_gpus"] for name in "ab"] == [[], []]
    found = read(vms=[one], instances=[objects.started(one, on="n2")])
    assert found["a"]["gpu_vm_gpus"] == []


def test_machines_without_vgpus_are_none() -> None:
    plain, whole = objects.vm("plain"), objects.vm("whole", devices=[("x", "nvidia.com/GA107GL_A2")])
    assert read(vms=[plain, whole], instances=[objects.started(plain), objects.started(whole)]) == {}


def test_an_edited_machine_shows_what_it_runs_with_and_that_it_needs_a_restart() -> None:
    vm = objects.vm("a", devices=[("x", "nvidia.com/NVIDIA_A2-8Q")])
    runs = objects.instance("a", devices=[("x", RESOURCE)])
    found = read(vms=[vm], instances=[runs])["a"]
    assert (found["gpu_vm_profiles"], found["gpu_vm_restart_required"]) == (["A2-4Q"], True)
    found = read(vms=[vm], instances=[objects.instance("a")])["a"]
    assert (found["gpu_vm_profiles"], found["gpu_vm_restart_required"]) == ([], True)


def test_an_instance_without_a_vm_is_a_machine() -> None:
    found = read(instances=[objects.instance("a", devices=[("x", RESOURCE)])])["a"]
    assert (found["gpu_vm_state"], found["gpu_vm_profiles"]) == ("running", ["A2-4Q"])


def test_several_profiles_are_listed_once_each() -> None:
    devices = [("x", RESOURCE), ("y", RESOURCE), ("z", "nvidia.com/NVIDIA_A2-8Q")]
    vm = objects.vm("a", devices=devices)
    found = read(vms=[vm])["a"]
    assert found["gpu_vm_profiles"] == ["A2-4Q", "A2-8Q"]
    assert [one["type"] for one in found["gpu_vm_vgpus"]] == [Q4, Q4, Q8]


@pytest.mark.parametrize(
    ("status", "metadata", "state"),
    [
        ({"phase": "Running"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "stopping"),
        ({"phase": "Running", "conditions": [{"type": "Paused", "status": "True"}]}, {}, "paused"),
        ({"phase": "Running", "conditions": None}, {}, "running"),
        ({"phase": "Succeeded"}, {}, "stopped"),
        ({"phase": "Failed"}, {}, "stopped"),
        (None, {}, "starting"),
    ],
)
def test_states(status: Any, metadata: dict[str, str], state: str) -> None:
    vm = objects.vm("a", devices=[("x", RESOURCE)])
    runs = objects.started(vm)
    runs["metadata"] |= metadata
    runs["status"] = status
    assert read(vms=[vm], instances=[runs])["a"]["gpu_vm_state"] == state


def with_interfaces(*interfaces: Any, networks: Any = None) -> dict[str, Any]:
    vm = objects.vm("a", devices=[("x", RESOURCE)])
    runs = objects.started(vm, interfaces=list(interfaces))
    runs["spec"] = {**runs["spec"], "networks": networks}
    return read(vms=[vm], instances=[runs])["a"]


def test_the_address_is_that_of_a_network_outside_of_the_cluster() -> None:
    found = with_interfaces(
        {"name": "default", "ipAddress": "10.52.0.9", "ipAddresses": ["10.52.0.9"]},
        {"name": "nic-1", "ipAddress": "fd00::9", "ipAddresses": ["fd00::9", "192.0.2.9"], "mac": "52:54:00:00:00:01"},
        {"interfaceName": "docker0", "ipAddress": "172.17.0.1", "ipAddresses": ["172.17.0.1"]},
        networks=[{"name": "default", "pod": {}}, {"name": "nic-1", "multus": {"networkName": "default/vlan1"}}],
    )
    assert found["ansible_host"] == found["gpu_vm_address"] == "192.0.2.9"
    assert found["gpu_vm_interfaces"][1] == {
        "network": "nic-1",
        "mac": "52:54:00:00:00:01",
        "addresses": ["fd00::9", "192.0.2.9"],
    }
    assert [one["network"] for one in found["gpu_vm_interfaces"]] == ["default", "nic-1"]


@pytest.mark.parametrize(
    "interface",
    [
        None,
        "odd",
        {},
        {"name": "nic-0"},
        {"name": "nic-0", "ipAddress": None, "ipAddresses": None},
        {"name": "nic-0", "ipAddress": "", "ipAddresses": []},
        {"name": "nic-0", "ipAddress": "not an address"},
        {"name": "nic-0", "ipAddresses": ["fe80::1", "127.0.0.1", "169.254.1.2", "0.0.0.0", "fe80::1%eth0"]},
        {"name": "nic-0", "ipAddresses": "10.0.0.1"},
        {"ipAddress": "172.17.0.1"},
    ],
)
def test_a_machine_whose_guest_tells_no_address_is_a_host_without_one(interface: Any) -> None:
    found = with_interfaces(interface)
    assert found["gpu_vm_address"] is None
    assert "ansible_host" not in found


def test_the_machines_of_a_pool_have_their_cluster_and_pool() -> None:
    vm = objects.vm("demo-gpu-aaaaa-00000", devices=[("provisioned", RESOURCE)])
    # As the machine driver writes them.
    vm["metadata"]["labels"] = {
        "guestcluster.harvesterhci.io/name": "demo",
        "harvesterhci.io/machineSetName": "default-demo-gpu",
        "nodepool.harvesterhci.io/name": "gpu-aaaaa",
    }
    found = read(vms=[vm])["demo-gpu-aaaaa-00000"]
    assert (found["gpu_vm_guest_cluster"], found["gpu_vm_pool"]) == ("demo", "gpu")
    vm["metadata"]["labels"]["harvesterhci.io/machineSetName"] = "hash_MjZk_z"
    assert read(vms=[vm])["demo-gpu-aaaaa-00000"]["gpu_vm_pool"] == "gpu-aaaaa"


def test_odd_objects_do_not_keep_the_others_from_being_hosts() -> None:
    odd = {"metadata": {"name": "odd", "namespace": "default", "labels": None, "annotations": None}, "spec": None}
    unread = objects.vm("unread", devices=[("x", RESOURCE)], note="no json")
    runs = objects.started(unread)
    runs["status"]["guestOSInfo"] = "odd"
    found = read(vms=[odd, unread], instances=[runs])
    assert list(found) == ["unread"]
    assert found["unread"]["gpu_vm_gpus"] == []
    assert found["unread"]["gpu_vm_guest_os"] is None


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://rancher.example/k8s/clusters/c-m-abcdef12", "c-m-abcdef12"),
        ("https://rancher.example/k8s/clusters/c-m-abcdef12/", "c-m-abcdef12"),
        ("https://harvester.example:6443", "harvester.example"),
    ],
)
def test_a_cluster_is_called_by_its_address(url: str, name: str) -> None:
    assert harvester_machines.cluster_of(url) == name
