"""ansible-inventory and ansible-playbook, forked from a process that has imported them, with a test's own files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.integration.modules.forked_ansible import INVENTORY, PLAYBOOK
from tests.integration.modules.playbooks import forks
from tests.integration.warm_interpreter import INSTALLED

Json = dict[str, Any]


@dataclass(frozen=True)
class Run:
    returncode: int
    stdout: str
    stderr: str


class Inventories:
    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = environment

    def variable(self, name: str) -> str:
        """A variable of the environment."""
        return self._environment[name]

    def file(self, name: str, content: Json | str, plugin: str = "gpu_vms") -> Path:
        """An inventory file of a plugin, by the first part of its name."""
        path = self.folder / f"{name}.{plugin}.yml"
        if not isinstance(content, str):
            content = yaml.safe_dump({"plugin": f"vgpu.fleet.{plugin}", **content})
        path.write_text(content)
        return path

    def run(self, program: str, *arguments: Any, **environment: str) -> Run:
        installed = os.environ.get("ANSIBLE_COLLECTIONS_PATH") or str(INSTALLED)
        settings = {
            "ANSIBLE_COLLECTIONS_PATH": installed,
            "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
            "ANSIBLE_NOCOLOR": "1",
        }
        output, errors = self.folder / "stdout.txt", self.folder / "stderr.txt"
        code = forks({**os.environ, **settings}).run(
            list(map(str, arguments)),
            {**os.environ, **self._environment, **settings, **environment},
            output,
            program=program,
            errors=errors,
            folder=self.folder,
        )
        return Run(code, output.read_text(), errors.read_text())

    def graph(self, *files: Path, **environment: str) -> str:
        sources = [argument for file in files for argument in ("-i", file)]
        done = self.run(INVENTORY, "--graph", *sources, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def hosts(self, *files: Path, **environment: str) -> dict[str, Json]:
        """The variables of all hosts, as they are written: templates are not rendered."""
        sources = [argument for file in files for argument in ("-i", file)]
        done = self.run(INVENTORY, "--list", *sources, **environment)
        assert done.returncode == 0, done.stderr
        found: dict[str, Json] = _decoded(json.loads(done.stdout)["_meta"]["hostvars"])
        return found

    def refusal(self, *files: Path, **environment: str) -> str:
        """What is said of inventories that cannot be read."""
        sources = [argument for file in files for argument in ("-i", file)]
        done = self.run(INVENTORY, "--list", *sources, **environment)
        assert done.returncode != 0, done.stdout
        assert "Traceback" not in done.stderr
        return " ".join(done.stderr.split())

    def rendered(self, file: Path, expression: str, **environment: str) -> list[str]:
        """What an expression is for each host, in the order of their names."""
        task = {"ansible.builtin.debug": {"msg": f"SHOWN {{{{ {expression} }}}} END"}}
        play = {"hosts": "all", "gather_facts": False, "order": "sorted", "tasks": [task]}
        playbook = self.folder / "show.yml"
        playbook.write_text(yaml.safe_dump([play]))
        done = self.run(PLAYBOOK, "-i", file, playbook, "--forks", 1, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return [one.split(" END")[0] for one in done.stdout.split("SHOWN ")[1:]]


def _decoded(value: Any) -> Any:
    """Without the marks of values that must not be templated."""
    if isinstance(value, dict):
        if set(value) == {"__ansible_unsafe"}:
            return value["__ansible_unsafe"]
        return {key: _decoded(one) for key, one in value.items()}
    return [_decoded(one) for one in value] if isinstance(value, list) else value
