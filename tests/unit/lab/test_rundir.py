"""The run directory: where things are, and a state that is never half written."""

from __future__ import annotations

import json
import stat
import threading

import pytest

from lab.errors import LabError
from lab.rundir import LONGEST_SOCKET_PATH, RunDir


def test_a_directory_that_never_held_a_lab_has_no_state(tmp_path):
    run = RunDir(tmp_path / "none")
    assert not run.exists()
    assert run.read() == {}


def test_creating_makes_private_directories(tmp_path):
    run = RunDir(tmp_path / "run").create()
    for directory in (run.path, run.logs, run.pki, run.kubeconfigs, run.etcd):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_updates_keep_what_they_do_not_name(tmp_path):
    run = RunDir(tmp_path)
    run.update(ports={"etcd": 1})
    run.update(server="https://127.0.0.1:2")
    assert run.read() == {"ports": {"etcd": 1}, "server": "https://127.0.0.1:2"}


def test_an_edit_that_fails_changes_nothing(tmp_path):
    run = RunDir(tmp_path)
    run.update(kept=True)
    with pytest.raises(ZeroDivisionError), run.editing() as state:
        state["kept"] = 1 / 0
    assert run.read() == {"kept": True}
    assert not list(tmp_path.glob(".state.json.*"))


def test_edits_at_the_same_time_all_count(tmp_path):
    def count() -> None:
        for _ in range(20):
            with RunDir(tmp_path).editing() as state:
                state["count"] = state.get("count", 0) + 1

    threads = [threading.Thread(target=count) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert RunDir(tmp_path).read() == {"count": 100}


@pytest.mark.parametrize("text", ["{", json.dumps([1])])
def test_a_foreign_state_file_is_an_error_with_a_hint(tmp_path, text):
    run = RunDir(tmp_path)
    run.state_file.write_text(text)
    with pytest.raises(LabError) as caught:
        run.read()
    assert "--run-dir" in (caught.value.hint or "")


def test_the_socket_is_in_the_directory_if_the_path_is_short_enough(tmp_path):
    assert RunDir("/tmp/run").control_socket.parent == RunDir("/tmp/run").path
    deep = RunDir(tmp_path / ("x" * 120))
    assert len(str(deep.control_socket)) <= LONGEST_SOCKET_PATH
    assert deep.control_socket != RunDir(tmp_path / ("y" * 120)).control_socket
