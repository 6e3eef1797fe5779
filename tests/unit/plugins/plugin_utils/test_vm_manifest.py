"""New VMs for Harvester, compared with what its own machine driver sends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.vm_manifest import InvalidMachine, VmSpec, manifest

MARK = {"app.kubernetes.io/managed-by": "vgpu.fleet", "vgpu.fleet/owner": "vgpu.fleet"}
CLASSES = {"default/image-ubuntu": "longhorn-image-ubuntu"}
# As recorded from the machine driver of Harvester 1.8: 4 CPUs, 8 GiB, a disk of 40 GiB from an image, one network.
RECORDED: dict[str, Any] = {
    "domain": {
        "cpu": {"cores": 4, "sockets": 1, "threads": 1},
        "devices": {
            "disks": [
                {"name": "cloudinitdisk", "disk": {"bus": "virtio"}},
                {"name": "disk-0", "disk": {"bus": "virtio"}, "bootOrder": 1},
            ],
            "interfaces": [{"name": "nic-0", "model": "virtio", "bridge": {}}],
        },
        "resources": {"limits": {"cpu": "4", "memory": "8Gi"}},
    },
    "evictionStrategy": "LiveMigrateIfPossible",
    "networks": [{"name": "nic-0", "multus": {"networkName": "default/vlan1"}}],
    "volumes": [
        {"name": "cloudinitdisk", "cloudInitNoCloud": {"secretRef": {"name": "worker-cloudinit"}}},
        {"name": "disk-0", "persistentVolumeClaim": {"claimName": "worker-disk-0"}},
    ],
}
RECORDED_CLAIM: dict[str, Any] = {
    "metadata": {"name": "worker-disk-0", "annotations": {"harvesterhci.io/imageId": "default/image-ubuntu"}},
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "40Gi"}},
        "storageClassName": "longhorn-image-ubuntu",
        "volumeMode": "Block",
    },
}


def made(**given: Any) -> dict[str, Any]:
    return manifest(VmSpec.read({"name": "worker", **given}), CLASSES)


def test_a_vm_with_a_disk_and_a_network_is_what_the_machine_driver_sends() -> None:
    vm = made(
        disks=[{"image": "default/image-ubuntu", "size_gib": 40}],
        networks=["default/vlan1"],
        user_data="#cloud-config\n",
        labels={"pool": "gpu"},
    )
    assert vm["spec"]["template"]["spec"] == RECORDED
    claim = {**RECORDED_CLAIM, "metadata": {**RECORDED_CLAIM["metadata"], "labels": MARK}}
    assert json.loads(vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"]) == [claim]
    assert vm["spec"]["template"]["metadata"]["labels"] == {
        "harvesterhci.io/creator": "vgpu.fleet",
        "harvesterhci.io/vmName": "worker",
        "pool": "gpu",
    }
    assert vm["metadata"]["labels"] == {**vm["spec"]["template"]["metadata"]["labels"], **MARK}
    assert vm["spec"]["runStrategy"] == "Halted"


def test_user_data_never_stands_in_the_vm() -> None:
    assert "hunter2" not in json.dumps(made(user_data="password: hunter2"))


def test_only_the_first_disk_is_booted_and_empty_disks_have_no_image() -> None:
    vm = made(disks=[{"container": "registry.example/os:1"}, {"storage_class": "harvester-longhorn", "size_gib": "10"}])
    disks = vm["spec"]["template"]["spec"]["domain"]["devices"]["disks"]
    assert [disk.get("bootOrder") for disk in disks] == [1, None]
    (claim,) = json.loads(vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"])
    assert claim["metadata"] == {"name": "worker-disk-1", "labels": MARK}
    assert claim["spec"]["storageClassName"] == "harvester-longhorn"


def test_without_disks_and_networks_it_is_in_the_pod_network_and_claims_nothing() -> None:
    vm = made()
    assert "annotations" not in vm["metadata"]
    assert vm["spec"]["template"]["spec"]["networks"] == [{"name": "nic-0", "pod": {}}]
    assert vm["spec"]["template"]["spec"]["volumes"] == []


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"name": ""}, "name"),
        ({"disks": [{"size_gib": 4}]}, "image, storage_class and container"),
        ({"disks": [{"image": "default/image-ubuntu", "container": "a"}]}, "one of"),
        ({"disks": [{"image": "default/image-ubuntu"}]}, "size_gib"),
        ({"disks": [{"image": "default/none", "size_gib": 4}]}, "default/none"),
        ({"disks": [{"imageName": "default/image-ubuntu"}]}, "imageName"),
        ({"networks": ["vlan1"]}, "vlan1"),
    ],
)
def test_mistakes_are_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidMachine, match=named):
        made(**given)


def test_t1_a_vm_and_its_disks_carry_the_owner_and_nobody_can_give_it_as_a_label() -> None:
    vm = manifest(VmSpec.read({"name": "worker", "disks": [{"storage_class": "c", "size_gib": 1}]}, "team-a"), {})
    assert vm["metadata"]["labels"]["vgpu.fleet/owner"] == "team-a"
    (claim,) = json.loads(vm["metadata"]["annotations"]["harvesterhci.io/volumeClaimTemplates"])
    assert claim["metadata"]["labels"]["vgpu.fleet/owner"] == "team-a"
    for label in MARK:
        with pytest.raises(InvalidMachine, match=f"Label {label} of VM worker is reserved"):
            made(labels={label: "team-b"})


def test_efi_and_reserved_memory_are_written_as_harvester_writes_them() -> None:
    plain, efi, secure = (made(**given) for given in ({}, {"efi": "true"}, {"efi": True, "secure_boot": True}))
    domains = [vm["spec"]["template"]["spec"]["domain"] for vm in (plain, efi, secure)]
    assert "firmware" not in domains[0]
    # KubeVirt would enable secure boot with EFI, and then requires SMM.
    assert [one["firmware"]["bootloader"]["efi"]["secureBoot"] for one in domains[1:]] == [False, True]
    assert [one["features"]["smm"]["enabled"] for one in domains[1:]] == [False, True]
    assert made(reserved_memory_mib=512)["metadata"]["annotations"] == {"harvesterhci.io/reservedMemory": "512Mi"}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"secure_boot": True}, "secure_boot"),
        ({"reserved_memory_mib": -1}, "reserved_memory_mib"),
        ({"memory_gib": 2, "reserved_memory_mib": 2048}, "reserved_memory_mib"),
    ],
)
def test_firmware_and_memory_that_cannot_be_are_refused(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidMachine, match=field):
        made(**given)


@pytest.mark.parametrize(
    ("given", "automatic", "efi"),
    [
        ({"vgpus": [{"profile": "H100-80C"}]}, True, True),
        ({"vgpus": [{"profile": "A2-4Q"}, {"profile": "nvidia.com/NVIDIA_A2-16C"}]}, True, True),
        # Harvester before 1.6, an explicit choice, a small framebuffer, another series, and no vGPU.
        ({"vgpus": [{"profile": "H100-80C"}]}, False, False),
        ({"vgpus": [{"profile": "H100-80C"}], "efi": False}, True, False),
        ({"vgpus": [{"profile": "H100-80C"}], "efi": "false"}, True, False),
        ({"vgpus": [{"profile": "A2-8C"}]}, True, False),
        ({"vgpus": [{"profile": "L40S-48Q"}]}, True, False),
        ({"vgpus": [{"profile": "no profile"}], "efi": None}, True, False),
        ({"efi": True}, False, True),
    ],
)
def test_large_profiles_for_computing_get_efi(given: dict[str, Any], automatic: bool, efi: bool) -> None:
    vm = manifest(VmSpec.read({"name": "trainer", **given}, large_compute_efi=automatic), {})
    firmware = vm["spec"]["template"]["spec"]["domain"].get("firmware") or {}
    assert ("efi" in firmware.get("bootloader", {})) is efi
