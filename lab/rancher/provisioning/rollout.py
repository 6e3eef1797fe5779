"""Rollout of a MachineDeployment from old machines to new machines, as in Cluster API. Pure.

New machines are created first, as many as `maxSurge` allows. An old machine is removed only when a new machine is
available. With all vGPUs in use and `maxUnavailable` 0 neither can happen, and the pool hangs (harvester.md 14.7).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_SURGE = 1
DEFAULT_UNAVAILABLE = 0


@dataclass(frozen=True)
class Machines:
    """Machines of a MachineSet: requested replicas, and available machines."""

    replicas: int
    available: int


@dataclass(frozen=True)
class Limits:
    surge: int
    unavailable: int


def limits(rolling_update: Mapping[str, Any] | None, quantity: int) -> Limits:
    """Return the limits; percentages are rounded up for `maxSurge` and down for `maxUnavailable`."""
    asked = rolling_update or {}
    surge = _count(asked.get("maxSurge"), DEFAULT_SURGE, quantity, math.ceil)
    unavailable = _count(asked.get("maxUnavailable"), DEFAULT_UNAVAILABLE, quantity, math.floor)
    # With both limits at 0 the rollout could never proceed.
    return Limits(surge, 1 if not surge and not unavailable else unavailable)


def _count(value: Any, default: int, quantity: int, rounded: Any) -> int:
    if value is None:
        return default
    text = str(value)
    return int(rounded(quantity * int(text[:-1]) / 100)) if text.endswith("%") else int(text)


def next_replicas(quantity: int, allowed: Limits, new: str, sets: Mapping[str, Machines]) -> dict[str, int]:
    """Return the new number of replicas of each MachineSet that changes now."""
    current = sets[new]
    total = sum(one.replicas for one in sets.values())
    if current.replicas > quantity:
        return {new: quantity}
    room = min(quantity - current.replicas, quantity + allowed.surge - total)
    if room > 0:
        return {new: current.replicas + room}
    old = {name: one for name, one in sets.items() if name != new and one.replicas}
    least = quantity - allowed.unavailable
    may_go = total - least - (current.replicas - current.available)
    if not old or may_go <= 0:
        return {}
    return _fewer(old, may_go, sum(one.available for one in sets.values()) - least)


def _fewer(old: Mapping[str, Machines], may_go: int, ready_to_spare: int) -> dict[str, int]:
    """Remove machines that are not ready first, then only as many ready machines as can be spared."""
    changed: dict[str, int] = {}
    for name, machines in sorted(old.items()):
        broken = min(max(machines.replicas - machines.available, 0), may_go)
        ready = min(machines.replicas - broken, may_go - broken, max(ready_to_spare, 0))
        if broken + ready:
            changed[name] = machines.replicas - broken - ready
            may_go -= broken + ready
            ready_to_spare -= ready
    return changed
