"""What is said of a program that ends while it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.errors import LabError
from lab.kubernetes import controlplane
from lab.rundir import RunDir

TRACE = "\n".join(f"goroutine {number} [select]:" for number in range(100))


def ended(tmp_path: Path, log: str, name: str = "virt-api") -> LabError:
    run = RunDir(tmp_path / "lab").create()
    run.log(name).write_text(log)
    with pytest.raises(LabError) as caught:
        controlplane.wait_until(run, [name], lambda: False)
    return caught.value


def test_used_up_inotify_instances_are_named_with_the_setting_that_helps(tmp_path, monkeypatch):
    limit = tmp_path / "max_user_instances"
    limit.write_text("128\n")
    monkeypatch.setattr(controlplane, "INOTIFY_INSTANCES", limit)
    said = ended(
        tmp_path,
        f'{{"msg":"Failed to create an inotify watcher","reason":"too many open files"}}\npanic: it\n{TRACE}\n',
    )
    assert said.message == "virt-api exited during startup: too many open files."
    assert "inotify instances of this user are used up (128): sudo sysctl fs.inotify.max_user_instances=" in str(said)
    assert "ulimit -n" in str(said)
    assert "virt-api.log" in str(said)


def test_the_setting_is_named_where_the_limit_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr(controlplane, "INOTIFY_INSTANCES", tmp_path / "none")
    assert "fs.inotify.max_user_instances" in str(ended(tmp_path, "accept tcp: too many open files\n"))


def test_a_taken_port_is_an_error_of_its_own(tmp_path):
    said = ended(tmp_path, "listen tcp 127.0.0.1:10081: bind: address already in use\n", "etcd")
    assert isinstance(said, controlplane.PortTaken)


def test_anything_else_shows_the_end_of_the_log(tmp_path):
    said = ended(tmp_path, f"{TRACE}\nunknown flag: --x\n")
    assert "unknown flag: --x" in said.message
    assert "max_user_instances" not in str(said)
