"""vsphere.md 6.1 and 6.2: power-on through DRS, and the dry runs."""

from __future__ import annotations

import pytest
from pyVmomi import vim, vmodl


@pytest.fixture
def full_esx1(vcenter):
    """esx1 runs a vGPU on each GPU that leaves no room for another size."""
    for name in ("x", "y"):
        vcenter.running(name, "nvidia_a40-8q", host=vcenter.host("esx1"))
    return vcenter


def wanting(vcenter, profile, *, locked=True):
    vm = vcenter.clone("ubuntu-22.04-efi", "vm", host=vcenter.host("esx1"))
    vcenter.give(vm, profile, locked=locked)
    return vm


def test_fact_9_6_drs_starts_a_vm_on_another_host_when_its_own_is_full(full_esx1):
    vcenter = full_esx1
    vcenter.control("PUT", "/behaviour", {"drs_task": "returned"})
    vm = wanting(vcenter, "nvidia_a40-4q")
    result = vcenter.power_on_by_drs(vm)
    assert [attempt.vm for attempt in result.attempted] == [vm]
    vcenter.wait(result.attempted[0].task)
    assert vm.runtime.host.name == "esx2"
    assert vm in vcenter.host("esx2").vm
    assert vcenter.vms_per_gpu("esx2") == [["vm"], []]


def test_fact_1_5_the_outer_task_succeeds_though_nothing_was_attempted(full_esx1):
    vcenter = full_esx1
    for name in ("z", "w"):
        vcenter.running(name, "nvidia_a40-8q", host=vcenter.host("esx2"))
    vm = wanting(vcenter, "nvidia_a40-4q")
    result = vcenter.power_on_by_drs(vm)
    assert not result.attempted
    assert [entry.vm for entry in result.notAttempted] == [vm]


def test_fact_9_6_no_compatible_host_says_why_for_each_host(full_esx1):
    vcenter = full_esx1
    vm = wanting(vcenter, "nvidia_a40-4q")
    vcenter.wait(vcenter.host("esx2").EnterMaintenanceMode_Task(0))
    (refused,) = vcenter.power_on_by_drs(vm).notAttempted
    fault = refused.fault
    assert isinstance(fault, vim.fault.NoCompatibleHost)
    reasons = {host.name: error for host, error in zip(fault.host, fault.error, strict=True)}
    assert isinstance(reasons["esx1"], vim.fault.InsufficientGraphicsResourcesFault)
    assert isinstance(reasons["esx2"], vim.fault.InvalidHostState)
    assert isinstance(reasons["esx3"], vim.fault.DeviceNotSupported)
    assert "pinned to the size of nvidia_a40-8q" in reasons["esx1"].msg


def test_fact_9_6_a_vm_that_cannot_boot_fails_in_its_own_task(vcenter):
    vm = wanting(vcenter, "nvidia_a40-4q", locked=False)
    (attempt,) = vcenter.power_on_by_drs(vm).attempted
    # As the API reference has it: a task is only promised for VMs that DRS does not manage.
    assert attempt.task is None
    (task,) = [task for task in vm.recentTask if task.info.descriptionId == "VirtualMachine.powerOn"]
    assert isinstance(vcenter.refused(task), vim.fault.GenericVmConfigFault)


def test_a_plain_power_on_goes_through_drs_as_well(full_esx1):
    vm = wanting(full_esx1, "nvidia_a40-4q")
    full_esx1.wait(vm.PowerOnVM_Task())
    assert vm.runtime.host.name == "esx2"


def test_without_drs_a_vm_starts_where_it_is_or_not_at_all(start, section):
    section["clusters"][0]["drs"] = "off"
    vcenter = start(section)
    vm = vcenter.clone("ubuntu-22.04-efi", "vm", host=vcenter.host("esx3"))
    vcenter.give(vm, "nvidia_a40-4q")
    assert not vcenter.cluster().configurationEx.drsConfig.enabled
    fault = vcenter.refused(vm.PowerOnVM_Task())
    assert isinstance(fault, vim.fault.DeviceNotSupported)
    assert "esx3" in fault.msg


def test_without_drs_the_task_of_each_vm_is_named(start, section):
    section["clusters"][0]["drs"] = "off"
    vcenter = start(section)
    (attempt,) = vcenter.power_on_by_drs(vcenter.vm("app-1")).attempted
    vcenter.wait(attempt.task)
    assert vcenter.vm("app-1").runtime.powerState == "poweredOn"


def test_manual_drs_only_recommends(start, section):
    section["clusters"][0]["drs"] = "manual"
    vcenter = start(section)
    vm = vcenter.vm("app-1")
    result = vcenter.power_on_by_drs(vm)
    assert not result.attempted
    assert result.recommendations[0].action[0].targetHost.name == "esx1"
    assert vm.runtime.powerState == "poweredOff"


def test_a_named_host_outside_the_cluster_is_refused(start, section):
    section["clusters"].append({"name": "other", "hosts": [{"name": "esx9"}]})
    vcenter = start(section)
    fault = vcenter.refused(vcenter.vm("app-1").PowerOnVM_Task(vcenter.host("esx9")))
    assert isinstance(fault, vmodl.fault.InvalidArgument)


def test_fact_1_5_check_power_on_tells_each_host_apart_and_starts_nothing(full_esx1):
    vcenter = full_esx1
    vm = wanting(vcenter, "nvidia_a40-4q")
    checker = vcenter.content.vmCompatibilityChecker
    results = vcenter.wait(checker.CheckPowerOn_Task(vm, None, vcenter.cluster().resourcePool, None))
    assert {result.host.name: bool(result.error) for result in results} == {"esx1": True, "esx2": False, "esx3": True}
    assert vm.runtime.powerState == "poweredOff"
    assert vcenter.vms_per_gpu("esx2") == [[], []]


def test_fact_1_5_check_vm_config_finds_an_unknown_profile(vcenter, spec):
    checker = vcenter.content.vmCompatibilityChecker
    vm = vcenter.vm("app-1")
    for profile, hosts_that_agree in {"nvidia_a40-4q": {"esx1", "esx2"}, "nope": set()}.items():
        wanted = vim.vm.ConfigSpec(deviceChange=[spec.add(profile)])
        results = vcenter.wait(checker.CheckVmConfig_Task(wanted, vm, None, vcenter.cluster().resourcePool, None))
        assert {result.host.name for result in results if not result.error} == hosts_that_agree
    assert not spec.vgpus(vm)


def test_fact_1_5_place_vm_recommends_a_host_with_room(full_esx1, spec):
    vcenter = full_esx1
    wanted = vim.cluster.PlacementSpec(
        placementType="create", configSpec=vim.vm.ConfigSpec(name="new", deviceChange=[spec.add("nvidia_a40-4q")])
    )
    (recommendation,) = vcenter.cluster().PlaceVm(wanted).recommendations
    assert recommendation.action[0].targetHost.name == "esx2"
