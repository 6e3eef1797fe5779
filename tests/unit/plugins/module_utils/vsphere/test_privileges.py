"""The check of privileges before a task names all that is missing, and never fails a task by itself."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import privileges
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import VsphereError
from pyVmomi import vim

ON, OFF = "VirtualMachine.Interact.PowerOn", "VirtualMachine.Interact.PowerOff"
VM = vim.VirtualMachine("vm-1", None)


class Session:
    """A session whose user has the given privileges, or whose server answers with a fault."""

    def __init__(self, *held, fault=None):
        self.held, self.fault, self.asked = held, fault, 0
        manager = SimpleNamespace(HasPrivilegeOnEntities=self.answer)
        self.content = SimpleNamespace(authorizationManager=manager, sessionManager=None)
        self.user_session = SimpleNamespace(key="1", userName="ann")

    def call(self, _subject, method, *args):
        return method(*args)

    def answer(self, entities, _key, asked):
        self.asked += 1
        if self.fault:
            raise self.fault
        shown = [SimpleNamespace(privId=one, isGranted=one in self.held) for one in asked]
        return [SimpleNamespace(entity=entity, privAvailability=shown) for entity in entities]

    def name_of(self, _reference):
        return "trainer"


def test_all_missing_privileges_are_named_with_their_object_and_user():
    with pytest.raises(VsphereError) as caught:
        privileges.require(Session(), {VM: [ON, OFF]})
    assert caught.value.code == "forbidden"
    for said in (ON, OFF, "trainer", "ann", "Nothing was changed"):
        assert said in caught.value.message


def test_a_user_with_all_of_them_goes_on():
    privileges.require(Session(ON, OFF), {VM: [ON, OFF]})


@pytest.mark.parametrize("code", ["not_supported", "vsphere_fault", "session_ended"])
def test_a_server_that_does_not_tell_is_left_to_refuse_itself(code):
    session = Session(fault=VsphereError("no", code=code))
    privileges.require(session, {VM: [ON]})
    assert session.asked == 1


def test_nothing_is_asked_for_nothing():
    session = Session()
    privileges.require(session, {VM: []})
    assert session.asked == 0
