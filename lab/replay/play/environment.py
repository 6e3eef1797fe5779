"""The lab on which a recording is played: its API, clock and hosts, and the history of its objects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from lab.replay.observe.api import Answer, Api
from lab.replay.observe.history import WATCHED, History, Snapshot
from lab.replay.observe.host_state import Sample
from lab.replay.observe.watch import Watches
from lab.replay.read.condition import Condition, types_of

Json = dict[str, Any]
MERGE_PATCH = "application/merge-patch+json"
BAD_TYPE = "no such type"
LONGEST_STRIDE = 2.0
LONGEST_SCAN = 15.0


class Control(Protocol):
    """The part of the lab's control interface that is used here."""

    next_due: float | None

    def advance(self, seconds: float) -> float: ...
    def settle(self) -> Any: ...
    def now(self) -> float: ...
    def reboot(self, node: str) -> Any: ...
    def process(self, node: str, action: str) -> Any: ...
    def hardware(self, node: str) -> Json: ...
    def status(self) -> Json: ...


class Environment:
    def __init__(self, api: Api, control: Control, history: History, watches: Watches, nodes: tuple[str, ...]) -> None:
        self.api = api
        self.control = control
        self.history = history
        self.nodes = nodes
        self.snapshot = Snapshot({})
        self._watches = watches
        self.samplers: tuple[str, ...] = ()
        self.samples: list[Sample] = []
        self.history.now = control.now()
        self.refresh()

    @property
    def now(self) -> float:
        return self.history.now

    def refresh(self, *, from_api: bool = False) -> Snapshot:
        """Update the snapshot from the watches, or with `from_api` from the API server."""
        if from_api:
            for plural, path in WATCHED.items():
                if listed := self.api.get(path):
                    self.history.merge(plural, listed)
        else:
            self._watches.catch_up()
        self.snapshot = self.history.snapshot()
        if self.samplers:
            self.samples.append(self.sample(self.samplers))
        return self.snapshot

    def advance(self, seconds: float) -> None:
        self.history.now += seconds
        self.history.now = self.control.advance(seconds)
        self.refresh()

    def stride(self, pace: float) -> float:
        """Return a longer step while no event is due, but not too long for processes in real time."""
        due = self.control.next_due
        return pace if due is None else min(max(pace, due - self.now), max(pace, LONGEST_STRIDE))

    def settle(self) -> None:
        self.control.settle()
        self.refresh()

    def wait(self, condition: Condition, limit: float, pace: Callable[[float], float]) -> tuple[bool, float]:
        """Advance the time until the condition holds. Return whether it did, and after how long."""
        self.refresh(from_api=True)
        began = self.now
        while not condition.holds(self):
            waited = self.now - began
            if waited >= limit:
                return False, waited
            self.advance(min(self.stride(pace(waited)), max(limit - waited, 0.05)))
        return True, self.now - began

    # What conditions can test besides the snapshot.
    def webhook_refuses(self) -> bool:
        disabled = next(
            (
                name
                for name, vgpu in reversed(self.snapshot.all("vgpudevices").items())
                if not (vgpu.get("spec") or {}).get("enabled")
            ),
            None,
        )
        if disabled is None:
            return False
        body = {"spec": {"enabled": True, "vGPUTypeName": BAD_TYPE}}
        answer = self.api.request("PATCH", f"{WATCHED['vgpudevices']}/{disabled}?dryRun=All", body, MERGE_PATCH)
        return answer.status == 500 and "denied the request" in answer.message

    def await_scans(self) -> None:
        """Wait until no node scan is running, which is the usual state.

        A card that is switched in the middle of a scan loses its vGPUs to it and keeps its PCI devices until the next.
        """
        began = self.now
        while self.control.status()["scanning"] and self.now - began < LONGEST_SCAN:
            self.advance(0.2)

    def processes(self) -> Mapping[str, bool]:
        status = self.control.status()
        return {node: bool(status["processes"][node]) for node in self.nodes}

    def sample(self, of: tuple[str, ...]) -> Sample:
        return Sample(
            at=self.now,
            hardware={node: self.control.hardware(node) for node in self.nodes} if "hardware" in of else {},
            processes=self.processes() if "processes" in of else {},
            webhook_refuses=self.webhook_refuses() if "webhook" in of else None,
        )

    # Requests of the arrangement; those of the recording go through the player.
    def patch(self, plural: str, name: str, body: Json) -> Answer:
        answer = self.api.request("PATCH", f"{WATCHED[plural]}/{name}", body, MERGE_PATCH)
        self.settle()
        return answer

    def offers_all(self, node: str, number: int) -> bool:
        vgpus = self.snapshot.of_node("vgpudevices", node).values()
        return bool(vgpus) and all(len(types_of(vgpu)) >= number for vgpu in vgpus)


def in_waits(waited: float) -> float:
    """Fine steps while things happen quickly, coarser ones for what comes with the next scan."""
    if waited < 1:
        return 0.1
    return 0.2 if waited < 5 else 0.5


def coarsely(waited: float) -> float:
    return 0.5 if waited < 5 else 1.0
