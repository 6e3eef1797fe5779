"""Waiting for vCenter: how long it may take, and what is shown meanwhile."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils import progress
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import waiting
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Operation

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
