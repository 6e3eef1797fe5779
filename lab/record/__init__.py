"""Record a cluster: write files that `lab replay` plays, from any hardware."""

from __future__ import annotations

import http.client
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from lab import hints
from lab.errors import LabError
from lab.lifecycle.control import Control
from lab.record import script as scripts, snapshot
from lab.record.credentials import secrets_of
from lab.record.recorder import Recorder, say
from lab.record.redaction import Redaction
from lab.record.wallclock import WallClock
from lab.replay.observe.api import Api
from lab.replay.observe.history import History
from lab.replay.observe.watch import Watches
from lab.replay.play.environment import Environment
from lab.rundir import RunDir

Json = dict[str, Any]
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")


@dataclass(frozen=True)
class RecordingRequest:
    """Options of a recording: of a lab if `lab` is set, else of the cluster of the kubeconfig."""

    directory: Path
    name: str
    kubeconfig: Path | None = None
    context: str | None = None
    lab: Path | None = None
    steps: Path | None = None
    seconds: float = 60.0
    title: str = ""
    version: str | None = None


def record(wanted: RecordingRequest) -> Path:
    """Record, and return the path of the file."""
    try:
        return _record(wanted)
    except (OSError, http.client.HTTPException) as error:
        raise LabError(f"The cluster does not respond: {error}.") from error


def _record(wanted: RecordingRequest) -> Path:
    if not NAME.fullmatch(wanted.name):
        raise LabError(
            f"{wanted.name!r} is not a valid name for a recording.", hint="Use lowercase letters, digits and dashes."
        )
    script = scripts.load(wanted.steps) if wanted.steps else None
    kubeconfig = _kubeconfig(wanted)
    api = _connect(kubeconfig, wanted.context)
    try:
        gpus = snapshot.gpus_of(api)
        nodes = snapshot.nodes_of(gpus)
        if not nodes:
            raise LabError("The cluster has no GPU with SR-IOV, so there is nothing to record.")
        if script:
            scripts.check_phrases(script, nodes)
        version = wanted.version or snapshot.version_of(api)
        file = wanted.directory / f"{version}-{wanted.name}.yaml"
        if file.exists():
            raise LabError(f"{file} already exists.", hint="Choose another --name.")
        with _environment(api, nodes, wanted.lab) as environment:
            recorder = Recorder(environment, wanted.name, None if wanted.lab else _ask_person, say)
            say(f"Recording {len(nodes)} nodes of Harvester {version} into {file}.")
            head = {
                "version": version,
                "scenario": wanted.name,
                "title": wanted.title or (script.title if script else "") or "watched without writing",
                "host": snapshot.host_of(api, gpus),
                **({"notes": script.notes} if script and script.notes else {}),
            }
            redaction = Redaction(nodes, secrets_of(kubeconfig, wanted.context))
            try:
                snapshot.take(recorder)
                if script:
                    recorder.play(script)
                else:
                    recorder.watch(wanted.seconds)
            finally:
                # Steps that were played cannot be played again as if they were new: what there is, is kept.
                write(file, head | {"steps": recorder.steps}, redaction)
    finally:
        api.close()
    return file


def write(file: Path, content: Json, redaction: Redaction) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(redaction.of(content), sort_keys=False, width=140, allow_unicode=True))


def _kubeconfig(wanted: RecordingRequest) -> Path:
    if wanted.lab:
        run = RunDir(wanted.lab)
        if not run.kubeconfig("admin").exists():
            raise LabError(f"No lab is running in {run.path}.", hint=hints.start(run))
        return run.kubeconfig("admin")
    named = wanted.kubeconfig or Path(os.environ.get("KUBECONFIG", "").partition(os.pathsep)[0] or "nowhere")
    if not named.is_file():
        raise LabError("No kubeconfig was given.", hint="Pass --kubeconfig or set KUBECONFIG.")
    return named


def _connect(kubeconfig: Path, context: str | None) -> Api:
    try:
        return Api.from_kubeconfig(kubeconfig, context)
    except (KeyError, StopIteration, TypeError, yaml.YAMLError) as error:
        raise LabError(
            f"{kubeconfig} cannot be used: {error!r}.",
            hint="It needs a current context (or --context) whose user has a token or a client certificate.",
        ) from None


@contextmanager
def _environment(api: Api, nodes: tuple[str, ...], lab: Path | None) -> Iterator[Environment]:
    history = History()
    with Watches(api, history) as watches:
        yield Environment(api, Control(lab) if lab else WallClock(), history, watches, nodes)


def _ask_person(action: str) -> None:
    if not sys.stdin.isatty():
        raise LabError(f"This step needs a person at the terminal: {action}.")
    input(f"Do this now, and press Enter as soon as it has started: {action} ")
