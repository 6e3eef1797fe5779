"""Decide which requests fail at the gate, and with which response. Pure and deterministic."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.faults import EVERY

CONFLICT, THROTTLED, UNAVAILABLE = "api-conflict", "api-throttled", "api-unavailable"
LOST, UNAUTHORIZED = "api-answer-lost", "token-expired"
SWITCHES = (CONFLICT, THROTTLED, UNAVAILABLE, LOST, UNAUTHORIZED)
# Those that hit a share of the writes, and which ones they can hit.
SHARED = {
    CONFLICT: ("PUT", "PATCH"),
    THROTTLED: ("POST", "PUT", "PATCH", "DELETE"),
    UNAVAILABLE: ("POST", "PUT", "PATCH", "DELETE"),
    LOST: ("POST", "PUT", "PATCH", "DELETE"),
}
# Questions that are asked by a POST.
REVIEW = re.compile(r"/apis/(?:authorization|authentication)\.k8s\.io/")
OBJECT = re.compile(
    r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/[^/]+)?/(?P<plural>[^/]+)/(?P<name>[^/?]+)(?:/[^/?]+)?"
)


@dataclass(frozen=True)
class Refusal:
    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Verdict:
    """Answered here, or passed on; `lost` when the connection is to end instead of an answer."""

    refusal: Refusal | None = None
    lost: bool = False
    expired: str | None = None


PASS = Verdict()


@dataclass
class Judge:
    """The switches that are on. The first write after a switch is hit, and then each that follows at its distance."""

    every: dict[str, int] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    # Watches that begin before this revision have expired, as after a compaction.
    compacted: int = 0

    @property
    def idle(self) -> bool:
        return not self.every and not self.compacted

    def switch(self, name: str, *, on: bool, every: int = EVERY) -> None:
        self.counted.pop(name, None)
        if on:
            self.every[name] = every
        else:
            self.every.pop(name, None)

    def verdict(self, method: str, path: str, query: Mapping[str, str]) -> Verdict:
        if UNAUTHORIZED in self.every:
            return Verdict(_refusal(401, "Unauthorized", "Unauthorized"))
        if query.get("watch") in ("1", "true") and self._expired(query.get("resourceVersion", "")):
            return Verdict(expired=_expired_event(int(query["resourceVersion"]), self.compacted))
        if REVIEW.match(path):
            return PASS
        for name, methods in SHARED.items():
            if name in self.every and method in methods and self._hits(name):
                return Verdict(lost=True) if name == LOST else Verdict(_answer(name, path))
        return PASS

    def _hits(self, name: str) -> bool:
        count = self.counted.get(name, 0)
        self.counted[name] = count + 1
        return count % self.every[name] == 0

    def _expired(self, revision: str) -> bool:
        return revision.isdigit() and 0 < int(revision) < self.compacted


def _answer(name: str, path: str) -> Refusal:
    if name == THROTTLED:
        # Plain text, as the real server's filter has it.
        text = b"Too many requests, please try again later.\n"
        return Refusal(429, text, {"Content-Type": "text/plain; charset=utf-8", "Retry-After": "1"})
    if name == UNAVAILABLE:
        return _refusal(503, "ServiceUnavailable", "the server is currently unable to handle the request")
    match = OBJECT.match(path)
    group, plural, obj = (match["group"], match["plural"], match["name"]) if match else ("", "", "")
    what = f"{plural}.{group}" if group else plural
    return _refusal(
        409,
        "Conflict",
        f'Operation cannot be fulfilled on {what} "{obj}": the object has been modified; please apply your changes'
        " to the latest version and try again",
    )


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def _refusal(code: int, reason: str, message: str) -> Refusal:
    body = json.dumps(_status(code, reason, message)).encode()
    return Refusal(code, body, {"Content-Type": "application/json"})


def _expired_event(revision: int, compacted: int) -> str:
    status = _status(410, "Expired", f"too old resource version: {revision} ({compacted})")
    return json.dumps({"type": "ERROR", "object": status}) + "\n"
