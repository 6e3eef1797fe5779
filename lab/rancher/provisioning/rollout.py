"""How a machine deployment moves from old machines to new ones, as Cluster API does it. Pure.

New machines come first, as many as `max_surge` allows, and an old one goes only when a new one is available. With all
vGPUs taken and nothing allowed to be missing, neither can happen: the pool hangs (harvester.md 14.7).
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
    """A machine set: how many it shall have, and how many of them are ready."""

    replicas: int
    available: int


@dataclass(frozen=True)
class Limits:
    surge: int
    unavailable: int


def limits(rolling_update: Mapping[str, Any] | None, quantity: int) -> Limits:
    """Shares of the quantity are rounded up for what may be added and down for what may be missing."""
    asked = rolling_update or {}
    surge = _count(asked.get("maxSurge"), DEFAULT_SURGE, quantity, math.ceil)
    unavailable = _count(asked.get("maxUnavailable"), DEFAULT_UNAVAILABLE, quantity, math.floor)
    # Nothing more and nothing less at a time would be nothing at all.
    return Limits(surge, 1 if not surge and not unavailable else unavailable)


def _count(value: Any, default: int, quantity: int, rounded: Any) -> int:
    if value is None:
        return default
    text = str(value)
    return int(rounded(quantity * int(text[:-1]) / 100)) if text.endswith("%") else int(text)


def next_replicas(quantity: int, allowed: Limits, new: str, sets: Mapping[str, Machines]) -> dict[str, int]:
    """The sets whose replicas change now, with their new number."""
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
    """Those that are not ready go first; of the others only what leaves enough."""
    changed: dict[str, int] = {}
    for name, machines in sorted(old.items()):
        broken = min(max(machines.replicas - machines.available, 0), may_go)
        ready = min(machines.replicas - broken, may_go - broken, max(ready_to_spare, 0))
        if broken + ready:
            changed[name] = machines.replicas - broken - ready
            may_go -= broken + ready
            ready_to_spare -= ready
    return changed
