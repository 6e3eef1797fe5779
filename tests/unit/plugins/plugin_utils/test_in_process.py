"""When a task may run in a fork of the worker. That the result is the same is shown by tests/integration/in_process."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils import progress
from ansible_collections.vgpu.fleet.plugins.plugin_utils import in_process
from ansible_collections.vgpu.fleet.plugins.plugin_utils.in_process import InProcessAction, in_fork, is_own_interpreter

HERE = {"ansible_python_interpreter": sys.executable}
# Some modules are documentation only: an action plugin does their work.
MODULES = sorted(
    path.stem
    for path in (Path(__file__).parents[4] / "plugins" / "modules").glob("*.py")
    if "def main()" in path.read_text()
)


class Templar:
    def template(self, value: Any) -> Any:
        return value


def action(environment: dict[str, str] | None = None, connection: dict[str, Any] | None = None, **task: Any) -> Any:
    made = InProcessAction.__new__(InProcessAction)
    made._connection = SimpleNamespace(**{"transport": "local", "become": None, **(connection or {})})
    made._task = SimpleNamespace(**{"become": False, "async_val": 0, "delegate_to": None, **task})
    made._templar = Templar()
    made._environment = environment or {}
    return made


def test_a_plain_task_on_the_controller_runs_in_process() -> None:
    assert action()._makes_no_difference(HERE)
    assert action({"HTTPS_PROXY": "http://proxy"})._makes_no_difference(HERE)
    delegated = {"ansible_delegated_vars": {"localhost": HERE}, "ansible_python_interpreter": "/usr/bin/python3"}
    assert action(delegate_to="localhost")._makes_no_difference(delegated)


@pytest.mark.parametrize(
    ("made", "task_vars"),
    [
        (action(become=True), HERE),
        (action(connection={"become": object()}), HERE),
        (action(connection={"transport": "ssh"}), HERE),
        (action(async_val=10), HERE),
        (action({"PYTHONPATH": "/somewhere"}), HERE),
        (action({"LD_LIBRARY_PATH": "/somewhere"}), HERE),
        (action(), {"ansible_python_interpreter": "/usr/bin/python3"}),
        (action(), {"ansible_python_interpreter": "auto_silent"}),
        (action(), {**HERE, "vgpu_fleet_in_process": "no"}),
    ],
)
def test_whatever_could_make_a_difference_is_run_by_ansible(made: Any, task_vars: dict[str, Any]) -> None:
    assert not made._makes_no_difference(task_vars)


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VGPU_FLEET_IN_PROCESS", "false")
    assert not action()._makes_no_difference(HERE)
    assert action()._makes_no_difference({**HERE, "vgpu_fleet_in_process": True})


def test_a_link_from_another_folder_is_another_interpreter(tmp_path: Path) -> None:
    link = tmp_path / "python3"
    link.symlink_to(sys.executable)
    assert is_own_interpreter(sys.executable)
    assert not is_own_interpreter(str(link))


def test_a_fork_gives_back_what_it_wrote_and_how_it_ended(tmp_path: Path) -> None:
    def act() -> Any:
        print(os.environ["COLOUR"], os.getcwd())
        os.write(2, b"noise\n")
        sys.exit(7)

    assert in_fork(act, {"COLOUR": "green"}, str(tmp_path)) == (7, f"green {tmp_path}\n", "noise\n")
    assert "COLOUR" not in os.environ


def test_lines_that_a_fork_reports_arrive_while_it_is_running(tmp_path: Path) -> None:
    arrived: list[str] = []
    answer, question = os.pipe()

    def act() -> Any:
        progress._write("node n1: 2 not ready yet")
        # Goes on only once the line has been shown.
        assert os.read(answer, 1) == b"!"
        progress._write("node n1: 1 not ready yet")
        sys.exit(0)

    def show(line: str) -> None:
        arrived.append(line)
        os.write(question, b"!")

    assert in_fork(act, {}, str(tmp_path), progress=show) == (0, "", "")
    assert arrived == ["node n1: 2 not ready yet", "node n1: 1 not ready yet"]
    assert not progress.is_shown()


def test_progress_is_shown_unless_somebody_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert action(no_log=False)._shows_progress(HERE)
    assert not action(no_log=True)._shows_progress(HERE)
    assert not action(no_log=False)._shows_progress({**HERE, "vgpu_fleet_progress": "no"})
    monkeypatch.setenv("VGPU_FLEET_PROGRESS", "false")
    assert not action(no_log=False)._shows_progress(HERE)


def test_a_fork_ends_with_the_wait_for_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    started: list[int] = []
    wait = os.waitpid

    def interrupted(pid: int, options: int) -> tuple[int, int]:
        if not started:
            started.append(pid)
            raise KeyboardInterrupt
        return wait(pid, options)

    monkeypatch.setattr(in_process.os, "waitpid", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_fork(signal.pause, {}, str(tmp_path))
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_an_action(module: str) -> None:
    path = Path(__file__).parents[4] / "plugins" / "action" / f"{module}.py"
    assert f"    module = {module}\n" in path.read_text()


@pytest.mark.parametrize(
    ("verbosity", "size", "failed", "hidden"),
    [
        (0, 9000, False, False),
        (1, 100, False, False),
        (1, 9000, False, True),
        (1, 9000, True, False),
        (2, 9000, False, False),
    ],
)
def test_a_result_that_is_longer_than_a_screen_is_not_printed_at_v(
    verbosity: int,
    size: int,
    failed: bool,
    hidden: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(in_process.Display(), "verbosity", verbosity)
    monkeypatch.setattr(in_process.NormalAction, "run", lambda *_: {"text": "x" * size, "failed": failed})
    result = action(no_log=False).run(task_vars={"inventory_hostname": "edge-1"})
    assert result.get("_ansible_verbose_override", False) is hidden
    assert ("[edge-1] The result has 10 kB. Use -vv to print it." in capsys.readouterr().out) is hidden
    assert len(result["text"]) == size
