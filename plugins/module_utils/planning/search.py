# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Search for the GPUs to open for each size, so that all needs are met and the fewest GPUs are touched.

GPUs that are alike for every need form a class, and the search counts classes: a thousand equal GPUs are as easy as
one. A quick pass comes first. If a lower bound proves its result optimal, the search ends. Otherwise an exhaustive
search continues until it finds the optimum or has spent its budget.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ..fleet.profile import Key
from .capacity import Group, family
from .flow import FlowNetwork

DEEPEST = 80


class SearchBudget:
    """The limit of a search, in steps instead of seconds, so that every machine gives the same result.

    The quick pass may exceed the limit, because it has to return a result, unless the budget is `hard`.
    """

    def __init__(self, steps: int = 1_000_000, *, hard: bool = False) -> None:
        self.steps = steps
        self.overdraft = 0 if hard else steps

    def spend(self, steps: int) -> bool:
        self.steps -= steps
        return self.steps > 0

    @property
    def exhausted(self) -> bool:
        return self.steps < -self.overdraft


@dataclass(frozen=True)
class GpuOption:
    """A GPU opened for a group: the kept vGPUs, how many of them must be requested, and lanes for new vGPUs."""

    kept: Mapping[Key, int]
    must: Mapping[Key, int]
    lanes: tuple[tuple[tuple[Key, ...], int], ...]

    @cached_property
    def gain(self) -> int:
        return sum(count for _keys, count in self.lanes)

    def places(self, wanted: Container[Key]) -> int:
        """Return how many new vGPUs of these profiles fit."""
        return sum(count for keys, count in self.lanes if any(key in wanted for key in keys))


@dataclass
class GpuClass:
    """GPUs that do not differ for any need.

    `as_is` counts, per GPU, the vGPUs that serve needs unchanged. `must` counts those of them that have to be
    requested; otherwise the GPU is touched to remove them. A `sunk` GPU is touched in any case, and `committed` GPUs
    are open for a group from the start. `rank` orders classes by preference.
    """

    size: int
    as_is: Mapping[Key, int]
    must: Mapping[Key, int]
    openings: Mapping[Group, GpuOption]
    rank: tuple[int, ...] = ()
    sunk: bool = False
    committed: Group | None = None

    @cached_property
    def ways(self) -> Mapping[Group, list[Group]]:
        """Return the openings that serve profiles of a group: several if a GPU can have several MIG layouts."""
        found: dict[Group, list[Group]] = {}
        for group in sorted(self.openings, reverse=True):
            found.setdefault(family(group), []).append(group)
        return found


@dataclass
class NeedGroup:
    """Needs that are alike: a number of vGPUs of a profile, on any GPU of these classes."""

    key: Key
    group: Group
    count: int
    kinds: frozenset[int]


@dataclass
class SearchResult:
    """The result of a search. `opened` counts GPUs by class and group; `exhaustive`: no better result exists."""

    opened: dict[tuple[int, Group], int]
    state: SearchState
    fits: bool
    exhaustive: bool


Choice = tuple[int, Group]


@dataclass
class EdgeIds:
    """The numbers of a class's lanes in the flow network."""

    must: dict[Key, int] = field(default_factory=dict)
    spare: dict[Key, int] = field(default_factory=dict)
    kept_must: dict[Group, dict[Key, int]] = field(default_factory=dict)
    kept: dict[Group, dict[Key, int]] = field(default_factory=dict)
    new: dict[Group, list[int]] = field(default_factory=dict)


class SearchState:
    """The state of the search: how many GPUs of each class are opened for each group, and which needs they serve."""

    def __init__(self, rows: list[NeedGroup], kinds: list[GpuClass]) -> None:
        self.rows = rows
        self.kinds = kinds
        self.transport = FlowNetwork(row.count for row in rows)
        self.untouched = [kind.size for kind in kinds]
        self.opened: dict[Choice, int] = {}
        self.lanes = [self._lanes(index) for index in range(len(kinds))]
        self.transport.close(self._ranks())
        for index, kind in enumerate(kinds):
            if kind.committed:
                self.open((index, kind.committed), kind.size)
            else:
                self._resize(index)

    def copy(self) -> SearchState:
        twin = SearchState.__new__(SearchState)
        twin.rows = self.rows
        twin.kinds = self.kinds
        twin.transport = self.transport.copy()
        twin.untouched = list(self.untouched)
        twin.opened = dict(self.opened)
        twin.lanes = self.lanes
        return twin

    @property
    def cost(self) -> int:
        return sum(
            count
            for (index, group), count in self.opened.items()
            if not self.kinds[index].sunk and self.kinds[index].committed != group
        )

    @property
    def done(self) -> bool:
        return self.transport.complete and not self.transport.unfilled()

    def open(self, choice: Choice, count: int) -> None:
        index, group = choice
        self.untouched[index] -= count
        total = self.opened.get(choice, 0) + count
        self.opened[choice] = total
        self._resize(index)
        opening = self.kinds[index].openings[group]
        lanes = self.lanes[index]
        transport = self.transport
        for key, lane in lanes.kept_must[group].items():
            transport.set_capacity(lane, total * opening.must[key])
        for key, lane in lanes.kept[group].items():
            transport.set_capacity(lane, total * (opening.kept[key] - opening.must.get(key, 0)))
        for (_keys, places), lane in zip(opening.lanes, lanes.new[group], strict=True):
            transport.set_capacity(lane, total * places)

    def _resize(self, index: int) -> None:
        kind, lanes, left = self.kinds[index], self.lanes[index], self.untouched[index]
        for key, lane in lanes.must.items():
            self.transport.set_capacity(lane, left * kind.must[key])
        for key, lane in lanes.spare.items():
            self.transport.set_capacity(lane, left * (kind.as_is[key] - kind.must.get(key, 0)))

    def _lanes(self, index: int) -> EdgeIds:
        kind, transport, lanes = self.kinds[index], self.transport, EdgeIds()
        rows = [(number, row) for number, row in enumerate(self.rows) if index in row.kinds]

        def needs(keys: Iterable[Key]) -> list[int]:
            wanted = set(keys)
            return [number for number, row in rows if row.key in wanted]

        for key in kind.must:
            lanes.must[key] = transport.add_lane(needs([key]), compulsory=True)
        for key, count in kind.as_is.items():
            if count > kind.must.get(key, 0):
                lanes.spare[key] = transport.add_lane(needs([key]))
        for group, opening in kind.openings.items():
            lanes.kept_must[group] = {key: transport.add_lane(needs([key]), compulsory=True) for key in opening.must}
            lanes.kept[group] = {
                key: transport.add_lane(needs([key]))
                for key, count in opening.kept.items()
                if count > opening.must.get(key, 0)
            }
            lanes.new[group] = [transport.add_lane(needs(keys)) for keys, _count in opening.lanes]
        return lanes

    def _ranks(self) -> list[int]:
        """Rank the lanes: required ones first, then existing vGPUs, free slots, and slots to be cleared."""
        ranks = [0] * len(self.transport.capacity)
        for lanes in self.lanes:
            for lane in lanes.spare.values():
                ranks[lane] = 1
            for kept in lanes.kept.values():
                for lane in kept.values():
                    ranks[lane] = 2
            for new in lanes.new.values():
                for number, lane in enumerate(new):
                    ranks[lane] = 3 if number == 0 else 4
        return ranks


class Search:
    """One search: its initial state, the best result so far and the remaining budget."""

    def __init__(self, rows: list[NeedGroup], kinds: list[GpuClass], budget: SearchBudget) -> None:
        self.rows = rows
        self.kinds = kinds
        self.budget = budget
        self.start = SearchState(rows, kinds)
        self.start.transport.settle()
        self.openable: list[list[Choice]] = [
            [
                (index, group)
                for index in sorted(row.kinds)
                for group in kinds[index].ways.get(row.group, ())
                if any(count and row.key in keys for keys, count in kinds[index].openings[group].lanes)
            ]
            for row in rows
        ]
        self.cuts = any(len(found) > 1 for kind in kinds for found in kind.ways.values())
        self.needs_at: list[dict[Key, list[int]]] = [{} for _kind in kinds]
        for need, row in enumerate(rows if self.cuts else ()):
            for index in row.kinds:
                self.needs_at[index].setdefault(row.key, []).append(need)
        self.best: SearchState | None = None
        self.closest = self.start
        self.hopeless: set[Group] = set()
        self.wanted_by: list[set[Group]] = [set() for _kind in kinds]
        for need, missing in enumerate(self.start.transport.missing):
            if missing:
                for index, group in self.openable[need]:
                    self.wanted_by[index].add(family(group))

    def run(self) -> SearchResult:
        result = self.find()
        if result.state is not self.start:
            result.state.transport.start_over()
            result.state.transport.settle()
        return result

    def find(self) -> SearchResult:
        if self.start.done:
            return SearchResult(self.start.opened, self.start, fits=True, exhaustive=True)
        least = self.least_cost(self.start, frozenset())
        if least is None:
            # Place what fits anyway, so that the error can name what is left over.
            self.dive(self.start.copy(), contended_last=True)
            return SearchResult(self.closest.opened, self.closest, fits=False, exhaustive=True)
        # If GPUs can have several MIG layouts, also try to rank a layout by all needs that it would serve.
        for contended_last, whole in ((False, False), (True, False), *([(False, True)] if self.cuts else [])):
            state = self.start.copy()
            if self.dive(state, contended_last=contended_last, whole=whole):
                self.keep(self.trimmed(state, least))
            if self.best and self.best.cost <= least:
                return SearchResult(self.best.opened, self.best, fits=True, exhaustive=True)
        exhausted = self.is_small() and self.descend(self.start, frozenset(), least)
        if self.best:
            return SearchResult(self.best.opened, self.best, fits=True, exhaustive=exhausted)
        return SearchResult(self.closest.opened, self.closest, fits=False, exhaustive=exhausted)

    def keep(self, state: SearchState) -> None:
        if self.best is None or state.cost < self.best.cost:
            self.best = state

    def is_small(self) -> bool:
        openable = sum(
            self.kinds[index].size for index in {index for found in self.openable for index, _group in found}
        )
        return openable <= DEEPEST

    def spend(self, state: SearchState) -> bool:
        steps = state.transport.work + len(state.transport.capacity)
        state.transport.work = 0
        return self.budget.spend(steps)

    def choices(self, state: SearchState, needs: set[int], banned: frozenset[Choice]) -> dict[Choice, int]:
        """Return the GPU options that would serve these needs, each with its number of places."""
        found: dict[Choice, int] = {}
        wanted = {self.rows[need].key for need in needs}
        for need in needs:
            state.transport.work += len(self.openable[need])
            for choice in self.openable[need]:
                index, group = choice
                if choice not in found and state.untouched[index] and choice not in banned:
                    found[choice] = self.kinds[index].openings[group].places(wanted)
        return found

    def least_cost(self, state: SearchState, banned: frozenset[Choice]) -> int | None:
        """Return a lower bound of the GPUs still to touch. Return None if no number of GPUs suffices."""
        by_group: dict[Group, list[int]] = {}
        for need, missing in enumerate(state.transport.missing):
            if missing:
                by_group.setdefault(self.rows[need].group, []).append(need)
        total, possible = 0, True
        for needs in by_group.values():
            missing = sum(state.transport.missing[need] for need in needs)
            gains = self.choices(state, state.transport.competing_with(needs), banned)
            if self.cuts:
                gains = _best_ways(gains)
            # GPUs that are touched anyway cost nothing, so they come first.
            for (index, _group), gain in sorted(
                gains.items(), key=lambda item: (not self.kinds[item[0][0]].sunk, -item[1])
            ):
                if missing <= 0:
                    break
                count = min(state.untouched[index], -(-missing // gain))
                missing -= count * gain
                total += 0 if self.kinds[index].sunk else count
            if missing > 0:
                self.hopeless.add(self.rows[needs[0]].group)
                possible = False
        # Each GPU can be opened only once, which limits the number of openings.
        if not possible or total > sum(
            left for left, kind in zip(state.untouched, self.kinds, strict=True) if kind.openings
        ):
            return None
        if not by_group and state.transport.unfilled():
            return 1
        return total

    def wanting(self, state: SearchState) -> int | None:
        """Return the need to serve next: the need with the fewest options."""
        missing = [need for need, count in enumerate(state.transport.missing) if count]
        hopeless = self.hopeless
        return min(
            missing, key=lambda need: (self.rows[need].group in hopeless, len(self.openable[need]), need), default=None
        )

    def useful(self, choice: Choice, state: SearchState) -> int:
        """Return how many of the missing places of all needs a GPU provides with this MIG layout."""
        if not self.cuts:
            return 0
        index, group = choice
        missing = state.transport.missing
        total = 0
        for keys, count in self.kinds[index].openings[group].lanes:
            total += min(count, sum(missing[need] for need in self.needs_at[index].get(keys[0], ())))
        return total

    def ranked(
        self, gains: dict[Choice, int], missing: int, state: SearchState, *, contended_last: bool
    ) -> list[tuple[Choice, int]]:
        """Return the choices by merit: GPUs touched anyway, then the tightest that suffices, then the largest.

        Among the MIG layouts of a GPU, prefer the layout that serves most of the missing vGPUs.
        """

        def merit(item: tuple[Choice, int]) -> tuple[int, ...]:
            (index, group), gain = item
            kind = self.kinds[index]
            rivals = len(self.wanted_by[index] - {family(group)})
            lost = sum(kind.as_is.values()) - sum(kind.openings[group].kept.values())
            suffices = gain >= missing
            size = gain if suffices else -gain
            contention = (rivals, lost) if contended_last else (0, 0)
            rank = kind.rank if suffices else ()
            useful = self.useful((index, group), state)
            return (not kind.sunk, *contention, not suffices, *rank, -useful, size, lost, rivals, *kind.rank, index)

        # Tuples of different length are never compared: an earlier field separates the choices that suffice.
        return sorted(gains.items(), key=merit)

    def dive(self, state: SearchState, *, contended_last: bool, whole: bool = False) -> bool:
        """Open the best-ranked GPUs until everything is placed. This is fast, but not always optimal."""
        transport = state.transport
        while not state.done:
            self.spend(state)
            if self.budget.exhausted:
                break
            need = self.wanting(state)
            if need is None:
                if not self.release_unasked(state):
                    break
                continue
            gains = self.choices(state, {need}, frozenset())
            if not gains:
                gains = self.choices(state, transport.competing_with([need]), frozenset())
            if not gains:
                break
            if whole:
                gains = {choice: self.kinds[choice[0]].openings[choice[1]].gain for choice in gains}
            missing = transport.missing[need]
            for choice, gain in self.ranked(gains, missing, state, contended_last=contended_last):
                # Open as many GPUs as are certainly filled. Rank the choices again for the rest.
                count = min(state.untouched[choice[0]], max(missing // gain, 1))
                state.open(choice, count)
                missing -= count * gain
                if missing < gain:
                    break
            transport.settle()
        if sum(transport.missing) < sum(self.closest.transport.missing):
            self.closest = state
        return state.done

    def release_unasked(self, state: SearchState) -> bool:
        """Touch the GPUs that have unrequested vGPUs. Return whether there was such a GPU."""
        unfilled = set(state.transport.unfilled())
        released = False
        for index, group in self.releasing(state, unfilled, frozenset()):
            short = 0
            for key, lane in state.lanes[index].must.items():
                if lane in unfilled:
                    left = state.transport.capacity[lane] - state.transport.used[lane]
                    short = max(short, -(-left // self.kinds[index].must[key]))
            if short:
                state.open((index, group), min(short, state.untouched[index]))
                released = True
        state.transport.settle()
        return released

    def releasing(self, state: SearchState, lanes: set[int], banned: frozenset[Choice]) -> list[Choice]:
        """Return the GPU options that would make it unnecessary to fill these lanes."""
        return [
            (index, group)
            for index, kind in enumerate(self.kinds)
            if state.untouched[index] and not lanes.isdisjoint(state.lanes[index].must.values())
            for group in kind.openings
            if (index, group) not in banned
        ]

    def trimmed(self, state: SearchState, least: int) -> SearchState:
        """Return the state without the openings that turned out to be unnecessary."""
        for choice in reversed(list(state.opened)):
            while state.opened.get(choice) and self.kinds[choice[0]].committed != choice[1]:
                if state.cost <= least or not self.spend(state):
                    return state
                trial = state.copy()
                trial.open(choice, -1)
                trial.transport.settle()
                if not trial.done:
                    break
                state = trial
        return state

    def descend(self, state: SearchState, banned: frozenset[Choice], least: int) -> bool:
        """Try every choice that could beat the best result. Return whether the search was complete."""
        if state.done:
            self.keep(state)
            return True
        if not self.spend(state):
            return False
        more = self.least_cost(state, banned)
        if more is None or (self.best and state.cost + more >= self.best.cost):
            return True
        need = self.wanting(state)
        if need is not None:
            gains = self.choices(state, state.transport.competing_with([need]), banned)
            missing = state.transport.missing[need]
            choices = [choice for choice, _gain in self.ranked(gains, missing, state, contended_last=True)]
        else:
            lane = state.transport.unfilled()[0]
            choices = self.releasing(state, state.transport.starving_with(lane), banned)
        for number, choice in enumerate(choices):
            child = state.copy()
            child.open(choice, 1)
            child.transport.settle()
            if not self.descend(child, banned.union(choices[:number]), least):
                return False
            if self.best and self.best.cost <= least:
                return True
        return True


def _best_ways(gains: dict[Choice, int]) -> dict[Choice, int]:
    """Return only the most productive MIG layout of each GPU, because a GPU is opened once."""
    best: dict[Choice, int] = {}
    for (index, group), gain in gains.items():
        which = (index, family(group))
        best[which] = max(gain, best.get(which, 0))
    return best
