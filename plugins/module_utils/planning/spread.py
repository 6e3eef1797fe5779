# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Balancing of a layout: new vGPUs move from full GPUs to emptier ones, as far as their needs allow.

Balancing starts from a layout that fits and only makes moves that keep it valid, so spreading never requires more
capacity than consolidating.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence

from ..fleet.profile import Key
from .capacity import AllowedChanges, GpuCapacity, GpuState, group_of
from .components import Layout, Planning
from .steps import GpuTarget


def spread(planning: Planning, layout: Layout) -> None:
    """Balance the layout, with one move per need in turn so that no need takes all empty GPUs."""
    tracker = _LoadTracker(planning, layout)
    moving = [
        _Rebalancer(tracker, key, gpus, layout.placed[key, gpus]) for key, gpus in sorted(layout.placed, key=_order)
    ]
    while moving:
        moving = [mover for mover in moving if mover.move()]


def _order(placed: tuple[Key, frozenset[int]]) -> tuple[Key, list[int]]:
    return (placed[0], sorted(placed[1]))


class _LoadTracker:
    """The load of each GPU, and the vGPUs that it can still take without losing one."""

    def __init__(self, planning: Planning, layout: Layout) -> None:
        self.planning = planning
        self.layout = layout
        self.positions = _positions(planning.sites)
        self._adds = {index: self._added(index) for index in layout.targets}

    def load(self, index: int) -> int:
        """Return how many vGPUs the GPU will have."""
        site, target = self.planning.sites[index], self.layout.targets.get(index)
        if target and target.exclusive:
            return sum(target.assigned.values())
        staying = site.held_counts if target and target.evict and not _same_size(site, target) else site.counts
        return sum(staying.values()) + sum(self._adds.get(index, Counter()).values())

    def added(self, index: int, key: Key) -> int:
        return self._adds[index][key] if index in self._adds else 0

    def free(self, index: int, key: Key) -> int:
        group = group_of(key)
        target = self.layout.targets.get(index)
        if target and target.group not in (None, group):
            return 0
        room = self.planning.room(index, group, AllowedChanges())
        if not isinstance(room, GpuCapacity):
            return 0
        places = max((count for keys, count in room.lanes if key in keys), default=0)
        return places - sum(self._adds.get(index, Counter()).values())

    def move(self, key: Key, giver: int, taker: int) -> None:
        targets = self.layout.targets
        if taker not in targets:
            # Existing vGPUs may serve other needs, so the moved vGPU is an additional one.
            targets[taker] = GpuTarget(Counter(self.planning.sites[taker].counts))
        target = targets[taker]
        if target.group is None:
            target.group = group_of(key)
            room = self.planning.room(taker, target.group, AllowedChanges())
            target.places = sum(count for _keys, count in room.lanes) if isinstance(room, GpuCapacity) else 0
        targets[giver].assigned[key] -= 1
        target.assigned[key] += 1
        for index in (giver, taker):
            self._adds[index] = self._added(index)

    def _added(self, index: int) -> Counter[Key]:
        counts = self.planning.sites[index].counts
        return Counter({key: max(0, count - counts[key]) for key, count in self.layout.targets[index].assigned.items()})


class _Rebalancer:
    """The new vGPUs of one need, the GPUs that have them and the GPUs that could take some."""

    def __init__(self, tracker: _LoadTracker, key: Key, gpus: frozenset[int], placed: Counter[int]) -> None:
        self.tracker = tracker
        self.key = key
        self.placed = placed
        self.takers = [
            (tracker.load(index), tracker.positions[index], index) for index in gpus if tracker.free(index, key) > 0
        ]
        self.givers = [(-tracker.load(index), -index) for index in placed]
        heapq.heapify(self.takers)
        heapq.heapify(self.givers)

    def move(self) -> bool:
        """Make the move that balances most. Return False if no move is left."""
        taker, giver = self._taker(), self._giver()
        if taker is None or giver is None or self.tracker.load(giver) - self.tracker.load(taker) < 2:
            return False
        self.tracker.move(self.key, giver, taker)
        self.placed[giver] -= 1
        self.placed[taker] += 1
        for index in (giver, taker):
            load = self.tracker.load(index)
            heapq.heappush(self.takers, (load, self.tracker.positions[index], index))
            heapq.heappush(self.givers, (-load, -int(index)))
        return True

    def _taker(self) -> int | None:
        while self.takers:
            load, position, index = heapq.heappop(self.takers)
            if self.tracker.free(index, self.key) > 0:
                if load == self.tracker.load(index):
                    return index
                heapq.heappush(self.takers, (self.tracker.load(index), position, index))
        return None

    def _giver(self) -> int | None:
        while self.givers:
            load, index = heapq.heappop(self.givers)
            index = -index
            if self.placed[index] and self.tracker.added(index, self.key):
                if -load == self.tracker.load(index):
                    return index
                heapq.heappush(self.givers, (-self.tracker.load(index), -index))
        return None


def _same_size(site: GpuState, target: GpuTarget) -> bool:
    return all(group_of(key) == target.group for key in site.loose)


def _positions(sites: Sequence[GpuState]) -> list[tuple[int, int]]:
    """Return sort keys that put the first GPU of every node before the second GPU of any node."""
    on_node: dict[str, int] = defaultdict(int)
    positions: list[tuple[int, int]] = []
    for index, site in enumerate(sites):
        positions.append((on_node[site.gpu.node], index))
        on_node[site.gpu.node] += 1
    return positions
