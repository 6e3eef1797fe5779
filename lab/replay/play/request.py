"""Send recorded requests and compare the responses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from lab.replay.compare.bindings import Bindings
from lab.replay.compare.difference import Difference, differences, object_differences, same_message
from lab.replay.observe.api import Answer
from lab.replay.observe.history import WATCHED, Key
from lab.replay.observe.normalized import normalized
from lab.replay.play.environment import Environment
from lab.replay.play.observation import (
    BEHIND,
    KIND,
    PACE,
    ObservationTracker,
    ObservedObject,
    observed_object,
    offers_of_configured,
)
from lab.replay.play.request_body import completed_body
from lab.replay.read.recording import Request, Step

Json = dict[str, Any]


# What a write and its answer took on the recorded cluster: the next one comes so much later.
WRITE_SECONDS = 0.06


class RequestPlayer:
    def __init__(self, environment: Environment, bindings: Bindings, tracker: ObservationTracker) -> None:
        self.environment = environment
        self.bindings = bindings
        self.tracker = tracker

    def ask(self, step: Step, *, at_once: Callable[[], None] = lambda: None) -> list[Difference]:
        """Play a request and compare the response. `at_once` is called without a delay."""
        request = step.request
        assert request is not None
        if request.method == "GET":
            return self._read(step, request)
        if request.target.plural == "sriovgpudevices":
            self.environment.await_scans()
        self._await_same_state(step, request)
        answer = self._send(request)
        at_once()
        differing = self._answer_differences(step, request, answer)
        self._remember(request, answer)
        self.environment.advance(WRITE_SECONDS)
        return differing

    # Reading.
    def _read(self, step: Step, request: Request) -> list[Difference]:
        target = request.target
        recorded = step.response.get("object")
        if recorded is None or not _watched(request) or not step.accepted:
            return self._read_until_same(step, request)
        answer = self._send(request)
        differing = self._status_differences(step, answer)
        if differing:
            return differing
        if target.name:
            return self.tracker.find_all([observed_object(recorded, (target.plural, target.name))])
        items = {item["metadata"]["name"]: item for item in recorded.get("items") or []}
        listed = {item["metadata"]["name"] for item in (answer.object or {}).get("items") or []}
        return self.tracker.find_all(
            observed_object(items.get(name) or {"code": 404}, (target.plural, name))
            for name in sorted({*items, *listed})
        )

    def _read_until_same(self, step: Step, request: Request) -> list[Difference]:
        began = self.environment.now
        while differing := self._answer_differences(step, request, self._send(request)):
            if self.environment.now - began >= BEHIND:
                break
            self.environment.advance(1.0)
        return differing

    # Writing.
    def _await_same_state(self, step: Step, request: Request) -> None:
        """Wait until a write meets the recorded state: the same status, and the same result of admission.

        Both are tried without effect, as time in the lab passes at its own pace.
        """
        key = _key(request)
        status = (step.response.get("object") or {}).get("status")
        seen = self._status_seen(key, status) if key and step.accepted and isinstance(status, dict) else None
        began = self.environment.now
        settled = seen is None
        while self.environment.now - began < BEHIND:
            settled = settled or (seen is not None and self.tracker.matches_history(seen))
            if settled and self._same_verdict(step, request):
                return
            self.environment.advance(self.environment.stride(PACE))

    def _status_seen(self, key: Key, status: Json) -> ObservedObject:
        place = f"{KIND[key[0]]}/{key[1]}"
        return ObservedObject(
            key,
            lambda live, bindings: object_differences({"status": status}, live, bindings, place),
            offers_of_configured(status),
        )

    def _same_verdict(self, step: Step, request: Request) -> bool:
        if request.dry_run:
            answer = self._send(request)
        else:
            separator = "&" if urlsplit(request.path).query else "?"
            path = f"{request.path}{separator}dryRun=All"
            answer = self._send(Request(request.method, path, request.body, request.content_type))
        return not self._status_differences(step, answer)

    def _send(self, request: Request) -> Answer:
        body = completed_body(self.environment.api, request)
        return self.environment.api.request(request.method, request.path, body, request.content_type)

    def _remember(self, request: Request, answer: Answer) -> None:
        if not request.writes or not answer.accepted:
            return
        live, key = answer.object or {}, _key(request)
        if key and live.get("kind") == KIND.get(key[0]) and request.method != "DELETE":
            self.tracker.wrote(key, live)
        self.environment.settle()
        if request.method == "DELETE":
            self.environment.refresh(from_api=True)

    # Comparing.
    def _status_differences(self, step: Step, answer: Answer) -> list[Difference]:
        recorded = step.response
        different = []
        if answer.status != recorded.get("status"):
            actual = f"{answer.status} {answer.message}" if answer.status >= 400 else answer.status
            expected = f"{recorded.get('status')} {recorded.get('message', '')}".strip()
            different.append(Difference("status", expected, actual))
        if "reason" in recorded and answer.reason != recorded["reason"]:
            different.append(Difference("reason", recorded["reason"], answer.reason))
        if "message" in recorded:
            trial = self.bindings.trial()
            if not same_message(recorded["message"], answer.message, trial, self._users):
                different.append(Difference("message", recorded["message"], answer.message))
        return different

    def _answer_differences(self, step: Step, request: Request, answer: Answer) -> list[Difference]:
        different = self._status_differences(step, answer)
        if different:
            return different
        recorded = step.response
        if list(answer.warnings) != list(recorded.get("warnings") or []):
            different.append(Difference("warnings", recorded.get("warnings"), list(answer.warnings)))
        shown = recorded.get("object")
        if isinstance(shown, dict):
            different += self._object_differences(shown, request, answer.object or {})
        return different

    def _object_differences(self, shown: Json, request: Request, live: Json) -> list[Difference]:
        if "items" in shown:
            return differences(shown, normalized(live), self.bindings)
        key = _key(request)
        trial = self.bindings.trial()
        different = object_differences(shown, live, trial)
        if not different:
            self.bindings.adopt(trial)
            return []
        if key is None or request.method == "POST":
            return different
        # The status in an answer is the one before the write, which may have moved on since it was recorded.
        trial = self.bindings.trial()
        without = object_differences({**shown, "status": None}, {**live, "status": None}, trial)
        if without or not self.tracker.matches_history(self._status_seen(key, shown.get("status") or {})):
            return different
        self.bindings.adopt(trial)
        return []

    def _users(self) -> set[str]:
        """Return the VMs with an allocation annotation, any of which a refusal may name."""
        listed = self.environment.api.get("/apis/kubevirt.io/v1/virtualmachines") or {}
        return {
            item["metadata"]["name"]
            for item in listed.get("items") or []
            if "harvesterhci.io/deviceAllocationDetails" in (item["metadata"].get("annotations") or {})
        }


def _key(request: Request) -> Key | None:
    """Return the key of the watched object that a request targets."""
    target = request.target
    if not _watched(request):
        return None
    name = target.name
    if name is None and isinstance(request.body, dict):
        name = (request.body.get("metadata") or {}).get("name")
    return (target.plural, name) if name else None


def _watched(request: Request) -> bool:
    target = request.target
    prefix = f"/apis/{target.group}/{target.version}/" if target.group else f"/api/{target.version}/"
    return WATCHED.get(target.plural, "").startswith(prefix)
