"""vsphere.md 9: users who may do less than the administrator are told which privilege is missing, and on what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyVmomi import vim

GO = Path(__file__).parents[3] / "lab/go/vsphere/privileges.go"


@pytest.fixture
def start_as(start, section):
    """A vCenter, seen with the rights of another user."""

    def start_as(*privileges):
        section["users"] = [{"name": "operator@vsphere.local", "privileges": list(privileges)}]
        section["vms"].append({"name": "running", "host": "esx1", "power": "on"})
        vcenter = start(section)
        vcenter.instance = vcenter.login(user="operator@vsphere.local")
        vcenter.content = vcenter.instance.RetrieveContent()
        return vcenter

    return start_as


def reconfigure(**fields):
    return lambda vcenter, _spec: vcenter.reconfigure(vcenter.vm("app-1"), **fields)


def clone(vcenter, name="new", source="ubuntu-22.04-efi"):
    return vcenter.clone_task(source, name)


CALLS = {
    "VirtualMachine.Config.CPUCount": reconfigure(numCPUs=4),
    "VirtualMachine.Config.Memory": reconfigure(memoryMB=8192),
    "VirtualMachine.Config.Annotation": reconfigure(annotation="x"),
    "VirtualMachine.Config.Resource": reconfigure(memoryReservationLockedToMax=True),
    "VirtualMachine.Config.AdvancedConfig": reconfigure(extraConfig=[vim.option.OptionValue(key="a", value="b")]),
    "VirtualMachine.Config.AddRemoveDevice": lambda v, spec: v.reconfigure(
        v.vm("app-1"), deviceChange=[spec.add("nvidia_a40-4q")]
    ),
    "VirtualMachine.Config.UpgradeVirtualHardware": lambda v, _spec: v.vm("app-1").UpgradeVM_Task("vmx-20"),
    "VirtualMachine.Interact.PowerOn": lambda v, _spec: v.vm("app-1").PowerOnVM_Task(),
    "VirtualMachine.Interact.PowerOff": lambda v, _spec: v.vm("running").PowerOffVM_Task(),
    "VirtualMachine.Inventory.Delete": lambda v, _spec: v.vm("app-1").Destroy_Task(),
    "VirtualMachine.Provisioning.Clone": lambda v, _spec: clone(v, source="app-1"),
}


@pytest.mark.parametrize("privilege", CALLS)
def test_fact_1_6_a_call_needs_its_privilege(start_as, spec, privilege):
    vcenter = start_as()
    with pytest.raises(vim.fault.NoPermission, match="denied") as caught:
        CALLS[privilege](vcenter, spec)
    assert caught.value.privilegeId == privilege
    assert caught.value.object.name in ("app-1", "running")


def test_fact_1_6_power_on_through_drs_needs_the_privilege_on_the_datacenter_too(start_as):
    vcenter = start_as()
    with pytest.raises(vim.fault.NoPermission) as caught:
        vcenter.power_on_by_drs(vcenter.vm("app-2"))
    assert caught.value.privilegeId == "VirtualMachine.Interact.PowerOn"
    assert caught.value.object == vcenter.datacenter()


CLONING = {
    "VirtualMachine.Provisioning.DeployTemplate": "ubuntu-22.04-efi",
    "VirtualMachine.Inventory.CreateFromExisting": "vm",
    "VirtualMachine.Config.AddNewDisk": "vm",
    "Network.Assign": "VM Network",
    "Resource.AssignVMToPool": "Resources",
    "Datastore.AllocateSpace": "ds1",
}


def test_fact_1_6_a_clone_needs_privileges_on_all_that_it_touches(start_as):
    vcenter = start_as(*CLONING)
    vcenter.wait(clone(vcenter))


@pytest.mark.parametrize("missing", CLONING)
def test_fact_1_6_each_of_them_is_named_with_its_object(start_as, missing):
    vcenter = start_as(*CLONING.keys() - {missing})
    with pytest.raises(vim.fault.NoPermission) as caught:
        clone(vcenter)
    assert (caught.value.privilegeId, caught.value.object.name) == (missing, CLONING[missing])


def test_fact_1_6_cards_and_disks_of_a_clone_need_more(start_as):
    vcenter = start_as(*CLONING)
    devices = vcenter.vm("ubuntu-22.04-efi").config.hardware.device
    card = next(device for device in devices if isinstance(device, vim.vm.device.VirtualEthernetCard))
    disk = next(device for device in devices if isinstance(device, vim.vm.device.VirtualDisk))
    for device, missing in ((card, "VirtualMachine.Config.EditDevice"), (disk, "VirtualMachine.Config.DiskExtend")):
        change = vim.vm.device.VirtualDeviceSpec(operation="edit", device=device)
        with pytest.raises(vim.fault.NoPermission) as caught:
            vcenter.clone_task("ubuntu-22.04-efi", "new", vim.vm.ConfigSpec(deviceChange=[change]))
        assert caught.value.privilegeId == missing


def test_fact_1_6_hosts_need_their_own(start_as):
    vcenter = start_as()
    manager = vcenter.host("esx1").configManager
    with pytest.raises(vim.fault.NoPermission) as caught:
        manager.graphicsManager.UpdateGraphicsConfig(vcenter.host("esx1").config.graphicsConfig)
    assert caught.value.privilegeId == "Host.Config.Settings"
    with pytest.raises(vim.fault.NoPermission) as caught:
        manager.serviceSystem.RestartService("xorg")
    assert caught.value.privilegeId == "Host.Config.NetService"


def test_a_user_without_privileges_may_look_and_try_out(start_as, spec):
    vcenter = start_as()
    assert vcenter.vm("app-1").config.hardware.numCPU == 2
    wanted = vim.vm.ConfigSpec(deviceChange=[spec.add("nvidia_a40-4q")])
    checker = vcenter.content.vmCompatibilityChecker
    results = vcenter.wait(checker.CheckVmConfig_Task(wanted, vcenter.vm("app-1"), None, None, None))
    assert not results[0].error


def test_a_session_is_told_its_own_privileges(start_as):
    vcenter = start_as("VirtualMachine.Interact.PowerOn")
    manager, key = vcenter.content.authorizationManager, vcenter.content.sessionManager.currentSession.key
    asked = ["VirtualMachine.Interact.PowerOn", "VirtualMachine.Interact.PowerOff"]
    (answer,) = manager.HasPrivilegeOnEntities([vcenter.vm("app-1")], key, asked)
    assert [one.isGranted for one in answer.privAvailability] == [True, False]


def test_an_unknown_user_is_not_let_in(vcenter):
    with pytest.raises(vim.fault.InvalidLogin):
        vcenter.login(user="operator@vsphere.local")


def test_the_table_of_methods_agrees_with_that_of_pyvmomi():
    table = dict(re.findall(r'^\t"(\w+)": +"([\w.]+)",$', GO.read_text(), re.MULTILINE))
    known = {
        info.wsdlName: info.privId
        for kind in (vim.VirtualMachine, vim.host.GraphicsManager, vim.host.ServiceSystem, vim.host.PciPassthruSystem)
        for info in kind._methodInfo.values()
    }
    assert len(table) == 10
    assert {method: known[method] for method in table} == table
