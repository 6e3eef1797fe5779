"""vsphere.md 5.5: a clone inherits everything, and takes the whole ConfigSpec."""

from __future__ import annotations

import pytest
from pyVmomi import vim, vmodl


def names(vcenter):
    return {vm.name for vm in vcenter.all(vim.VirtualMachine)}


@pytest.fixture
def with_gpu_template(section):
    section["templates"].append(
        {
            "name": "gpu-template",
            "vgpus": ["nvidia_a40-4q"],
            "memory_locked": True,
            "annotation": "golden",
            "extra_config": {"pciPassthru.use64bitMMIO": "TRUE"},
            "snapshot": "base",
        }
    )
    return section


def test_fact_9_7_a_clone_inherits_the_vgpus_of_its_template(start, with_gpu_template, spec):
    vcenter = start(with_gpu_template)
    clone = vcenter.clone("gpu-template", "vm")
    assert [device.backing.vgpu for device in spec.vgpus(clone)] == ["nvidia_a40-4q"]
    vcenter.clone("gpu-template", "more", vim.vm.ConfigSpec(deviceChange=[spec.add("nvidia_a40-4q")]))
    assert len(spec.vgpus(vcenter.vm("more"))) == 2


def test_fact_9_7_inherited_vgpus_can_be_replaced_in_the_clone_spec(start, with_gpu_template, spec):
    vcenter = start(with_gpu_template)
    inherited = spec.vgpus(vcenter.vm("gpu-template"))[0]
    change = vim.vm.ConfigSpec(deviceChange=[spec.remove(inherited), spec.add("nvidia_a40-8q")])
    clone = vcenter.clone("gpu-template", "vm", change)
    assert [device.backing.vgpu for device in spec.vgpus(clone)] == ["nvidia_a40-8q"]


def test_fact_9_7_a_clone_inherits_firmware_reservation_annotation_and_options(start, with_gpu_template):
    config = start(with_gpu_template).clone("gpu-template", "vm").config
    assert (config.firmware, config.version, config.annotation) == ("efi", "vmx-19", "golden")
    assert config.memoryReservationLockedToMax
    assert config.memoryAllocation.reservation == config.hardware.memoryMB
    assert {"pciPassthru.use64bitMMIO": "TRUE"}.items() <= {o.key: o.value for o in config.extraConfig}.items()


def test_fact_9_7_the_whole_config_spec_is_applied(vcenter, spec):
    disk = next(d for d in vcenter.vm("old-bios").config.hardware.device if isinstance(d, vim.vm.device.VirtualDisk))
    disk.capacityInKB = 64 << 20
    config = vim.vm.ConfigSpec(
        numCPUs=8,
        memoryMB=16384,
        annotation="mine",
        version="vmx-19",
        memoryReservationLockedToMax=True,
        extraConfig=[vim.option.OptionValue(key="guestinfo.userdata", value="I2Nsb3VkLWNvbmZpZw==")],
        deviceChange=[spec.edit(disk), spec.add("nvidia_a40-4q")],
    )
    shown = vcenter.clone("old-bios", "vm", config).config
    assert (shown.hardware.numCPU, shown.hardware.memoryMB, shown.annotation) == (8, 16384, "mine")
    assert (shown.version, shown.firmware) == ("vmx-19", "bios")
    assert shown.memoryAllocation.reservation == 16384
    assert {o.key: o.value for o in shown.extraConfig}["guestinfo.userdata"] == "I2Nsb3VkLWNvbmZpZw=="
    assert next(d for d in shown.hardware.device if isinstance(d, vim.vm.device.VirtualDisk)).capacityInKB == 64 << 20
    assert [device.key for device in spec.vgpus(vcenter.vm("vm"))] == [13000]


def test_fact_9_7_power_on_is_honoured_and_admitted(vcenter, spec):
    config = vim.vm.ConfigSpec(deviceChange=[spec.add("nvidia_a40-4q")], memoryReservationLockedToMax=True)
    clone = vcenter.clone("ubuntu-22.04-efi", "vm", config, power_on=True)
    assert clone.runtime.powerState == "poweredOn"
    assert ["vm"] in vcenter.vms_per_gpu(clone.runtime.host.name)


def test_fact_9_7_a_clone_that_cannot_start_fails_and_stays_behind(vcenter, spec):
    config = vim.vm.ConfigSpec(deviceChange=[spec.add("nvidia_a40-4q")])
    fault = vcenter.refused(vcenter.clone_task("ubuntu-22.04-efi", "vm", config, power_on=True))
    assert isinstance(fault, vim.fault.GenericVmConfigFault)
    assert vcenter.vm("vm").runtime.powerState == "poweredOff"


def test_fact_9_7_a_refused_clone_leaves_nothing_behind(vcenter, spec):
    before = names(vcenter)
    wrong_profile = vim.vm.ConfigSpec(deviceChange=[spec.add("nope")])
    assert isinstance(
        vcenter.refused(vcenter.clone_task("ubuntu-22.04-efi", "vm", wrong_profile)), vim.fault.InvalidDeviceBacking
    )
    wrong_guest = vim.vm.ConfigSpec(guestId="noSuchGuest")
    assert isinstance(
        vcenter.refused(vcenter.clone_task("ubuntu-22.04-efi", "vm", wrong_guest)), vmodl.fault.InvalidArgument
    )
    assert names(vcenter) == before


def test_fact_7_devices_at_clone_time_need_new_enough_hardware(vcenter, spec):
    config = vim.vm.ConfigSpec(deviceChange=[spec.add("nvidia_a40-4q")])
    assert isinstance(
        vcenter.refused(vcenter.clone_task("old-bios", "vm", config)), vim.fault.DeviceUnsupportedForVmVersion
    )


def test_fact_5_a_taken_name_is_refused_with_the_vm_that_has_it(vcenter):
    fault = vcenter.refused(vcenter.clone_task("ubuntu-22.04-efi", "app-1"))
    assert isinstance(fault, vim.fault.DuplicateName)
    assert fault.object == vcenter.vm("app-1")


def test_a_clone_with_a_larger_disk_has_a_file_of_its_own(vcenter):
    def disk_of(name):
        devices = vcenter.vm(name).config.hardware.device
        return next(device for device in devices if isinstance(device, vim.vm.device.VirtualDisk))

    disk = disk_of("old-bios")
    disk.capacityInKB = 64 << 20
    disk.capacityInBytes = 64 << 30
    change = vim.vm.device.VirtualDeviceSpec(operation="edit", device=disk)
    for _attempt in range(2):
        clone = vcenter.clone("old-bios", "vm", vim.vm.ConfigSpec(deviceChange=[change]))
        assert disk_of("vm").capacityInKB == 64 << 20
        assert disk_of("vm").backing.fileName != disk_of("old-bios").backing.fileName
        # The template's file does not go with the clone.
        vcenter.wait(clone.Destroy_Task())


def check_clone(vcenter, name="new", config=None):
    """What the dry run of a clone answers."""
    location = vim.vm.RelocateSpec(pool=vcenter.cluster().resourcePool)
    spec = vim.vm.CloneSpec(location=location, config=config, powerOn=False)
    checker, source = vcenter.content.vmProvisioningChecker, vcenter.vm("ubuntu-22.04-efi")
    (result,) = vcenter.wait(checker.CheckClone_Task(source, vcenter.datacenter().vmFolder, name, spec, None))
    return [error.fault if hasattr(error, "fault") else error for error in result.error]


@pytest.mark.parametrize("version", ["8.0.3", "7.0.3", "6.7"])
def test_fact_1_5_a_clone_can_be_tried_out_without_being_made(start, section, spec, version):
    vcenter = start(section, version)
    before = names(vcenter)
    locked = vim.vm.ConfigSpec(memoryReservationLockedToMax=True, memoryMB=1 << 20)
    assert check_clone(vcenter, config=vim.vm.ConfigSpec(deviceChange=[spec.add("nvidia_a40-4q")])) == []
    (taken,) = check_clone(vcenter, "app-1")
    (unknown,) = check_clone(vcenter, config=vim.vm.ConfigSpec(deviceChange=[spec.add("nope")]))
    (too_large,) = check_clone(vcenter, config=locked)
    assert isinstance(taken, vim.fault.DuplicateName)
    assert isinstance(unknown, vim.fault.InvalidDeviceBacking)
    assert isinstance(too_large, vim.fault.InsufficientMemoryResourcesFault)
    assert names(vcenter) == before


def test_fact_1_2_a_clone_whose_memory_no_host_can_reserve_is_refused(vcenter):
    config = vim.vm.ConfigSpec(memoryReservationLockedToMax=True, memoryMB=1 << 20)
    fault = vcenter.refused(vcenter.clone_task("ubuntu-22.04-efi", "new", config))
    assert isinstance(fault, vim.fault.InsufficientMemoryResourcesFault)
    assert "new" not in names(vcenter)


def test_a_template_needs_a_resource_pool(vcenter):
    assert isinstance(
        vcenter.refused(vcenter.clone_task("ubuntu-22.04-efi", "vm", pool=None)), vmodl.fault.InvalidArgument
    )


def test_a_linked_clone_needs_a_snapshot_and_hangs_on_the_disk_of_its_source(start, with_gpu_template):
    vcenter = start(with_gpu_template)
    move = "createNewChildDiskBacking"
    fault = vcenter.refused(vcenter.clone_task("gpu-template", "vm", diskMoveType=move))
    assert fault.invalidProperty == "spec.snapshot"
    source = vcenter.vm("gpu-template")
    spec = vim.vm.CloneSpec(
        location=vim.vm.RelocateSpec(pool=vcenter.cluster().resourcePool, diskMoveType=move),
        snapshot=source.snapshot.currentSnapshot,
    )
    clone = vcenter.wait(source.CloneVM_Task(folder=vcenter.datacenter().vmFolder, name="vm", spec=spec))
    disk = next(d for d in clone.config.hardware.device if isinstance(d, vim.vm.device.VirtualDisk))
    assert "gpu-template" in disk.backing.parent.fileName


def test_a_vm_is_created_from_nothing_with_vgpus(vcenter, spec):
    config = vim.vm.ConfigSpec(
        name="fresh",
        guestId="ubuntu64Guest",
        version="vmx-20",
        files=vim.vm.FileInfo(vmPathName="[ds1]"),
        deviceChange=[spec.add("nvidia_a40-4q")],
    )
    vm = vcenter.wait(vcenter.datacenter().vmFolder.CreateVM_Task(config, vcenter.cluster().resourcePool, None))
    assert [device.key for device in spec.vgpus(vm)] == [13000]
    config.files.vmPathName = "[nowhere]"
    config.name = "other"
    fault = vcenter.refused(vcenter.datacenter().vmFolder.CreateVM_Task(config, vcenter.cluster().resourcePool, None))
    assert isinstance(fault, vmodl.fault.InvalidArgument)
