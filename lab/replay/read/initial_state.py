"""Derive the initial state of a recording from the first thing that it shows of each part.

Scenarios were recorded one after the other on the same cluster, so most begin with what earlier ones left behind.
An answer to a write shows the status before it, and the fields of the spec that the write left alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lab.replay.read.condition import CONFIGURED, types_of
from lab.replay.read.recording import Recording, Request, Step
from lab.replay.read.step_context import DEFAULT_PROFILE, DEVICE, node_in, resource_of

Json = dict[str, Any]
OWN_LABELS = ("nodename", "harvesterhci.io/parentSRIOVGPUDevice")
# A switch-on that shows its sixteen devices sooner than this changed nothing.
AT_ONCE = 5.0


@dataclass
class Vgpu:
    enabled: bool = False
    profile: str = ""
    configured: str = ""
    generation: int = 1
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass
class Amounts:
    capacity: int
    # Not known when something before the first look had lowered or raised it.
    allocatable: int | None


@dataclass
class InitialState:
    gpus: dict[str, bool] = field(default_factory=dict)
    vgpus: dict[str, Vgpu] = field(default_factory=dict)
    amounts: dict[str, dict[str, Amounts]] = field(default_factory=dict)
    permitted: set[str] = field(default_factory=set)
    # Sizes that free devices of a node were offered, where something unseen had fixed the size.
    offered: dict[str, list[str]] = field(default_factory=dict)
    mig: set[str] = field(default_factory=set)
    machines: list[tuple[str, Json]] = field(default_factory=list)
    # Devices whose earlier owner shows, since server-side apply is told of it.
    written: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class ShownObject:
    """An object as a step shows it; `written` holds the fields of the spec that the step itself had just set."""

    kind: str
    name: str
    object: Json
    written: frozenset[str] = frozenset()


def initial_state_of(recording: Recording) -> InitialState:
    # Twice, as a GPU switched on that was on already has changed nothing, which the first pass finds out.
    return _InitialStateReader(recording, _InitialStateReader(recording, {}).initial_state().gpus).initial_state()


class _InitialStateReader:
    def __init__(self, recording: Recording, gpus: dict[str, bool]) -> None:
        self.recording = recording
        self.gpus = gpus
        self.start = InitialState()
        self.changed: set[str] = set()
        self.resized: set[str] = set()
        self.raised: dict[str, set[str]] = {node: set() for node in recording.nodes}
        self.unsteady: set[str] = set()
        self.posted: set[str] = set()
        self.switched_on: list[tuple[str, Step]] = []

    def initial_state(self) -> InitialState:
        for step in self.recording.steps:
            for shown in answered_by(step):
                self._learn(shown)
            self._learn_machines(step)
            self._mark_changes(step)
            for shown in seen_after(step):
                self._learn(shown)
            self._learn_amounts(step)
        self._conclude_gpus()
        self.start.written = {
            step.request.target.name
            for step in self.recording.steps
            if step.request and step.request.content_type == "application/apply-patch+yaml" and step.request.target.name
            if self.start.vgpus.get(step.request.target.name, Vgpu()).generation > 1
        }
        return self.start

    # What a step shows.
    def _learn(self, shown: ShownObject) -> None:
        node = shown.name.rpartition("-")[0]
        spec, status = shown.object.get("spec") or {}, shown.object.get("status") or {}
        if shown.kind == "SRIOVGPUDevice" and shown.name not in self.changed:
            on = bool(status.get("vfAddresses")) if "enabled" in shown.written else bool(spec.get("enabled"))
            self.start.gpus.setdefault(node, on)
        if shown.kind == "MigConfiguration" and shown.name not in self.changed and "spec" in shown.object:
            self.start.mig.add(node)
        if shown.kind == "KubeVirt" and not self.unsteady and not any(self.raised.values()):
            lists = ((spec.get("configuration") or {}).get("permittedHostDevices") or {}).values()
            self.start.permitted |= {entry["resourceName"] for entries in lists for entry in entries}
        if shown.kind == "VGPUDevice" and shown.name not in self.changed and "spec" in shown.object:
            self._learn_vgpu(shown, node, spec, status)
        if shown.kind == "VGPUDevice" and spec.get("nodeName") not in (None, node) and not shown.written:
            self._learn_host(str(spec["nodeName"]), shown)

    def _learn_vgpu(self, shown: ShownObject, node: str, spec: Json, status: Json) -> None:
        configured = str(status.get("configureVGPUTypeName") or "")
        holds = status.get("vGPUStatus") == CONFIGURED
        metadata = shown.object.get("metadata") or {}
        vgpu = Vgpu(
            enabled=holds if "enabled" in shown.written else bool(spec.get("enabled")),
            profile=configured if "vGPUTypeName" in shown.written else str(spec.get("vGPUTypeName") or ""),
            configured=configured if holds else "",
            generation=int(metadata.get("generation", 1)) - bool(shown.written),
        )
        if "metadata" not in shown.written:
            vgpu.labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in OWN_LABELS}
            vgpu.annotations = dict(metadata.get("annotations") or {})
        known = self.start.vgpus.setdefault(shown.name, vgpu)
        known.generation = max(known.generation, vgpu.generation)
        offered = list(types_of(shown.object))
        if offered and not vgpu.enabled and node not in self.resized:
            self.start.offered.setdefault(node, offered)

    def _learn_host(self, host: str, shown: ShownObject) -> None:
        """A device that was moved to another node by name shows what the function at its address offers there."""
        offered = list(types_of(shown.object))
        if host in self.recording.nodes and host not in self.resized and offered:
            self.start.offered.setdefault(host, offered)

    def _learn_amounts(self, step: Step) -> None:
        for node, amounts in _amounts_in(step, self.recording):
            known = self.start.amounts.setdefault(node, {})
            for resource, (capacity, allocatable) in amounts.items():
                if resource not in self.raised[node]:
                    steady = node not in self.unsteady
                    known.setdefault(resource, Amounts(capacity, allocatable if steady else None))

    def _learn_machines(self, step: Step) -> None:
        request = step.request
        if not request or not request.target.is_virtual_machine:
            return
        if request.method == "POST" and isinstance(request.body, dict):
            self.posted.add((request.body.get("metadata") or {}).get("name", ""))
        for item in (step.response.get("object") or {}).get("items") or []:
            if item["metadata"]["name"] not in self.posted:
                self.start.machines.append((request.path.partition("?")[0], item))
                self.posted.add(item["metadata"]["name"])

    # What a step changes, so that later steps no longer show the initial state.
    def _mark_changes(self, step: Step) -> None:
        if step.act == "hostAction":
            self._mark_host_action(str(step.content["hostAction"]) + " " + step.title)
        request = step.request
        if request is None or not request.writes or not step.accepted or request.target.name is None:
            return
        name, plural = request.target.name, request.target.plural
        node = name.rpartition("-")[0]
        fields = written_fields(request)
        if plural == "sriovgpudevices" and node in self.raised and ("enabled" in fields or request.method == "DELETE"):
            if written_spec(request).get("enabled") is True and self.gpus.get(node):
                return
            if "enabled" in fields and node not in self.start.gpus:
                self.switched_on.append((node, step))
            self.changed |= {name, *self._devices(node)}
            self.resized.add(node)
            self.unsteady.add(node)
        if plural == "vgpudevices" and (fields - {"metadata"} or request.method == "DELETE"):
            self._mark_vgpu(name, node, step, fields)
        if plural == "migconfigurations":
            self.changed.add(name)

    def _mark_vgpu(self, name: str, node: str, step: Step, fields: frozenset[str]) -> None:
        assert step.request is not None
        spec = written_spec(step.request)
        if name not in self.start.vgpus and "enabled" in fields:
            was_on = spec.get("enabled") is False
            self.start.vgpus[name] = Vgpu(was_on, DEFAULT_PROFILE if was_on else "", DEFAULT_PROFILE if was_on else "")
        self.changed.add(name)
        self.resized.add(node)
        if spec.get("enabled") is True and node in self.raised:
            answered = (step.response.get("object") or {}).get("spec") or {}
            self.raised[node].add(resource_of(str(spec.get("vGPUTypeName") or answered.get("vGPUTypeName") or "")))
        elif spec.get("enabled") is False and self.start.vgpus[name].enabled:
            self.unsteady.add(node)

    def _mark_host_action(self, action: str) -> None:
        nodes = [node for node in self.recording.nodes if re.search(rf"\b{re.escape(node)}\b", action)]
        for node in nodes or self.recording.nodes:
            self.unsteady.add(node)
            if "reboot" in action:
                self.changed |= set(self._devices(node))
                self.raised[node] |= {"any"} | set(self.start.amounts.get(node, {}))
            if "MIG" in action:
                self.changed |= {device for device in self._gpus() if device.startswith(f"{node}-")}

    def _devices(self, node: str) -> Iterator[str]:
        for step in self.recording.steps:
            yield from (name for name in DEVICE.findall(str(step.content)) if name.startswith(f"{node}-"))

    def _gpus(self) -> set[str]:
        return {
            step.request.target.name
            for step in self.recording.steps
            if step.request and step.request.target.plural == "sriovgpudevices" and step.request.target.name
        }

    # GPUs that no step shows as they were.
    def _conclude_gpus(self) -> None:
        gpus = self.start.gpus
        for node, step in self.switched_on:
            in_use = any(vgpu.enabled for name, vgpu in self.start.vgpus.items() if name.startswith(f"{node}-"))
            if node not in gpus and (in_use or self._seconds_to_ready(step) < AT_ONCE):
                gpus[node] = True
        for node, on in self.gpus.items():
            gpus.setdefault(node, on)
        fresh = bool(gpus) and not any(gpus.values())
        for node in self.recording.nodes:
            gpus.setdefault(node, not fresh and node not in {one for one, _ in self.switched_on})

    def _seconds_to_ready(self, step: Step) -> float:
        passed = 0.0
        for later in self.recording.steps[step.index + 1 :]:
            if later.act == "observe":
                passed += float(later.content["observe"].get("seconds", 0))
            if later.act == "wait":
                wait = later.content["wait"]
                passed = max(passed, float(wait.get("secondsSinceRequest", 0))) + float(wait.get("seconds", 0))
                if re.search(r"VGPUDevices|types", str(wait.get("until"))):
                    return passed
        return AT_ONCE


def written_spec(request: Request) -> Json:
    """Return what the body of a write sets in the spec."""
    if isinstance(request.body, dict):
        return request.body.get("spec") or {}
    operations = request.body if isinstance(request.body, list) else []
    return {str(operation.get("path", "")).removeprefix("/spec/"): operation.get("value") for operation in operations}


def written_fields(request: Request) -> frozenset[str]:
    """Return the fields of the spec that a write sets; `metadata` for labels or annotations."""
    body = request.body
    if isinstance(body, str):
        return frozenset(re.findall(r'"(enabled|vGPUTypeName)"', body))
    if isinstance(body, list):
        paths = [str(item.get("path", "")) for item in body if item.get("op") != "test"]
        return frozenset(path.removeprefix("/spec/") if path.startswith("/spec/") else "metadata" for path in paths)
    if not isinstance(body, dict):
        return frozenset()
    fields = set(body.get("spec") or {})
    if request.method == "PATCH" and body.get("metadata"):
        fields.add("metadata")
    return frozenset(fields)


def answered_by(step: Step) -> Iterator[ShownObject]:
    recorded = step.response.get("object") or {}
    if not step.request or not step.accepted:
        return
    written = written_fields(step.request) if step.request.method != "GET" else frozenset()
    for item in recorded.get("items") or [recorded]:
        if item.get("metadata", {}).get("name") and item.get("kind") != "Status":
            yield ShownObject(str(item.get("kind")), item["metadata"]["name"], item, written)


def seen_after(step: Step) -> Iterator[ShownObject]:
    seen = step.content.get("object")
    if step.act == "object" and isinstance(seen, dict) and seen.get("metadata"):
        yield ShownObject(str(seen.get("kind")), seen["metadata"]["name"], seen)
    for key, value in step.after.items():
        kind, _, name = key.partition("/")
        if name and isinstance(value, dict):
            yield ShownObject(kind, name, value)
        elif key.startswith("VGPUDevices of "):
            for group in value or []:
                yield from (ShownObject("VGPUDevice", device, _from_group(group)) for device in group["devices"])


def _from_group(group: Json) -> Json:
    return {
        "spec": {"enabled": group.get("enabled"), "vGPUTypeName": group.get("vGPUTypeName")},
        "status": {
            "vGPUStatus": group.get("vGPUStatus"),
            "configureVGPUTypeName": group.get("configureVGPUTypeName"),
            "availableTypes": dict.fromkeys(group.get("availableTypes") or [], ""),
        },
    }


def _amounts_in(step: Step, recording: Recording) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
    for shown in (*answered_by(step), *seen_after(step)):
        amounts = shown.object.get("status") or shown.object
        capacity, allocatable = amounts.get("capacity"), amounts.get("allocatable")
        if shown.name in recording.nodes and capacity is not None and allocatable is not None:
            yield shown.name, {name: (int(capacity[name]), int(allocatable.get(name, 0))) for name in capacity}
    state = step.content.get("object")
    if step.act == "object" and isinstance(state, dict) and "kind" not in state:
        short = {key.removeprefix("capacity") for key in state if key.startswith("capacity")}
        ahead = next((later for later in recording.steps[step.index :] if later.request), None)
        node = node_in(ahead.request.path, recording.nodes) if ahead and ahead.request else None
        yield (
            node or recording.nodes[0],
            {
                resource_of(name): (int(state[f"capacity{name}"]), int(state.get(f"allocatable{name}", 0)))
                for name in short
                if state.get(f"capacity{name}") is not None
            },
        )
