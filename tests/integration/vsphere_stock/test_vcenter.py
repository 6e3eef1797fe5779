"""The vSphere modules against a vCenter that this project did not write: govmomi's simulator with GPU hosts."""

from __future__ import annotations

import pytest

MODULE = "vsphere_vgpu_vm"
TEMPLATE, CLUSTER = "DC0_C0_RP0_VM1", "DC0_C0"
FOUR, EIGHT = "nvidia_a40-4q", "nvidia_a40-8q"


def new(*profiles, **options):
    vgpus = [{"profile": profile} for profile in profiles]
    place = {"datacenter": "DC0", "cluster": CLUSTER}
    return {"name": "trainer", "template": TEMPLATE, **place, "vgpus": vgpus, **options}


def test_info_lists_the_gpus_of_every_host(vcenter, playbooks):
    result = playbooks(vcenter).task("vsphere_gpu_info")
    assert not result.failed, result.message
    assert {node["name"]: len(node["gpus"]) for node in result["nodes"] if node["gpus"]} == {
        f"DC{dc}_C0_H{host}": 2 for dc in range(2) for host in range(3)
    }


def test_availability_counts_the_free_vgpus(vcenter, playbooks):
    result = playbooks(vcenter).task(
        "vgpu_availability",
        platform="vsphere",
        cluster=CLUSTER,
        demand=[{"name": "workers", "machines": 36, "vgpus": [{"profile": "A40-8Q"}]}],
    )
    assert not result.failed, result.message
    assert result["fits"]


def test_a_clone_is_made_started_and_found_unchanged(vcenter, playbooks):
    run = playbooks(vcenter)
    asked = new("A40-4Q", state="powered_on", cpus=2)
    made = run.task(MODULE, **asked)
    assert made.changed, made.message
    assert made["created"]
    assert vcenter.vgpus("trainer") == [FOUR]
    assert vcenter.power("trainer") == "poweredOn"
    again = run.task(MODULE, **asked)
    assert not again.failed, again.message
    assert not again.changed


def test_check_mode_of_a_clone_works_where_the_server_has_no_dry_run(vcenter, playbooks):
    before = vcenter.vm_names
    result = playbooks(vcenter).task(MODULE, check=True, **new("A40-4Q", state="powered_on"))
    assert not result.failed, result.message
    assert result.changed
    assert result["created"]
    assert vcenter.vm_names == before


def test_two_vgpus_in_one_vm_where_the_server_has_no_config_option(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, **new("A40-4Q", "A40-4Q"))
    assert not result.failed, result.message
    assert vcenter.vgpus("trainer") == [FOUR, FOUR]


def test_vgpus_are_attached_and_detached_and_power_switched(vcenter, playbooks):
    run = playbooks(vcenter)
    vm = {"name": "DC0_C0_RP0_VM0", "cluster": CLUSTER, "adopt": True}
    for options in (
        {"state": "powered_off", "vgpus": [{"profile": EIGHT}]},
        {"state": "powered_on", "vgpus": [{"profile": EIGHT}]},
        {"state": "powered_off", "vgpus": [{"profile": FOUR, "count": 2}]},
        {"state": "powered_off", "vgpus": []},
    ):
        result = run.task(MODULE, **vm, power_off_force=True, **options)
        assert not result.failed, result.message
        assert result.changed
        profiles = [entry["profile"] for entry in options["vgpus"] for _ in range(entry.get("count", 1))]
        assert vcenter.vgpus(vm["name"]) == profiles
        power = "poweredOn" if options["state"] == "powered_on" else "poweredOff"
        assert vcenter.power(vm["name"]) == power


def test_absent_deletes_the_vm_once(vcenter, playbooks):
    run = playbooks(vcenter)
    assert run.task(MODULE, **new("A40-4Q")).changed
    gone, again = run.tasks(*[(MODULE, {"name": "trainer", "cluster": CLUSTER, "state": "absent"})] * 2)
    assert gone.changed, gone.message
    assert "trainer" not in vcenter.vm_names
    assert not again.failed, again.message
    assert not again.changed


@pytest.mark.parametrize("datacenter", ["DC1", "/F0/DC1"])
def test_a_datacenter_in_a_folder(vcenter, playbooks, datacenter):
    run = playbooks(vcenter)
    there = {"datacenter": datacenter, "cluster": "DC1_C0"}
    made = run.task(MODULE, **new("A40-4Q") | there | {"template": "DC1_C0_RP0_VM1"})
    assert made.changed, made.message
    gone = run.task(MODULE, name="trainer", state="absent", **there)
    assert gone.changed, gone.message
    assert "trainer" not in vcenter.vm_names


def test_the_hardware_version_is_raised(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, **new("A40-4Q"))
    assert not result.failed, result.message
    assert vcenter.vm(TEMPLATE).config.version == "vmx-13"
    assert vcenter.vm("trainer").config.version == "vmx-17"


def test_a_fault_that_pyvmomi_does_not_know_keeps_its_cause(vcenter_without_upgrades, playbooks):
    vcenter = vcenter_without_upgrades
    result = playbooks(vcenter).task(MODULE, **new("A40-4Q"))
    assert result.failed
    assert result["error"]["fault"] == "InvalidState", result.message
    assert "upgrade the hardware of VM trainer to vmx-17: InvalidState: " in result.message
    assert "is latest version" in result.message
