"""Read the steps to play and record from a file, and check them before the first is played."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from lab.errors import LabError
from lab.replay.read.condition import parse_condition
from lab.replay.read.recording import WRITES, Recording, Request, Step, Target
from lab.replay.read.step_context import context_at

Json = dict[str, Any]

ACTS = {"request", "wait", "observe", "hostAction", "note"}
# What a recording made before says of its steps; it may be played again as it is.
ANSWERS = {"response", "result", "object"}
REQUEST_KEYS = {"method", "path", "contentType", "body"}
DEVICES = "devices.harvesterhci.io"
# Resource and what a step may do to it. Secrets, settings and the like have no place in a recording.
ALLOWED = {
    (DEVICES, None): {"GET", *WRITES},
    ("", "nodes"): {"GET", "PATCH"},
    ("kubevirt.io", "kubevirts"): {"GET", "PATCH", "PUT"},
    ("kubevirt.io", "virtualmachines"): {"GET", *WRITES},
    ("harvesterhci.io", "addons"): {"GET", "PATCH", "PUT"},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {"GET"},
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): {"GET"},
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): {"GET"},
}
DEFAULT_TIMEOUT = 120.0


@dataclass(frozen=True)
class Script:
    title: str = ""
    notes: str = ""
    steps: tuple[Json, ...] = ()
    name: str = "steps"
    writes: int = field(default=0)


def load(path: Path) -> Script:
    try:
        content = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise LabError(f"The file {path} does not exist.") from None
    except yaml.YAMLError as error:
        raise LabError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from error
    if isinstance(content, list):
        content = {"steps": content}
    if not isinstance(content, dict) or not isinstance(content.get("steps"), list) or not content["steps"]:
        raise LabError(f"{path} does not contain a list of steps.", hint="See docs/record.md for an example.")
    steps = tuple(_step(f"Step {number} of {path.name}", one) for number, one in enumerate(content["steps"], 1))
    writes = sum(1 for step in steps if step.get("request", {}).get("method") in WRITES)
    return Script(str(content.get("title") or ""), str(content.get("notes") or ""), steps, path.stem, writes)


def _step(what: str, step: Any) -> Json:
    if not isinstance(step, dict):
        raise LabError(f"{what} is not a mapping.")
    acts = ACTS & set(step)
    if len(acts) != 1:
        if not acts and ANSWERS & set(step):
            return {"title": step.get("title", ""), "note": "left out: only a recording has such a step"}
        raise LabError(
            f"{what} must have exactly one of {', '.join(sorted(ACTS))}; it has {', '.join(sorted(acts)) or 'none'}."
        )
    unknown = set(step) - ACTS - ANSWERS - {"id", "title", "after"}
    if unknown:
        raise LabError(f"{what} has the unknown key {', '.join(sorted(map(str, unknown)))}.")
    (act,) = acts
    checked = {"title": str(step.get("title") or ""), act: CHECKS[act](what, step[act]) if act in CHECKS else step[act]}
    if step.get("after"):
        checked["after"] = [key for key in step["after"] if key != "seconds"]
    return checked


def _request(what: str, request: Any) -> Json:
    if not isinstance(request, dict) or not {"method", "path"} <= set(request) <= REQUEST_KEYS:
        raise LabError(f"{what}: request needs method and path, and may have contentType and body.")
    method, path = str(request["method"]).upper(), str(request["path"])
    target = Target.of(path)
    allowed = ALLOWED.get((target.group, None)) or ALLOWED.get((target.group, target.plural))
    if not path.startswith("/api") or allowed is None:
        known = ", ".join(sorted({plural or group for group, plural in ALLOWED}))
        raise LabError(f"{what}: {path} cannot be recorded.", hint=f"Supported resources: {known}.")
    if method not in allowed:
        raise LabError(
            f"{what}: {method} is not supported for {target.plural}.",
            hint=f"Supported methods: {', '.join(sorted(allowed))}.",
        )
    if method == "PATCH" and "contentType" not in request:
        raise LabError(f"{what}: a PATCH needs contentType.", hint="Usually application/merge-patch+json.")
    return request | {"method": method}


def _wait(what: str, wait: Any) -> Json:
    if not isinstance(wait, dict) or not wait.get("until"):
        raise LabError(f"{what}: wait needs the key until, and may have timeout.")
    limit = wait.get("timeout") or (3 * float(wait.get("seconds") or wait.get("secondsSinceRequest") or 0))
    return {"until": str(wait["until"]), "timeout": max(float(limit), 0.0) or DEFAULT_TIMEOUT}


def _observe(what: str, observe: Any) -> Json:
    if not isinstance(observe, dict) or not isinstance(observe.get("seconds"), int | float):
        raise LabError(f"{what}: observe needs the key seconds, a number.")
    return {"seconds": float(observe["seconds"])}


CHECKS = {"request": _request, "wait": _wait, "observe": _observe}


def check_phrases(script: Script, nodes: tuple[str, ...]) -> None:
    """Raise for an unknown condition before the first step is played."""
    steps = tuple(as_step(step, index) for index, step in enumerate(script.steps))
    recording = Recording(script.name, "", script.name, script.title, nodes, steps)
    for step in steps:
        if step.act == "wait":
            phrase = step.content["wait"]["until"]
            if parse_condition(phrase, step.title, context_at(recording, step.index)) is None:
                raise LabError(
                    f"Step {step.index + 1} waits for an unknown condition: {phrase}.",
                    hint="docs/replay.md lists the conditions.",
                )


def as_step(content: Json, index: int) -> Step:
    act = next(act for act in ACTS if act in content)
    return Step("", index, str(index), content.get("title", ""), act, content)


def request_of(content: Json) -> Request:
    request = content["request"]
    return Request(request["method"], request["path"], request.get("body"), request.get("contentType"))
