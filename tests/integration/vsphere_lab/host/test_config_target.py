"""vsphere.md 1.8: what each host says it can give to a VM."""

from __future__ import annotations

import pytest
from pyVmomi import vim


def target_of(vcenter, host=None):
    browser = vcenter.cluster().environmentBrowser
    return browser.QueryConfigTarget(host=vcenter.host(host) if host else None)


def test_fact_9_3_the_target_is_that_of_the_asked_host(start, section):
    section["clusters"][0]["hosts"][1]["gpus"] = [{"board": "L40S"}]
    vcenter = start(section)
    names = {
        host: {info.profileName for info in target_of(vcenter, host).vgpuProfileInfo}
        for host in ("esx1", "esx2", "esx3")
    }
    assert "nvidia_a40-4q" in names["esx1"]
    assert "nvidia_a40-4q" not in names["esx2"]
    assert "nvidia_l40s-4q" in names["esx2"]
    assert names["esx3"] == set()
    assert {info.profileName for info in target_of(vcenter).vgpuProfileInfo} == names["esx1"] | names["esx2"]


def test_fact_1_4_profiles_and_boards_join_by_vendor_and_device_id(vcenter):
    target = target_of(vcenter, "esx1")
    profile = next(info for info in target.vgpuProfileInfo if info.profileName == "nvidia_a40-8c")
    board = target.vgpuDeviceInfo[0]
    assert profile.deviceVendorId == board.deviceVendorId == 0x2235 << 16 | 0x10DE
    assert (profile.fbSizeInGib, profile.profileSharing, profile.profileClass) == (8, "timeSliced", "compute")
    assert (board.deviceName, board.maxFbSizeInGib, board.migCapable) == ("NVIDIA A40", 48, False)


def test_fact_1_4_mig_profiles_are_marked_as_such(start, section):
    section["clusters"][0]["hosts"][0]["gpus"] = [{"board": "A100", "mode": "mig"}]
    target = target_of(start(section), "esx1")
    assert {info.profileSharing for info in target.vgpuProfileInfo} == {"mig"}
    assert target.vgpuDeviceInfo[0].migCapable


def test_fact_9_3_the_config_option_has_the_greatest_number_of_vgpus(vcenter):
    browser = vcenter.cluster().environmentBrowser
    answers = [
        browser.QueryConfigOption(key=None, host=vcenter.host("esx1")),
        browser.QueryConfigOptionEx(vim.EnvironmentBrowser.ConfigOptionQuerySpec(host=vcenter.host("esx1"))),
    ]
    kind = vim.vm.device.VirtualPCIPassthroughOption
    for option in answers:
        pci = next(o for o in option.hardwareOptions.virtualDeviceOption if isinstance(o, kind))
        assert [backing.maxInstances for backing in pci.backingOption] == [8]


@pytest.mark.parametrize(("version", "most"), [("8.0.3", 8), ("7.0.3", 4)])
def test_fact_6_the_greatest_number_depends_on_the_version(start, section, version, most):
    browser = start(section, version).cluster().environmentBrowser
    options = browser.QueryConfigOption(key=None, host=None).hardwareOptions.virtualDeviceOption
    assert options[0].backingOption[0].maxInstances == most


def test_fact_1_4_devices_given_away_whole_are_listed_with_their_label(start, section):
    section["clusters"][0]["hosts"][2]["pci_devices"] = [
        {
            "vendor_id": "10de",
            "device_id": "20f1",
            "vendor_name": "NVIDIA Corporation",
            "device_name": "A100",
            "label": "fast",
        }
    ]
    (device,) = target_of(start(section), "esx3").dynamicPassthrough
    assert (device.vendorId, device.deviceId, device.customLabel) == (0x10DE, 0x20F1, "fast")
    assert not target_of(start(section, "6.7"), "esx3").dynamicPassthrough
