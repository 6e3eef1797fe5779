"""Waiting for vCenter: how long it may take, and what is shown meanwhile."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils import progress
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import tasks, waiting
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Operation, VsphereError, error_from
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from pyVmomi import vim, vmodl

PATIENCE_SECONDS = 60


class Screen:
    """Where progress is shown; tests wait for its first line."""

    def __init__(self):
        self.lines = []
        self.written = threading.Event()

    def write(self, line):
        self.lines.append(line)
        self.written.set()

    def flush(self):
        pass


@pytest.fixture
def screen(monkeypatch):
    for name in ("FIRST_SECONDS", "CHANGE_SECONDS"):
        monkeypatch.setattr(progress, name, 0.0)
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.001)
    screen = Screen()
    progress.open_stream(screen)
    yield screen
    progress.open_stream(None)


def session(answer):
    """A session whose vCenter has one VM, of which `answer` returns the power state."""

    class Ended(Exception):
        pass

    def changes(version, _options):
        change = SimpleNamespace(name="power", val=answer())
        entry = SimpleNamespace(obj="vm-1", changeSet=[change], missingSet=[])
        return SimpleNamespace(version=f"{version}+", filterSet=[SimpleNamespace(objectSet=[entry])])

    collector = SimpleNamespace(
        CreateFilter=lambda _wanted, _partial: SimpleNamespace(Destroy=lambda: None), WaitForUpdatesEx=changes
    )
    return SimpleNamespace(
        content=SimpleNamespace(propertyCollector=collector),
        stub=SimpleNamespace(cookie="session-1"),
        raise_refusal=lambda _missing: None,
        objects_filter=lambda _references, _paths: None,
        call=lambda _subject, method, *arguments: method(*arguments),
        vim=SimpleNamespace(fault=SimpleNamespace(NotAuthenticated=Ended)),
        vmodl=SimpleNamespace(
            query=SimpleNamespace(PropertyCollector=SimpleNamespace(WaitOptions=lambda **options: options))
        ),
    )


def wait(vcenter, *, timeout=900.0):
    operation = Operation("power on VM trainer", vm="trainer")
    return waiting.until_holds(
        vcenter, operation, "vm-1", ["power"], lambda seen: seen.get("power") == "on", timeout=timeout
    )


def test_u8_a_wait_for_vcenter_shows_what_it_waits_for_and_the_time_that_is_left(screen):
    def answer():
        assert screen.written.wait(PATIENCE_SECONDS)
        return "on"

    assert wait(session(answer)) == {"power": "on"}
    assert screen.lines[0].startswith("waiting for vCenter to power on VM trainer (14:5")
    assert screen.lines[0].endswith(" min left)\n")


def test_nothing_is_shown_where_nobody_reads_it():
    assert wait(session(lambda: "on")) == {"power": "on"}


def test_a_wait_ends_when_its_time_is_over():
    assert wait(session(lambda: "off"), timeout=0.0) is None


def test_a_wait_that_ends_early_does_not_claim_that_vcenter_refused():
    operation = Operation("power on VM trainer", vm="trainer")
    fault = vmodl.fault.HostNotConnected()
    assert str(error_from(fault, operation)).startswith("vCenter refused to power on VM trainer")

    class Broken(Session):
        """A session of which only the conversion of faults is used."""

        def __init__(self, stand_in):
            self.__dict__.update(vars(stand_in))
            self.vim, self.vmodl = SimpleNamespace(fault=vim.fault), vmodl

        name_of = staticmethod(str)

    def lost():
        raise vim.fault.NoPermission(privilegeId="System.Read")

    with pytest.raises(VsphereError) as failed:
        wait(Broken(session(lost)))
    assert str(failed.value).startswith("It is not known whether vCenter managed to power on VM trainer")
    assert "refused" not in str(failed.value)
    # A refusal to read says nothing about the operation, so that nothing is cleaned up after it.
    assert (failed.value.code, failed.value.certain) == ("forbidden", False)


def test_u8_the_line_names_the_state_of_the_task_and_its_percentage():
    task = vim.Task("task-7")
    seen = {task: {"info.state": "running", "info.progress": 40}}
    assert tasks._progress(seen) == "task-7 is running at 40 %"
    assert tasks._progress({task: {"info.state": "queued"}}) == "task-7 is queued"
    assert tasks._progress({task: {}}) == ""
    assert tasks._progress({task: {"info.state": "success"}}) == ""
