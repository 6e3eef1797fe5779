"""vsphere.md 13: API 8.0.3, and 7.0.3 and 6.7 to test the fall-backs."""

from __future__ import annotations

import pytest
from pyVmomi import vim, vmodl

VERSIONS = {"8.0.3": "8.0.3.0", "7.0.3": "7.0.3.0", "6.7": "6.7"}


@pytest.mark.parametrize("version", VERSIONS)
def test_fact_9_1_each_version_says_what_it_is_and_clients_negotiate_it(start, section, version):
    vcenter = start(section, version)
    assert vcenter.content.about.apiVersion == VERSIONS[version]
    assert vcenter.host("esx1").config.product.version.startswith(version)


@pytest.mark.parametrize("version", VERSIONS)
def test_fact_9_1_every_object_can_be_read_as_a_whole(start, section, version):
    """pyVmomi dies on a type it has not negotiated, and on an empty enumeration."""
    vcenter = start(section, version)
    vcenter.running("vm", "nvidia_a40-4q")
    unknown_to_the_version = (vmodl.fault.MethodNotFound, vmodl.query.InvalidProperty)
    for entity in vcenter.all(vim.ManagedEntity):
        for property_ in entity._GetPropertyList():
            try:
                getattr(entity, property_.name)
            except unknown_to_the_version:
                continue


def test_fact_9_1_fields_newer_than_the_version_are_left_out(start, section, spec):
    shown = {}
    for version in VERSIONS:
        vcenter = start(section, version)
        vm = vcenter.vm("app-1")
        vcenter.give(vm, "nvidia_a40-4q")
        backing = spec.vgpus(vm)[0].backing
        shown[version] = (backing.migrateSupported, backing.vgpuMigrateDataSizeMB)
    assert shown == {"8.0.3": (True, 4096), "7.0.3": (True, None), "6.7": (None, None)}


def test_fact_9_1_templates_have_modern_and_old_hardware(vcenter):
    shown = {
        vm.name: (vm.config.version, vm.config.firmware, vm.config.template) for vm in vcenter.all(vim.VirtualMachine)
    }
    assert shown["ubuntu-22.04-efi"] == ("vmx-19", "efi", True)
    assert shown["old-bios"] == ("vmx-13", "bios", True)
    assert shown["app-1"] == ("vmx-19", "efi", False)


def test_fact_9_1_an_old_vcenter_has_no_newer_hardware_versions(start, section):
    assert start(section, "6.7").vm("app-1").config.version == "vmx-14"


def test_fact_6_profile_details_came_with_7_0_3(start, section):
    for version, known in {"8.0.3": True, "7.0.3": True, "6.7": False}.items():
        vcenter = start(section, version)
        host = vcenter.host("esx1")
        target = host.parent.environmentBrowser.QueryConfigTarget(host=host)
        assert "nvidia_a40-4q" in {entry.vgpu for entry in target.sharedGpuPassthroughTypes}
        assert bool(target.vgpuProfileInfo) is known


def test_fact_6_vgpu_mode_came_with_8_0_3(start, section):
    modes = {
        version: start(section, version).host("esx1").config.graphicsInfo[0].vgpuMode for version in ("8.0.3", "7.0.3")
    }
    assert modes == {"8.0.3": "sameSize", "7.0.3": None}


def test_fact_8_1_unset_properties_read_as_nothing(vcenter):
    """govmomi alone answers such a read in a form that pyVmomi cannot parse."""
    vm = vcenter.vm("app-1")
    assert vm.snapshot is None
    assert vm.parentVApp is None
    assert vcenter.vm("old-bios").resourcePool is None
