"""Vendor device groups of the simulator: a group and all its devices come, go and start together (vsphere.md 1.4)."""

from __future__ import annotations

import pytest
from pyVmomi import vim

GROUP = "Nvidia:2@nvidia_a40-48q%NVLink"
PAIR = "Nvidia:1@nvidia_a40-48q%NIC"
FIRST, SECOND = "0000:3b:00.0", "0000:3d:00.0"
NIC = "0000:81:00.0"


@pytest.fixture
def section(section):
    """esx1 with two A40 that NVLink connects, and beside the second one a network card."""
    section["clusters"][0]["hosts"][0] |= {
        "pci_devices": [{"vendor_id": "15b3", "device_id": "1021", "vendor_name": "Mellanox", "device_name": "CX-7"}],
        "device_groups": [
            {"name": GROUP, "devices": [{"address": one, "profile": "nvidia_a40-48q"} for one in (FIRST, SECOND)]},
            {"name": PAIR, "devices": [{"address": SECOND, "profile": "nvidia_a40-48q"}, {"address": NIC}]},
        ],
    }
    for vm in section["vms"]:
        vm["hardware_version"] = 20
    return section


def offered(vcenter, host="esx1"):
    target = vcenter.cluster().environmentBrowser.QueryConfigTarget(host=vcenter.host(host))
    return {info.deviceGroupName: info for info in target.vendorDeviceGroupInfo}


def members(vcenter, name, key=-1):
    """The devices of a group as a client adds them, from the templates of the host."""
    changes = []
    for number, component in enumerate(offered(vcenter)[name].componentDeviceInfo):
        device = component.device
        device.key = -200 - number + 10 * key
        device.deviceGroupInfo.groupInstanceKey = key
        changes.append(vim.vm.device.VirtualDeviceSpec(operation="add", device=device))
    return changes


def listed(*groups):
    kind = vim.vm.VirtualDeviceGroups.VendorDeviceGroup
    return vim.vm.VirtualDeviceGroups(
        deviceGroup=[kind(groupInstanceKey=key, deviceGroupName=name) for key, name in groups]
    )


def give(vcenter, vm, name, **fields):
    mmio = [vim.option.OptionValue(key="pciPassthru.use64bitMMIO", value="TRUE")]
    mmio.append(vim.option.OptionValue(key="pciPassthru.64bitMMIOSizeGB", value="512"))
    vcenter.wait(
        vcenter.reconfigure(
            vm,
            deviceGroups=listed((-1, name)),
            deviceChange=members(vcenter, name),
            memoryReservationLockedToMax=True,
            extraConfig=mmio,
            **fields,
        )
    )


def test_fact_1_4_a_host_offers_each_group_by_name_with_a_template_for_each_device(vcenter):
    pair = offered(vcenter)[PAIR]
    assert [component.type for component in pair.componentDeviceInfo] == ["nvidiaVgpu", "pciPassthru"]
    assert [component.device.deviceGroupInfo.sequenceId for component in pair.componentDeviceInfo] == [1, 2]
    assert pair.componentDeviceInfo[1].device.backing.allowedDevice[0].vendorId == 0x15B3
    assert offered(vcenter, "esx2") == {}


def test_fact_1_4_a_group_gets_a_lasting_key_and_is_removed_with_all_its_devices(vcenter, spec):
    vm = vcenter.vm("app-1")
    give(vcenter, vm, GROUP)
    (group,) = vm.config.deviceGroups.deviceGroup
    assert (group.groupInstanceKey, group.deviceGroupName) == (0, GROUP)
    first, second = spec.vgpus(vm)
    assert {device.deviceGroupInfo.groupInstanceKey for device in (first, second)} == {0}
    both = [spec.remove(first), spec.remove(second)]
    for fields in (
        {"deviceChange": both[:1]},
        {"deviceChange": both[:1], "deviceGroups": listed()},
        {"deviceChange": both},
        {"deviceChange": both, "deviceGroups": listed((0, GROUP))},
        {"deviceGroups": listed()},
    ):
        assert isinstance(vcenter.refused(vcenter.reconfigure(vm, **fields)), vim.fault.InvalidDeviceSpec)
    assert len(spec.vgpus(vm)) == 2
    vcenter.wait(vcenter.reconfigure(vm, deviceChange=both, deviceGroups=listed()))
    assert vm.config.deviceGroups is None
    assert spec.vgpus(vm) == []


def test_groups_may_also_go_with_their_devices(vcenter, spec):
    vcenter.control("PUT", "/behaviour", {"device_groups": "by_devices"})
    vm = vcenter.vm("app-1")
    give(vcenter, vm, GROUP)
    vcenter.wait(vcenter.reconfigure(vm, deviceChange=[spec.remove(device) for device in spec.vgpus(vm)]))
    assert vm.config.deviceGroups is None


def test_fact_1_4_a_group_is_only_added_whole_and_as_it_is_offered(vcenter):
    vm = vcenter.vm("app-1")
    for groups, changes in (
        (listed((-1, GROUP)), members(vcenter, GROUP)[:1]),
        (listed((-1, GROUP)), []),
        (listed((-1, "Nvidia:8@nvidia_h100xm-80c%NVLink")), members(vcenter, GROUP)),
        (listed((-1, GROUP)), members(vcenter, PAIR)),
        (listed((3, GROUP)), members(vcenter, GROUP, key=3)),
        (None, members(vcenter, GROUP)),
    ):
        fields = {"deviceGroups": groups} if groups else {}
        fault = vcenter.refused(vcenter.reconfigure(vm, deviceChange=changes, **fields))
        assert isinstance(fault, vim.fault.InvalidDeviceSpec), fault
    assert vm.config.deviceGroups is None


def test_an_old_vm_cannot_have_a_group(start, section):
    section["vms"][0]["hardware_version"] = 19
    vcenter = start(section)
    vm = vcenter.vm("app-1")
    spec = {"deviceGroups": listed((-1, GROUP)), "deviceChange": members(vcenter, GROUP)}
    assert isinstance(vcenter.refused(vcenter.reconfigure(vm, **spec)), vim.fault.DeviceUnsupportedForVmVersion)


def test_a_group_starts_with_all_its_devices_or_not_at_all(vcenter):
    vcenter.running("busy", "nvidia_a40-8q", host=vcenter.host("esx1"))
    (busy,) = [gpu["address"] for gpu in vcenter.control("GET", "/gpus")["esx1"] if gpu["slots"]]
    vm = vcenter.vm("app-1")
    give(vcenter, vm, GROUP)
    fault = vcenter.refused(vm.PowerOnVM_Task(vcenter.host("esx1")))
    assert fault is not None
    assert [gpu["address"] for gpu in vcenter.control("GET", "/gpus")["esx1"] if gpu["slots"]] == [busy]
    vcenter.wait(vcenter.vm("busy").PowerOffVM_Task())
    vcenter.wait(vm.PowerOnVM_Task(vcenter.host("esx1")))
    taken = {
        gpu["address"]: [slot["profile"] for slot in gpu["slots"]] for gpu in vcenter.control("GET", "/gpus")["esx1"]
    }
    assert taken == {FIRST: ["nvidia_a40-48q"], SECOND: ["nvidia_a40-48q"]}
    vcenter.wait(vm.PowerOffVM_Task())
    assert not any(gpu["slots"] for gpu in vcenter.control("GET", "/gpus")["esx1"])


def test_vcenter_9_counts_free_groups(start, section):
    vcenter = start(section, "9.0")
    types = vim.DirectPathProfileManager
    manager = vcenter.content.directPathProfileManager

    def capacity(name, host="esx1"):
        config = types.VirtualDeviceGroupDirectPathConfig(deviceGroupName=name)
        spec = types.CapacityQueryByDeviceConfig(deviceConfig=config)
        (answer,) = manager.QueryDirectPathProfileCapacity(types.TargetHost(host=vcenter.host(host)), [spec])
        return (answer.consumed, answer.remaining) if isinstance(answer, types.CapacityInfo) else None

    assert capacity(GROUP) == (0, 1)
    assert capacity(GROUP, "esx2") is None
    vm = vcenter.vm("app-1")
    give(vcenter, vm, GROUP)
    vcenter.wait(vm.PowerOnVM_Task(vcenter.host("esx1")))
    assert (capacity(GROUP), capacity(PAIR)) == ((1, 0), (0, 0))
