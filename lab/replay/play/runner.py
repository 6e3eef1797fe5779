"""Run recordings on one lab per Harvester version, which is reset before each recording."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

import yaml

from lab.errors import LabError
from lab.lifecycle import up
from lab.lifecycle.control import Control
from lab.replay.observe.api import Api
from lab.replay.observe.history import History
from lab.replay.observe.watch import Watches
from lab.replay.play.environment import Environment
from lab.replay.play.player import Player, StepResult
from lab.replay.read.recording import Recording
from lab.rundir import RunDir

SCENARIO = "recording"
HOSTS = {"kubelet_sync": 0.01, "restarts_processes": True}
# The recordings were made without these.
WITHOUT = frozenset({"kubevirt", "vsphere", "core-webhook"})


class Runner:
    def __init__(self, run_root: Path, labs: dict[str, RunDir] | None = None) -> None:
        """`labs` are running labs by version. They are used, and left running."""
        self._root = run_root
        self._labs: dict[str, RunDir] = dict(labs or {})
        self._closing = ExitStack()
        for run in self._labs.values():
            self._closing.callback(_set_scenario, run, run.read()["settings"]["scenario"])

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closing.close()
        self._labs.clear()

    def play(self, recording: Recording) -> tuple[list[StepResult], list[str], float]:
        """Return the result of each step, notes on the initial state, and the seconds it took."""
        began = time.monotonic()
        with self._environment(recording) as environment:
            player = Player(recording, environment)
            step_results = player.play()
        return step_results, player.notes, time.monotonic() - began

    @contextmanager
    def _environment(self, recording: Recording) -> Iterator[Environment]:
        run = self._lab(recording)
        api = Api.from_kubeconfig(run.kubeconfig("admin"), server=run.read()["direct"])
        history = History()
        try:
            with Watches(api, history) as watches:
                yield Environment(api, Control(run), history, watches, recording.nodes)
        finally:
            api.close()

    def _lab(self, recording: Recording) -> RunDir:
        version = recording.harvester_version
        if version in self._labs:
            run = self._labs[version]
            _set_scenario(run, self._scenario(recording))
            try:
                up.reset(run)
            except LabError:
                # A recording may leave a lab that does not come back; a new one costs a few seconds more.
                self.close()
        if version not in self._labs:
            self.close()
            # Beside the user's own lab, whose directory holds nothing else.
            directory = self._root.with_name(f"{self._root.name}-replay-{version}")
            self._closing.callback(up.stop, directory)
            self._labs[version] = up.start(
                directory, scenario=self._scenario(recording), harvester_version=version, speed=0, without=WITHOUT
            )
        return self._labs[version]

    def _scenario(self, recording: Recording) -> str:
        """Return a scenario with the hosts of the recording."""
        if not recording.gpus:
            return SCENARIO
        nodes = [
            {"name": node, "gpus": [{key: card.get(key) for key in ("address", "board")} for card in cards]}
            for node, cards in recording.gpus.items()
        ]
        folder = Path(self._closing.enter_context(tempfile.TemporaryDirectory(prefix="lab-replay-")))
        file = folder / f"{recording.name}.yaml"
        file.write_text(yaml.safe_dump({**HOSTS, "nodes": nodes}))
        return str(file)


def _set_scenario(run: RunDir, scenario: str) -> None:
    with run.editing() as state:
        state["settings"]["scenario"] = scenario
