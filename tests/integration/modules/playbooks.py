"""Tasks run by ansible-playbook with the installed collection, and what came of them."""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.integration.modules.forked_ansible import Forks
from tests.integration.warm_interpreter import INSTALLED

Json = dict[str, Any]
# A module, its options, and keywords of the task.
Call = tuple[str, Json] | tuple[str, Json, Json]

CALLBACKS = Path(__file__).parent / "callback"
# The folder for the results of all tasks of all tests, for tools/same_results.py.
RECORDS_VARIABLE = "VGPU_FLEET_TEST_RECORDS"


class Result(dict[str, Any]):
    """A task's result. Attributes are for what nearly every test looks at."""

    began = ended = 0.0

    def __missing__(self, key: str) -> Any:
        """A task that failed has no results: what it said instead is what one wants to know."""
        raise AssertionError(f"no {key!r} in the result of a task that said: {self.message or dict(self)}")

    @property
    def changed(self) -> bool:
        return bool(self.get("changed"))

    @property
    def failed(self) -> bool:
        return bool(self["failed"])

    @property
    def message(self) -> str:
        return str(self.get("msg", ""))

    @property
    def crashed(self) -> bool:
        """Whether something happened that the module has no words for. How Ansible says that depends on its release."""
        said = ("Task failed", "MODULE FAILURE")
        return self.message.startswith(said) or "Traceback" in self.get("module_stderr", "")

    @property
    def code(self) -> str:
        return str((self.get("error") or {}).get("code", ""))

    @property
    def steps(self) -> list[Json]:
        return list(self["plan"]["steps"] if "plan" in self else self["steps"])


class Playbooks:
    """Runs tasks against one cluster, each in its own play's order, with the environment a user of it has."""

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        collections: Sequence[Path] = (),
        *,
        warm: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._warm = warm or {}
        installed = os.environ.get("ANSIBLE_COLLECTIONS_PATH") or str(INSTALLED)
        self._collections = os.pathsep.join([installed, *map(str, collections)])
        self._environment = environment
        self._number = 0

    def task(self, module: str, *, check: bool = False, kubeconfig: Path | None = None, **options: Any) -> Result:
        """One task of this collection; a failure is a result like any other."""
        (result,) = self.tasks((module, options), check=check, kubeconfig=kubeconfig)
        return result

    def tasks(self, *calls: Call, check: bool = False, kubeconfig: Path | None = None, **play: Any) -> list[Result]:
        """Tasks of one play, of which every one is run."""
        tasks = [_task(*call) for call in calls]
        return self.run(tasks, check=check, kubeconfig=kubeconfig, **play)

    def run(
        self, tasks: list[Json], *, check: bool = False, kubeconfig: Path | None = None, **play: Any
    ) -> list[Result]:
        found = self.play({**play, "tasks": tasks}, check=check, kubeconfig=kubeconfig)
        assert len(found) == len(tasks), found and found[-1]["output"]
        return found

    def run_all(self, *tasks: Json) -> list[Result]:
        """Tasks and blocks of one play, and the results of all that was run because of them."""
        return self.play({"tasks": list(tasks)})

    def play(self, play: Json, *, check: bool = False, kubeconfig: Path | None = None) -> list[Result]:
        """The results of all tasks that were run, also of roles."""
        return self._played({"hosts": "localhost", "gather_facts": False, **play}, check=check, kubeconfig=kubeconfig)

    def playbook(self, name: str, variables: Json, *, check: bool = False) -> list[Result]:
        """The same of a playbook of this collection."""
        return self._played({"import_playbook": f"vgpu.fleet.{name}", "vars": variables}, check=check)

    def _played(self, entry: Json, *, check: bool, kubeconfig: Path | None = None) -> list[Result]:
        self._number += 1
        playbook = self._folder / f"play-{self._number}.yml"
        results = self._folder / f"results-{self._number}.jsonl"
        playbook.write_text(yaml.safe_dump([entry]))
        results.touch()
        environment = {**self._settings(), "RESULTS_FILE": str(results)}
        if kubeconfig:
            environment["K8S_AUTH_KUBECONFIG"] = str(kubeconfig)
        output = self._folder / f"output-{self._number}.txt"
        arguments = [str(playbook), "--diff", *(["--check"] if check else [])]
        forks(self._settings()).run(arguments, environment, output)
        found = [Result(json.loads(line)) for line in results.read_text().splitlines()]
        for result in found:
            # What differs each time is not a part of what a task says.
            result.began, result.ended = result.pop("began"), result.pop("ended")
            assert not result.crashed, json.dumps(result)
            result["output"] = output.read_text()
        assert found, output.read_text()
        if folder := os.environ.get(RECORDS_VARIABLE):
            record(Path(folder), found)
        return found

    def _settings(self) -> dict[str, str]:
        return {
            **os.environ,
            **self._environment,
            **self._warm,
            "ANSIBLE_COLLECTIONS_PATH": self._collections,
            "ANSIBLE_CALLBACK_PLUGINS": str(CALLBACKS),
            "ANSIBLE_CALLBACKS_ENABLED": "results",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_DISPLAY_TRACEBACK": "error",
        }


def record(folder: Path, results: list[Result]) -> None:
    """Keep the results of a play with the name of the test that ran it."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    with (folder / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"test": test, "results": results}) + "\n")


_running: dict[str, Forks] = {}


def forks(settings: Mapping[str, str]) -> Forks:
    """Ansible reads its own settings when it is imported, so each set of them has a process of its own."""
    own = json.dumps({name: value for name, value in settings.items() if name.startswith("ANSIBLE_")}, sort_keys=True)
    if own not in _running:
        _running[own] = Forks(settings)
        atexit.register(_running[own].stop)
    return _running[own]


def predicting(module: str, options: Json) -> Call:
    """The task in check mode."""
    return module, options, {"check_mode": True}


def _task(module: str, options: Json, keywords: Json | None = None) -> Json:
    return {_full_name(module): options, "ignore_errors": True, **(keywords or {})}


def _full_name(module: str) -> str:
    return module if "." in module else f"vgpu.fleet.{module}"
