# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A pool as it is and shall be: what is written, what is left alone, what makes Rancher replace machines."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.version import HarvesterVersion
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher import pool as pools
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.machine_config import MachineConfig, encoded
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.pool import Change, InvalidPool, Pool, PoolRequest

FOUR_Q, EIGHT_Q = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-8Q"
OLD_SCHEMA = json.dumps({"resourceFields": {"cpuCount": {"type": "string"}}})
NEW_SCHEMA = json.dumps({"resourceFields": {"cpuCount": {"type": "string"}, "vgpuInfo": {"type": "string"}}})


def requests(*pairs: tuple[str, str]) -> str:
    return json.dumps({"vGPURequests": [{"name": name, "deviceName": device} for name, device in pairs]})


# As Rancher's pages write it.
CONFIG = {
    "vmNamespace": "default",
    "cpuCount": "4",
    "memorySize": "16",
    "diskInfo": '{"disks":[{"imageName":"default/image-ubuntu","bootOrder":1,"size":40}]}',
    "networkInfo": '{"interfaces":[{"networkName":"default/vlan1"}]}',
    "sshUser": "ubuntu",
    "userData": encoded("#cloud-config\npackages: [qemu-guest-agent]\n"),
    "vgpuInfo": requests(("provisioned", FOUR_Q)),
    "cpuModel": "host-passthrough",
}
ENTRY = {
    "name": "gpu",
    "quantity": 2,
    "workerRole": True,
    "machineConfigRef": {"kind": "HarvesterConfig", "name": "nc-demo-gpu-x7k2p"},
    "labels": {"accelerator": "vgpu"},
    "drainBeforeDelete": True,
    "unhealthyNodeTimeout": "0s",
}
SAME = PoolRequest(
    quantity=2,
    roles=["worker"],
    vgpus=Counter({FOUR_Q: 1}),
    cpus=4,
    memory_gib=16,
    image="default/image-ubuntu",
    disks=[{"size_gib": 40}],
    networks=["default/vlan1"],
    vm_namespace="default",
    ssh_user="ubuntu",
    user_data="#cloud-config\npackages: [qemu-guest-agent]\n",
    labels={"accelerator": "vgpu"},
    taints=[],
    rolling_update={"max_surge": "1", "max_unavailable": "0"},
)


def existing(entry: dict[str, Any] | None = None, **config: Any) -> Pool:
    return Pool({**ENTRY, **(entry or {})}, MachineConfig({**CONFIG, **config}))


def planned(before: Pool | None, **wish: Any) -> Change:
    return pools.plan("gpu", before, PoolRequest(**wish))


def test_a_pool_made_by_ranchers_pages_that_says_the_same_is_left_alone() -> None:
    change = pools.plan("gpu", existing(), SAME)
    assert not change.changed
    assert change.after == change.before


@pytest.mark.parametrize(
    "config",
    [
        {"vgpuInfo": requests(("gpu-a-000008004", FOUR_Q))},
        {"vgpuInfo": json.dumps({"vgpuRequests": [{"Name": "", "devicename": FOUR_Q}]})},
        {"userData": "#cloud-config\npackages: [qemu-guest-agent]\n"},
        {"diskInfo": "", "imageName": "default/image-ubuntu", "diskSize": "40"},
        {"networkInfo": "", "networkName": "default/vlan1"},
        {"diskInfo": '{"disks":[{"ImageName":"default/image-ubuntu","size":40,"bus":"virtio"}]}'},
    ],
)
def test_other_words_for_the_same_are_no_difference(config: dict[str, str]) -> None:
    assert not pools.plan("gpu", existing(**config), SAME).changed


def test_what_a_task_does_not_say_stays() -> None:
    change = planned(existing(), quantity=3)
    assert change.after is not None
    assert change.after.entry == {**ENTRY, "quantity": 3}
    assert not change.config
    assert not change.rolls


@pytest.mark.parametrize(
    ("wish", "fields"),
    [
        ({"cpus": 8}, {"cpuCount": "8"}),
        ({"memory_gib": 32}, {"memorySize": "32"}),
        ({"reserved_memory_mib": 512}, {"reservedMemorySize": "512"}),
        ({"efi": True, "secure_boot": True}, {"enableEfi": True, "enableSecureBoot": True}),
        ({"vm_namespace": "tenants"}, {"vmNamespace": "tenants"}),
        ({"ssh_user": "opensuse"}, {"sshUser": "opensuse"}),
        ({"user_data": ""}, {"userData": ""}),
        (
            {"networks": ["default/a", "default/b"]},
            {"networkInfo": '{"interfaces":[{"networkName":"default/a"},{"networkName":"default/b"}]}'},
        ),
        ({"image": "default/other"}, {"diskInfo": '{"disks":[{"imageName":"default/other","size":40,"bootOrder":1}]}'}),
        (
            {"disks": [{"size_gib": 60}, {"size_gib": 10, "storage_class": "fast"}], "image": "default/image-ubuntu"},
            {
                "diskInfo": '{"disks":[{"imageName":"default/image-ubuntu","size":60,"bootOrder":1},'
                '{"storageClassName":"fast","size":10}]}'
            },
        ),
        ({"vgpus": Counter()}, {"vgpuInfo": ""}),
        (
            {"vgpus": Counter({EIGHT_Q: 1})},
            {"vgpuInfo": '{"vGPURequests":[{"name":"vgpu-0","deviceName":"nvidia.com/NVIDIA_A2-8Q"}]}'},
        ),
    ],
)
def test_a_change_of_the_machines_replaces_them(wish: dict[str, Any], fields: dict[str, str]) -> None:
    change = planned(existing(), **wish)
    assert change.config == fields
    assert change.rolls
    assert not change.entry_changed


def test_requests_have_names_of_their_own() -> None:
    change = planned(existing(), vgpus=Counter({FOUR_Q: 2}))
    assert change.after is not None
    assert [(one.name, one.resource) for one in change.after.config.requests] == [
        ("vgpu-0", FOUR_Q),
        ("vgpu-1", FOUR_Q),
    ]


@pytest.mark.parametrize(
    ("wish", "entry"),
    [
        ({"labels": {}}, {"labels": {}}),
        ({"labels": {"rank": 1, "on": True}}, {"labels": {"rank": "1", "on": "true"}}),
        ({"roles": ["etcd", "control_plane"]}, {"workerRole": False, "etcdRole": True, "controlPlaneRole": True}),
        (
            {"taints": [{"key": "gpu", "value": None, "effect": "NoSchedule"}]},
            {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
        ),
        ({"rolling_update": {"max_surge": "0", "max_unavailable": None}}, {"rollingUpdate": {"maxSurge": 0}}),
        (
            {"rolling_update": {"max_surge": "25%", "max_unavailable": "1"}},
            {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}},
        ),
    ],
)
def test_a_change_of_the_pool_leaves_its_machines(wish: dict[str, Any], entry: dict[str, Any]) -> None:
    change = planned(existing(), **wish)
    assert change.after is not None
    assert change.after.entry == {**ENTRY, **entry}
    assert not change.rolls


def test_a_copied_schema_that_keeps_vgpus_from_machines_is_removed() -> None:
    before = existing({"dynamicSchemaSpec": OLD_SCHEMA})
    assert before.drops_vgpus
    assert not before.resources
    change = planned(before, vgpus=Counter({FOUR_Q: 1}))
    assert change.after is not None
    assert "dynamicSchemaSpec" not in change.after.entry
    assert change.rolls
    assert not planned(existing({"dynamicSchemaSpec": NEW_SCHEMA}), vgpus=Counter({FOUR_Q: 1})).changed
    assert not planned(before, cpus=4).changed


def test_what_the_driver_could_not_read_is_replaced() -> None:
    before = existing(vgpuInfo="not json", networkInfo="[")
    change = planned(before, vgpus=Counter({FOUR_Q: 1}), networks=["default/vlan1"])
    assert set(change.config) == {"vgpuInfo", "networkInfo"}


def test_a_new_pool_says_what_it_lacks() -> None:
    with pytest.raises(InvalidPool, match="image or disks, networks, quantity must be given"):
        planned(None, vgpus=Counter({FOUR_Q: 1}))


def test_a_new_pool_has_the_drivers_defaults() -> None:
    change = planned(None, quantity=1, image="default/image-ubuntu", networks=["default/vlan1"])
    assert change.after is not None
    record = change.after.as_dict()
    assert (record["cpus"], record["memory_gib"], record["vm_namespace"], record["roles"]) == (
        2,
        4,
        "default",
        ["worker"],
    )
    assert record["disks"] == [
        {"image": "default/image-ubuntu", "storage_class": None, "size_gib": 40, "bus": "virtio"}
    ]
    assert change.after.entry["machineConfigRef"] == {"kind": "HarvesterConfig", "name": ""}
    assert not change.rolls


@pytest.mark.parametrize(
    ("name", "wish", "field"),
    [
        ("GPU_1", {}, "GPU_1"),
        ("gpu", {"quantity": -1}, "quantity"),
        ("gpu", {"cpus": 0}, "cpus"),
        ("gpu", {"memory_gib": 0}, "memory_gib"),
        ("gpu", {"reserved_memory_mib": -1}, "reserved_memory_mib"),
        ("gpu", {"roles": []}, "roles"),
        ("gpu", {"disks": [{"size_gib": 0}]}, "size_gib"),
        ("gpu", {"disks": [{"size_gib": 1, "image": "a/b", "storage_class": "c"}]}, "storage_class"),
        ("gpu", {"networks": [""]}, "networks"),
        ("gpu", {"rolling_update": {"max_surge": "some"}}, "max_surge"),
        ("gpu", {"rolling_update": {"max_unavailable": "-1"}}, "max_unavailable"),
        ("gpu", {"rolling_update": {"max_surge": "0", "max_unavailable": "0%"}}, "both max_surge and max_unavailable"),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_field(name: str, wish: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPool, match=field):
        pools.check(name, PoolRequest(**wish))


def test_the_last_pool_of_a_role_stays_while_there_are_others() -> None:
    control = Pool({"name": "cp", "quantity": 1, "etcdRole": True, "controlPlaneRole": True})
    worker = existing()
    with pytest.raises(pools.LastOfItsRole, match="etcd"):
        pools.remove(control, [worker])
    assert pools.remove(control, []).changed
    assert pools.remove(worker, [control]).changed
    assert not pools.remove(None, [control]).changed


def test_user_data_is_not_shown() -> None:
    assert "qemu-guest-agent" not in json.dumps(existing().as_dict())


@pytest.mark.parametrize(
    ("there", "asked", "refused"),
    [
        ({"maxSurge": 0, "maxUnavailable": 1}, {"max_unavailable": "0"}, True),
        ({"maxSurge": 1, "maxUnavailable": 0}, {"max_surge": "0%"}, True),
        ({"maxSurge": 0}, {"max_unavailable": "1"}, False),
        # Rancher leaves out what is not set, and Cluster API then takes one machine away at a time.
        ({}, {"max_surge": "0"}, False),
    ],
)
def test_m12_limits_that_become_zero_together_are_refused(there: Any, asked: Any, refused: bool) -> None:
    before = Pool({"name": "gpu", "quantity": 2, "workerRole": True, "rollingUpdate": there})
    if refused:
        with pytest.raises(InvalidPool, match="both max_surge and max_unavailable at 0"):
            planned(before, rolling_update=asked)
    else:
        assert planned(before, rolling_update=asked).entry_changed


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"secure_boot": True}, "secure_boot needs efi"),
        ({"reserved_memory_mib": 16384}, "reserved_memory_mib is 16384"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wish: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidPool, match=field):
        planned(existing(), **wish)


def test_firmware_and_memory_that_a_pool_has_are_not_changed() -> None:
    assert not planned(existing(), efi=False, secure_boot=False, reserved_memory_mib=0).config


@pytest.mark.parametrize(
    ("numbers", "new", "given", "resource", "efi"),
    [
        ((1, 6, 0), True, None, "nvidia.com/NVIDIA_H100-80C", True),
        ((1, 5, 2), True, None, "nvidia.com/NVIDIA_H100-80C", None),
        ((1, 8, 0), False, None, "nvidia.com/NVIDIA_H100-80C", None),
        ((1, 8, 0), True, False, "nvidia.com/NVIDIA_H100-80C", False),
        ((1, 8, 0), True, None, "nvidia.com/NVIDIA_A2-8C", None),
        ((1, 8, 0), True, None, EIGHT_Q, None),
    ],
)
def test_a_new_pool_with_a_large_profile_for_computing_boots_with_efi(
    numbers: tuple[int, int, int], new: bool, given: bool | None, resource: str, efi: bool | None
) -> None:
    asked = PoolRequest(vgpus=Counter({resource: 1}), efi=given)
    assert pools.with_firmware(asked, new=new, version=HarvesterVersion(numbers)).efi is efi
