"""The context of a step: object, node and type of the steps before it, to which its phrases refer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lab.replay.observe.history import PLURAL, Key
from lab.replay.read.recording import Recording, Request, Step

DEVICE = re.compile(r"\b([a-z0-9](?:[a-z0-9.-]*[a-z0-9])?-[0-9a-f]{9})\b")
DEFAULT_PROFILE = "NVIDIA A2-4Q"
PROFILE = re.compile(r".+-\d+[A-Z]+")
# Objects that have the same name as one of another kind (harvester.md 2.6).
RELATED = {
    "migconfigurations": ("migconfigurations", "sriovgpudevices"),
    "pcideviceclaims": ("pcideviceclaims", "vgpudevices"),
    "pcidevices": ("pcidevices", "vgpudevices"),
}


@dataclass
class StepContext:
    nodes: tuple[str, ...]
    node: str
    subject: Key | None = None
    profile: str = DEFAULT_PROFILE
    # vGPU devices that requests named so far, in the order of their first request.
    touched: list[str] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    @property
    def device(self) -> str | None:
        """Return the vGPU device of the last requests."""
        if self.subject and self.subject[0] in ("vgpudevices", "pcideviceclaims", "pcidevices"):
            return self.subject[1]
        return self.touched[-1] if self.touched else None

    def latest(self, plural: str | None) -> Key | None:
        """The object of this kind that the last requests were about: itself, or the one that shares its name."""
        if plural is None:
            return None
        for related in RELATED.get(plural, (plural,)):
            for request in reversed(self.requests):
                if request.target.plural == related and request.target.name:
                    return (plural, request.target.name)
        return None

    def named(self, field_name: str) -> list[tuple[str, Any]]:
        """The vGPU devices that a request gave a value for the field of their spec, with that value."""
        devices = []
        for request in self.requests:
            spec = request.body.get("spec") if isinstance(request.body, dict) else None
            device = request.target.name if request.target.plural == "vgpudevices" else None
            if device and isinstance(spec, dict) and field_name in spec:
                devices.append((device, spec[field_name]))
        return devices


def resource_of(profile: str) -> str:
    """Return the resource name of a profile, also for the short spelling of the recordings (4Q)."""
    if profile.startswith("nvidia.com/"):
        return profile
    if re.fullmatch(r"\d+[A-Z]+", profile):
        profile = f"NVIDIA A2-{profile}"
    return "nvidia.com/" + re.sub(r"\s+", "_", profile.strip())


def context_at(recording: Recording, index: int) -> StepContext:
    """Return the context of the step with this index."""
    context = StepContext(recording.nodes, recording.nodes[0])
    for step in recording.steps[:index]:
        _follow(context, step)
    if context.subject is None:
        ahead = next((step for step in recording.steps[index:] if step.request and step.request.writes), None)
        if ahead:
            _follow(context, ahead)
            context.touched.clear()
    _mention(context, recording.steps[index])
    return context


def _follow(context: StepContext, step: Step) -> None:
    _mention(context, step)
    if not step.request:
        return
    target = step.request.target
    context.requests.append(step.request)
    name = target.name
    body = step.request.body
    if name is None and step.request.method == "POST" and isinstance(body, dict):
        name = (body.get("metadata") or {}).get("name")
    if name and target.plural in PLURAL.values() and (target.plural != "nodes" or target.group == ""):
        context.subject = (target.plural, name)
        if target.plural == "nodes":
            context.node = name
    if name and target.plural == "vgpudevices":
        if name not in context.touched:
            context.touched.append(name)
        spec = (body.get("spec") if isinstance(body, dict) else None) or {}
        if step.accepted and spec.get("enabled") is True and PROFILE.fullmatch(str(spec.get("vGPUTypeName"))):
            context.profile = spec["vGPUTypeName"]


def _mention(context: StepContext, step: Step) -> None:
    """A node is mentioned by its name or by the name of one of its devices; the last mention counts."""
    texts = [step.title]
    if step.request:
        texts.append(step.request.path)
    if step.act == "wait":
        texts.append(str(step.content["wait"].get("until", "")))
    if step.act == "hostAction":
        texts.append(str(step.content["hostAction"]))
    for text in texts:
        node = node_in(text, context.nodes)
        if node:
            context.node = node


def node_in(text: str, nodes: tuple[str, ...]) -> str | None:
    places = {text.rfind(node): node for node in nodes if re.search(rf"\b{re.escape(node)}\b", text)}
    return places[max(places)] if places else None
