"""Finding D: vsphere_gpu_host switching DirectPath I/O of host devices: by ids, never of a device that a VM uses."""

from __future__ import annotations

import pytest
from pyVmomi import vim

from tests.integration.vsphere_lab.conftest import Specs

MODULE = "vsphere_gpu_host"
A40 = {"vendor_id": "10de", "device_id": "2235"}
NIC = {"vendor_id": "0x15b3", "device_id": "1021"}


def nic(**more):
    return {"vendor_id": "15b3", "device_id": "1021", "vendor_name": "Mellanox", "device_name": "ConnectX-7", **more}


@pytest.fixture
def hosts(section):
    """The hosts of the default scenario. esx3 has no GPU and an adapter that it uses itself."""
    found = section["clusters"][0]["hosts"]
    found[2]["pci_devices"] = [nic(passthrough=False, label="rail-1")]
    return found


def shown(vcenter, host):
    found = vcenter.host(host).config.pciPassthruInfo
    return {info.id: (info.passthruEnabled, info.passthruActive) for info in found}


def types(vcenter, host):
    return [gpu.graphicsType for gpu in vcenter.host(host).config.graphicsInfo]


def test_all_gpus_of_a_kind_are_passed_through_and_returned(vcenter, playbooks):
    run = playbooks(vcenter)
    asked = {"esxi_hosts": ["esx1"], "passthrough": [A40]}
    vcenter.mark()
    predicted = run.task(MODULE, check=True, **asked)
    assert predicted.changed, predicted.message
    assert vcenter.writes == 0
    done = run.task(MODULE, **asked)
    assert done.changed, done.message
    assert vcenter.calls["UpdatePassthruConfig"] == 1
    assert "UpdateGraphicsConfig" not in vcenter.calls
    assert "RestartService" not in vcenter.calls
    assert set(shown(vcenter, "esx1").values()) == {(True, True)}
    assert types(vcenter, "esx1") == ["direct", "direct"]
    assert types(vcenter, "esx2") == ["sharedDirect", "sharedDirect"]
    assert [(entry["enabled"], entry["active"], entry["reboot_required"]) for entry in done["passthrough"]] == [
        (True, True, False)
    ] * 2
    assert predicted["passthrough"] == done["passthrough"]
    assert predicted["diff"] == done["diff"]
    vcenter.mark()
    again = run.task(MODULE, **asked)
    assert not again.failed, again.message
    assert not again.changed
    assert vcenter.writes == 0
    back = run.task(MODULE, esxi_hosts=["esx1"], passthrough=[{**A40, "enabled": False}])
    assert back.changed, back.message
    assert types(vcenter, "esx1") == ["sharedDirect", "sharedDirect"]


def test_a_host_that_needs_a_reboot_says_so_until_it_had_one(start, section, hosts, playbooks):
    hosts[0]["passthrough_without_reboot"] = False
    vcenter = start(section)
    run = playbooks(vcenter)
    done, again = run.tasks(*[(MODULE, {"esxi_hosts": ["esx1"], "passthrough": [A40]})] * 2)
    assert done.changed, done.message
    assert not again.changed
    for result in (done, again):
        assert {(entry["active"], entry["reboot_required"]) for entry in result["passthrough"]} == {(False, True)}
        assert any("after a reboot" in warning for warning in result["warnings"])
    assert types(vcenter, "esx1") == ["sharedDirect", "sharedDirect"]
    host = vcenter.host("esx1")
    vcenter.wait(host.EnterMaintenanceMode_Task(0))
    vcenter.wait(host.RebootHost_Task(False))
    vcenter.wait(host.ExitMaintenanceMode_Task(0))
    rebooted = run.task(MODULE, esxi_hosts=["esx1"], passthrough=[A40])
    assert not rebooted.changed
    assert {entry["reboot_required"] for entry in rebooted["passthrough"]} == {False}


def test_a_gpu_with_a_running_vgpu_is_refused_by_name_also_with_force(start, section, playbooks):
    section["vms"].append(
        {"name": "trainer", "host": "esx1", "vgpus": ["nvidia_a40-8q"], "memory_locked": True, "power": "on"}
    )
    vcenter = start(section)
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, cluster="gpu", passthrough=[A40], force=True)
    assert result.code == "device_in_use", result.message
    assert result["error"]["vms"] == ["trainer"]
    assert "0000:3b:00.0" in result.message
    assert vcenter.writes == 0


def test_a_device_that_a_running_vm_has_is_not_returned_to_the_host(start, section, hosts, playbooks):
    hosts[0]["pci_devices"] = [nic()]
    vcenter = start(section)
    run = playbooks(vcenter)
    vm = {"name": "rdma", "template": "ubuntu-22.04-efi", "esxi_host": "esx1", "state": "powered_on"}
    made = run.task("vsphere_vgpu_vm", pci_devices=[{**NIC}], **vm)
    assert made.changed, made.message
    vcenter.mark()
    refused = run.task(MODULE, esxi_hosts=["esx1"], passthrough=[{**NIC, "enabled": False}])
    assert refused.code == "device_in_use", refused.message
    assert "rdma" in refused.message
    assert vcenter.writes == 0
    off = run.task("vsphere_vgpu_vm", name="rdma", cluster="gpu", state="absent", power_cycle="hard")
    assert off.changed, off.message
    assert run.task(MODULE, esxi_hosts=["esx1"], passthrough=[{**NIC, "enabled": False}]).changed


def test_hosts_without_gpus_are_served_and_labels_survive(start, section, hosts, playbooks):
    vcenter = start(section)
    result = playbooks(vcenter).task(MODULE, esxi_hosts=["esx3"], passthrough=[NIC])
    assert result.changed, result.message
    (info,) = vcenter.host("esx3").config.pciPassthruInfo
    assert (info.passthruActive, info.hardwareLabel) == (True, "rail-1")
    assert result["hosts"] == []


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ([{"vendor_id": "10de", "device_id": "20b5"}], "nothing_selected", "10de:20b5"),
        ([{"vendor_id": "nvidia", "device_id": "2235"}], "invalid_request", "vendor_id"),
        ([A40, {**A40, "enabled": False}], "invalid_request", "both as enabled and as disabled"),
        ([NIC], "not_settable", "does not support passthrough"),
        ([{"vendor_id": "8086", "device_id": "1521"}], "not_settable", "0000:86:00.1"),
    ],
)
def test_bad_requests_change_nothing(start, section, hosts, playbooks, asked, code, said):
    igb = {"vendor_id": "8086", "vendor_name": "Intel", "device_name": "I350", "passthrough": False}
    hosts[1]["pci_devices"] = [
        nic(passthrough=False, capable=False),
        {**igb, "device_id": "1521", "address": "0000:86:00.0", "dependent": "0000:85:00.0"},
        {**igb, "device_id": "1522", "address": "0000:86:00.1", "dependent": "0000:85:00.0"},
    ]
    vcenter = start(section)
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, esxi_hosts=["esx2"], passthrough=asked)
    assert result.code == code, result.message
    assert said in result.message
    assert vcenter.writes == 0


@pytest.mark.parametrize("version", ["7.0.3", "6.7"])
def test_older_versions(start, section, playbooks, version):
    vcenter = start(section, version)
    result = playbooks(vcenter).task(MODULE, cluster="gpu", passthrough=[A40])
    assert result.changed, result.message
    assert {entry["reboot_required"] for entry in result["passthrough"]} == {version == "6.7"}


def test_a_passed_through_gpu_is_given_to_a_vm(vcenter, playbooks):
    run = playbooks(vcenter)
    switched = run.task(MODULE, esxi_hosts=["esx1"], passthrough=[A40])
    assert switched.changed, switched.message
    made = run.task(
        "vsphere_vgpu_vm",
        name="whole",
        template="ubuntu-22.04-efi",
        cluster="gpu",
        state="powered_on",
        pci_devices=[{**A40, "count": 2}],
    )
    assert made.changed, made.message
    devices = Specs.vgpus(vcenter.vm("whole"))
    assert [type(device.backing) for device in devices] == [vim.vm.device.VirtualPCIPassthrough.DynamicBackingInfo] * 2
    assert vcenter.vm("whole").runtime.host.name == "esx1"


def test_the_role_switches_passthrough_and_returns_the_devices(vcenter, playbooks):
    run = playbooks(vcenter)

    def role(**variables):
        named = {f"vsphere_gpu_host_{name}": value for name, value in variables.items()}
        return run.play({"roles": [{"role": "vgpu.fleet.vsphere_gpu_host", "vars": named}]})

    def outcome(results):
        return [result for result in results if result.failed or result.changed]

    chosen = {"hosts": ["esx1"], "passthrough": [A40]}
    switched = outcome(role(**chosen))
    assert [result.changed for result in switched] == [True], switched
    assert types(vcenter, "esx1") == ["direct", "direct"]
    assert outcome(role(**chosen)) == []
    back = outcome(role(state="absent", **chosen))
    assert not any(result.failed for result in back), back
    assert types(vcenter, "esx1") == ["shared", "shared"]
    assert types(vcenter, "esx2") == ["sharedDirect", "sharedDirect"]
