"""vsphere.md 6.3: who may start on a GPU, on which GPU, and when the GPU is free again."""

from __future__ import annotations

import pytest
from pyVmomi import vim, vmodl


def one_gpu(section, **gpu):
    """Only esx1 has a GPU, and only one."""
    hosts = section["clusters"][0]["hosts"]
    hosts[0]["gpus"] = [{"board": "A40"} | gpu]
    hosts[1].pop("gpus", None)
    return section


@pytest.fixture
def start_off(vcenter):
    """A powered-off VM on esx1 with vGPUs."""

    def make(name, *profiles, **options):
        vm = vcenter.clone("ubuntu-22.04-efi", name, host=vcenter.host("esx1"))
        vcenter.give(vm, *profiles, **options)
        return vm

    return make


def on_esx1(vcenter, vm):
    return vm.PowerOnVM_Task(vcenter.host("esx1"))


def test_fact_9_5_a_vm_shows_up_under_the_gpu_it_runs_on(vcenter):
    vm = vcenter.running("vm", "nvidia_a40-4q", host=vcenter.host("esx1"))
    assert vcenter.vms_per_gpu("esx1") == [["vm"], []]
    assert vm.runtime.host.name == "esx1"


def test_fact_9_5_memory_must_be_reserved(vcenter, start_off):
    fault = vcenter.refused(on_esx1(vcenter, start_off("vm", "nvidia_a40-4q", locked=False)))
    assert isinstance(fault, vim.fault.GenericVmConfigFault)
    assert "sched.mem.min" in fault.reason
    assert vcenter.vms_per_gpu("esx1") == [[], []]


def test_fact_9_5_twelve_of_a40_4q_fit_on_a_gpu(start, section):
    vcenter = start(one_gpu(section))
    host = vcenter.host("esx1")
    for number in range(12):
        vcenter.running(f"vm-{number}", "nvidia_a40-4q", host=host)
    vm = vcenter.clone("ubuntu-22.04-efi", "one-too-many", host=host)
    vcenter.give(vm, "nvidia_a40-4q")
    fault = vcenter.refused(on_esx1(vcenter, vm))
    assert isinstance(fault, vim.fault.InsufficientGraphicsResourcesFault)
    for word in ("esx1", "nvidia_a40-4q", "one-too-many"):
        assert word in fault.msg
        assert word in fault.faultMessage[0].message


def test_fact_9_5_the_first_vgpu_pins_a_same_size_gpu(start, section):
    vcenter = start(one_gpu(section))
    host = vcenter.host("esx1")
    vcenter.running("first", "nvidia_a40-8q", host=host)
    for name, profile in {"smaller": "nvidia_a40-4q", "larger": "nvidia_a40-16q"}.items():
        vm = vcenter.clone("ubuntu-22.04-efi", name, host=host)
        vcenter.give(vm, profile, extraConfig=[vim.option.OptionValue(key="pciPassthru.use64bitMMIO", value="TRUE")])
        assert "pinned" in vcenter.refused(on_esx1(vcenter, vm)).msg


def test_fact_3_2_other_classes_of_one_size_share_a_gpu_since_8_0_2(start, section, spec):
    for version, shared in {"8.0.3": True, "7.0.3": False}.items():
        vcenter = start(one_gpu(section), version)
        host = vcenter.host("esx1")
        vcenter.running("q", "nvidia_a40-8q", host=host)
        vm = vcenter.clone("ubuntu-22.04-efi", "c", host=host)
        vcenter.give(vm, "nvidia_a40-8c", extraConfig=spec.mmio(64))
        task = on_esx1(vcenter, vm)
        assert vcenter.states(task)[-1] == ("success" if shared else "error")


def test_fact_9_5_sizes_mix_on_a_mixed_size_gpu_but_fewer_fit(start, section):
    vcenter = start(one_gpu(section, mode="mixed_size"))
    host = vcenter.host("esx1")
    vcenter.running("large", "nvidia_a40-12q", host=host)
    for number in range(6):
        vcenter.running(f"small-{number}", "nvidia_a40-4q", host=host)
    vm = vcenter.clone("ubuntu-22.04-efi", "one-too-many", host=host)
    vcenter.give(vm, "nvidia_a40-4q")
    assert isinstance(vcenter.refused(on_esx1(vcenter, vm)), vim.fault.InsufficientGraphicsResourcesFault)


def test_fact_9_5_mig_instances_fit_by_slices(start, section):
    vcenter = start(one_gpu(section, board="A100", mode="mig"))
    host = vcenter.host("esx1")
    assert host.config.graphicsInfo[0].vgpuMode == "multiInstanceGpu"
    for name, profile in {"a": "grid_a100-2-10c", "b": "grid_a100-1-5c", "c": "grid_a100-2-10c"}.items():
        vcenter.running(name, profile, host=host)
    vm = vcenter.clone("ubuntu-22.04-efi", "half", host=host)
    vcenter.give(vm, "grid_a100-3-20c", extraConfig=[])
    fault = vcenter.refused(on_esx1(vcenter, vm))
    assert isinstance(fault, vim.fault.InsufficientGraphicsResourcesFault)
    assert "no placement left" in fault.msg


def test_fact_9_5_performance_spreads_and_consolidation_fills(start, section):
    section["clusters"][0]["hosts"][1]["assignment_policy"] = "consolidation"
    vcenter = start(section)
    for host in ("esx1", "esx2"):
        for letter in "ab":
            vcenter.running(f"{host}-{letter}", "nvidia_a40-4q", host=vcenter.host(host))
    assert vcenter.vms_per_gpu("esx1") == [["esx1-a"], ["esx1-b"]]
    assert vcenter.vms_per_gpu("esx2") == [["esx2-a", "esx2-b"], []]


def test_fact_3_3_a_vm_with_several_vgpus_shows_under_each_of_its_gpus_without_a_count(vcenter):
    vcenter.running("vm", *["nvidia_a40-4q"] * 3, host=vcenter.host("esx1"))
    assert vcenter.vms_per_gpu("esx1") == [["vm"], ["vm"]]
    truth = vcenter.control("GET", "/gpus")["esx1"]
    assert sorted(len(gpu["slots"]) for gpu in truth) == [1, 2]


@pytest.mark.parametrize("way", ["power off", "shutdown", "suspend"])
def test_fact_9_5_a_gpu_is_free_when_its_vm_stops(vcenter, way):
    vm = vcenter.running("vm", "nvidia_a40-4q", host=vcenter.host("esx1"))
    if way == "power off":
        vcenter.wait(vm.PowerOffVM_Task())
    elif way == "suspend":
        vcenter.wait(vm.SuspendVM_Task())
    else:
        vm.ShutdownGuest()
        while vm.runtime.powerState != "poweredOff":
            pass
    assert vcenter.vms_per_gpu("esx1") == [[], []]


def test_fact_9_5_a_destroyed_vm_holds_nothing(vcenter):
    vm = vcenter.running("vm", "nvidia_a40-4q", host=vcenter.host("esx1"))
    vcenter.wait(vm.SuspendVM_Task())
    vcenter.wait(vm.Destroy_Task())
    assert vcenter.vms_per_gpu("esx1") == [[], []]
    assert "vm" not in {found.name for found in vcenter.all(vim.VirtualMachine)}


def test_fact_9_5_a_reset_keeps_the_gpu(vcenter):
    vm = vcenter.running("vm", "nvidia_a40-4q", host=vcenter.host("esx1"))
    vcenter.wait(vm.ResetVM_Task())
    assert vm.runtime.powerState == "poweredOn"
    assert vcenter.vms_per_gpu("esx1") == [["vm"], []]


def test_fact_9_5_vmotion_moves_the_booking(start, section):
    vcenter = start(section | {"hot_migrate": True})
    vm = vcenter.running("vm", "nvidia_a40-4q", host=vcenter.host("esx1"))
    vcenter.wait(vm.RelocateVM_Task(vim.vm.RelocateSpec(host=vcenter.host("esx2"))))
    assert vcenter.vms_per_gpu("esx1") == [[], []]
    assert vcenter.vms_per_gpu("esx2") == [["vm"], []]
    assert vm in vcenter.host("esx2").vm
    assert vm not in vcenter.host("esx1").vm


def test_fact_9_5_vmotion_to_a_host_without_gpus_is_refused(start, section):
    vcenter = start(section | {"hot_migrate": True})
    vm = vcenter.running("vm", "nvidia_a40-4q", host=vcenter.host("esx1"))
    fault = vcenter.refused(vm.RelocateVM_Task(vim.vm.RelocateSpec(host=vcenter.host("esx3"))))
    assert isinstance(fault, vim.fault.DeviceNotSupported)
    assert vcenter.vms_per_gpu("esx1") == [["vm"], []]


def test_fact_7_1_vmotion_of_vgpus_is_off_by_default_and_a_setting_takes_effect_at_once(vcenter):
    vm = vcenter.running("vm", "nvidia_a40-4q", host=vcenter.host("esx1"))
    there = vim.vm.RelocateSpec(host=vcenter.host("esx2"))
    assert isinstance(vcenter.refused(vm.RelocateVM_Task(there)), vim.fault.VMotionNotSupported)
    setting = vim.option.OptionValue(key="vgpu.hotmigrate.enabled", value=True)
    vcenter.content.setting.UpdateOptions([setting])
    vcenter.wait(vm.RelocateVM_Task(there))
    assert vm.runtime.host.name == "esx2"


def test_fact_7_2_drs_evacuates_vgpus_only_with_its_option(start, section):
    section["clusters"][0] |= {"drs": "fully_automated", "drs_options": {"VgpuMMAutomationTimeoutSecs": "-1"}}
    vcenter = start(section | {"hot_migrate": True})
    vm = vcenter.running("vm", "nvidia_a40-4q", host=vcenter.host("esx1"))
    vcenter.wait(vcenter.host("esx1").EnterMaintenanceMode_Task(0))
    assert vm.runtime.host.name == "esx2"


def test_fact_9_5_a_host_in_maintenance_takes_no_vm(vcenter, start_off):
    vm = start_off("vm", "nvidia_a40-4q")
    vcenter.wait(vcenter.host("esx1").EnterMaintenanceMode_Task(0))
    fault = vcenter.refused(on_esx1(vcenter, vm))
    assert isinstance(fault, vim.fault.InvalidHostState)
    assert "maintenance" in fault.msg
    vcenter.wait(vcenter.host("esx1").ExitMaintenanceMode_Task(0))
    vcenter.wait(on_esx1(vcenter, vm))


def test_fact_9_5_a_disconnected_host_takes_no_vm(vcenter, start_off):
    vm = start_off("vm", "nvidia_a40-4q")
    vcenter.wait(vcenter.host("esx1").DisconnectHost_Task())
    assert isinstance(vcenter.refused(on_esx1(vcenter, vm)), vmodl.fault.HostNotConnected)


def test_fact_4_12_maintenance_moves_ordinary_vms_and_waits_for_those_with_vgpus(vcenter):
    esx1 = vcenter.host("esx1")
    ordinary = vcenter.vm("app-1")
    vcenter.wait(ordinary.PowerOnVM_Task(esx1))
    vm = vcenter.running("vm", "nvidia_a40-4q", host=esx1)
    fault = vcenter.refused(esx1.EnterMaintenanceMode_Task(1))
    assert isinstance(fault, vim.fault.Timedout)
    assert "vm" in fault.msg
    assert ordinary.runtime.host.name != "esx1"
    task = esx1.EnterMaintenanceMode_Task(0)
    vcenter.wait(vm.PowerOffVM_Task())
    vcenter.wait(task)
    assert esx1.runtime.inMaintenanceMode


def test_fact_9_5_a_large_framebuffer_needs_enough_mmio(vcenter, start_off, spec):
    vm = start_off("vm", "nvidia_a40-48q")
    assert "DevicePowerOn" in vcenter.refused(on_esx1(vcenter, vm)).msg
    for size, starts in {"64": False, "128": True}.items():
        vcenter.wait(
            vcenter.reconfigure(vm, extraConfig=spec.options(use64bitMMIO="TRUE", **{"64bitMMIOSizeGB": size}))
        )
        assert (vcenter.states(on_esx1(vcenter, vm))[-1] == "success") is starts


def test_fact_4_8_a_large_framebuffer_needs_efi(vcenter, start_off, spec):
    mmio = spec.options(use64bitMMIO="TRUE", **{"64bitMMIOSizeGB": "128"})
    vm = start_off("vm", "nvidia_a40-48q", firmware="bios", extraConfig=mmio)
    assert "EFI" in vcenter.refused(on_esx1(vcenter, vm)).msg


@pytest.mark.parametrize(("memory_mb", "needed"), [(16 * 1024, 0), (32 * 1024, 128)])
def test_fact_4_4_a_large_vm_needs_the_mmio_space_of_the_board(start, section, spec, memory_mb, needed):
    section["clusters"][0]["hosts"][0]["memory_gib"] = 64
    vcenter = start(one_gpu(section))
    vm = vcenter.clone("ubuntu-22.04-efi", "vm", host=vcenter.host("esx1"))
    vcenter.wait(vcenter.reconfigure(vm, memoryMB=memory_mb))
    vcenter.give(vm, "nvidia_a40-8q")
    if needed:
        assert f"MMIO of {needed} GB" in vcenter.refused(on_esx1(vcenter, vm)).msg
        vcenter.wait(vcenter.reconfigure(vm, extraConfig=spec.mmio(needed)))
    vcenter.wait(on_esx1(vcenter, vm))


def test_fact_4_4_a_compute_vgpu_needs_mmio_and_efi_in_any_vm(vcenter, start_off, spec):
    vm = start_off("vm", "nvidia_a40-4c")
    assert "MMIO of 64 GB" in vcenter.refused(on_esx1(vcenter, vm)).msg
    bios = start_off("bios", "nvidia_a40-4c", firmware="bios", extraConfig=spec.mmio(64))
    assert "EFI" in vcenter.refused(on_esx1(vcenter, bios)).msg


@pytest.mark.parametrize(("version", "starts"), [("8.0.3", True), ("7.0.3", False)])
def test_nvidia_5_1_several_fractional_compute_vgpus_start_since_8_0(start, section, spec, version, starts):
    vcenter = start(one_gpu(section), version)
    vm = vcenter.clone("ubuntu-22.04-efi", "vm", host=vcenter.host("esx1"))
    vcenter.give(vm, "nvidia_a40-8c", "nvidia_a40-8c", extraConfig=spec.mmio(256))
    task = on_esx1(vcenter, vm)
    if starts:
        vcenter.wait(task)
    else:
        assert "Could not initialize plugin" in vcenter.refused(task).msg


def test_fact_5_reserved_memory_must_fit_on_the_host(start, section):
    section["clusters"][0]["hosts"][0]["memory_gib"] = 6
    vcenter = start(section)
    host = vcenter.host("esx1")
    vcenter.running("first", "nvidia_a40-4q", host=host)
    vm = vcenter.clone("ubuntu-22.04-efi", "second", host=host)
    vcenter.give(vm, "nvidia_a40-4q")
    fault = vcenter.refused(on_esx1(vcenter, vm))
    assert isinstance(fault, vim.fault.InsufficientHostMemoryCapacityFault)
    assert fault.requested == 4096 << 20


def test_a_power_state_that_is_there_already_is_refused(vcenter):
    vm = vcenter.vm("app-1")
    assert isinstance(vcenter.refused(vm.PowerOffVM_Task()), vim.fault.InvalidPowerState)
    vcenter.wait(vm.PowerOnVM_Task())
    assert isinstance(vcenter.refused(vm.PowerOnVM_Task()), vim.fault.InvalidPowerState)


def test_a_guest_without_tools_cannot_be_shut_down_and_one_that_hangs_stays_on(start, section):
    section["vms"] = [
        {"name": "bare", "power": "on", "tools": "none"},
        {"name": "stubborn", "power": "on", "ignores_shutdown": True},
    ]
    vcenter = start(section)
    with pytest.raises(vim.fault.ToolsUnavailable):
        vcenter.vm("bare").ShutdownGuest()
    vm = vcenter.vm("stubborn")
    assert vm.guest.toolsRunningStatus == "guestToolsRunning"
    vm.ShutdownGuest()
    assert vm.runtime.powerState == "poweredOn"


def direct_path(vendor, device, label=""):
    kind = vim.vm.device.VirtualPCIPassthrough
    backing = kind.DynamicBackingInfo(
        deviceName="", allowedDevice=[kind.AllowedDevice(vendorId=vendor, deviceId=device)], customLabel=label
    )
    return vim.vm.device.VirtualDeviceSpec(operation="add", device=kind(key=-300, backing=backing))


def test_fact_1_1_a_whole_device_goes_to_one_vm_and_is_shown_as_bound(start, section):
    section["clusters"][0]["hosts"][2]["pci_devices"] = [{"vendor_id": "10de", "device_id": "20f1", "label": "fast"}]
    vcenter = start(section)
    esx3 = vcenter.host("esx3")
    vms = [vcenter.clone("ubuntu-22.04-efi", name, host=esx3) for name in ("a", "b", "c")]
    labels = ("fast", "fast", "slow")
    for vm, label in zip(vms, labels, strict=True):
        vcenter.wait(vcenter.reconfigure(vm, deviceChange=[direct_path(0x10DE, 0x20F1, label)]))
    vcenter.wait(vms[0].PowerOnVM_Task(esx3))
    assert [binding.vm.name for binding in esx3.config.assignableHardwareBinding] == ["a"]
    for vm in vms[1:]:
        assert isinstance(vcenter.refused(vm.PowerOnVM_Task(esx3)), vim.fault.DeviceNotSupported)
    vcenter.wait(vms[0].PowerOffVM_Task())
    assert not esx3.config.assignableHardwareBinding
    vcenter.wait(vms[1].PowerOnVM_Task(esx3))


def test_fact_3_2_a_gpu_given_away_whole_carries_no_vgpus(start, section):
    vcenter = start(one_gpu(section, graphics_type="direct"))
    assert vcenter.host("esx1").config.graphicsInfo[0].graphicsType == "direct"
    assert not vcenter.host("esx1").config.sharedPassthruGpuTypes
