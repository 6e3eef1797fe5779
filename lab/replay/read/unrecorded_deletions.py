"""Find VMs that were deleted without being recorded, from what later steps show."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from lab.replay.read.recording import Recording, Request, Step

BLOCKS = re.compile(r"(?:device|pcideviceclaim) (?P<device>\S+) is (?:already )?in use with (?:VM|vm) (?P<vm>\S+) in")
NONE_LEFT = re.compile(
    r"\bno VMs? left\b|\bVMs? (?:is|are|was|were)? ?(?:gone|deleted|removed)\b|\bnot in use\b", re.IGNORECASE
)


@dataclass
class _Walk:
    alive: dict[str, str] = field(default_factory=dict)
    # Which requests and devices a machine was seen to block, since it was last touched.
    blocks: dict[str, set[str]] = field(default_factory=dict)
    webhook_up: bool = True


def deleted_before(recording: Recording) -> dict[int, list[tuple[str, str]]]:
    """For a step's index: namespace and name of the machines that were gone when the step began."""
    walk = _Walk()
    gone: dict[int, list[tuple[str, str]]] = {}
    for step in recording.steps:
        names = _gone(walk, recording, step)
        if names:
            gone[step.index] = [(walk.alive.pop(name), name) for name in sorted(names)]
        _follow(walk, step)
    return gone


def _gone(walk: _Walk, recording: Recording, step: Step) -> set[str]:
    unmentioned = {name for name in walk.alive if not _mentioned(recording, step.index, name)}
    if step.title.lower().startswith("cleanup") or (step.request and NONE_LEFT.search(step.title)):
        return unmentioned
    request = step.request
    if request is None:
        return set()
    if request.target.is_virtual_machine:
        if request.method == "GET" and (step.response.get("object") or {}).get("items") == []:
            return set(walk.alive)
        if request.method == "POST" and step.accepted and isinstance(request.body, dict):
            return {name for name in walk.alive if name == (request.body.get("metadata") or {}).get("name")}
        return set()
    if not _takes_away(request) or not step.accepted or not walk.webhook_up:
        return set()
    about = {request.path.partition("?")[0], request.target.name or ""}
    return {name for name, blocked in walk.blocks.items() if name in unmentioned and blocked & about}


def _takes_away(request: Request) -> bool:
    """Return whether the request is one that a device in use denies."""
    spec = request.body.get("spec") if isinstance(request.body, dict) else None
    return request.method == "DELETE" or (isinstance(spec, dict) and spec.get("enabled") is False)


def _mentioned(recording: Recording, index: int, name: str) -> bool:
    """Return whether the step or a later one needs the VM."""
    for step in recording.steps[index:]:
        if step.request and step.request.target.is_virtual_machine:
            if step.request.target.name == name:
                return True
            items = (step.response.get("object") or {}).get("items") or []
            if any(item["metadata"]["name"] == name for item in items):
                return True
        if re.search(rf"\b(?:VM|vm) {re.escape(name)}\b", str(step.response.get("message", ""))):
            return True
    return False


def _follow(walk: _Walk, step: Step) -> None:
    if step.act == "hostAction":
        action = str(step.content["hostAction"])
        if "process" in action:
            walk.webhook_up = "started" in action
    request = step.request
    if request is None:
        return
    if match := BLOCKS.search(str(step.response.get("message", ""))):
        walk.blocks.setdefault(match["vm"], set()).update((match["device"], request.path.partition("?")[0]))
    if not request.target.is_virtual_machine or not request.writes or not step.accepted:
        return
    name = request.target.name or ""
    if request.method == "POST":
        name = str((request.body.get("metadata") or {}).get("name"))
        walk.alive[name] = request.target.namespace or "default"
    elif request.method == "DELETE":
        walk.alive.pop(name, None)
    walk.blocks.pop(name, None)
