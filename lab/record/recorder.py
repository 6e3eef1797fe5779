"""Play steps on a cluster, or only watch it, and write a recording."""

from __future__ import annotations

import http
import itertools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from lab.errors import LabError
from lab.record import state
from lab.record.redaction import is_recorded, shown, shown_body
from lab.record.script import ACTS, Script, request_of
from lab.replay.compare.field import claim_summary
from lab.replay.observe.api import Answer
from lab.replay.observe.history import PLURAL, WATCHED, Key, Version
from lab.replay.play.environment import Environment, in_waits
from lab.replay.play.host_action import perform
from lab.replay.play.observation import vgpu_summary
from lab.replay.play.request_body import completed_body
from lab.replay.read.condition import parse_condition
from lab.replay.read.recording import Recording, Step
from lab.replay.read.step_context import StepContext, context_at

Json = dict[str, Any]
Say = Callable[[str], None]

PACE = 0.2
MERGE_PATCH = "application/merge-patch+json"
# Specs that people write and controllers do not.
WRITTEN_BY_PEOPLE = ("sriovgpudevices", "vgpudevices", "migconfigurations")
MACHINES = "/apis/kubevirt.io/v1/namespaces"


class Recorder:
    def __init__(
        self, environment: Environment, scenario: str, host_action: Callable[[str], None] | None, say: Say
    ) -> None:
        """`host_action` prompts a person where the lab cannot perform the action."""
        self.environment = environment
        self.steps: list[Json] = []
        self._scenario = scenario
        self._host_action = host_action
        self._say = say
        self._asked_at = 0.0

    def play(self, script: Script) -> None:
        for number, step in enumerate(script.steps, 1):
            self._say(f"{number} of {len(script.steps)}: {step['title'] or _describe(step)}")
            (act,) = ACTS & set(step)
            recorded = getattr(self, f"_{act}")(step)
            if "after" in step:
                recorded["after"] = {key: self._side_object(key) for key in step["after"]}
            self.add(step["title"], recorded)

    def add(self, title: str, content: Json) -> None:
        self.steps.append({"id": f"{self._scenario}-{len(self.steps) + 1:02}", "title": title, **content})

    # Acts
    def ask(self, title: str, path: str) -> None:
        """Send and record a GET request. Skip what the user may not read."""
        answer = self.environment.api.request("GET", path)
        if answer.status == http.HTTPStatus.FORBIDDEN:
            self._say(f"Left out, since the user may not read it: {path}")
        else:
            self.add(title, {"request": {"method": "GET", "path": path}, "response": _response(answer)})

    def _request(self, step: Json) -> Json:
        request = request_of(step)
        if request.writes:
            self.environment.refresh()
        answer = self.environment.api.request(
            request.method, request.path, completed_body(self.environment.api, request), request.content_type
        )
        self._asked_at = self.environment.now
        kind = "VirtualMachine" if request.target.is_virtual_machine else ""
        sent = {key: value for key, value in step["request"].items() if key != "body"}
        if request.body is not None:
            sent["body"] = shown_body(kind, request.body)
        return {"request": sent, "response": _response(answer)}

    def _wait(self, step: Json) -> Json:
        wait = step["wait"]
        condition = parse_condition(wait["until"], step["title"], self._context(step))
        assert condition is not None, "checked before the first step"
        reached, _ = self.environment.wait(condition, wait["timeout"], in_waits)
        result = {"until": wait["until"], "reached": reached}
        if not reached:
            result["timeout"] = wait["timeout"]
        result["secondsSinceRequest"] = round(self.environment.now - self._asked_at, 1)
        return {"wait": result}

    def _observe(self, step: Json) -> Json:
        context = self._context(step)
        self.environment.refresh(from_api=True)
        since, began = self.environment.history.revision, self.environment.now
        self._pass(step["observe"]["seconds"])
        return {"observe": self._observed(began, since, None, {context.node, context.device or ""})}

    def _hostAction(self, step: Json) -> Json:  # noqa: N802 - named as the key it handles
        action = str(step["hostAction"])
        if self._host_action:
            self._host_action(action)
        elif not perform(action, step["title"], self._context(step), self.environment):
            raise LabError(f"The lab cannot perform this host action: {action}.")
        self.environment.refresh(from_api=True)
        self._asked_at = self.environment.now
        return {"hostAction": action}

    def _note(self, step: Json) -> Json:
        return {"note": step["note"]}

    def _context(self, step: Json) -> StepContext:
        content = [*self.steps, {key: value for key, value in step.items() if key != "after"}]
        steps = tuple(_as_step(one, index) for index, one in enumerate(content))
        return context_at(Recording("", "", "", "", self.environment.nodes, steps), len(steps) - 1)

    # Watching
    def watch(self, seconds: float) -> None:
        """Record changes by controllers, and changes of a spec by others as requests."""
        self.environment.refresh(from_api=True)
        began, since = self.environment.now, self.environment.history.revision
        self._say(f"Watching for {seconds:g} s without writing to the cluster. Press Ctrl-C to stop earlier.")
        try:
            self._pass(seconds)
        except KeyboardInterrupt:
            self._say("Stopped. Writing what was recorded so far.")
        for key, before, after in self._writes_of_others(since):
            self._add_span(began, since, after.revision - 1, after.at)
            self._add_write(key, before, after)
            began, since = after.at, after.revision
        self._add_span(began, since, None, self.environment.now)

    def _pass(self, seconds: float) -> None:
        began = self.environment.now
        while self.environment.now - began < seconds - PACE / 2:
            self.environment.advance(PACE)

    def _writes_of_others(self, since: int) -> list[tuple[Key, Version, Version]]:
        changes = []
        for plural in WRITTEN_BY_PEOPLE:
            for name in self.environment.snapshot.all(plural):
                versions = self.environment.history.versions((plural, name))
                for before, after in itertools.pairwise(versions):
                    if after.revision > since and before.object and after.object and _spec_change(before, after):
                        changes.append(((plural, name), before, after))
        return sorted(changes, key=lambda change: change[2].revision)

    def _add_span(self, began: float, since: int, until: int | None, ended: float) -> None:
        observed = self._observed(began, since, until, self.environment.nodes, ended=ended)
        if len(observed["transitions"]) > 1 or ended - began >= 1.0:
            self.add("what happens", {"observe": observed})

    def _add_write(self, key: Key, before: Version, after: Version) -> None:
        assert after.object is not None
        path = f"{WATCHED[key[0]]}/{key[1]}"
        body = {"spec": _spec_change(before, after)}
        request = {"method": "PATCH", "path": path, "contentType": MERGE_PATCH, "body": body}
        response = {"status": 200, "object": shown(after.object)}
        self.add(f"somebody writes {key[1]}", {"request": request, "response": response})

    def _observed(
        self, began: float, since: int, until: int | None, about: Iterable[str], ended: float | None = None
    ) -> Json:
        transitions = state.transitions(
            self.environment.history, self.environment.nodes, since=since, until=until, about=set(about)
        )
        for transition in transitions:
            transition["at"] = round(max(transition["at"] - began, 0.0), 1)
        seconds = round((self.environment.now if ended is None else ended) - began, 1)
        return {"seconds": seconds, "transitions": transitions}

    # Side objects
    def _side_object(self, key: str) -> Any:
        kind, _, name = key.partition("/")
        what, _, node = key.partition(" of ")
        if name and kind == "VirtualMachine":
            namespace, _, vm = name.rpartition("/")
            return self._read(f"{MACHINES}/{namespace or 'default'}/virtualmachines/{vm}")
        if name and kind == "KubeVirt":
            return self._read(f"/apis/kubevirt.io/v1/namespaces/harvester-system/kubevirts/{name}")
        if name and kind in PLURAL:
            return self._read(f"{WATCHED[PLURAL[kind]]}/{name}")
        if what == "VGPUDevices" and node:
            return _groups(self._of_node("vgpudevices", node))
        if what == "PCIDeviceClaims" and node:
            return [claim_summary(claim) for claim in self._of_node("pcideviceclaims", node).values()]
        if what == "counts" and node:
            plurals = [plural for plural in PLURAL.values() if plural not in ("nodes", "kubevirts")]
            return {plural: len(self._of_node(plural, node)) for plural in plurals}
        raise LabError(
            f"after: {key} is not supported.",
            hint="Use <Kind>/<name>, VGPUDevices of <node>, PCIDeviceClaims of <node> or counts of <node>.",
        )

    def _of_node(self, plural: str, node: str) -> dict[str, Json]:
        self.environment.refresh(from_api=True)
        return self.environment.snapshot.of_node(plural, node)

    def _read(self, path: str) -> Json:
        answer = self.environment.api.request("GET", path)
        if answer.status == http.HTTPStatus.NOT_FOUND:
            return {"message": answer.message, "reason": answer.reason, "code": 404}
        return shown(answer.object or {})


def _as_step(content: Json, index: int) -> Step:
    act = next((act for act in ACTS if act in content), "note")
    return Step("", index, "", str(content.get("title", "")), act, content)


def _response(answer: Answer) -> Json:
    response: Json = {"status": answer.status}
    if answer.warnings:
        response["warnings"] = list(answer.warnings)
    if not answer.accepted:
        return response | {"reason": answer.reason, "message": answer.message}
    live = answer.object or {}
    if is_recorded(str(live.get("kind", "")).removesuffix("List")):
        response["object"] = shown(live)
    return response


def _spec_change(before: Version, after: Version) -> Json:
    old, new = ((version.object or {}).get("spec") or {} for version in (before, after))
    return {key: new.get(key) for key in {**old, **new} if old.get(key) != new.get(key)}


def _groups(vgpus: dict[str, Json]) -> list[Json]:
    """Group devices with equal state."""
    groups: list[Json] = []
    for name, vgpu in vgpus.items():
        summary = {key: value for key, value in vgpu_summary(vgpu).items() if key != "uuid" or value}
        for group in groups:
            if {key: value for key, value in group.items() if key != "devices"} == summary:
                group["devices"].append(name)
                break
        else:
            groups.append({"devices": [name], **summary})
    return groups


def _describe(step: Json) -> str:
    if "request" in step:
        return f"{step['request']['method']} {step['request']['path']}"
    return next(f"{act} {step[act]}" for act in ACTS if act in step)


def say(message: str) -> None:
    print(message, file=sys.stderr)
