"""vsphere.md 8.1: faults in both forms, slow tasks, and sessions that end."""

from __future__ import annotations

import time
import urllib.error

import pytest
from pyVmomi import vim, vmodl


def test_fact_9_8_a_refusal_arrives_in_the_task_by_default(vcenter, spec):
    task = vcenter.reconfigure(vcenter.vm("app-1"), deviceChange=[spec.add("nope")])
    assert vcenter.states(task)[-1] == "error"
    assert "nope" in task.info.error.msg


def test_fact_9_8_a_refusal_can_arrive_at_once(vcenter, spec):
    vcenter.control("PUT", "/behaviour", {"refusals": "soap"})
    with pytest.raises(vim.fault.InvalidDeviceBacking, match="nope"):
        vcenter.reconfigure(vcenter.vm("app-1"), deviceChange=[spec.add("nope")])


@pytest.mark.parametrize("form", ["task", "soap"])
def test_fact_9_8_any_fault_can_be_ordered_with_its_fields(vcenter, form):
    rule = {
        "method": "ReconfigVM_Task",
        "object": "app-1",
        "fault": "NoPermission",
        "fields": {"privilegeId": "VirtualMachine.Config.AddRemoveDevice"},
        "message": "You may not.",
        "as": form,
        "count": 1,
    }
    vcenter.control("PUT", "/faults", [rule])
    vcenter.wait(vcenter.reconfigure(vcenter.vm("app-2"), annotation="not meant"))
    vm = vcenter.vm("app-1")
    if form == "soap":
        with pytest.raises(vim.fault.NoPermission) as caught:
            vcenter.reconfigure(vm, annotation="x")
        fault = caught.value
    else:
        fault = vcenter.refused(vcenter.reconfigure(vm, annotation="x"))
    assert isinstance(fault, vim.fault.NoPermission)
    assert fault.privilegeId == "VirtualMachine.Config.AddRemoveDevice"
    assert fault.msg == "You may not."
    vcenter.wait(vcenter.reconfigure(vm, annotation="used up"))


def test_fact_9_8_a_read_can_fail_on_order_too(vcenter):
    vcenter.control("PUT", "/faults", [{"method": "QueryConfigTarget", "fault": "NotEnoughLicenses", "as": "soap"}])
    vcenter.control("PUT", "/faults", [])
    vcenter.cluster().environmentBrowser.QueryConfigTarget()
    vcenter.control("PUT", "/faults", [{"method": "FindByUuid", "fault": "NoPermission", "as": "soap"}])
    with pytest.raises(vim.fault.NoPermission, match="denied"):
        vcenter.content.searchIndex.FindByUuid(None, "x", True)


def test_an_unknown_fault_cannot_be_ordered(vcenter):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        vcenter.control("PUT", "/faults", [{"method": "ReconfigVM_Task", "fault": "Nonsense"}])


def test_fact_9_8_slow_tasks_are_queued_then_running_then_done(vcenter):
    vcenter.control("PUT", "/tasks", {"queued_ms": 200, "running_ms": 200})
    began = time.monotonic()
    task = vcenter.reconfigure(vcenter.vm("app-1"), annotation="slow")
    assert vcenter.vm("app-1").config.annotation != "slow"
    assert vcenter.states(task) == ["queued", "running", "success"]
    assert time.monotonic() - began >= 0.4
    assert vcenter.vm("app-1").config.annotation == "slow"


def test_fact_9_8_only_the_chosen_methods_are_slow(vcenter):
    vcenter.control("PUT", "/tasks", {"running_ms": 5000, "methods": ["CloneVM_Task"]})
    began = time.monotonic()
    vcenter.wait(vcenter.reconfigure(vcenter.vm("app-1"), annotation="quick"))
    assert time.monotonic() - began < 2


def test_fact_9_8_two_at_once_with_one_change_version_cannot_both_win(vcenter):
    vcenter.control("PUT", "/tasks", {"running_ms": 100})
    vm = vcenter.vm("app-1")
    tasks = [vcenter.reconfigure(vm, annotation=text, changeVersion=vm.config.changeVersion) for text in "ab"]
    assert sorted(vcenter.states(task)[-1] for task in tasks) == ["error", "success"]


def test_fact_9_8_an_ended_session_is_not_authenticated(vcenter):
    assert vcenter.control("DELETE", "/sessions") == {"expired": 1}
    with pytest.raises(vim.fault.NotAuthenticated):
        vcenter.content.viewManager.CreateContainerView(vcenter.content.rootFolder, [], True)
    with pytest.raises(vim.fault.NotAuthenticated, match="not authenticated"):
        vcenter.content.rootFolder.name  # noqa: B018
    vcenter.instance = vcenter.login()
    assert vcenter.instance.content.rootFolder.name == "Datacenters"


def test_fact_9_8_sessions_can_end_in_the_middle_of_a_run(vcenter):
    vm = vcenter.vm("app-1")
    vcenter.control("PUT", "/sessions", {"expire_after_calls": 3})
    assert vm.name
    assert vm.name
    with pytest.raises(vim.fault.NotAuthenticated, match="not authenticated"):
        vm.name  # noqa: B018


def test_a_wrong_password_is_refused(vcenter):
    with pytest.raises(vim.fault.InvalidLogin):
        vcenter.login(pwd="wrong")


def test_strangers_learn_what_the_server_is_and_nothing_else(vcenter):
    stranger = vim.ServiceInstance("ServiceInstance", vcenter.login()._stub)
    stranger._stub.cookie = ""
    assert stranger.RetrieveContent().about.apiVersion == "8.0.3.0"
    with pytest.raises(vim.fault.NotAuthenticated):
        stranger.content.rootFolder.name  # noqa: B018


def test_fact_5_a_deleted_object_is_named(vcenter):
    vm = vcenter.vm("app-1")
    vcenter.wait(vm.Destroy_Task())
    with pytest.raises(vmodl.fault.ManagedObjectNotFound) as caught:
        vm.PowerOnVM_Task()
    assert caught.value.obj == vm
