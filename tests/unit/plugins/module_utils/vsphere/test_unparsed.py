"""Faults that pyVmomi does not know: their type and their text reach the user, and optional calls are skipped."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import tasks
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Operation, VsphereError, error_from
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.unparsed import faults_in
from pyVmomi import vim, vmodl

UPGRADE = Operation("upgrade the hardware of VM trainer", vm="trainer")
ANSWER = """<Envelope xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><returnval xmlns="urn:vim25"><objects>
<obj type="Task">task-1</obj><propSet><name>info.error</name><val xsi:type="LocalizedMethodFault">{}</val></propSet>
</objects></returnval></Envelope>"""


def fault(xml):
    (found,) = faults_in(ANSWER.format(xml))
    return found


@pytest.mark.parametrize(
    ("xml", "said"),
    [
        (
            '<fault xsi:type="FrobnicationFault"><reason>No frob</reason></fault>'
            "<localizedMessage>*types.FrobnicationFault</localizedMessage>",
            "FrobnicationFault: No frob (VM trainer)",
        ),
        (
            '<fault xsi:type="vim25:Frobnication"/><localizedMessage>The frob is locked.</localizedMessage>',
            "Frobnication: The frob is locked (VM trainer)",
        ),
        (
            '<fault xsi:type="Frobnication"><faultCause><fault xsi:type="SystemErrorFault"><reason>disk full</reason>'
            "</fault><localizedMessage>disk full</localizedMessage></faultCause></fault><localizedMessage/>",
            "Frobnication: disk full (VM trainer)",
        ),
        (
            '<fault xsi:type="Frobnication"><faultMessage><key>a</key><message>first</message></faultMessage>'
            "<faultMessage><key>b</key><message>second</message></faultMessage></fault>",
            "Frobnication: first. second (VM trainer)",
        ),
        ('<fault xsi:type="Frobnication"/>', "it answered Frobnication"),
    ],
)
def test_type_and_text_come_from_the_response(xml, said):
    error = error_from(fault(xml), UPGRADE)
    assert said in f"{error}"
    assert error.code == "vsphere_fault"
    assert not error.certain


def test_a_type_with_the_suffix_is_translated_like_the_one_without():
    xml = '<fault xsi:type="InvalidPowerStateFault"><existingState>poweredOn</existingState></fault>'
    error = error_from(fault(xml), UPGRADE)
    assert (error.code, error.fault) == ("invalid_power_state", "InvalidPowerStateFault")
    assert "VM trainer is powered on" in f"{error}"


@pytest.mark.parametrize(
    "fault",
    [vmodl.fault.MethodNotFound(method="CheckClone_Task"), vmodl.fault.NotSupported(), vmodl.fault.NotImplemented()],
)
def test_what_a_server_does_not_offer_is_skipped_if_optional_and_named_if_not(fault):
    session = object.__new__(Session)
    session.vim, session.vmodl, session.stub = vim, vmodl, SimpleNamespace(cookie="")

    def call():
        raise fault

    assert session.optional(UPGRADE, call) is None
    with pytest.raises(VsphereError, match="upgrade the hardware of VM trainer") as caught:
        session.call(UPGRADE, call)
    assert caught.value.code == "not_supported"
    assert caught.value.certain


def test_other_faults_of_optional_calls_are_not_skipped():
    session = object.__new__(Session)
    session.vim, session.vmodl, session.stub = vim, vmodl, SimpleNamespace(cookie="")

    def call():
        raise vim.fault.NoPermission(privilegeId="System.View")

    with pytest.raises(VsphereError, match=r"System\.View"):
        session.optional(UPGRADE, call)


class _Tasks:
    """A session in which pyVmomi cannot parse the error of the task."""

    vim, vmodl, name_of = vim, vmodl, None

    def __init__(self, *faults):
        self.faults = list(faults)

    def read(self, subject, _references, _paths):
        error = VsphereError("unreadable", code="unreadable_answer")
        error.unreadable = True
        raise error

    def unparsed_faults(self, _subject, _reference, _path):
        return self.faults


@pytest.mark.parametrize("state", ["error", "success"])
def test_a_task_whose_end_pyvmomi_cannot_read_says_why_it_failed(monkeypatch, state):
    task = vim.Task("task-1", None)
    refused = fault('<fault xsi:type="Frobnication"/><localizedMessage>The frob is locked.</localizedMessage>')

    def until(session, subject, references, paths, _done, **_more):
        if "info.error" in paths:
            session.read(subject, references, paths)
        return {task: {"info.state": state}}

    monkeypatch.setattr(tasks.watch, "until", until)
    with pytest.raises(VsphereError, match="Frobnication: The frob is locked"):
        tasks.wait(_Tasks(refused), task, UPGRADE)
    with pytest.raises(VsphereError, match="unreadable"):
        tasks.wait(_Tasks(), task, UPGRADE)
