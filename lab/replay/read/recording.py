"""A recording: requests to a real system step by step, and its responses."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from lab.errors import LabError

Json = dict[str, Any]

HARVESTER_VERSION = {
    "v1.4": "1.4",
    "v1.5": "1.7",
    "v1.6": "1.7",
    "v1.7": "1.7",
    "v1.8": "1.8",
    "v1.9": "1.9",
    "master": "1.9",
}
ACTS = ("request", "wait", "observe", "hostAction", "result", "object", "note")
WRITES = ("POST", "PUT", "PATCH", "DELETE")
LATER = re.compile(r"\b(\d+(?:\.\d+)?) s(?:econds)? later\b")


@dataclass(frozen=True)
class Target:
    """The resource and object of a request path."""

    group: str
    version: str
    plural: str
    name: str | None = None
    namespace: str | None = None
    subresource: str | None = None

    @classmethod
    def of(cls, path: str) -> Target:
        parts = [part for part in urlsplit(path).path.split("/") if part]
        group = ""
        if parts[:1] != ["api"] and len(parts) > 1:
            group = parts.pop(1)
        version, rest = (parts[1] if len(parts) > 1 else ""), parts[2:]
        namespace = None
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, None, None, None)[:3]
        return cls(group, version, plural or "", name, namespace, subresource)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_virtual_machine(self) -> bool:
        return self.group == "kubevirt.io" and self.plural == "virtualmachines"


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: Any = None
    content_type: str | None = None

    @cached_property
    def target(self) -> Target:
        return Target.of(self.path)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.query

    @property
    def writes(self) -> bool:
        return self.method in WRITES and not self.dry_run


@dataclass(frozen=True)
class Step:
    recording: str
    index: int
    id: str
    title: str
    act: str
    content: Json

    @cached_property
    def request(self) -> Request | None:
        if self.act != "request":
            return None
        request = self.content["request"]
        return Request(request["method"], request["path"], request.get("body"), request.get("contentType"))

    @property
    def response(self) -> Json:
        return self.content.get("response") or {}

    @property
    def accepted(self) -> bool:
        return 200 <= self.response.get("status", 0) < 300

    @property
    def after(self) -> Json:
        return self.content.get("after") or {}

    @property
    def pause(self) -> float:
        """Return the seconds before the step that were not recorded as a step."""
        later = LATER.search(self.title)
        return float(later.group(1)) if later else 0.0


@dataclass(frozen=True)
class Recording:
    name: str
    version: str
    scenario: str
    title: str
    nodes: tuple[str, ...]
    steps: tuple[Step, ...]
    # Cards by node, where they are not those of the first recordings.
    gpus: dict[str, list[Json]] = field(default_factory=dict)

    @property
    def harvester_version(self) -> str:
        try:
            return HARVESTER_VERSION[self.version]
        except KeyError:
            known = ", ".join(HARVESTER_VERSION)
            raise LabError(
                f"Recording {self.name} has the unknown version {self.version}.", hint=f"Known versions: {known}."
            ) from None

    @property
    def mdev(self) -> bool:
        return tuple(int(part) for part in self.harvester_version.split(".")) < (1, 8)


def load(path: Path) -> Recording:
    try:
        content = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise LabError(f"{path} is not valid YAML: {error}.") from error
    if not isinstance(content, dict) or "steps" not in content:
        raise LabError(f"{path} is not a recording: it has no steps.", hint="docs/replay.md describes the format.")
    name = path.stem
    version, _, scenario = name.partition("-")
    steps = []
    for index, step in enumerate(content["steps"] or []):
        act = next((act for act in ACTS if act in step), "note")
        identity = str(step.get("id", f"#{index + 1}"))
        steps.append(Step(name, index, identity, str(step.get("title") or ""), act, step))
    return Recording(
        name=name,
        version=str(content.get("version") or version),
        scenario=str(content.get("scenario") or scenario),
        title=str(content.get("title") or ""),
        nodes=tuple((content.get("host") or {}).get("nodes") or ("gpu-a", "gpu-b")),
        steps=tuple(steps),
        gpus=(content.get("host") or {}).get("gpus") or {},
    )


def load_all(directory: Path, only: str | None = None) -> list[Recording]:
    if not directory.is_dir():
        raise LabError(f"{directory} is not a directory.", hint="Pass one with TRACES=DIR.")
    return [load(path) for path in _recordings_in(directory, only)]


def _recordings_in(directory: Path, only: str | None) -> Iterator[Path]:
    for path in sorted(directory.glob("*.yaml")):
        if only is None or fnmatch.fnmatch(path.stem, only) or fnmatch.fnmatch(path.name, only):
            yield path
