# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Assignment of needs to GPUs: each independent part of the fleet is solved with the least disruptive changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..fleet.profile import Key
from .capacity import AllowedChanges, Blocker, GpuCapacity, GpuState, Group, capacity_for, family, group_of, ways
from .request import Need
from .search import GpuClass, GpuOption, NeedGroup, Search, SearchBudget, SearchResult
from .steps import GpuTarget


@dataclass
class Unplaced:
    """The number of vGPUs of a need that could not be placed."""

    need: Need
    count: int


@dataclass
class Layout:
    """The target of each GPU, by index. GPUs that are not listed stay unchanged.

    `exhaustive` is False if the search was cut short: fewer GPUs might suffice, or a demand might fit after all.
    """

    targets: dict[int, GpuTarget] = field(default_factory=dict)
    # New vGPUs by need, that is a profile and the GPUs it may be on. The counts are by GPU.
    placed: dict[tuple[Key, frozenset[int]], Counter[int]] = field(default_factory=dict)
    missing: list[Unplaced] = field(default_factory=list)
    # GPUs with a VM's vGPU that an exclusive request does not contain.
    unasked: list[int] = field(default_factory=list)
    exhaustive: bool = True

    @property
    def fits(self) -> bool:
        return not self.missing and not self.unasked

    def add(self, other: Layout) -> None:
        self.targets.update(other.targets)
        self.placed.update(other.placed)
        self.missing += other.missing
        self.unasked += other.unasked
        self.exhaustive = self.exhaustive and other.exhaustive


@dataclass(frozen=True)
class Component:
    """GPUs and needs that are independent of the rest of the fleet."""

    sites: tuple[int, ...]
    needs: tuple[Need, ...]


class Planning:
    """A fleet and the needs to meet on it.

    With `in_addition`, existing vGPUs serve no need: all requested vGPUs are new.
    """

    def __init__(
        self,
        sites: Sequence[GpuState],
        needs: Sequence[Need],
        exclusive: frozenset[int] = frozenset(),
        budget: SearchBudget | None = None,
        *,
        in_addition: bool = False,
    ) -> None:
        self.sites = sites
        self.in_addition = in_addition
        self.needs = needs
        self.exclusive = exclusive
        self.budget = budget or SearchBudget()
        self._rooms: dict[tuple[int, Group, AllowedChanges], GpuCapacity | Blocker] = {}
        self._ways: dict[tuple[int, Group, AllowedChanges], list[Group]] = {}
        self._alike: dict[Hashable, int] = {}
        self.alike = [self._alike.setdefault(site.likeness, len(self._alike)) for site in sites]

    @cached_property
    def wanted(self) -> Mapping[Group, Mapping[Key, str]]:
        """Return the requested profiles by group, with their names."""
        found: dict[Group, dict[Key, str]] = defaultdict(dict)
        for need in self.needs:
            found[group_of(need.profile.key)].setdefault(need.profile.key, need.profile.name)
        return found

    def room(self, index: int, group: Group, means: AllowedChanges) -> GpuCapacity | Blocker:
        which = (self.alike[index], group, means)
        room = self._rooms.get(which)
        if room is None:
            room = capacity_for(self.sites[index], group, self.wanted[family(group)], means)
            if self.in_addition and isinstance(room, GpuCapacity):
                room = replace(room, kept={})
            self._rooms[which] = room
        return room

    def ways(self, index: int, group: Group, means: AllowedChanges) -> list[Group]:
        """Return the ways to use a GPU for a group: each is a group of its own."""
        if group[1] >= 0:
            return [group]
        which = (self.alike[index], group, means)
        if which not in self._ways:
            self._ways[which] = ways(self.sites[index], group, self.wanted[group], means)
        return self._ways[which]

    @property
    def certain(self) -> bool:
        """Return whether no capacity that was looked at is an estimate."""
        return all(room.certain for room in self._rooms.values() if isinstance(room, GpuCapacity))

    def serving(self, index: int) -> Mapping[Key, int]:
        """Return the vGPUs of a GPU that serve needs unchanged."""
        return {} if self.in_addition else self.sites[index].counts

    def solve(self, ladder: Sequence[AllowedChanges]) -> Layout:
        """Meet the needs. Each part of the fleet uses the first rung of the ladder that suffices."""
        layout = Layout()
        for part in self.parts(ladder[-1]):
            cuts = any(need.profile.mig for need in part.needs)
            for means in dict.fromkeys(rung if cuts else replace(rung, mig=False) for rung in ladder):
                found = ComponentPlan(self, part, means).solve()
                if found.fits:
                    break
            layout.add(found)
        return layout

    def parts(self, means: AllowedChanges) -> list[Component]:
        """Split the fleet into parts. Two GPUs share a part if the most disruptive changes let a need use both."""
        leader = list(range(len(self.sites)))

        def lead(index: int) -> int:
            while leader[index] != index:
                leader[index] = leader[leader[index]]
                index = leader[index]
            return index

        first: dict[tuple[Key, frozenset[int]], int] = {}
        for need in self.needs:
            where = (need.profile.key, need.gpus)
            if where in first:
                continue
            reach = [index for index in sorted(need.gpus) if self.can_serve(index, need, means)]
            first[where] = reach[0] if reach else min(need.gpus)
            top = lead(first[where])
            for index in reach[1:]:
                leader[lead(index)] = top
        sites: dict[int, list[int]] = defaultdict(list)
        for index in sorted(set(self.exclusive).union(*(need.gpus for need in self.needs))):
            sites[lead(index)].append(index)
        needs: dict[int, list[Need]] = defaultdict(list)
        for need in self.needs:
            needs[lead(first[need.profile.key, need.gpus])].append(need)
        return [Component(tuple(members), tuple(needs[top])) for top, members in sites.items()]

    def can_serve(self, index: int, need: Need, means: AllowedChanges) -> bool:
        key = need.profile.key
        if self.serving(index).get(key):
            return True
        rooms = (self.room(index, way, means) for way in self.ways(index, group_of(key), means))
        return any(isinstance(room, GpuCapacity) and any(key in keys for keys, _count in room.lanes) for room in rooms)


class ComponentPlan:
    """The plan for one part of a fleet with the given allowed changes."""

    def __init__(self, planning: Planning, part: Component, means: AllowedChanges) -> None:
        self.planning = planning
        self.part = part
        self.means = means
        self.reserved: dict[int, Counter[Key]] = defaultdict(Counter)
        self.eligible: dict[int, list[int]] = defaultdict(list)
        self.asked_at: dict[int, set[Key]] = defaultdict(set)
        self.rows: list[NeedGroup] = []
        self.members: list[list[Need]] = []
        self.kind_sites: list[list[int]] = []

    def solve(self) -> Layout:
        shared = self.reserve()
        self.group_rows(shared)
        kinds = self.group_kinds()
        if kinds is None:
            return Layout(unasked=[index for index in self.part.sites if self.unasked_held(index)])
        if self.rows:
            return self.realise(kinds, Search(self.rows, kinds, self.planning.budget).run())
        return self.realise(kinds, None)

    def exclusive(self, index: int) -> bool:
        return index in self.planning.exclusive and not self.planning.sites[index].frozen

    # Place the needs that only one GPU can meet first: more of the remaining GPUs are then alike.

    def reserve(self) -> list[Need]:
        shared: list[Need] = []
        # Leave a GPU to the search if other needs may require a different MIG layout on it.
        contested: set[int] = set()
        if self.means.mig:
            contested.update(*(need.gpus for need in self.part.needs if need.profile.mig and len(need.gpus) > 1))
        for need in self.part.needs:
            if len(need.gpus) > 1 or not contested.isdisjoint(need.gpus):
                shared.append(need)
                continue
            (index,) = need.gpus
            trial = self.reserved[index] + Counter({need.profile.key: need.count})
            if self.commitment(index, trial) is not None:
                self.reserved[index] = trial
            else:
                shared.append(need)
        return shared

    def commitment(self, index: int, reserved: Counter[Key]) -> tuple[Group | None] | None:
        """Return how a GPU serves the needs that no other GPU can: unchanged, or opened for one group. Else None."""
        serving = self.planning.serving(index)
        short = {group_of(key) for key, count in reserved.items() if count > serving.get(key, 0)}
        if not short:
            return (None,)
        for group in sorted(short):
            for way in self.planning.ways(index, group, self.means):
                if self.opening(index, way, reserved) is not None:
                    return (way,)
        return None

    def opening(self, index: int, group: Group, reserved: Counter[Key]) -> GpuOption | None:
        """Return a GPU opened for a group, less the places that are reserved on it."""
        room = self.planning.room(index, group, self.means)
        if isinstance(room, Blocker):
            return None
        free = [count for _keys, count in room.lanes]
        for key, count in reserved.items():
            more = max(0, count - room.kept.get(key, 0))
            for lane, (keys, _count) in enumerate(room.lanes):
                if key in keys:
                    taken = min(more, free[lane])
                    free[lane] -= taken
                    more -= taken
            if more:
                return None
        held = self.planning.sites[index].held_counts if self.exclusive(index) else {}
        return GpuOption(
            kept=self.unreserved(index, room.kept, reserved),
            must=self.unreserved(index, held, reserved),
            lanes=tuple((keys, count) for (keys, _count), count in zip(room.lanes, free, strict=True)),
        )

    def unreserved(self, index: int, counts: Mapping[Key, int], reserved: Counter[Key]) -> dict[Key, int]:
        """Return the places that remain for needs with a choice of GPUs."""
        mine = self.asked_at[index]
        return {key: count - reserved[key] for key, count in counts.items() if key in mine and count > reserved[key]}

    def group_rows(self, needs: Iterable[Need]) -> None:
        numbers: dict[tuple[Key, frozenset[int]], int] = {}
        for need in needs:
            alike = (need.profile.key, need.gpus)
            if alike not in numbers:
                numbers[alike] = len(self.rows)
                self.rows.append(NeedGroup(need.profile.key, group_of(need.profile.key), 0, frozenset()))
                self.members.append([])
                for index in need.gpus:
                    self.eligible[index].append(numbers[alike])
                    self.asked_at[index].add(need.profile.key)
            self.rows[numbers[alike]].count += need.count
            self.members[numbers[alike]].append(need)

    def group_kinds(self) -> list[GpuClass] | None:
        """Return GPUs that are alike as classes. Return None if a VM holds a vGPU that must not be there."""
        numbers: dict[Hashable, int] = {}
        found: list[GpuClass] = []
        rows_of: list[list[int]] = []
        for index in self.part.sites:
            rows = self.eligible[index]
            look = (self.planning.alike[index], tuple(rows), tuple(self.reserved[index].items()), self.exclusive(index))
            if look not in numbers:
                if self.unasked_held(index):
                    return None
                kind, alike = self.kind(index)
                if alike not in numbers:
                    numbers[alike] = len(found)
                    found.append(kind)
                    rows_of.append(rows)
                    self.kind_sites.append([])
                numbers[look] = numbers[alike]
            found[numbers[look]].size += 1
            self.kind_sites[numbers[look]].append(index)
        kinds_of: list[list[int]] = [[] for _row in self.rows]
        for number, rows in enumerate(rows_of):
            for each in rows:
                kinds_of[each].append(number)
        for row, members in zip(self.rows, kinds_of, strict=True):
            row.kinds = frozenset(members)
        return found

    def unasked_held(self, index: int) -> bool:
        if not self.exclusive(index):
            return False
        site, asked, reserved = self.planning.sites[index], self.asked_at[index], self.reserved[index]
        return any(key is None for _slot, key in site.held) or any(
            count > reserved[key] for key, count in site.held_counts.items() if key not in asked
        )

    def kind(self, index: int) -> tuple[GpuClass, Hashable]:
        site, reserved, mine = self.planning.sites[index], self.reserved[index], self.asked_at[index]
        as_is = self.unreserved(index, self.planning.serving(index), reserved)
        sunk = False
        must: Mapping[Key, int] = {}
        if self.exclusive(index):
            unasked = any(key not in mine and count > reserved[key] for key, count in site.counts.items())
            sunk = unasked or bool(site.astray)
            must = self.unreserved(index, site.held_counts, reserved) if sunk else as_is
        wanted = {self.rows[row].group for row in self.eligible[index]}
        groups = {way for group in wanted for way in self.planning.ways(index, group, self.means)}
        (committed,) = self.commitment(index, reserved) or (None,)
        if committed:
            groups.add(committed)
        openings = {
            group: opening
            for group in sorted(groups)
            if (opening := self.opening(index, group, reserved)) and (opening.gain or must or committed == group)
        }
        rank = (int(not site.gpu.sharing), int(site.cordoned), int(not site.counts))
        kind = GpuClass(0, as_is, must, openings, rank, sunk=sunk, committed=committed)
        alike = (
            tuple(sorted(self.eligible[index])),
            frozenset(as_is.items()),
            frozenset(must.items()),
            tuple(
                (group, frozenset(opening.kept.items()), frozenset(opening.must.items()), opening.lanes)
                for group, opening in openings.items()
            ),
            rank,
            sunk,
            committed,
        )
        return kind, alike

    # Map GPU classes back to single GPUs.

    def realise(self, kinds: list[GpuClass], result: SearchResult | None) -> Layout:
        layout = Layout(exhaustive=result.exhaustive if result else True)
        opened: dict[int, Group] = {}
        assigned: dict[int, Counter[Key]] = {index: Counter(self.reserved[index]) for index in self.part.sites}
        for number, kind in enumerate(kinds):
            sites = list(self.kind_sites[number])
            if result is None:
                if kind.committed:
                    opened.update(dict.fromkeys(sites, kind.committed))
                continue
            sent, lanes = result.state.transport.sent, result.state.lanes[number]
            for group in sorted(kind.openings):
                count = result.opened.get((number, group), 0)
                chosen, sites = sites[:count], sites[count:]
                opened.update(dict.fromkeys(chosen, group))
                opening = kind.openings[group]
                for key, lane in lanes.kept_must[group].items():
                    self.deal(assigned, chosen, opening.must[key], sent[lane])
                for key, lane in lanes.kept[group].items():
                    self.deal(assigned, chosen, opening.kept[key] - opening.must.get(key, 0), sent[lane])
                for (_keys, places), lane in zip(opening.lanes, lanes.new[group], strict=True):
                    self.deal(assigned, chosen, places, sent[lane], layout.placed)
            for key, lane in lanes.must.items():
                self.deal(assigned, sites, kind.must[key], sent[lane])
            for key, lane in lanes.spare.items():
                self.deal(assigned, sites, kind.as_is[key] - kind.must.get(key, 0), sent[lane])
        if result and not result.fits:
            layout.missing = self.missing(result)
            layout.unasked = self.unfilled(kinds, result)
        for index in self.part.sites:
            if index in opened or self.exclusive(index):
                layout.targets[index] = self.target(index, assigned[index], opened.get(index))
        return layout

    def deal(
        self,
        assigned: dict[int, Counter[Key]],
        sites: Sequence[int],
        each: int,
        sent: Mapping[int, int],
        placed: dict[tuple[Key, frozenset[int]], Counter[int]] | None = None,
    ) -> None:
        """Distribute the vGPUs of a class to its GPUs, filling one GPU after the other."""
        hand = sorted(sent.items())
        for index in sites:
            free = each
            while free and hand:
                row, count = hand[0]
                taken = min(free, count)
                assigned[index][self.rows[row].key] += taken
                if placed is not None:
                    where = (self.rows[row].key, self.members[row][0].gpus)
                    placed.setdefault(where, Counter())[index] += taken
                free -= taken
                hand[0] = (row, count - taken)
                if count == taken:
                    hand.pop(0)

    def target(self, index: int, assigned: Counter[Key], group: Group | None) -> GpuTarget:
        places = 0
        if group:
            room = self.planning.room(index, group, self.means)
            places = sum(count for _keys, count in room.lanes) if isinstance(room, GpuCapacity) else 0
        return GpuTarget(assigned, group, evict=self.means.evict, exclusive=self.exclusive(index), places=places)

    def missing(self, result: SearchResult) -> list[Unplaced]:
        found: list[Unplaced] = []
        for row, count in enumerate(result.state.transport.missing):
            left = count
            for need in reversed(self.members[row]):
                if left:
                    found.append(Unplaced(need, min(left, need.count)))
                    left -= min(left, need.count)
        return found

    def unfilled(self, kinds: list[GpuClass], result: SearchResult) -> list[int]:
        lanes = set(result.state.transport.unfilled())
        if not lanes or result.state.transport.missing.count(0) != len(self.rows):
            return []
        return [
            index
            for number in range(len(kinds))
            if not lanes.isdisjoint(result.state.lanes[number].must.values())
            or any(not lanes.isdisjoint(kept.values()) for kept in result.state.lanes[number].kept_must.values())
            for index in self.kind_sites[number]
        ]
