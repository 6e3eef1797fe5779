"""Commands that tests run by warm_ansible.py do what the commands themselves do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

from tests.integration import warm_ansible

Environment = dict[str, str]
T = TypeVar("T")


@pytest.fixture(scope="module")
def quick() -> Iterator[Environment]:
    with warm_ansible.started() as environment:
        yield {**os.environ, **environment, "ANSIBLE_LOCALHOST_WARNING": "false"}


def play(folder: Path, *tasks: object) -> str:
    path = folder / "play.yml"
    path.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": list(tasks)}]))
    return str(path)


def run(environment: Environment, folder: Path, *command: str) -> tuple[int, str]:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout


def test_a_run_has_the_environment_the_folder_and_the_exit_code_of_the_command(
    quick: Environment, tmp_path: Path
) -> None:
    seen = "{{ lookup('env', 'SEEN') }} in {{ lookup('pipe', 'pwd') }}"
    path = play(tmp_path, {"ansible.builtin.debug": {"msg": seen}}, {"ansible.builtin.fail": {"msg": "over"}})
    for number in range(2):
        environment = {**quick, "SEEN": f"run {number}"}
        slow = run({**environment, "PATH": os.environ["PATH"]}, tmp_path, "ansible-playbook", path)
        assert run(environment, tmp_path, "ansible-playbook", path) == slow
        assert slow[0] == 2
        assert f"run {number} in {tmp_path}" in slow[1]


def test_other_settings_hold_where_they_are_given(quick: Environment, tmp_path: Path) -> None:
    path = play(tmp_path, {"ansible.builtin.debug": {"msg": "said"}})
    told = run(quick, tmp_path, "ansible-playbook", path)[1]
    (tmp_path / "ansible.cfg").write_text("[defaults]\ncallback_result_format = yaml\n")
    told_by_file = run(quick, tmp_path, "ansible-playbook", path)[1]
    other = {**quick, "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.minimal"}
    told_by_environment = run(other, tmp_path, "ansible-playbook", path)[1]
    assert '"msg": "said"' in told
    assert "msg: said" in told_by_file
    assert told_by_environment.startswith("localhost | SUCCESS =>")


def test_a_run_ends_with_the_command_that_asked_for_it(quick: Environment, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    wait = {"ansible.builtin.command": f"sh -c 'echo $PPID > {begun}.new; mv {begun}.new {begun}; exec sleep 600'"}
    asking = subprocess.Popen(["ansible-playbook", play(tmp_path, wait)], env=quick, stdout=subprocess.DEVNULL)
    module = _eventually(lambda: begun.exists() and int(begun.read_text()))
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    _eventually(lambda: not Path(f"/proc/{module}").exists())


def _eventually(condition: Callable[[], T]) -> T:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
