# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Placement of machines on nodes: each machine needs all its vGPUs on one node. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# Limits in search steps instead of seconds, so that the same input gives the same result on every machine.
BUDGET = 500_000
FILLINGS = 2_000

Free = Mapping[str, Mapping[str, int]]
State = tuple[int, ...]


@dataclass(frozen=True)
class MachineGroup:
    """A number of machines that need the same vGPUs. A lower rank is placed first if not all machines fit."""

    vgpus: Mapping[str, int] = field(hash=False)
    count: int
    rank: int = 0


@dataclass(frozen=True)
class Packing:
    """Machines by node, one mapping per group. `exhaustive` means that no more machines can be placed."""

    nodes: tuple[Mapping[str, int], ...]
    missing: tuple[int, ...]
    exhaustive: bool = True

    @property
    def fits(self) -> bool:
        return not any(self.missing)


def place(free: Free, batches: Sequence[MachineGroup]) -> Packing:
    """Place all machines if possible. `free` is by node and vGPU type."""
    alike: dict[tuple[frozenset[tuple[str, int]], int], list[int]] = {}
    for index, batch in enumerate(batches):
        alike.setdefault((frozenset(batch.vgpus.items()), batch.rank), []).append(index)
    merged = [
        MachineGroup(batches[members[0]].vgpus, sum(batches[member].count for member in members), rank)
        for (_vgpus, rank), members in alike.items()
    ]
    nodes: list[Mapping[str, int]] = [{} for _batch in batches]
    placed, exhaustive = _place(free, merged)
    for members, where in zip(alike.values(), placed, strict=True):
        for member, share in zip(members, _shares(where, [batches[index].count for index in members]), strict=True):
            nodes[member] = share
    missing = tuple(batch.count - sum(where.values()) for batch, where in zip(batches, nodes, strict=True))
    return Packing(tuple(nodes), missing, exhaustive)


def _shares(where: Mapping[str, int], counts: Sequence[int]) -> Iterator[dict[str, int]]:
    """Distribute the placed machines to equal groups, in the order of the groups."""
    left = dict(where)
    for count in counts:
        share: dict[str, int] = {}
        for node in sorted(left):
            taken = min(left[node], count - sum(share.values()))
            if taken:
                share[node] = taken
                left[node] -= taken
        yield share


def _place(free: Free, batches: Sequence[MachineGroup]) -> tuple[list[dict[str, int]], bool]:
    nodes: list[dict[str, int]] = [{} for _batch in batches]
    exhaustive = True
    for members in _independent(batches):
        some = [batches[member] for member in members]
        found = _first_fit(free, some)
        if found is None:
            found, certain = _search(free, some)
            exhaustive = exhaustive and certain
        for member, where in zip(members, found, strict=True):
            nodes[member] = where
    return nodes, exhaustive


def _independent(batches: Sequence[MachineGroup]) -> Iterator[list[int]]:
    """Yield sets of groups that compete for a type, directly or through other groups."""
    groups: list[tuple[set[str], list[int]]] = []
    for index, batch in enumerate(batches):
        types, members = set(batch.vgpus), [index]
        apart = []
        for group in groups:
            if group[0].isdisjoint(types):
                apart.append(group)
            else:
                types |= group[0]
                members += group[1]
        groups = [*apart, (types, members)]
    for _types, members in groups:
        yield sorted(members)


def _first_fit(free: Free, batches: Sequence[MachineGroup]) -> list[dict[str, int]] | None:
    """Place the largest machines first, each on the first node with room. This is fast and nearly always sufficient."""
    left = {node: dict(amounts) for node, amounts in sorted(free.items())}
    placed: list[dict[str, int]] = [{} for _batch in batches]
    for index in sorted(range(len(batches)), key=lambda batch: (-sum(batches[batch].vgpus.values()), batch)):
        batch = batches[index]
        wanted = batch.count
        for node, amounts in left.items():
            taken = min(wanted, _times(amounts, batch.vgpus))
            if taken:
                placed[index][node] = taken
                wanted -= taken
                for name, count in batch.vgpus.items():
                    amounts[name] -= taken * count
        if wanted:
            return None
    return placed


def _times(amounts: Mapping[str, int], vgpus: Mapping[str, int]) -> int:
    """Return how many machines fit on one node."""
    return min((max(amounts.get(name, 0), 0) // count for name, count in vgpus.items() if count), default=1 << 30)


def _search(free: Free, batches: Sequence[MachineGroup]) -> tuple[list[dict[str, int]], bool]:
    """Try all fillings of each node in turn, and keep only the best combinations of placed machines."""
    counts = tuple(batch.count for batch in batches)
    types = sorted({name for batch in batches for name in batch.vgpus})
    order = sorted(
        (node for node, amounts in free.items() if any(amounts.get(name, 0) > 0 for name in types)),
        key=lambda node: ([-free[node].get(name, 0) for name in types], node),
    )
    patterns: dict[tuple[int, ...], list[State]] = {}
    layers: list[dict[State, tuple[State, State]]] = []
    states: list[State] = [tuple(0 for _batch in batches)]
    steps, exhaustive = 0, True
    for node in order:
        amounts = tuple(free[node].get(name, 0) for name in types)
        if amounts not in patterns:
            patterns[amounts] = _fillings(dict(zip(types, amounts, strict=True)), batches)
            exhaustive = exhaustive and len(patterns[amounts]) < FILLINGS
        layer: dict[State, tuple[State, State]] = {}
        for state in states:
            for filling in patterns[amounts]:
                reached = tuple(min(a + b, most) for a, b, most in zip(state, filling, counts, strict=True))
                layer.setdefault(reached, (state, filling))
        steps += len(states) * len(patterns[amounts])
        states = _best(list(layer))
        steps += len(layer) * len(states)
        layers.append(layer)
        if steps > BUDGET:
            # There are too many combinations: continue with the fullest only.
            exhaustive = False
            states = sorted(states, key=lambda state: _value(state, batches), reverse=True)[:1]
        if counts in layer:
            states, exhaustive = [counts], True
            break
    best = max(states, key=lambda state: _value(state, batches))
    return _traced(best, layers, order, batches), exhaustive


def _fillings(amounts: dict[str, int], batches: Sequence[MachineGroup]) -> list[State]:
    """Return the maximal fillings of one node, cut off at a limit."""
    found: list[State] = []

    def fill(index: int, left: dict[str, int], chosen: State) -> None:
        if index == len(batches):
            found.append(chosen)
            return
        batch = batches[index]
        most = min(_times(left, batch.vgpus), batch.count)
        for count in range(most, -1, -1) if index < len(batches) - 1 else (most,):
            if len(found) >= FILLINGS:
                return
            rest = {name: amount - count * batch.vgpus.get(name, 0) for name, amount in left.items()}
            fill(index + 1, rest, (*chosen, count))

    fill(0, amounts, ())
    return found if len(found) >= FILLINGS else _best(found)


def _best(states: list[State]) -> list[State]:
    """Return the states without those that another state equals or exceeds in every count."""
    kept: list[State] = []
    for state in sorted(set(states), reverse=True):
        if not any(all(a >= b for a, b in zip(other, state, strict=True)) for other in kept):
            kept.append(state)
    return kept


def _value(state: State, batches: Sequence[MachineGroup]) -> tuple[tuple[int, ...], State]:
    ranks = sorted({batch.rank for batch in batches})
    totals = tuple(
        sum(count for count, batch in zip(state, batches, strict=True) if batch.rank == rank) for rank in ranks
    )
    return totals, state


def _traced(
    best: State, layers: list[dict[State, tuple[State, State]]], order: list[str], batches: Sequence[MachineGroup]
) -> list[dict[str, int]]:
    placed: list[dict[str, int]] = [{} for _batch in batches]
    state = best
    for layer, node in zip(reversed(layers), reversed(order[: len(layers)]), strict=True):
        before, _filling = layer[state]
        for index, (now, then) in enumerate(zip(state, before, strict=True)):
            if now > then:
                placed[index][node] = now - then
        state = before
    return [dict(sorted(nodes.items())) for nodes in placed]
