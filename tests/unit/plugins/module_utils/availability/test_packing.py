# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines on nodes, each on one: compared with an answer by trying everything."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import product

from ansible_collections.vgpu.fleet.plugins.module_utils.availability.packing import MachineGroup, Packing, place
from hypothesis import given, strategies as st

TYPES = ("4Q", "8Q", "4C")
amounts = st.dictionaries(st.sampled_from(TYPES), st.integers(0, 4), max_size=3)
worlds = st.dictionaries(st.sampled_from(["a", "b", "c"]), amounts, max_size=3)
batches = st.lists(
    st.builds(
        MachineGroup,
        st.dictionaries(st.sampled_from(TYPES), st.integers(1, 3), min_size=1, max_size=2),
        st.integers(0, 2),
        st.integers(0, 1),
    ),
    max_size=3,
)


def machines(wanted: list[MachineGroup]) -> list[tuple[int, Mapping[str, int]]]:
    return [(index, batch.vgpus) for index, batch in enumerate(wanted) for _ in range(batch.count)]


def most_by_trying(free: Mapping[str, Mapping[str, int]], wanted: list[MachineGroup]) -> tuple[int, ...]:
    """The most machines of each rank that fit, the lower rank first."""
    ranks = sorted({batch.rank for batch in wanted})
    best = tuple(0 for _rank in ranks)
    every = machines(wanted)
    for choice in product([None, *sorted(free)], repeat=len(every)):
        left = {node: dict(some) for node, some in free.items()}
        for node, (_index, vgpus) in zip(choice, every, strict=True):
            if node is not None:
                for name, count in vgpus.items():
                    left[node][name] = left[node].get(name, 0) - count
        if all(count >= 0 for some in left.values() for count in some.values()):
            placed = [index for node, (index, _vgpus) in zip(choice, every, strict=True) if node is not None]
            best = max(best, tuple(sum(wanted[index].rank == rank for index in placed) for rank in ranks))
    return best


def assert_holds(free: Mapping[str, Mapping[str, int]], wanted: list[MachineGroup], found: Packing) -> None:
    """No node gives more than it has."""
    used: dict[tuple[str, str], int] = {}
    for batch, nodes, missing in zip(wanted, found.nodes, found.missing, strict=True):
        assert sum(nodes.values()) + missing == batch.count
        for node, count in nodes.items():
            for name, each in batch.vgpus.items():
                used[node, name] = used.get((node, name), 0) + count * each
    assert all(count <= free[node].get(name, 0) for (node, name), count in used.items())


@given(worlds, batches)
def test_as_many_machines_are_placed_as_by_trying_everything(free, wanted):
    found = place(free, wanted)
    assert_holds(free, wanted, found)
    assert found.exhaustive
    by_rank: dict[int, int] = {batch.rank: 0 for batch in wanted}
    for batch, nodes in zip(wanted, found.nodes, strict=True):
        by_rank[batch.rank] += sum(nodes.values())
    most = most_by_trying(free, wanted)
    assert found.fits == (sum(most) == len(machines(wanted)))
    # Batches that share no type are placed for themselves, so ranks are compared within such a group only.
    if len({name for batch in wanted for name in batch.vgpus}) == 1:
        assert tuple(by_rank[rank] for rank in sorted(by_rank)) == most


@given(worlds, batches)
def test_the_same_question_has_the_same_answer(free, wanted):
    backwards = dict(reversed(list(free.items())))
    assert place(free, wanted) == place(backwards, wanted)


def test_a_machine_is_never_split_between_nodes():
    found = place({"a": {"4Q": 1}, "b": {"4Q": 1}}, [MachineGroup({"4Q": 2}, 1)])
    assert found.missing == (1,)


def test_large_machines_do_not_lose_their_place_to_small_ones():
    found = place({"a": {"4Q": 2}, "b": {"4Q": 1}}, [MachineGroup({"4Q": 1}, 1), MachineGroup({"4Q": 2}, 1)])
    assert found.fits
    assert found.nodes == ({"b": 1}, {"a": 1})


def test_what_first_fit_misses_is_found():
    """Three and three of one, twos on the other: putting the largest first where it fits would fail."""
    free = {"a": {"4Q": 4}, "b": {"4Q": 3}}
    assert place(free, [MachineGroup({"4Q": 2}, 2), MachineGroup({"4Q": 3}, 1)]).fits


def test_what_is_there_comes_before_what_is_wanted():
    found = place({"a": {"4Q": 2}}, [MachineGroup({"4Q": 2}, 1, rank=1), MachineGroup({"4Q": 1}, 1, rank=0)])
    assert found.missing == (1, 0)


def test_a_thousand_nodes_and_a_hundred_demands_are_quick():
    free = {f"n{number:04}": {"4Q": number % 5, "8C": number % 3} for number in range(1000)}
    wanted = [
        MachineGroup({"4Q": 1 + number % 3} if number % 2 else {"8C": 1 + number % 2}, 5) for number in range(100)
    ]
    begin = time.process_time()
    assert place(free, wanted).fits
    assert not place(free, [*wanted, MachineGroup({"4Q": 4}, 500)]).fits
    assert time.process_time() - begin < 3
