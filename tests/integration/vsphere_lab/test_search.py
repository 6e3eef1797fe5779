"""The search index finds what there is, and what there is not ends no session (vsphere.md 10.3)."""

from __future__ import annotations

import pytest
from pyVmomi import vim

NOBODY = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize("of_instance", [False, True])
def test_fact_8_4_vms_are_found_by_either_uuid(vcenter, of_instance):
    search, vm = vcenter.content.searchIndex, vcenter.vm("app-2")
    uuid = vm.config.instanceUuid if of_instance else vm.config.uuid
    assert search.FindByUuid(None, uuid, True, of_instance) == vm
    assert search.FindAllByUuid(None, uuid, True, of_instance) == [vm]
    assert search.FindByUuid(None, uuid, True, not of_instance) is None


def test_fact_8_4_templates_and_hosts_are_found_too(vcenter):
    search = vcenter.content.searchIndex
    template, host = vcenter.vm("old-bios"), vcenter.host("esx2")
    assert search.FindByUuid(None, template.config.uuid, True) == template
    assert host in search.FindAllByUuid(None, host.hardware.systemInfo.uuid, False)


def test_what_is_not_there_is_found_by_no_search(vcenter):
    search = vcenter.content.searchIndex
    for vm_search in (True, False):
        assert search.FindByUuid(None, NOBODY, vm_search) is None
        assert not search.FindAllByUuid(None, NOBODY, vm_search)
        assert not search.FindAllByDnsName(None, "nowhere.invalid", vm_search)
        assert not search.FindAllByIp(None, "192.0.2.99", vm_search)
    assert search.FindByDatastorePath(vcenter.datacenter(), "[ds1] nothing/nothing.vmx") is None
    assert search.FindByInventoryPath("dc1/vm/nothing") is None
    # The server is as well as before.
    assert search.FindByInventoryPath("dc1/vm/app-1") == vcenter.vm("app-1")


def test_copies_may_share_the_uuid_of_the_bios(vcenter):
    uuid = vcenter.vm("app-1").config.uuid
    twin = vcenter.clone("ubuntu-22.04-efi", "twin", vim.vm.ConfigSpec(uuid=uuid))
    found = vcenter.content.searchIndex.FindAllByUuid(None, uuid, True, False)
    assert sorted(vm.name for vm in found) == ["app-1", "twin"]
    assert twin.config.instanceUuid != vcenter.vm("app-1").config.instanceUuid


def test_a_datacenter_can_be_in_folders(start, section):
    section["datacenters"] = [
        {"name": section.pop("datacenter"), "folder": "europe/west", "clusters": section.pop("clusters")}
    ]
    for key in ("datastores", "networks", "templates", "vms"):
        section["datacenters"][0][key] = section.pop(key)
    vcenter = start(section)
    assert vcenter.content.searchIndex.FindByInventoryPath("europe/west/dc1/vm/app-1") == vcenter.vm("app-1")
