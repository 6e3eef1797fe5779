"""A task in a fork of the worker gives the result that the packed module gives, in every respect.

The collection in `collections/` has a module that does whatever a module may do. Each play is run twice, in process and
as packed modules, and what Ansible's callbacks get is compared.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

Json = dict[str, Any]

HERE = Path(__file__).parent
CALLBACKS = HERE.parent / "modules" / "callback"
INSTALLED = os.environ.get("ANSIBLE_COLLECTIONS_PATH") or str(HERE.parents[2] / "build/installed")
PROBE = "vgpu.probe.probe"
# What differs from run to run, whatever it is run by.
PASSING = {"pid", "parent", "in_process", "task_seconds", "began", "ended"}
SECRET = "not-for-your-eyes"


class Runs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([INSTALLED, str(HERE / "collections")]),
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
            "ANSIBLE_CALLBACKS_ENABLED": "results",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_HOME": str(self._folder / "home"),
            "ANSIBLE_LOCAL_TEMP": str(self._folder / "tmp"),
            "ANSIBLE_REMOTE_TEMP": str(self._folder / "tmp"),
            # Ansible looks for jobs below the home folder of the user, whatever HOME says.
            "ANSIBLE_ASYNC_DIR": str(self._folder / "async"),
            **more,
        }

    def write(self, play: Json) -> Path:
        self._number += 1
        path = self._folder / f"play-{self._number}.yml"
        path.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, **play}]))
        return path

    def run(self, play: Json, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[list[Json], str]:
        path = self.write(play)
        results = path.with_suffix(".jsonl")
        results.touch()
        env = self.environment(RESULTS_FILE=str(results), **(environment or {}))
        command = [sys.executable, "-m", "ansible", "playbook", str(path), *arguments]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
        found = [json.loads(line) for line in results.read_text().splitlines()]
        assert found, done.stdout + done.stderr
        return found, done.stdout + done.stderr

    def both(self, play: Json, *arguments: str, **more: Any) -> tuple[list[Json], list[Json]]:
        inside, _output = self.run(play, *arguments, "-e", "vgpu_fleet_in_process=true", **more)
        packed, _output = self.run(play, *arguments, "-e", "vgpu_fleet_in_process=false", **more)
        return inside, packed


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def comparable(value: Any) -> Any:
    """A result without what changes from run to run, such as the lines of a traceback that name files."""
    if isinstance(value, dict):
        return {name: comparable(one) for name, one in value.items() if name not in PASSING}
    if isinstance(value, list):
        return [comparable(one) for one in value]
    if isinstance(value, str) and "Traceback" in value:
        return [line for line in value.splitlines() if re.match(r"\w+(Error|Exception)\b", line)]
    return value


def were_in_process(results: list[Json]) -> set[bool]:
    found = [item for result in results for item in result.get("results", [result])]
    return {item["in_process"] for item in found if "in_process" in item}


def probe(**options: Any) -> Json:
    keywords = {name: options.pop(name) for name in list(options) if name.startswith("task_")}
    return {PROBE: options, **{name.removeprefix("task_"): value for name, value in keywords.items()}}


TASKS = [
    probe(say="plain"),
    probe(say="changed"),
    probe(say="check", task_check_mode=True),
    probe(say=SECRET, secret=SECRET),
    probe(secret=SECRET, end="fail", task_ignore_errors=True),
    probe(say="warn"),
    probe(say="noise"),
    probe(number="17"),
    probe(number="seventeen", task_ignore_errors=True),
    probe(colour="green", task_ignore_errors=True),
    probe(end="somehow", task_ignore_errors=True),
    probe(end="raise", task_ignore_errors=True),
    probe(end="return", task_ignore_errors=True),
    probe(end="die", task_ignore_errors=True),
    probe(end="silent", task_ignore_errors=True),
    probe(say="{{ item }}", task_loop=["one", "two", "three"]),
    probe(say="hidden", task_no_log=True),
    probe(say="again", task_register="found", task_until="found.said == 'again'", task_retries=2, task_delay=0),
    probe(say="wrong", task_register="found", task_failed_when="found.said == 'wrong'", task_ignore_errors=True),
    probe(say="unchanged", task_changed_when=True),
    probe(say="coloured", task_environment={"PROBE_COLOUR": "{{ 'gre' ~ 'en' }}"}),
    probe(say="once", task_run_once=True, task_throttle=1),
    probe(say="elsewhere", task_delegate_to="localhost"),
]


def test_every_way_to_run_and_to_end_gives_the_same_result(runs: Runs) -> None:
    play = {"module_defaults": {"group/vgpu.probe.probes": {"number": 5}}, "tasks": TASKS}
    inside, packed = runs.both(play, "--diff", "-vvv")
    assert were_in_process(inside) == {True}
    assert were_in_process(packed) == {False}
    assert len(inside) == len(packed) == len(TASKS)
    for one, other in zip(inside, packed, strict=True):
        assert comparable(one) == comparable(other)
    assert SECRET not in json.dumps(inside)
    # Nothing is left of the run before, not even in a loop, whose items share a worker.
    assert [item["left_behind"] for item in inside[15]["results"]] == [["one"], ["two"], ["three"]]
    assert inside[0]["number"] == 5


@pytest.mark.parametrize("strategy", ["linear", "free", "host_pinned"])
@pytest.mark.parametrize("forks", [1, 50])
def test_many_hosts_by_any_strategy(runs: Runs, tmp_path: Path, strategy: str, forks: int) -> None:
    hosts = {f"h{number}": {"own": f"value-{number}"} for number in range(12)}
    common = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": common}}))
    play = {"hosts": "all", "strategy": strategy, "tasks": [probe(say="{{ own }}"), probe(say="{{ own }} again")]}
    results, output = runs.run(play, "-i", str(inventory), "--forks", str(forks))
    assert were_in_process(results) == {True}, output
    expected = sorted(f"value-{number}{end}" for number in range(12) for end in ("", " again"))
    assert sorted(result["said"] for result in results) == expected
    assert all(result["left_behind"] == [result["said"]] for result in results)


ELSEWHERE: dict[str, tuple[Json, dict[str, str]]] = {
    "the Python of the environment": ({"environment": {"PYTHONUNBUFFERED": "1"}}, {}),
    "another interpreter": ({"vars": {"ansible_python_interpreter": "{{ playbook_dir }}/python"}}, {}),
    "kept files": ({}, {"ANSIBLE_KEEP_REMOTE_FILES": "1"}),
    "the variable": ({"vars": {"vgpu_fleet_in_process": "{{ false }}"}}, {}),
    "the environment variable": ({}, {"VGPU_FLEET_IN_PROCESS": "no"}),
}


def test_whatever_could_make_a_difference_is_run_as_a_packed_module(runs: Runs, tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    other.chmod(0o700)
    by_environment: dict[str, list[Json]] = {}
    for keywords, environment in ELSEWHERE.values():
        by_environment.setdefault(json.dumps(environment), []).append({**probe(say="x"), **keywords})
    for environment, tasks in by_environment.items():
        results, output = runs.run({"tasks": tasks}, environment=json.loads(environment))
        assert len(results) == len(tasks), output
        assert were_in_process(results) == {False}, output


def test_async_tasks_are_run_as_packed_modules(runs: Runs) -> None:
    task = {**probe(say="later"), "async": 60, "poll": 1}
    (result,), output = runs.run({"tasks": [task]})
    assert result["said"] == "later", output
    assert not result["in_process"]


def test_a_timeout_of_the_task_ends_the_module(runs: Runs, tmp_path: Path) -> None:
    never = tmp_path / "never"
    task = probe(end="hang", wait_for=str(never), task_timeout=1, task_ignore_errors=True)
    inside, packed = runs.both({"tasks": [task, probe(say="after")]})
    for results in (inside, packed):
        assert "timed" in results[0]["msg"].casefold()
        assert results[1]["said"] == "after"
    never.touch()


def test_ctrl_c_ends_the_module(runs: Runs, tmp_path: Path) -> None:
    path = runs.write({"tasks": [probe(end="hang", wait_for=str(tmp_path / "never"))]})
    env = runs.environment(RESULTS_FILE=str(tmp_path / "results"))
    command = [sys.executable, "-m", "ansible", "playbook", str(path)]
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as run:
        module = _descendants_until(run.pid, 2)
        os.killpg(run.pid, signal.SIGINT)
        run.communicate(timeout=60)
    assert run.returncode != 0
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in module):
        assert time.monotonic() < deadline, "the module goes on"
        time.sleep(0.05)


def _descendants_until(pid: int, generations: int) -> list[int]:
    """The descendants of a process, once there are that many generations of them."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        generation, found = [pid], []
        for _number in range(generations):
            generation = [child for parent in generation for child in _children(parent)]
            found = generation
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("the module was not started")


def _children(pid: int) -> list[int]:
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def test_playbooks_without_a_task_of_ours_import_nothing_of_ours(runs: Runs) -> None:
    code = (
        "import sys\n"
        "from ansible.cli.playbook import main\n"
        "try:\n    main(sys.argv)\nfinally:\n"
        "    print('OURS', [name for name in sys.modules if name.startswith('ansible_collections.vgpu')])\n"
    )
    path = runs.write({"tasks": [{"ansible.builtin.ping": {}}]})
    env = runs.environment(RESULTS_FILE=str(path.with_suffix(".jsonl")))
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], env=env, capture_output=True, text=True, check=False, timeout=120
    )
    assert "OURS []" in done.stdout, done.stdout + done.stderr


def test_progress_is_on_the_screen_and_in_no_result(runs: Runs) -> None:
    play = {"tasks": [probe(say="progress")]}
    line = "  [localhost] half of it is done (0:30 min left)"
    results, output = runs.run(play)
    assert output.splitlines().count(line) == 1
    assert "half of it" not in json.dumps(results)
    for switch in ("vgpu_fleet_progress=false", "vgpu_fleet_in_process=false"):
        _results, output = runs.run(play, "-e", switch)
        assert "half of it" not in output
    _results, output = runs.run({"tasks": [probe(say="progress", task_no_log=True)]})
    assert "half of it" not in output


def test_every_module_of_the_collection_can_be_packed(runs: Runs) -> None:
    """It says the same as in process: that options are missing, or that nobody answers."""
    modules = sorted((Path(INSTALLED) / "ansible_collections/vgpu/fleet/plugins/modules").glob("*.py"))
    # The others are documentation of action plugins.
    modules = [module for module in modules if "def main()" in module.read_text()]
    tasks = [{f"vgpu.fleet.{module.stem}": {}, "ignore_errors": True} for module in modules]
    nowhere = {"K8S_AUTH_HOST": "https://127.0.0.1:1", "K8S_AUTH_API_KEY": "none", "K8S_AUTH_KUBECONFIG": ""}
    nowhere |= {"VMWARE_HOST": "127.0.0.1", "VMWARE_PORT": "1", "VMWARE_USER": "nobody", "VMWARE_PASSWORD": "none"}
    inside, packed = runs.both({"tasks": tasks}, environment=nowhere)
    assert len(inside) == len(packed) == len(modules)
    for one, other in zip(inside, packed, strict=True):
        assert comparable(one) == comparable(other)
        assert "Traceback" not in json.dumps(other)
        assert not other["msg"].startswith(("Task failed", "MODULE FAILURE"))
