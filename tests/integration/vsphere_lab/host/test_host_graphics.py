"""vsphere.md 1.5 and 2.2: GPU hosts, and the graphics manager that configures them."""

from __future__ import annotations

import time

import pytest
from pyVmomi import vim, vmodl

FIRST = "0000:3b:00.0"


def configure(host, *, default="sharedDirect", policy="performance", devices=()):
    host.configManager.graphicsManager.UpdateGraphicsConfig(
        vim.host.GraphicsConfig(
            hostDefaultGraphicsType=default,
            sharedPassthruAssignmentPolicy=policy,
            deviceType=[vim.host.GraphicsConfig.DeviceType(**device) for device in devices],
        )
    )


def restart_xorg(host):
    host.configManager.serviceSystem.RestartService("xorg")


def active(host):
    return [gpu.graphicsType for gpu in host.config.graphicsInfo]


def configured(host):
    return [device.graphicsType for device in host.config.graphicsConfig.deviceType]


def test_fact_9_2_a_gpu_host_shows_its_boards_as_pci_devices(vcenter):
    boards = [device for device in vcenter.host("esx1").hardware.pciDevice if device.vendorId == 0x10DE]
    assert [device.deviceId for device in boards] == [0x2235, 0x2235]
    assert [device.id for device in boards] == [gpu.pciId for gpu in vcenter.host("esx1").config.graphicsInfo]


def test_fact_9_2_pci_ids_are_signed_shorts(start, section):
    section["clusters"][0]["hosts"][2]["pci_devices"] = [{"vendor_id": "15b3", "device_id": "a2dc"}]
    device = next(d for d in start(section).host("esx3").hardware.pciDevice if d.vendorId == 0x15B3)
    assert device.deviceId == 0xA2DC - 0x10000


def test_fact_9_2_gpus_report_type_mode_and_a_little_less_than_their_nominal_memory(vcenter):
    gpu = vcenter.host("esx1").config.graphicsInfo[0]
    assert (gpu.deviceName, gpu.graphicsType, gpu.vgpuMode) == ("NVIDIA A40", "sharedDirect", "sameSize")
    assert 0 < 48 * 1024 * 1024 - gpu.memorySizeInKB < 1024 * 1024


def test_fact_9_2_a_host_offers_the_real_profiles_of_its_board(vcenter):
    config = vcenter.host("esx1").config
    assert {"nvidia_a40-1b", "nvidia_a40-4q", "nvidia_a40-48c"} <= set(config.sharedPassthruGpuTypes)
    assert [entry.vgpu for entry in config.sharedGpuCapabilities] == list(config.sharedPassthruGpuTypes)


def test_fact_9_2_a_host_without_gpus_offers_nothing(vcenter):
    config = vcenter.host("esx3").config
    assert not config.graphicsInfo
    assert not config.sharedPassthruGpuTypes
    assert config.graphicsConfig.hostDefaultGraphicsType == "shared"


def test_fact_9_2_the_graphics_manager_shows_what_the_host_shows(vcenter):
    host = vcenter.host("esx1")
    manager = host.configManager.graphicsManager
    manager.Refresh()
    assert [gpu.pciId for gpu in manager.graphicsInfo] == [gpu.pciId for gpu in host.config.graphicsInfo]
    assert list(manager.sharedPassthruGpuTypes) == list(host.config.sharedPassthruGpuTypes)
    assert manager.RetrieveVgpuDeviceInfo()[0].maxFbSizeInGib == 48
    assert {info.profileName for info in manager.RetrieveVgpuProfileInfo()} == set(host.config.sharedPassthruGpuTypes)


def test_fact_9_2_a_new_graphics_type_is_pending_until_xorg_restarts(vcenter):
    host = vcenter.host("esx1")
    configure(host, devices=[{"deviceId": FIRST, "graphicsType": "shared"}])
    assert configured(host) == ["shared", "sharedDirect"]
    assert active(host) == ["sharedDirect", "sharedDirect"]
    restart_xorg(host)
    assert active(host) == ["shared", "sharedDirect"]


def test_fact_9_2_the_default_type_is_for_devices_that_are_not_named(vcenter):
    host = vcenter.host("esx1")
    configure(host, default="shared")
    restart_xorg(host)
    assert active(host) == ["shared", "shared"]
    assert not host.config.sharedPassthruGpuTypes


def test_fact_9_2_a_restart_of_xorg_leaves_gpus_in_use_alone_and_a_reboot_finishes(vcenter):
    host = vcenter.host("esx1")
    vm = vcenter.running("vm", "nvidia_a40-4q", host=host)
    configure(host, default="shared")
    restart_xorg(host)
    assert active(host) == ["sharedDirect", "shared"]
    vcenter.wait(vm.PowerOffVM_Task())
    vcenter.wait(host.EnterMaintenanceMode_Task(0))
    vcenter.wait(host.RebootHost_Task(force=False))
    assert active(host) == ["shared", "shared"]


def test_fact_9_2_the_vgpu_mode_is_set_per_device(vcenter):
    host = vcenter.host("esx1")
    configure(host, devices=[{"deviceId": FIRST, "graphicsType": "sharedDirect", "vgpuMode": "mixedSize"}])
    restart_xorg(host)
    assert [gpu.vgpuMode for gpu in host.config.graphicsInfo] == ["mixedSize", "sameSize"]


def test_fact_9_2_the_assignment_policy_is_in_force_at_once(vcenter):
    host = vcenter.host("esx1")
    configure(host, policy="consolidation")
    assert host.config.graphicsConfig.sharedPassthruAssignmentPolicy == "consolidation"
    for name in ("a", "b"):
        vcenter.running(name, "nvidia_a40-4q", host=host)
    assert vcenter.vms_per_gpu("esx1") == [["a", "b"], []]


@pytest.mark.parametrize(
    "wrong",
    [
        {"policy": "random"},
        {"default": "direct"},
        {"devices": [{"deviceId": "0000:ff:00.0", "graphicsType": "shared"}]},
        {"devices": [{"deviceId": FIRST, "graphicsType": "shiny"}]},
    ],
)
def test_fact_9_2_a_wrong_configuration_is_refused_and_changes_nothing(vcenter, wrong):
    host = vcenter.host("esx1")
    with pytest.raises(vmodl.fault.InvalidArgument):
        configure(host, **wrong)
    assert configured(host) == ["sharedDirect", "sharedDirect"]


def test_fact_4_3_without_the_driver_there_are_gpus_but_no_profiles(start, section):
    section["clusters"][0]["hosts"][0]["driver"] = False
    config = start(section).host("esx1").config
    assert len(config.graphicsInfo) == 2
    assert not config.sharedPassthruGpuTypes


def test_services_can_be_stopped_and_an_unknown_one_is_refused(vcenter):
    services = vcenter.host("esx1").configManager.serviceSystem
    services.StopService("xorg")
    assert not next(s for s in services.serviceInfo.service if s.key == "xorg").running
    with pytest.raises(vim.fault.NotFound):
        services.RestartService("nothing")


@pytest.mark.parametrize("behaviour", ["on_refresh", "never"])
def test_the_list_of_vms_on_a_gpu_can_be_behind_until_it_is_refreshed(vcenter, behaviour):
    vcenter.running("before", "nvidia_a40-8q", host=vcenter.host("esx1"))
    vcenter.control("PUT", "/behaviour", {"graphics_info": behaviour})
    vcenter.running("after", "nvidia_a40-8q", host=vcenter.host("esx1"))
    assert vcenter.vms_per_gpu("esx1") == [["before"], []]
    vcenter.host("esx1").configManager.graphicsManager.Refresh()
    assert vcenter.vms_per_gpu("esx1") == [["before"], ["after"] if behaviour == "on_refresh" else []]


def test_the_list_of_vms_on_a_gpu_can_come_later(vcenter):
    vcenter.control("PUT", "/behaviour", {"graphics_info": "delayed", "graphics_delay_ms": 300})
    vcenter.running("vm", "nvidia_a40-8q", host=vcenter.host("esx1"))
    assert vcenter.vms_per_gpu("esx1") == [[], []]
    deadline = time.monotonic() + 10
    while vcenter.vms_per_gpu("esx1") != [["vm"], []]:
        assert time.monotonic() < deadline
