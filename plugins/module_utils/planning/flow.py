# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A flow network that sends needs to lanes, and reroutes a placed need if another need has no alternative.

This is the transportation problem, solved by augmenting paths. Lanes may be compulsory: they are filled as far as
possible without displacing a need. By the theorem of Mendelsohn and Dulmage, both goals can be met at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class FlowNetwork:
    """Needs and lanes by number. `work` counts steps, a measure that does not depend on the machine."""

    def __init__(self, counts: Iterable[int]) -> None:
        self.counts = tuple(counts)
        self.missing = list(self.counts)
        self.lanes_of: list[list[int]] = [[] for _count in self.missing]
        self.capacity: list[int] = []
        self.compulsory: list[bool] = []
        self._compulsory: list[int] = []
        self.needs_of: list[tuple[int, ...]] = []
        self.sent: list[dict[int, int]] = []
        self.used: list[int] = []
        # Needs that no chain of lanes connects do not affect each other. Only parts that changed have to be settled
        # again.
        self.realm: list[int] = []
        self.unsettled: set[int] = set()
        self.work = 0

    def copy(self) -> FlowNetwork:
        """Return a copy for trials. Copies share the lanes of each need, because only adding a lane changes them."""
        twin = FlowNetwork(())
        twin.counts = self.counts
        twin.missing = list(self.missing)
        twin.lanes_of = self.lanes_of
        twin.capacity = list(self.capacity)
        twin.compulsory = self.compulsory
        twin._compulsory = self._compulsory
        twin.needs_of = self.needs_of
        twin.sent = [dict(sent) for sent in self.sent]
        twin.used = list(self.used)
        twin.realm = self.realm
        twin.unsettled = set(self.unsettled)
        return twin

    def add_lane(self, needs: Iterable[int], capacity: int = 0, *, compulsory: bool = False) -> int:
        lane = len(self.capacity)
        self.capacity.append(capacity)
        self.compulsory.append(compulsory)
        if compulsory:
            self._compulsory.append(lane)
        self.needs_of.append(tuple(needs))
        self.sent.append({})
        self.used.append(0)
        for need in self.needs_of[lane]:
            self.lanes_of[need].append(lane)
        return lane

    def close(self, rank: list[int]) -> None:
        """Finish adding lanes. Needs try lanes of a lower rank first."""
        for lanes in self.lanes_of:
            lanes.sort(key=rank.__getitem__)
        realm = list(range(len(self.missing)))

        def top(need: int) -> int:
            while realm[need] != need:
                realm[need] = realm[realm[need]]
                need = realm[need]
            return need

        for needs in self.needs_of:
            for need in needs[1:]:
                realm[top(need)] = top(needs[0])
        self.realm = [top(need) for need in range(len(realm))]
        self.unsettled = set(self.realm)

    def set_capacity(self, lane: int, capacity: int) -> None:
        """Change the capacity of a lane. Units that no longer fit become missing again."""
        if capacity == self.capacity[lane]:
            return
        self.capacity[lane] = capacity
        self.unsettled.update(self.realm[need] for need in self.needs_of[lane][:1])
        sent = self.sent[lane]
        while self.used[lane] > capacity:
            need = next(reversed(sent))
            back = min(sent[need], self.used[lane] - capacity)
            self._send(need, lane, -back)
            self.missing[need] += back

    def start_over(self) -> None:
        """Discard all assignments, so that needs choose their preferred lanes among the current ones."""
        self.missing = list(self.counts)
        self.sent = [{} for _lane in self.sent]
        self.used = [0] * len(self.used)
        self.unsettled = set(self.realm)

    def settle(self) -> None:
        """Place as many units as possible, then fill the compulsory lanes as far as possible."""
        waiting = [need for need, missing in enumerate(self.missing) if missing and self.realm[need] in self.unsettled]
        for need in waiting:
            self._send_directly(need)
        # Needs that a stuck need could have moved are stuck as well.
        stuck: set[int] = set()
        for need in waiting:
            while self.missing[need] and need not in stuck and self._send_by_moving_others(need, stuck):
                pass
        stuck = set()
        for lane in self.unfilled():
            if any(self.realm[need] in self.unsettled for need in self.needs_of[lane][:1]):
                while self.used[lane] < self.capacity[lane] and lane not in stuck and self._draw_into(lane, stuck):
                    pass
        self.unsettled.clear()

    @property
    def complete(self) -> bool:
        return not any(self.missing)

    def unfilled(self) -> list[int]:
        """Return the compulsory lanes with room left."""
        return [lane for lane in self._compulsory if self.used[lane] < self.capacity[lane]]

    def competing_with(self, needs: Iterable[int]) -> set[int]:
        """Return the needs that compete with these for full lanes, directly or through other needs."""
        found = set(needs)
        queue = list(found)
        seen: set[int] = set()
        while queue:
            need = queue.pop()
            self.work += len(self.lanes_of[need])
            for lane in self.lanes_of[need]:
                if lane in seen:
                    continue
                seen.add(lane)
                fresh = self.sent[lane].keys() - found
                found |= fresh
                queue.extend(fresh)
        return found

    def starving_with(self, lane: int) -> set[int]:
        """Return the compulsory lanes that cannot all be filled together with this lane."""
        found = {lane}
        queue = [lane]
        while queue:
            for need in self.needs_of[queue.pop()]:
                self.work += len(self.lanes_of[need])
                for other in self.lanes_of[need]:
                    if other not in found and self.sent[other].get(need) and self.compulsory[other]:
                        found.add(other)
                        queue.append(other)
        return found

    def _send(self, need: int, lane: int, count: int) -> None:
        sent = self.sent[lane]
        left = sent.get(need, 0) + count
        if left:
            sent[need] = left
        else:
            del sent[need]
        self.used[lane] += count

    def _send_directly(self, need: int) -> None:
        for lane in self.lanes_of[need]:
            self.work += 1
            count = min(self.missing[need], self.capacity[lane] - self.used[lane])
            if count > 0:
                self._send(need, lane, count)
                self.missing[need] -= count
                if not self.missing[need]:
                    return

    def _send_by_moving_others(self, start: int, stuck: set[int]) -> bool:
        """Find room for a need by moving other needs. Return whether room was found."""
        came_by: dict[int, tuple[int, int]] = {}
        seen_lanes: set[int] = set()
        queue = deque([start])
        seen = {start}
        while queue:
            need = queue.popleft()
            self.work += len(self.lanes_of[need])
            for lane in self.lanes_of[need]:
                if lane in seen_lanes:
                    continue
                seen_lanes.add(lane)
                if self.used[lane] < self.capacity[lane]:
                    self._shift(start, need, lane, came_by)
                    return True
                for other in self.sent[lane]:
                    if other not in seen and other not in stuck:
                        seen.add(other)
                        came_by[other] = (need, lane)
                        queue.append(other)
        stuck |= seen
        return False

    def _shift(self, start: int, last: int, lane: int, came_by: dict[int, tuple[int, int]]) -> None:
        count = min(self.missing[start], self.capacity[lane] - self.used[lane])
        need = last
        while need != start:
            before, through = came_by[need]
            count = min(count, self.sent[through][need])
            need = before
        need, into = last, lane
        while need != start:
            before, through = came_by[need]
            self._send(need, through, -count)
            self._send(need, into, count)
            need, into = before, through
        self._send(start, into, count)
        self.missing[start] -= count

    def _draw_into(self, start: int, stuck: set[int]) -> bool:
        """Fill places of a compulsory lane from lanes that can spare units. Return whether any place was filled."""
        came_by: dict[int, tuple[int, int]] = {}
        queue = deque([start])
        seen = {start}
        while queue:
            lane = queue.popleft()
            for need in self.needs_of[lane]:
                self.work += len(self.lanes_of[need])
                for other in self.lanes_of[need]:
                    if other in seen or other in stuck or not self.sent[other].get(need):
                        continue
                    seen.add(other)
                    came_by[other] = (lane, need)
                    if not self.compulsory[other]:
                        self._draw(start, other, came_by)
                        return True
                    queue.append(other)
        stuck |= seen
        return False

    def _draw(self, start: int, source: int, came_by: dict[int, tuple[int, int]]) -> None:
        path = []
        lane = source
        while lane != start:
            path.append((lane, *came_by[lane]))
            lane = came_by[lane][0]
        count = min(self.sent[lane][need] for lane, _into, need in path)
        count = min(count, self.capacity[start] - self.used[start])
        for lane, into, need in path:
            self._send(need, lane, -count)
            self._send(need, into, count)
