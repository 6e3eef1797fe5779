"""Finding E: the privileges that the documentation asks for are enough, and each of them is needed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyVmomi import vim

DOCS = Path(__file__).parents[3] / "docs"
VM, HOST = "vsphere_vgpu_vm", "vsphere_gpu_host"
LOOKING = {"System.View", "System.Read"}

EVERYTHING = {
    "name": "trainer",
    "template": "old-bios",
    "cpus": 4,
    "memory_mb": 8192,
    "annotation": "ours",
    "disk_gb": 30,
    "networks": [{"name": "storage"}, {"name": "VM Network"}],
    "cloud_init": {"user_data": "#cloud-config"},
    "storage_policy": "vSAN Default Storage Policy",
    "vgpus": [{"profile": "A40-4Q"}],
    "state": "powered_on",
}
TEMPLATE_CHECK = {
    "name": "workers",
    "template": "ubuntu-22.04-efi",
    "vgpus": [{"profile": "A40-8Q"}],
    "pci_devices": [],
    "machines": 2,
}
PASSED_THROUGH = {"passthrough": [{"vendor_id": "10de", "device_id": "2235"}]}
SHARED_OR_PASSED_THROUGH = (HOST, {"cluster": "gpu", "graphics_type": "shared", **PASSED_THROUGH})
GONE = {"name": "trainer", "state": "absent", "power_cycle": "hard"}


def documented(page):
    text = (DOCS / page).read_text()
    section = text[text.index("## Required privileges") + 3 :].split("\n## ")[0]
    return set(re.findall(r"\b[A-Z]\w+(?:\.[A-Z]\w+)+\b", section))


VM_PRIVILEGES = documented("vsphere-vm.md") - LOOKING
HOST_PRIVILEGES = documented("vsphere-hosts.md") - LOOKING


def user(name, privileges):
    return {"name": f"{name}@vsphere.local", "privileges": sorted(privileges)}


@pytest.fixture
def vcenter(start, section):
    """With one user who has all privileges that the documentation names, and for each of them one who lacks it."""
    section["networks"] = ["VM Network", "storage"]
    section["vms"].append({"name": "origin"})
    everything = VM_PRIVILEGES | HOST_PRIVILEGES
    section["users"] = [user("all", everything), user("none", [])]
    section["users"] += [user(privilege, everything - {privilege}) for privilege in sorted(everything)]
    return start(section)


def as_user(name, module, options):
    return (module, {"username": f"{name}@vsphere.local", **options})


def test_what_the_documentation_asks_for_is_enough(vcenter, playbooks):
    results = playbooks(vcenter).tasks(
        as_user("all", VM, EVERYTHING),
        as_user("all", VM, EVERYTHING),
        as_user("all", VM, {"name": "trainer", "vgpus": [{"profile": "A40-8Q"}], "power_cycle": "soft"}),
        as_user("all", VM, GONE),
        as_user("all", VM, {**EVERYTHING, "template": "origin", "state": "present"}),
        as_user("all", HOST, {"cluster": "gpu", "graphics_type": "shared"}),
        as_user("all", HOST, {"cluster": "gpu", **PASSED_THROUGH}),
    )
    assert not any(result.failed for result in results), [result.message for result in results]


def test_each_privilege_is_needed_and_named_when_it_is_missing(vcenter, playbooks):
    from_vm = {**EVERYTHING, "name": "copy", "template": "origin", "state": "present"}
    cases = dict.fromkeys(sorted(VM_PRIVILEGES), (VM, EVERYTHING))
    cases["VirtualMachine.Provisioning.Clone"] = (VM, from_vm)
    cases["VirtualMachine.Inventory.Delete"] = (VM, {"name": "app-1", "state": "absent", "adopt": True})
    stopped = {"name": "app-2", "cluster": "gpu", "state": "powered_off", "power_cycle": "hard"}
    cases["VirtualMachine.Interact.PowerOff"] = (VM, stopped)
    cases |= dict.fromkeys(sorted(HOST_PRIVILEGES), SHARED_OR_PASSED_THROUGH)
    vcenter.wait(vcenter.vm("app-2").PowerOnVM_Task())
    before = everything(vcenter)
    tried = [as_user(privilege, *case) for privilege, case in cases.items()]
    results = playbooks(vcenter).tasks(*tried)
    for privilege, result in zip(cases, results, strict=True):
        assert result.code == "forbidden", (privilege, result.message)
        assert privilege in result.message
        assert not result.changed
    # Also those that only a later step needs are missed before the first one.
    assert everything(vcenter) == before


def test_e_all_privileges_that_a_clone_lacks_are_named_at_once(vcenter, playbooks):
    vcenter.mark()
    refused = playbooks(vcenter).task(VM, **as_user("none", VM, {**EVERYTHING, "storage_policy": None})[1])
    assert refused.code == "forbidden", refused.message
    named = set(re.findall(r"privilege ([\w.]+) is missing", refused.message))
    # What only the server checks: the datastore and the networks of the template.
    left = {"Datastore.AllocateSpace", "Network.Assign", "StorageProfile.View"}
    others = {
        "VirtualMachine.Provisioning.Clone",
        "VirtualMachine.Inventory.Delete",
        "VirtualMachine.Interact.PowerOff",
    }
    assert named == VM_PRIVILEGES - left - others
    assert "CloneVM_Task" not in vcenter.calls
    assert vcenter.writes == 0


def everything(vcenter):
    """Return all that the refused tasks could have changed."""
    hosts = [
        (host.name, str(host.config.graphicsConfig), str(host.config.pciPassthruInfo))
        for host in vcenter.all(vim.HostSystem)
    ]
    return hosts, {
        vm.name: (str(vm.runtime.powerState), vm.config.changeVersion) for vm in vcenter.all(vim.VirtualMachine)
    }


def test_a_running_vm_is_not_stopped_for_a_change_that_its_user_may_not_make(vcenter, playbooks):
    run = playbooks(vcenter)
    assert run.task(VM, **EVERYTHING).changed
    lacking = ("VirtualMachine.Config.AddRemoveDevice", "VirtualMachine.Interact.PowerOn")
    asked = {"name": "trainer", "vgpus": [{"profile": "A40-8Q"}], "power_cycle": "hard"}
    for privilege, result in zip(lacking, run.tasks(*[as_user(one, VM, asked) for one in lacking]), strict=True):
        assert result.code == "forbidden", result.message
        assert privilege in result.message
        assert not result.changed
    assert str(vcenter.vm("trainer").runtime.powerState) == "poweredOn"


def test_looking_and_check_mode_need_no_more_than_read_only(vcenter, playbooks):
    results = playbooks(vcenter).tasks(
        as_user("none", "vsphere_gpu_info", {}),
        as_user("none", "vgpu_availability", {"platform": "vsphere"}),
        # What the roles for Cluster API ask vCenter themselves.
        as_user("none", "vsphere_template_check", {"cluster": "gpu", "groups": [TEMPLATE_CHECK]}),
        as_user("none", VM, {**EVERYTHING, "storage_policy": None}),
        as_user("none", VM, {"name": "app-1", "vgpus": [{"profile": "A40-4Q"}]}),
        as_user("none", HOST, {"cluster": "gpu", "graphics_type": "shared"}),
        check=True,
    )
    assert not any(result.failed for result in results), [result.message for result in results]
