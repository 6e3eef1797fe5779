"""vsphere.md 5.7: what a server refuses when the devices of a VM change, and how it numbers them."""

from __future__ import annotations

import pytest
from pyVmomi import vim, vmodl


def profiles(vm, spec):
    return [device.backing.vgpu for device in spec.vgpus(vm)]


def change(vcenter, vm, *changes, **fields):
    return vcenter.reconfigure(vm, deviceChange=list(changes), **fields)


def test_fact_9_4_device_keys_start_at_13000_and_labels_count(vcenter, spec):
    vm = vcenter.vm("app-1")
    vcenter.give(vm, "nvidia_a40-4q", "nvidia_a40-4q")
    shown = [(device.key, device.deviceInfo.label, device.deviceInfo.summary) for device in spec.vgpus(vm)]
    assert shown == [
        (13000, "PCI device 0", "NVIDIA GRID vGPU nvidia_a40-4q"),
        (13001, "PCI device 1", "NVIDIA GRID vGPU nvidia_a40-4q"),
    ]


def test_fact_9_4_a_label_sent_by_the_client_is_ignored(vcenter, spec):
    vm = vcenter.vm("app-1")
    vcenter.give(vm, "nvidia_a40-4q")
    wrong = spec.add("nvidia_a40-4q")
    wrong.device.deviceInfo = vim.Description(label="PCI device 0", summary="mine")
    vcenter.wait(change(vcenter, vm, wrong))
    assert [device.deviceInfo.label for device in spec.vgpus(vm)] == ["PCI device 0", "PCI device 1"]


def test_fact_1_1_the_server_fills_in_what_migration_costs(vcenter, spec):
    vm = vcenter.vm("app-1")
    vcenter.give(vm, "nvidia_a40-4q")
    (device,) = spec.vgpus(vm)
    assert device.backing.migrateSupported
    assert device.backing.vgpuMigrateDataSizeMB == 4096


def test_fact_9_4_a_profile_is_replaced_in_one_task(vcenter, spec):
    vm = vcenter.vm("app-1")
    vcenter.give(vm, "nvidia_a40-4q")
    vcenter.wait(change(vcenter, vm, spec.remove(spec.vgpus(vm)[0]), spec.add("nvidia_a40-8q")))
    assert profiles(vm, spec) == ["nvidia_a40-8q"]


def test_fact_9_4_devices_of_a_running_vm_cannot_change(vcenter, spec):
    vm = vcenter.vm("app-1")
    vcenter.wait(vm.PowerOnVM_Task())
    fault = vcenter.refused(change(vcenter, vm, spec.add("nvidia_a40-4q")))
    assert isinstance(fault, vim.fault.InvalidPowerState)
    assert (fault.requestedState, fault.existingState) == ("poweredOff", "poweredOn")
    assert "app-1" in fault.msg


def test_fact_9_4_devices_of_a_suspended_vm_cannot_change(vcenter, spec):
    vm = vcenter.vm("app-1")
    vcenter.wait(vm.PowerOnVM_Task())
    vcenter.wait(vm.SuspendVM_Task())
    fault = vcenter.refused(change(vcenter, vm, spec.add("nvidia_a40-4q")))
    assert fault.existingState == "suspended"


def test_fact_5_the_other_fault_for_a_hot_add_can_be_chosen(vcenter, spec):
    vcenter.control("PUT", "/behaviour", {"hot_add_fault": "DeviceHotPlugNotSupported"})
    vm = vcenter.vm("app-1")
    vcenter.wait(vm.PowerOnVM_Task())
    assert isinstance(
        vcenter.refused(change(vcenter, vm, spec.add("nvidia_a40-4q"))), vim.fault.DeviceHotPlugNotSupported
    )


@pytest.mark.parametrize("profile", ["nvidia_a40-5q", "grid_a40-4q", "NVIDIA_A40-4Q", "nvidia_l40s-4q"])
def test_fact_9_4_a_profile_no_host_in_reach_offers_is_refused_by_name(vcenter, spec, profile):
    fault = vcenter.refused(change(vcenter, vcenter.vm("app-1"), spec.add(profile)))
    assert isinstance(fault, vim.fault.InvalidDeviceBacking)
    assert fault.deviceIndex == 0
    assert profile in fault.msg


def test_fact_9_4_old_hardware_is_refused_with_the_version_it_needs(vcenter, spec):
    vm = vcenter.clone("old-bios", "old")
    fault = vcenter.refused(change(vcenter, vm, spec.add("nvidia_a40-4q")))
    assert isinstance(fault, vim.fault.DeviceUnsupportedForVmVersion)
    assert (fault.currentVersion, fault.expectedVersion) == ("vmx-13", "vmx-17")
    vcenter.wait(vm.UpgradeVM_Task("vmx-17"))
    vcenter.wait(change(vcenter, vm, spec.add("nvidia_a40-4q")))


def test_fact_9_4_more_vgpus_than_allowed_are_refused(vcenter, spec):
    vm = vcenter.vm("app-1")
    fault = vcenter.refused(change(vcenter, vm, *[spec.add("nvidia_a40-1q")] * 9))
    assert isinstance(fault, vim.fault.TooManyDevices)
    vcenter.give(vm, *["nvidia_a40-1q"] * 8)
    assert isinstance(vcenter.refused(change(vcenter, vm, spec.add("nvidia_a40-1q"))), vim.fault.TooManyDevices)


def test_fact_2_several_vgpus_must_be_of_one_board_and_series(start, section, spec):
    section["clusters"][0]["hosts"][1]["gpus"] = [{"board": "L40S"}]
    vcenter = start(section)
    vm = vcenter.vm("app-1")
    for other in ("nvidia_l40s-4q", "nvidia_a40-4c"):
        fault = vcenter.refused(change(vcenter, vm, spec.add("nvidia_a40-4q"), spec.add(other)))
        assert isinstance(fault, vim.fault.InvalidDeviceSpec)
        assert other in fault.msg
    vcenter.give(vm, "nvidia_a40-48c", "nvidia_a40-16c")


def test_fact_9_4_an_unknown_device_cannot_be_removed(vcenter, spec):
    fault = vcenter.refused(
        change(vcenter, vcenter.vm("app-1"), spec.add("nvidia_a40-4q"), spec.remove(spec.vgpu("x", key=13007)))
    )
    assert isinstance(fault, vim.fault.InvalidDeviceSpec)
    assert fault.deviceIndex == 1
    assert "13007" in fault.msg


def test_fact_2_5_a_profile_cannot_be_edited(vcenter, spec):
    vm = vcenter.vm("app-1")
    vcenter.give(vm, "nvidia_a40-4q")
    device = spec.vgpus(vm)[0]
    device.backing.vgpu = "nvidia_a40-8q"
    assert isinstance(vcenter.refused(change(vcenter, vm, spec.edit(device))), vim.fault.InvalidDeviceSpec)
    assert profiles(vm, spec) == ["nvidia_a40-4q"]


def test_fact_9_4_a_stale_change_version_is_refused(vcenter, spec):
    vm = vcenter.vm("app-1")
    read = vm.config.changeVersion
    vcenter.wait(vcenter.reconfigure(vm, annotation="somebody else", changeVersion=read))
    fault = vcenter.refused(change(vcenter, vm, spec.add("nvidia_a40-4q"), changeVersion=read))
    assert isinstance(fault, vim.fault.ConcurrentAccess)
    vcenter.wait(change(vcenter, vm, spec.add("nvidia_a40-4q"), changeVersion=vm.config.changeVersion))


def test_fact_9_4_a_refused_change_changes_nothing_at_all(vcenter, spec):
    vm = vcenter.vm("app-1")
    before = (vm.config.hardware.memoryMB, vm.config.annotation, vm.config.changeVersion)
    vcenter.refused(change(vcenter, vm, spec.add("no-such-profile"), memoryMB=1024, annotation="new"))
    assert (vm.config.hardware.memoryMB, vm.config.annotation, vm.config.changeVersion) == before


def test_fact_9_4_a_change_that_fails_half_way_is_undone(vcenter, spec):
    """Here govmomi itself finds the mistake, after it has written the fields."""
    vm = vcenter.vm("app-1")
    before = (vm.config.hardware.memoryMB, vm.config.annotation)
    fault = vcenter.refused(
        change(vcenter, vm, spec.add("nvidia_a40-4q"), memoryMB=1024, annotation="new", guestId="noSuchGuest")
    )
    assert isinstance(fault, vmodl.fault.InvalidArgument)
    assert (vm.config.hardware.memoryMB, vm.config.annotation) == before
    assert profiles(vm, spec) == []


def test_fact_2_10_a_template_cannot_get_devices(vcenter, spec):
    fault = vcenter.refused(change(vcenter, vcenter.vm("ubuntu-22.04-efi"), spec.add("nvidia_a40-4q")))
    assert isinstance(fault, vmodl.fault.NotSupported)


def test_fact_1_2_a_locked_reservation_follows_the_memory(vcenter):
    vm = vcenter.vm("app-1")
    vcenter.wait(vcenter.reconfigure(vm, memoryReservationLockedToMax=True))
    assert vm.config.memoryAllocation.reservation == 4096
    vcenter.wait(vcenter.reconfigure(vm, memoryMB=8192))
    assert vm.config.memoryAllocation.reservation == vm.resourceConfig.memoryAllocation.reservation == 8192


def test_fact_2_11_unlocking_leaves_the_reservation_behind(vcenter):
    vm = vcenter.vm("app-1")
    vcenter.wait(vcenter.reconfigure(vm, memoryReservationLockedToMax=True))
    vcenter.wait(vcenter.reconfigure(vm, memoryReservationLockedToMax=False))
    assert vm.config.memoryAllocation.reservation == 4096


def test_fact_1_2_more_memory_than_a_host_has_cannot_be_locked(vcenter):
    fault = vcenter.refused(
        vcenter.reconfigure(vcenter.vm("app-1"), memoryMB=1 << 20, memoryReservationLockedToMax=True)
    )
    assert isinstance(fault, vim.fault.InsufficientMemoryResourcesFault)
    assert fault.requested > fault.unreserved


@pytest.mark.parametrize("field", [{"firmware": "bios"}, {"memoryMB": 8192}, {"numCPUs": 8}])
def test_fact_2_7_what_needs_a_powered_off_vm_is_refused_while_it_runs(vcenter, field):
    vm = vcenter.vm("app-1")
    vcenter.wait(vm.PowerOnVM_Task())
    fault = vcenter.refused(vcenter.reconfigure(vm, **field))
    assert isinstance(fault, vim.fault.InvalidPowerState)
    assert next(iter(field)) in fault.msg


def test_fact_2_7_the_hardware_version_is_not_part_of_a_reconfigure(vcenter):
    fault = vcenter.refused(vcenter.reconfigure(vcenter.vm("app-1"), version="vmx-21"))
    assert isinstance(fault, vmodl.fault.InvalidArgument)


def test_fact_8_1_an_upgrade_of_a_running_vm_is_refused_in_a_form_clients_understand(vcenter):
    vm = vcenter.vm("app-1")
    vcenter.wait(vm.PowerOnVM_Task())
    assert isinstance(vcenter.refused(vm.UpgradeVM_Task("vmx-21")), vim.fault.InvalidPowerState)


def test_fact_8_1_an_upgrade_to_the_present_version_is_refused_in_a_form_clients_understand(vcenter):
    assert isinstance(vcenter.refused(vcenter.vm("app-1").UpgradeVM_Task("vmx-19")), vim.fault.AlreadyUpgraded)


def test_an_unknown_network_is_refused_and_does_not_bring_the_server_down(vcenter):
    card = vim.vm.device.VirtualVmxnet3(
        key=-1, backing=vim.vm.device.VirtualEthernetCard.NetworkBackingInfo(deviceName="nowhere")
    )
    wrong = vim.vm.device.VirtualDeviceSpec(operation="add", device=card)
    assert isinstance(vcenter.refused(change(vcenter, vcenter.vm("app-1"), wrong)), vim.fault.InvalidDeviceBacking)
    assert vcenter.vm("app-1").name == "app-1"
