"""The reader of responses and pyVmomi's parser on the whole inventory of a vCenter: the same hosts and VMs."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read import inventory
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session


@pytest.mark.parametrize("version", ["6.7", "7.0.3", "8.0.3", "9.1"])
def test_both_readers_find_the_same(start, section, version, monkeypatch):
    holder = {"memory_locked": True, "power": "on", "host": "esx1"}
    section["vms"] += [
        {**holder, "name": "one < two & three", "vgpus": ["nvidia_a40-8q"]},
        {**holder, "name": "drawing", "host": "esx2", "vsga": True},
        {"name": "later", "host": "esx1", "vgpus": ["nvidia_a40-8q"] * 2},
        {"name": "plain-{n}", "count": 20, "host": "esx2"},
    ]
    vcenter = start(section, version)
    params = {
        "hostname": vcenter.env["VMWARE_HOST"],
        "port": int(vcenter.env["VMWARE_PORT"]),
        "username": vcenter.env["VMWARE_USER"],
        "password": vcenter.env["VMWARE_PASSWORD"],
        "validate_certs": False,
    }
    with Session.open(params) as session:
        vcenter.mark()
        here = inventory.read(session)
        # Nothing was left to pyVmomi, which would have asked again.
        assert vcenter.calls["RetrievePropertiesEx"] == 2
        monkeypatch.setattr(
            inventory, "collect", lambda session, subject, filters, _ids: session.collect(subject, *filters)
        )
        by_pyvmomi = inventory.read(session)
    assert here == by_pyvmomi
    assert [vm.reference for vm in here.vms] == [vm.reference for vm in by_pyvmomi.vms]
    assert {host.graphics_manager for host in here.hosts} == {host.graphics_manager for host in by_pyvmomi.hosts}
    assert len(here.vms) > 20
    assert sorted(vm.name for vm in here.vms if vm.vgpus) == ["later", "one < two & three"]
    assert [vm.name for vm in here.vms if vm.vsga] == ["drawing"]
