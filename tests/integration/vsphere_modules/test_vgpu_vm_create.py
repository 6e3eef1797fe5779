"""vsphere_vgpu_vm making VMs from templates: right the first time, or not at all."""

from __future__ import annotations

import base64
import json
import time

import pytest
from pyVmomi import vim

from tests.integration.vsphere_lab.conftest import Specs

MODULE = "vsphere_vgpu_vm"
FOUR, EIGHT, WHOLE = "nvidia_a40-4q", "nvidia_a40-8q", "nvidia_a40-48q"


def new(*profiles, **options):
    vgpus = [{"profile": profile} for profile in profiles]
    return {"name": "trainer", "template": "ubuntu-22.04-efi", "vgpus": vgpus, **options}


def names(vcenter):
    return {vm.name for vm in vcenter.all(vim.VirtualMachine)}


def profiles(vcenter, name="trainer"):
    return [device.backing.vgpu for device in Specs.vgpus(vcenter.vm(name))]


def guest_info(vcenter, name="trainer"):
    shown = {option.key: option.value for option in vcenter.vm(name).config.extraConfig}
    return {
        key: base64.b64decode(shown[f"guestinfo.{key}"]).decode()
        for key in ("userdata", "metadata")
        if shown.get(f"guestinfo.{key}.encoding") == "base64"
    }


@pytest.fixture
def with_gpu_template(section):
    section["templates"].append(
        {"name": "gpu-template", "vgpus": [FOUR], "memory_locked": True, "snapshot": "base", "disk_gb": 20}
    )
    return section


def test_a_vm_is_made_prepared_and_started_in_one_clone_and_found_unchanged_afterwards(vcenter, playbooks):
    run = playbooks(vcenter)
    asked = new("A40-48Q", state="powered_on", cpus=8, memory_mb=16384, annotation="ours", disk_gb=40, datastore="ds1")
    vcenter.mark()
    predicted = run.task(MODULE, check=True, **asked)
    assert predicted.changed, predicted.message
    assert predicted["created"]
    assert vcenter.writes == 0
    assert vcenter.calls["CheckClone_Task"] == 1
    result = run.task(MODULE, **asked)
    assert result.changed, result.message
    assert vcenter.calls["CloneVM_Task"] == 1
    assert "ReconfigVM_Task" not in vcenter.calls
    assert predicted["diff"] == result["diff"]
    assert set(predicted) == set(result)
    vm = vcenter.vm("trainer")
    config = vm.config
    assert (config.hardware.numCPU, config.hardware.memoryMB, config.annotation) == (8, 16384, "ours")
    assert config.memoryReservationLockedToMax
    disk = next(device for device in config.hardware.device if isinstance(device, vim.vm.device.VirtualDisk))
    assert disk.capacityInKB == 40 << 20
    assert profiles(vcenter) == [WHOLE]
    assert str(vm.runtime.powerState) == "poweredOn"
    assert result["vm"]["node"] == vm.runtime.host.name
    assert len(result["vm"]["gpus"]) == 1
    vcenter.mark()
    again = run.task(MODULE, **asked)
    assert not again.changed
    assert not again["created"]
    assert vcenter.writes == 0


def test_what_a_template_carries_counts(start, with_gpu_template, playbooks):
    vcenter = start(with_gpu_template)
    asked = {"template": "gpu-template"}
    same, other, none, as_it_is = playbooks(vcenter).tasks(
        (MODULE, {"name": "same", "vgpus": [{"profile": "A40-4Q"}], **asked}),
        (MODULE, {"name": "other", "vgpus": [{"profile": "A40-8Q", "count": 2}], **asked}),
        (MODULE, {"name": "none", "vgpus": [], **asked}),
        (MODULE, {"name": "as-it-is", **asked}),
    )
    assert not same.failed, same.message
    assert profiles(vcenter, "same") == profiles(vcenter, "as-it-is") == [FOUR]
    assert profiles(vcenter, "other") == [EIGHT, EIGHT]
    assert profiles(vcenter, "none") == []
    assert [len(result["vgpus"]) for result in (same, other, none, as_it_is)] == [1, 2, 0, 1]


def test_a_template_with_old_hardware_is_cloned_upgraded_and_then_given_its_devices(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, **new(FOUR, template="old-bios", state="powered_on"))
    assert result.changed, result.message
    assert vcenter.calls["UpgradeVM_Task"] == vcenter.calls["ReconfigVM_Task"] == 1
    assert vcenter.vm("trainer").config.version == "vmx-17"
    assert vcenter.vm("old-bios").config.version == "vmx-13"
    assert profiles(vcenter) == [FOUR]


def test_large_framebuffers_need_a_template_with_efi(vcenter, playbooks):
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, **new(WHOLE, template="old-bios"))
    assert result.code == "needs_efi"
    assert "old-bios" in result.message
    assert vcenter.writes == 0


@pytest.mark.parametrize(
    ("method", "fault", "code"),
    [
        ("PowerOnVM_Task", "InsufficientGraphicsResourcesFault", "no_room"),
        ("UpgradeVM_Task", "NoPermission", "forbidden"),
        ("ReconfigVM_Task", "InvalidDeviceBacking", "profile_not_offered"),
    ],
)
def test_a_failure_leaves_no_half_made_vm_unless_it_is_to_be_kept(vcenter, playbooks, method, fault, code):
    before = names(vcenter)
    vcenter.order_fault(method, fault, form="task")
    asked = new(FOUR, template="old-bios", state="powered_on")
    run = playbooks(vcenter)
    removed = run.task(MODULE, **asked)
    assert removed.code == code, removed.message
    assert "trainer was deleted again" in removed.message
    assert not removed.changed
    assert names(vcenter) == before
    kept = run.task(MODULE, **asked, keep_failed=True)
    assert kept.code == code
    assert "trainer was kept" in kept.message
    assert kept.changed
    assert names(vcenter) == before | {"trainer"}
    vcenter.control("PUT", "/faults", [])
    finished = run.task(MODULE, **asked)
    assert finished.changed, finished.message
    assert not finished["created"]
    assert finished["vm"]["running"]
    assert profiles(vcenter) == [FOUR]


# A run that was cut off
ADDRESSED = {
    "cloud_init": {"user_data": "#cloud-config\npassword: once"},
    "networks": [{"name": "VM Network", "ip": ["192.0.2.10/24"]}],
}


def test_a8_the_next_run_finishes_a_vm_whose_creation_was_cut_off(vcenter, playbooks):
    asked = new(FOUR, state="powered_on", keep_failed=True, **ADDRESSED)
    vcenter.order_fault("ReconfigVM_Task", "NoPermission", form="task", count=1)
    run = playbooks(vcenter)
    kept, not_started, finished, again = run.tasks(
        (MODULE, asked),
        # It does not say what the VM is made of, so it cannot finish it.
        (MODULE, {"name": "trainer", "state": "powered_on"}),
        (MODULE, asked),
        (MODULE, asked),
    )
    assert kept.code == "forbidden", kept.message
    assert not_started.code == "vm_unfinished"
    assert "/dc1/vm/trainer" in not_started.message
    assert finished.changed, finished.message
    assert finished["diff"]["before"]["stage"] == "cloned"
    assert finished["diff"]["after"]["stage"] == "complete"
    assert "once" not in str(finished["diff"])
    assert finished["vm"]["running"]
    found = guest_info(vcenter)
    assert found["userdata"] == ADDRESSED["cloud_init"]["user_data"]
    assert "192.0.2.10/24" in found["metadata"]
    assert not again.changed


def test_a8_a_clone_that_outlives_wait_timeout_is_finished_by_the_next_run(vcenter, playbooks):
    asked = new(FOUR, state="powered_on", **ADDRESSED)
    vcenter.control("PUT", "/tasks", {"running_ms": 2500, "methods": ["CloneVM_Task"]})
    run = playbooks(vcenter)
    late = run.task(MODULE, **asked, wait_timeout=1)
    assert late.code == "timeout"
    assert late.changed
    assert "finishes the VM" in late["error"]["hint"]
    deadline = time.monotonic() + 30
    while "trainer" not in names(vcenter) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert guest_info(vcenter) == {}
    finished = run.task(MODULE, **asked)
    assert finished["vm"]["running"], finished.message
    assert not finished["created"]
    assert set(guest_info(vcenter)) == {"userdata", "metadata"}


def test_a_refused_clone_is_told_and_leaves_nothing(vcenter, playbooks):
    before = names(vcenter)
    vcenter.order_fault("CloneVM_Task", "NoPermission", fields={"privilegeId": "Datastore.AllocateSpace"})
    result = playbooks(vcenter).task(MODULE, **new(FOUR))
    assert result.code == "forbidden"
    assert "Datastore.AllocateSpace" in result.message
    assert names(vcenter) == before


@pytest.mark.parametrize("version", ["8.0.3", "6.7"])
def test_check_mode_asks_the_server_whether_the_vm_could_be_made(start, section, playbooks, version):
    vcenter = start(section, version)
    run, asked = playbooks(vcenter), new(FOUR, memory_mb=1 << 20)
    vcenter.mark()
    predicted = run.task(MODULE, check=True, **asked)
    assert vcenter.writes == 0
    done = run.task(MODULE, **asked)
    assert predicted.code == done.code == "insufficient_memory"
    assert predicted.message == done.message
    assert "trainer" in predicted.message
    assert "trainer" not in names(vcenter)


def test_a_linked_clone_hangs_on_the_disk_of_its_template(start, with_gpu_template, playbooks):
    vcenter = start(with_gpu_template)
    linked, no_snapshot = playbooks(vcenter).tasks(
        (MODULE, new(FOUR, template="gpu-template", linked_clone=True, disk_gb=25)),
        (MODULE, new(FOUR, name="other", linked_clone=True)),
    )
    assert linked.changed, linked.message
    assert "disk_gb is not applied" in linked["warnings"][0]
    disk = next(d for d in vcenter.vm("trainer").config.hardware.device if isinstance(d, vim.vm.device.VirtualDisk))
    assert "gpu-template" in disk.backing.parent.fileName
    assert no_snapshot.code == "invalid_request"
    assert "no snapshot" in no_snapshot.message


def test_a_vm_goes_where_it_is_told_to(start, section, playbooks):
    section["folders"] = ["team/ml"]
    section["clusters"][0]["resource_pools"] = ["research"]
    section["datastores"] = ["ds1", {"name": "small", "capacity_gib": 512}, "large"]
    section["datastore_clusters"] = [{"name": "pod", "datastores": ["small", "large"]}]
    section["networks"] = ["VM Network", "storage"]
    vcenter = start(section)
    first, second = playbooks(vcenter).tasks(
        (
            MODULE,
            new(
                FOUR,
                folder="team/ml",
                resource_pool="research",
                datastore_cluster="pod",
                networks=[{"name": "storage", "mac": "00:50:56:11:22:33"}, {"name": "VM Network"}],
                storage_policy="vSAN Default Storage Policy",
            ),
        ),
        (MODULE, new(FOUR, name="pinned", esxi_host="esx2", datastore="large", networks=[], state="powered_on")),
    )
    assert not first.failed, first.message
    vm = vcenter.vm("trainer")
    assert first["vm"]["folder"] == "/dc1/vm/team/ml"
    assert vm.parent.name == "ml"
    assert vm.resourcePool.name == "research"
    assert [store.name for store in vm.datastore] == ["large"]
    cards = [d for d in vm.config.hardware.device if isinstance(d, vim.vm.device.VirtualEthernetCard)]
    assert [card.backing.deviceName for card in cards] == ["storage", "VM Network"]
    assert cards[0].macAddress == "00:50:56:11:22:33"
    assert not second.failed, second.message
    assert second["vm"]["node"] == "esx2"
    pinned = vcenter.vm("pinned").config.hardware.device
    assert not [device for device in pinned if isinstance(device, vim.vm.device.VirtualEthernetCard)]


NOT_THERE = [
    ({"template": "ubuntu"}, "vm_not_found", ["ubuntu", "ubuntu-22.04-efi"]),
    ({"cluster": "gpus"}, "nothing_selected", ["gpus", "gpu"]),
    ({"folder": "teams"}, "folder_not_found", ["/dc1/vm/teams"]),
    ({"datacenter": "dc2"}, "folder_not_found", ["dc2", "dc1"]),
    ({"resource_pool": "research"}, "location_not_found", ["research"]),
    ({"datastore": "ds2"}, "location_not_found", ["ds2", "ds1"]),
    ({"datastore_cluster": "pod"}, "location_not_found", ["pod"]),
    ({"storage_policy": "gold"}, "location_not_found", ["gold"]),
    ({"networks": [{"name": "VM network"}]}, "location_not_found", ["VM network", "VM Network"]),
    ({"esxi_host": "esx4"}, "nothing_selected", ["esx4"]),
    # A14: it means one host and takes no pattern.
    ({"esxi_host": "esx*"}, "nothing_selected", ["esx*", "esx1"]),
    ({"disk_gb": 10}, "invalid_request", ["10", "20"]),
]


def test_what_is_not_there_is_named_before_anything_is_made(vcenter, playbooks):
    vcenter.mark()
    results = playbooks(vcenter).tasks(*[(MODULE, new(FOUR, **options)) for options, _code, _words in NOT_THERE])
    for result, (_options, code, words) in zip(results, NOT_THERE, strict=True):
        assert result.code == code, result.message
        assert all(word in result.message for word in words), result.message
    assert vcenter.writes == 0


def test_two_clusters_need_a_choice(start, section, playbooks):
    section["clusters"].append({"name": "other", "hosts": [{"name": "esx9"}]})
    vcenter = start(section)
    refused, chosen = playbooks(vcenter).tasks((MODULE, new(FOUR)), (MODULE, new(FOUR, cluster="gpu")))
    assert refused.code == "location_not_found"
    assert "cluster" in refused["error"]["hint"]
    assert chosen.changed, chosen.message


def test_cloud_init_finds_its_data_and_the_addresses_of_cards_whose_macs_vsphere_made(vcenter, playbooks):
    run = playbooks(vcenter)
    plain, addressed = run.tasks(
        (MODULE, new(name="plain", cloud_init={"user_data": "#cloud-config\n", "meta_data": {"role": "gpu"}})),
        (
            MODULE,
            new(
                networks=[
                    {"name": "VM Network", "dhcp4": True},
                    {"name": "VM Network", "ip": ["192.0.2.10/24"], "gateway": "192.0.2.1", "dns": ["192.0.2.53"]},
                ]
            ),
        ),
    )
    assert not plain.failed, plain.message
    found = guest_info(vcenter, "plain")
    assert found["userdata"] == "#cloud-config\n"
    assert json.loads(found["metadata"]) == {"instance-id": "plain", "local-hostname": "plain", "role": "gpu"}
    assert not addressed.failed, addressed.message
    hardware = vcenter.vm("trainer").config.hardware.device
    macs = [device.macAddress for device in hardware if isinstance(device, vim.vm.device.VirtualEthernetCard)]
    network = json.loads(guest_info(vcenter)["metadata"])["network"]
    assert network["version"] == 2
    assert network["ethernets"] == {
        "id0": {"match": {"macaddress": macs[0]}, "dhcp4": True},
        "id1": {
            "match": {"macaddress": macs[1]},
            "dhcp4": False,
            "addresses": ["192.0.2.10/24"],
            "routes": [{"to": "0.0.0.0/0", "via": "192.0.2.1"}],
            "nameservers": {"addresses": ["192.0.2.53"]},
        },
    }


def test_without_a_template_a_missing_vm_is_an_error(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, name="trainer", vgpus=[{"profile": FOUR}])
    assert result.code == "vm_not_found"
    assert "template" in result["error"]["hint"]


def test_a_whole_device_must_be_in_some_host_before_anything_is_made(start, section, playbooks):
    section["clusters"][0]["hosts"][2]["pci_devices"] = [
        {"vendor_id": "10de", "device_id": "20f1", "label": "fast", "count": 2}
    ]
    vcenter = start(section)
    device = {"vendor_id": "10de", "device_id": "20f1"}
    run = playbooks(vcenter)
    vcenter.mark()
    unknown, too_many, wrong_label = run.tasks(
        (MODULE, {"name": "a", "template": "ubuntu-22.04-efi", "pci_devices": [{**device, "device_id": "2235"}]}),
        (MODULE, {"name": "a", "template": "ubuntu-22.04-efi", "pci_devices": [{**device, "count": 3}]}),
        (MODULE, {"name": "a", "template": "ubuntu-22.04-efi", "pci_devices": [{**device, "custom_label": "slow"}]}),
    )
    assert unknown.code == too_many.code == wrong_label.code == "device_not_offered"
    assert "10de:20f1 labelled fast" in unknown["error"]["hint"]
    assert vcenter.writes == 0
    wanted = {"pci_devices": [{**device, "count": 2, "custom_label": "fast"}], "state": "powered_on"}
    made, again, fewer, none = run.tasks(
        (MODULE, {"name": "trainer", "template": "ubuntu-22.04-efi", **wanted}),
        (MODULE, {"name": "trainer", **wanted}),
        (MODULE, {"name": "trainer", "pci_devices": [{**device, "custom_label": "fast"}], "power_cycle": "hard"}),
        (MODULE, {"name": "trainer", "pci_devices": [], "power_cycle": "hard"}),
    )
    assert made.changed, made.message
    assert made["vm"]["node"] == "esx3"
    assert [one["device"] for one in made["pci_devices"]] == ["PCI device 0", "PCI device 1"]
    # A whole A100 needs reserved memory and a region of 256 GB for two of them.
    assert made["diff"]["after"]["mmio_size_gb"] == 256
    assert not again.changed
    assert len(fewer["pci_devices"]) == 1
    assert fewer["restarted"]
    assert none["pci_devices"] == []


def test_without_drs_a_whole_device_is_looked_for_on_the_hosts_that_still_have_it(start, section, playbooks):
    cluster = section["clusters"][0]
    cluster["drs"] = "off"
    for host in cluster["hosts"][1:]:
        host["pci_devices"] = [{"vendor_id": "10de", "device_id": "20f1"}]
    vcenter = start(section)
    asked = {
        "template": "ubuntu-22.04-efi",
        "pci_devices": [{"vendor_id": "10de", "device_id": "20f1"}],
        "state": "powered_on",
    }
    first, second, third = playbooks(vcenter).tasks(*[(MODULE, {"name": f"w-{n}", **asked}) for n in range(3)])
    assert [first["vm"]["node"], second["vm"]["node"]] == ["esx2", "esx3"], first.message + second.message
    assert third.code == "no_room"
    for words in ("w-2", "1 x PCI device 10de:20f1", "esx1: ", "esx2: ", "esx3: it has not"):
        assert words in third.message
    assert "w-2" not in names(vcenter)
