"""Playbooks run as AWX runs them: by ansible-runner, with extra variables and injected credentials and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible_runner

Json = dict[str, Any]

CHECKOUT = Path(__file__).parents[3]
INSTALLED = CHECKOUT / "build/installed"
# What the lab exports for people, and AWX does not inject.
NOT_INJECTED = ("LAB_", "KUBECONFIG")

# What Ansible says of a condition that did not come true.
WAITED_IN_VAIN = "Task failed: Action failed: Unknown error."


@dataclass(frozen=True)
class Run:
    status: str
    stats: Mapping[str, Mapping[str, int]]
    events: list[Json]

    @property
    def changed(self) -> int:
        return sum(self.stats.get("changed", {}).values())

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks that changed something."""
        return [
            event["event_data"]["task"]
            for event in self.results("runner_on_ok")
            if event["event_data"]["res"].get("changed")
        ]

    def results(self, *kinds: str) -> list[Json]:
        return [event for event in self.events if event["event"] in kinds]

    @property
    def failure(self) -> str:
        """What the last task that failed said."""
        failed = [event["event_data"]["res"] for event in self.results("runner_on_failed")]
        return str(failed[-1].get("msg", "")) if failed else ""

    @property
    def crashes(self) -> list[str]:
        """What Ansible said of modules and templates that broke, rather than what they said themselves."""
        failed = [event["event_data"]["res"] for event in self.results("runner_on_failed", "runner_item_on_failed")]
        said = [str(result.get("msg", "")) for result in failed]
        broken = [message for message in said if message.startswith(("Task failed", "MODULE FAILURE"))]
        return [message for message in broken if message != WAITED_IN_VAIN]

    @property
    def failed_task(self) -> str:
        return str(self.results("runner_on_failed")[-1]["event_data"]["task"])

    @property
    def artifacts(self) -> Json:
        """What AWX shows of a job and hands on in a workflow."""
        (final,) = self.results("playbook_on_stats")
        return dict(final["event_data"].get("artifact_data") or {})

    @property
    def skipped(self) -> list[str]:
        """Tasks that were skipped, as often as the output names them."""
        return [str(event["event_data"]["task"]) for event in self.results("runner_on_skipped")]

    @property
    def lines(self) -> int:
        """Number of lines of the output."""
        return len([line for line in self.shown.splitlines() if line.strip()])

    @property
    def shown(self) -> str:
        return "\n".join(event.get("stdout", "") for event in self.events)


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill a run and everything that it has started, as the end of its container does."""
    doomed = [process.pid]
    for pid in doomed:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            doomed += map(int, task.read_text().split())
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


class Runs:
    def __init__(self, folder: Path, environment: Mapping[str, str], warm: Mapping[str, str]) -> None:
        """With `warm` in their environment modules of other collections start warm."""
        self._folder = folder
        self._warm = warm
        self._environment = {
            name: value for name, value in environment.items() if not name.startswith(NOT_INJECTED)
        } | {"ANSIBLE_COLLECTIONS_PATH": str(INSTALLED), "ANSIBLE_LOCALHOST_WARNING": "false"}
        self._number = 0

    def started(self, name: str, variables: Json, *, options: Sequence[str] = ()) -> subprocess.Popen[str]:
        """A run that goes on beside the test. Modules are processes of its own, so that all of it can be killed."""
        told = {"ansible_python_interpreter": sys.executable, **variables}
        return subprocess.Popen(
            ["ansible-playbook", f"playbooks/{name}.yml", "--extra-vars", json.dumps(told), *options],
            cwd=CHECKOUT,
            env=self._environment | {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def playbook(
        self,
        name: str,
        variables: Json | None = None,
        *,
        check: bool = False,
        inventory: Json | None = None,
        options: str = "",
    ) -> Run:
        self._number += 1
        folder = self._folder / f"run-{self._number}"
        folder.mkdir()
        done = ansible_runner.run(
            private_data_dir=str(folder),
            project_dir=str(CHECKOUT),
            playbook=f"playbooks/{name}.yml",
            inventory=inventory or {"all": {"hosts": {"localhost": {"ansible_connection": "local"}}}},
            extravars={"ansible_python_interpreter": sys.executable, **(variables or {})},
            envvars=self._environment | self._warm | {"PATH": os.environ["PATH"]},
            cmdline=f"{'--check ' if check else ''}{options}".strip() or None,
            quiet=True,
            # Or it would take Ctrl-C for itself, in this run and for the rest of the suite, whose labs would stay.
            cancel_callback=lambda: False,
        )
        run = Run(done.status, dict(done.stats or {}), list(done.events))
        assert run.crashes == [], run.crashes
        assert "Traceback" not in json.dumps(run.events), done.stdout.read()
        return run
