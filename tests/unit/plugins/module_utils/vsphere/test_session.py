"""A13: sessions that end during a read or a wait, and faults that pyVmomi cannot read."""

from __future__ import annotations

import io
from threading import Lock
from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import tasks, waiting
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Operation, VsphereError
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from pyVmomi import SoapAdapter, vim, vmodl

READ = Operation("read VM trainer", vm="trainer")
VM = vim.VirtualMachine("vm-7", None)
ENDED = vim.fault.NotAuthenticated(privilegeId="System.Read")

SOAP_FAULT = """<?xml version="1.0"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"
  xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body><soapenv:Fault>
<faultcode>ServerFaultCode</faultcode><faultstring>The frobnicator is locked</faultstring>
<detail><{name}Fault xmlns="urn:vim25" xsi:type="{name}"></{name}Fault></detail>
</soapenv:Fault></soapenv:Body></soapenv:Envelope>"""


class Collector:
    """A property collector whose answers are given. A fault among them is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.filters = 0

    def _answer(self, *_args):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    RetrievePropertiesEx = ContinueRetrievePropertiesEx = WaitForUpdatesEx = _answer

    def CreateFilter(self, *_args):  # noqa: N802
        self.filters += 1
        return SimpleNamespace(Destroy=lambda: None)


def session(*answers):
    made = object.__new__(Session)
    made.vim, made.vmodl, made._lock, made.logins = vim, vmodl, Lock(), 0
    made.content = SimpleNamespace(propertyCollector=Collector(*answers))
    made.stub = SimpleNamespace(cookie="first")

    def login(_content):
        made.logins += 1
        made.stub.cookie = f"login {made.logins}"

    made._login = login
    return made


def page(token=None, missing=(), **properties):
    changes = [SimpleNamespace(name=name, val=value) for name, value in properties.items()]
    absent = [SimpleNamespace(path="name", fault=fault) for fault in missing]
    return SimpleNamespace(token=token, objects=[SimpleNamespace(obj=VM, propSet=changes, missingSet=absent)])


def update(version, missing=(), **properties):
    changes = [SimpleNamespace(name=name, val=value) for name, value in properties.items()]
    absent = [SimpleNamespace(path="name", fault=fault) for fault in missing]
    entry = SimpleNamespace(obj=VM, changeSet=changes, missingSet=absent)
    return SimpleNamespace(version=version, filterSet=[SimpleNamespace(objectSet=[entry])])


def test_a_read_logs_in_again_if_the_properties_are_missing_for_want_of_a_session():
    vcenter = session(page(missing=[ENDED]), page(name="trainer"))
    assert vcenter.read(READ, [VM], ["name"]) == [(VM, {"name": "trainer"})]
    assert vcenter.logins == 1


def test_a_read_in_pages_begins_again_after_a_login():
    vcenter = session(page(token="2", name="a"), ENDED, page(token="2", name="a"), page(name="b"))
    assert [properties["name"] for _vm, properties in vcenter.read(READ, [VM], ["name"])] == ["a", "b"]
    assert vcenter.logins == 1


def test_a_read_that_is_not_permitted_is_refused_without_a_login():
    vcenter = session(page(missing=[vim.fault.NoPermission(privilegeId="System.Read")]))
    with pytest.raises(VsphereError, match=r"System\.Read") as caught:
        vcenter.read(READ, [VM], ["name"])
    assert (caught.value.code, vcenter.logins) == ("forbidden", 0)


def test_a_session_that_cannot_be_kept_is_an_error():
    with pytest.raises(VsphereError) as caught:
        session(page(missing=[ENDED]), page(missing=[ENDED])).read(READ, [VM], ["name"])
    assert caught.value.code == "session_ended"


@pytest.mark.parametrize("ended", [ENDED, update("2", missing=[ENDED])], ids=["fault", "missing set"])
def test_a_wait_creates_its_filter_again_after_a_login(ended):
    vcenter = session(update("1", state="running"), ended, update("1", state="success"))
    seen = waiting.until_holds(vcenter, READ, VM, ["state"], lambda vm: vm.get("state") == "success", timeout=60)
    assert seen == {"state": "success"}
    assert (vcenter.logins, vcenter.content.propertyCollector.filters) == (1, 2)


def test_a_wait_creates_its_filter_again_if_another_thread_has_logged_in():
    vcenter = session(update("1", state="running"), update("1", state="success"))

    def done(vm):
        vcenter.stub.cookie = "of another thread"
        return vm.get("state") == "success"

    assert waiting.until_holds(vcenter, READ, VM, ["state"], done, timeout=60) == {"state": "success"}
    assert (vcenter.logins, vcenter.content.propertyCollector.filters) == (0, 2)


@pytest.mark.parametrize("ended", [ENDED, update("1", missing=[ENDED])], ids=["fault", "missing set"])
def test_a_wait_ends_after_two_logins_without_an_update(ended):
    vcenter = session(*[ended] * 9)
    with pytest.raises(VsphereError) as caught:
        waiting.until_holds(vcenter, READ, VM, ["state"], bool, timeout=60)
    assert (caught.value.code, vcenter.logins) == ("session_ended", 2)


def test_a_wait_may_log_in_more_often_if_updates_arrive_between_the_logins():
    answers = [answer for _number in range(4) for answer in (update("1", state="running"), ENDED)]
    vcenter = session(*answers, update("1", state="success"))
    seen = waiting.until_holds(vcenter, READ, VM, ["state"], lambda vm: vm.get("state") == "success", timeout=60)
    assert (seen, vcenter.logins) == ({"state": "success"}, 4)


def test_a_wait_does_not_log_in_after_its_deadline():
    vcenter = session(*[ENDED] * 9)
    with pytest.raises(VsphereError) as caught:
        waiting.until_holds(vcenter, READ, VM, ["state"], bool, timeout=0)
    assert (caught.value.code, vcenter.logins) == ("session_ended", 0)


def test_a_wait_without_time_reads_once_even_if_its_filter_needed_a_login():
    vcenter = session(update("1", state="success"))
    collector, create = vcenter.content.propertyCollector, vcenter.content.propertyCollector.CreateFilter

    def ended_once(*args):
        if not vcenter.logins:
            raise ENDED
        return create(*args)

    collector.CreateFilter = ended_once
    seen = waiting.until_holds(vcenter, READ, VM, ["state"], lambda vm: vm.get("state") == "success", timeout=0)
    assert (seen, vcenter.logins) == ({"state": "success"}, 1)


def test_a_wait_ends_at_its_deadline_even_before_the_first_update():
    vcenter = session(None)
    assert waiting.until_holds(vcenter, READ, VM, ["state"], bool, timeout=0) is None
    assert vcenter.content.propertyCollector.answers == []


def test_a_filter_that_was_created_while_another_thread_logged_in_is_created_again():
    vcenter = session(update("1", state="success"))
    collector, create = vcenter.content.propertyCollector, vcenter.content.propertyCollector.CreateFilter

    def overtaken(*args):
        collector.CreateFilter = create
        made = create(*args)
        vcenter.stub.cookie = "of another thread"
        return made

    collector.CreateFilter = overtaken
    assert waiting.until_holds(vcenter, READ, VM, ["state"], bool, timeout=60) == {"state": "success"}
    assert (vcenter.logins, collector.filters) == (0, 2)


def test_a_task_whose_progress_cannot_be_read_may_still_succeed():
    vcenter = session(update("1", missing=[vim.fault.NoPermission(privilegeId="System.Read")]))
    with pytest.raises(VsphereError) as caught:
        tasks.wait(vcenter, VM, READ)
    assert (caught.value.code, caught.value.certain) == ("forbidden", False)


def test_the_fault_of_a_task_itself_is_certain():
    refused = vim.fault.NoPermission(privilegeId="VirtualMachine.Interact.PowerOn")
    vcenter = session(update("1", **{"info.state": "error", "info.error": refused}))
    with pytest.raises(VsphereError) as caught:
        tasks.wait(vcenter, VM, READ)
    assert (caught.value.code, caught.value.certain) == ("forbidden", True)


def test_a_fault_that_pyvmomi_does_not_know_keeps_its_name_and_its_text():
    stub = SoapAdapter.SoapStubAdapter(version="vim.version.version9")
    body = io.BytesIO(SOAP_FAULT.format(name="FrobnicatorLocked").encode())

    def call():
        SoapAdapter.SoapResponseDeserializer(stub).Deserialize(body, None)

    with pytest.raises(VsphereError) as caught:
        session().call(READ, call)
    assert caught.value.message == (
        "vCenter refused to read VM trainer: FrobnicatorLocked: The frobnicator is locked (VM trainer)."
    )
    assert caught.value.as_dict()["fault"] == "FrobnicatorLocked"
    assert not caught.value.certain


def test_a_key_error_of_our_own_is_a_bug_and_no_fault():
    with pytest.raises(KeyError):
        session().call(READ, {}.__getitem__, "x")
