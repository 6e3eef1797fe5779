"""The clock and the hosts of a real cluster, which the recorder cannot control."""

from __future__ import annotations

import time
from typing import Any

from lab.errors import LabError


class WallClock:
    # Nobody knows what comes next.
    next_due: float | None = None

    def __init__(self) -> None:
        self._began = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._began

    def advance(self, seconds: float) -> float:
        time.sleep(seconds)
        return self.now()

    def settle(self) -> None:
        """What is under way on a real cluster is not known."""

    def reboot(self, node: str) -> None:
        raise LabError(f"The recorder cannot reboot {node}.")

    def process(self, node: str, action: str) -> None:
        raise LabError(f"The recorder cannot {action} a process of {node}.")

    def hardware(self, node: str) -> dict[str, Any]:
        raise LabError(f"The API does not show the hardware of {node}.")

    def status(self) -> dict[str, Any]:
        raise LabError("The API does not show which processes are running.")
