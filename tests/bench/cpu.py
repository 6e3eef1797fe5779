"""CPU time of tasks: ansible-playbook as users run it, with everything that it starts and waits for.

CPU time hardly depends on the other load of the machine, unlike elapsed time. What every run and every first task pay,
such as the start of Ansible and the imports, cancels out: a run with one task is subtracted from a run with many.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
PING: Json = {"ansible.builtin.ping": {}}
TASKS = 12
ROUNDS = 3


@dataclass(frozen=True)
class Runs:
    """Runs of ansible-playbook against one cluster or vCenter."""

    folder: Path
    environment: Mapping[str, str]

    def seconds(self, tasks: list[Json], **play: Any) -> float:
        """Return the CPU seconds of one run."""
        playbook = self.folder / "play.yml"
        playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, **play, "tasks": tasks}]))
        output = self.folder / "output.txt"
        with output.open("w") as log:
            process = subprocess.Popen(
                ["ansible-playbook", str(playbook)], env=self._settings(), stdout=log, stderr=subprocess.STDOUT
            )
            _pid, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, output.read_text()
        assert "changed=0" in output.read_text(), output.read_text()
        return used.ru_utime + used.ru_stime

    def _settings(self) -> dict[str, str]:
        return {
            **os.environ,
            **self.environment,
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "ANSIBLE_INVENTORY_UNPARSED_WARNING": "false",
            "ANSIBLE_NOCOLOR": "1",
        }

    def per_task(self, *tasks: Json) -> list[float]:
        """Return the CPU seconds that each task costs if it is repeated. They take turns, so load affects all alike."""
        first: list[list[float]] = [[] for _task in tasks]
        many: list[list[float]] = [[] for _task in tasks]
        for _round in range(ROUNDS):
            for number, task in enumerate(tasks):
                first[number].append(self.seconds([task]))
                many[number].append(self.seconds([task] * (TASKS + 1)))
        return [(min(longer) - min(shorter)) / TASKS for shorter, longer in zip(first, many, strict=True)]
