# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Check whether all machine pools of a Harvester fit together, also during a rollout. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..availability.counts import Availability, select_nodes, unusable_because
from ..availability.packing import MachineGroup, place
from ..errors import FleetError, join_names
from ..fleet.model import Fleet

DEFAULT_SURGE, DEFAULT_UNAVAILABLE = 1, 0
STANDING, WANTED = 0, 1


class PoolDoesNotFit(FleetError):
    code = "pool_does_not_fit"


class RollWouldHang(FleetError):
    code = "roll_would_hang"


@dataclass(frozen=True)
class RollingUpdate:
    """The numbers of machines that may exist above the quantity, and that may be missing from it, during a rollout."""

    surge: int = DEFAULT_SURGE
    unavailable: int = DEFAULT_UNAVAILABLE

    @classmethod
    def of(cls, rolling_update: Mapping[str, Any] | None, quantity: int) -> RollingUpdate:
        asked = rolling_update or {}
        surge = _count(asked.get("maxSurge"), DEFAULT_SURGE, quantity, up=True)
        unavailable = _count(asked.get("maxUnavailable"), DEFAULT_UNAVAILABLE, quantity, up=False)
        # Rounding can make both limits zero. Cluster API then removes one machine at a time.
        return cls(surge, 1 if not surge and not unavailable else unavailable)


@dataclass(frozen=True)
class PoolDemand:
    """The demand of a pool, current or requested. `machines` are its existing VMs, by path."""

    name: str
    quantity: int
    vgpus: Mapping[str, int] = field(hash=False)
    machines: tuple[str, ...] = ()
    limits: RollingUpdate = RollingUpdate()

    @property
    def each(self) -> str:
        return ", ".join(f"{count} x {profile}" for profile, count in sorted(self.vgpus.items()))


def refuse_what_does_not_fit(fleet: Fleet, others: Sequence[PoolDemand], wanted: PoolDemand, *, rolls: bool) -> None:
    """Refuse a pool that does not fit. It keeps its own vGPUs, and other pools keep room for their missing machines."""
    if not wanted.vgpus:
        return
    available = Availability(fleet, select_nodes(fleet, None))
    missing = wanted.quantity - len(wanted.machines)
    if not rolls or not wanted.machines:
        if missing > 0:
            _refuse(available, others, wanted, missing)
        return
    # After the rollout all machines are new.
    after = replace(available, released=frozenset(wanted.machines))
    _refuse(after, others, wanted, wanted.quantity)
    if not _rolls(available, others, wanted, wanted.limits):
        raise _would_hang(available, others, wanted)


def _rolls(available: Availability, others: Sequence[PoolDemand], wanted: PoolDemand, limits: RollingUpdate) -> bool:
    """Return whether Cluster API can replace all machines, by the rules of its MachineDeployment controller.

    In each round, Cluster API first adds new machines, up to the quantity and at most `surge` above it in total. Then
    it removes old machines as long as no more than `unavailable` of the quantity are missing; new machines that have
    not started count as missing. So with both limits set, an old machine can make room for a new machine that waits.
    """
    quantity, old, new = wanted.quantity, sorted(wanted.machines), 0
    least = quantity - min(limits.unavailable, quantity)
    while True:
        before = new, len(old)
        new += max(min(quantity - new, quantity + limits.surge - new - len(old)), 0)
        gone = frozenset(wanted.machines) - frozenset(old)
        started = new - _unplaced(replace(available, released=gone), others, wanted, new) if new else 0
        spare = min(new + len(old) - least - (new - started), started + len(old) - least)
        old = old[max(min(spare, len(old)), 0) :]
        if not old and new == quantity:
            return True
        if (new, len(old)) == before:
            return False


def _would_hang(available: Availability, others: Sequence[PoolDemand], wanted: PoolDemand) -> RollWouldHang:
    surge, unavailable = wanted.limits.surge, wanted.limits.unavailable
    hint = "Free some of them, or make more: vgpu.fleet.harvester_vgpu."
    # An old machine is removed as soon as a new machine starts, so a smaller surge does not help.
    instead = RollingUpdate(0, max(unavailable, 1))
    if _rolls(available, others, wanted, instead):
        setting = f"max_surge: 0, max_unavailable: {instead.unavailable}"
        hint = f"It works with rolling_update: {{{setting}}}, where an old machine goes before its successor comes."
    machines = "a new machine" if surge == 1 else f"{surge} new machines"
    return RollWouldHang(
        f"Replacing the machines of pool {wanted.name} would hang: {machines} with {wanted.each} must start before an"
        f" old one goes (max_surge {surge}, max_unavailable {unavailable}), and there is no room for"
        f" that{_why(available, others, wanted)}.",
        hint=hint,
    )


def _refuse(available: Availability, others: Sequence[PoolDemand], wanted: PoolDemand, count: int) -> None:
    missing = _unplaced(available, others, wanted, count)
    if not missing:
        return
    more = "more " if count < wanted.quantity else ""
    raise PoolDoesNotFit(
        f"Pool {wanted.name} does not fit: of {count} {more}machines with {wanted.each} each, {missing} would find no"
        f" room{_why(available, others, wanted)}.",
        hint="Make more vGPUs (vgpu.fleet.harvester_vgpu), free some, or ask for fewer machines.",
    )


def _unplaced(available: Availability, others: Sequence[PoolDemand], wanted: PoolDemand, count: int) -> int:
    """Return how many of the pool's new machines do not fit after all other VMs and pools are placed."""
    batches = [MachineGroup(dict(vgpus), 1, STANDING) for vgpus in available.floating.values()]
    batches += [
        MachineGroup(dict(pool.vgpus), lacking, STANDING)
        for pool in others
        if (lacking := pool.quantity - len(pool.machines)) > 0 and pool.vgpus
    ]
    return place(available.free, [*batches, MachineGroup(dict(wanted.vgpus), count, WANTED)]).missing[-1]


def _why(available: Availability, others: Sequence[PoolDemand], wanted: PoolDemand) -> str:
    """Return which vGPUs are free, who has the others, and for whom free vGPUs are kept."""
    said = []
    for profile in sorted(wanted.vgpus):
        count = available.totals.get(profile)
        free = sum(amounts.get(profile, 0) for amounts in available.free.values())
        said.append(f"{free} of {count.allocatable if count else 0} x {profile} are free")
    holders = [
        path
        for path, holding in available.holdings.items()
        if path not in available.released and any(holding.vgpus.get(profile) for profile in wanted.vgpus)
    ]
    if holders:
        said.append(f"the others are held by {join_names(holders, limit=6)}")
    kept = [
        f"{pool.quantity - len(pool.machines)} machines of pool {pool.name}"
        for pool in others
        if pool.quantity > len(pool.machines) and set(pool.vgpus) & set(wanted.vgpus)
    ]
    if kept:
        said.append(f"{', '.join(kept)} are still to come")
    lost = [
        f"{node.name} is {unusable_because(node)}"
        for node in available.nodes
        if not node.usable and any(available.by_node[node.name].get(profile) for profile in wanted.vgpus)
    ]
    return ": " + "; ".join(said + lost)


def _count(value: Any, default: int, quantity: int, *, up: bool) -> int:
    if value is None:
        return default
    text = str(value)
    if not text.endswith("%"):
        return int(text)
    # Cluster API rounds the surge up and the unavailable machines down. Integers keep that exact.
    share = quantity * int(text[:-1])
    return -(-share // 100) if up else share // 100
