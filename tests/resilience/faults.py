"""The faults of the matrix: how each is switched on and off, and the words by which a failed run names it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.labs import Lab

TARGET = "gpu-b"


@dataclass(frozen=True)
class Fault:
    """A fault of a lab with Harvester. `causes` matches messages that name it."""

    name: str
    causes: str
    fault: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    once: bool = False

    def on(self, lab: Lab) -> None:
        lab.control.fault(self.fault or self.name, **self.options)

    def off(self, lab: Lab) -> None:
        if not self.once:
            where = {key: value for key, value in self.options.items() if key == "node"}
            lab.control.fault(self.fault or self.name, on=False, **where)

    def named_by(self, told: str) -> bool:
        return bool(re.search(self.causes, told, re.IGNORECASE | re.DOTALL))


ON_TARGET = {"node": TARGET}
STORM = {"every": 1}
BUSY = r"HTTP 429|too many requests|busy"
UNAVAILABLE = r"HTTP 503|unable to handle the request|unavailable"
CONFLICT = r"HTTP 409|changes? (again and again|faster)|somebody else|been modified|other clients"
LOST = r"connection ended|no answer|closed the connection|cannot be reached|lost"
DOWN = r"pod .*(not ready|not running)|controller|process.* down|pcidevices"
NODE_DOWN = r"node .*(not ready|does not respond|NotReady|unreachable|out of service|is down)"
HARVESTER = (
    Fault("driver-missing", r"driver pod|driver .*cannot start|CrashLoopBackOff", options=ON_TARGET),
    Fault("driver-fails", r"driver pod|driver .*cannot start|CrashLoopBackOff|building|not ready", options=ON_TARGET),
    Fault("httpendpoint", r"HTTPENDPOINT|placeholder"),
    Fault("vf-without-types", r"scan|types? .*(unreadable|cannot be read|not read)|no vGPU device", options=ON_TARGET),
    Fault("mig-setup", r"MIG", options=ON_TARGET),
    Fault("plugin-drift", r"lost count|allocatable|device plugin"),
    Fault("permitted-list", r"permit"),
    Fault("kubelet-restart", r"device plugin|kubelet", options=ON_TARGET),
    Fault("kubelet-restart-all", r"device plugin|kubelet", "kubelet-restart"),
    Fault("node-not-ready", NODE_DOWN, options=ON_TARGET),
    Fault(
        "node-gone", NODE_DOWN + r"|no node|does not exist|gone|deleted|not found|is being deleted", options=ON_TARGET
    ),
    Fault("process-down", DOWN, options=ON_TARGET),
    Fault("process-down-all", DOWN + r"|webhook", "process-down"),
    Fault("webhook-down", r"webhook"),
    Fault("webhook-slow", r"webhook", options={"seconds": 0.5}),
    Fault("addon-fails", r"addon|OperationFailed"),
    Fault("addon-in-progress", r"in progress|AddonUpdating|addon"),
    Fault("api-conflict", CONFLICT),
    Fault("api-conflict-storm", CONFLICT, "api-conflict", STORM),
    Fault("api-throttled", BUSY),
    Fault("api-throttled-storm", BUSY, "api-throttled", STORM),
    Fault("api-unavailable", UNAVAILABLE),
    Fault("api-unavailable-storm", UNAVAILABLE, "api-unavailable", STORM),
    Fault("api-answer-lost", LOST),
    Fault("api-answer-lost-storm", LOST, "api-answer-lost", STORM),
    Fault("api-disconnect", LOST, once=True),
    Fault("watch-expired", r"expired|410"),
    Fault("token-expired", r"credentials|token"),
    Fault("apiserver-restart", r"cannot be reached|has not answered|restart", once=True),
)
BY_NAME = {fault.name: fault for fault in HARVESTER}
