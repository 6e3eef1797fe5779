# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Time limits of tasks. The default grows with the number of devices, because a node changes one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..planning.steps import Step
from .read.snapshot import Snapshot
from .version import HarvesterVersion

BASE_SECONDS = 300.0
# From 1.8 on, the removal of a claim sleeps under a lock of the node's process (harvester.md 9.3). Earlier versions
# send a few requests for each device.
SECONDS_PER_CLAIM = 5.0
SECONDS_PER_MEDIATED_DEVICE = 1.0


@dataclass(frozen=True)
class TimeLimit:
    """The time limit of a task in seconds. `grows` tells whether it is a default, to which devices add."""

    seconds: float
    grows: bool = False

    @classmethod
    def of(cls, option: float | None, base: float = BASE_SECONDS) -> TimeLimit:
        """Return the limit that the option wait_timeout sets, or the default."""
        return cls(base, grows=True) if option is None else cls(option)

    def until_settled(self, snapshot: Snapshot) -> float:
        """Return the limit for a wait until earlier changes are complete."""
        going = Counter(
            (claim.get("spec") or {}).get("nodeName", "")
            for claim in snapshot.claims.items.values()
            if "deletionTimestamp" in claim["metadata"]
        )
        return self.seconds + self._additional(going, snapshot.version)

    def for_steps(self, steps: Iterable[Step], version: HarvesterVersion, *, left: float | None = None) -> float:
        """Return the limit for steps, of which `left` seconds are left without them."""
        changed = Counter(step.node for step in steps if step.slot or step.after)
        return (self.seconds if left is None else left) + self._additional(changed, version)

    def _additional(self, devices: Counter[str], version: HarvesterVersion) -> float:
        """Return the time of the node with the most devices. Nodes work in parallel."""
        if not self.grows:
            return 0.0
        return max(devices.values(), default=0) * seconds_per_device(version)


def seconds_per_device(version: HarvesterVersion) -> float:
    return SECONDS_PER_CLAIM if version.vendor_vfio else SECONDS_PER_MEDIATED_DEVICE
