# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MIG geometries against an answer that tries every place for every instance, from tables of its own."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import (
    InstanceRequest,
    InstanceSize,
    InvalidInstance,
    MigGeometry,
    format_instances,
    geometry_from,
    geometry_of,
    read_wanted,
    served_type,
    served_types,
    serves_nothing,
    vgpus_per_instance,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse

from lab.gpu import mig as lab

# name: (compute slices, memory slices, first memory slices it may have), as `nvidia-smi mig -lgipp` prints them.
SEVEN = ((1, 1, range(7)), (1, 2, (0, 2, 4, 6)), (2, 2, (0, 2, 4)), (3, 4, (0, 4)), (4, 4, (0,)), (7, 8, (0,)))
FOUR = ((1, 1, range(4)), (2, 2, (0, 2)), (4, 4, (0,)))


def seven(*names: str) -> dict[str, tuple[int, int, tuple[int, ...]]]:
    small, media, *others = names
    first, *rest = SEVEN
    return {small: first, media: first, **dict(zip(others, rest, strict=True))}


PLACEMENTS = {
    "A30": {"1g.6gb": FOUR[0], "1g.6gb+me": FOUR[0], "2g.12gb": FOUR[1], "2g.12gb+me": FOUR[1], "4g.24gb": FOUR[2]},
    "A100": seven("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "A100D": seven("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100": seven("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100L": seven("1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"),
}


def geometry(board: str) -> MigGeometry:
    found = geometry_of(board)
    assert found
    return found


def counts(**named: int) -> Counter[InstanceSize]:
    """counts(_1g_5gb=2) is two instances of 1g.5gb; `me` at the end stands for +me."""
    found: Counter[InstanceSize] = Counter()
    for name, count in named.items():
        words = name.strip("_").split("_")
        text = f"{words[0]}.{words[1]}" + ("+me" if words[2:] else "")
        found[read_wanted(text).size] = count
    return found


@cache
def can_be_placed(board: str, wanted: tuple[int, ...]) -> bool:
    """Tries every place for the first instance, then for the rest."""
    table = list(PLACEMENTS[board].items())
    names = [name for (name, _row), count in zip(table, wanted, strict=True) for _number in range(count)]
    if sum(name.endswith("+me") for name in names) > 1:
        return False

    def place(number: int, taken: frozenset[int], after: int) -> bool:
        if number == len(names):
            return True
        _compute, memory, starts = PLACEMENTS[board][names[number]]
        # Of equal instances the next one lies behind the last.
        return any(
            place(number + 1, taken | set(range(start, start + memory)), start if same else -1)
            for same in [names[number : number + 1] == names[number + 1 : number + 2]]
            for start in starts
            if start > after and taken.isdisjoint(range(start, start + memory))
        )

    return place(0, frozenset(), -1)


def every_count(board: str) -> list[tuple[int, ...]]:
    """All numbers of instances, up to one more than there are memory slices for."""
    rows = PLACEMENTS[board].values()
    most = max(memory for _compute, memory, _starts in rows)
    ranges = [range(most // memory + 2) for _compute, memory, _starts in rows]
    return [
        counted
        for counted in product(*ranges)
        if sum(count * row[1] for count, row in zip(counted, rows, strict=True)) <= most + 1
    ]


def as_counter(board: str, counted: tuple[int, ...]) -> Counter[InstanceSize]:
    return Counter(
        {read_wanted(name).size: count for name, count in zip(PLACEMENTS[board], counted, strict=True) if count}
    )


@pytest.mark.parametrize("board", PLACEMENTS)
def test_a_cut_fits_exactly_if_some_placement_of_its_instances_does(board: str) -> None:
    found = geometry(board)
    fitting = 0
    for counted in every_count(board):
        wanted = as_counter(board, counted)
        assert found.fits(wanted) == can_be_placed(board, counted), wanted
        fitting += found.fits(wanted)
        # Of these boards every cut that does not fit breaks a rule that can be named.
        assert found.fits(wanted) == ("no way to place" in found.why_not(wanted))
    assert fitting > 10


@pytest.mark.parametrize("board", PLACEMENTS)
def test_starts_and_slices_are_those_of_the_driver(board: str) -> None:
    found = geometry(board)
    for name, (compute, memory, starts) in PLACEMENTS[board].items():
        size = read_wanted(name).size
        assert (size.compute, found.memory_of(size), list(found.starts(size))) == (compute, memory, list(starts)), name


@pytest.mark.parametrize("board", sorted(set(lab.GEOMETRIES) & set(PLACEMENTS)))
def test_the_largest_first_is_an_order_in_which_the_driver_places_every_cut_that_fits(board: str) -> None:
    found = geometry(board)
    profiles = {profile.name: profile for profile in lab.GEOMETRIES[board].profiles}
    for counted in every_count(board):
        wanted = as_counter(board, counted)
        if found.fits(wanted):
            card = lab.MigCard(lab.GEOMETRIES[board])
            for size in found.sizes:
                for _number in range(wanted[size]):
                    card.create(profiles[size.name].id)
            assert len(card.instances) == sum(wanted.values())


@pytest.mark.parametrize("board", PLACEMENTS)
def test_the_fullest_cuts_cover_every_cut_and_none_covers_another(board: str) -> None:
    found = geometry(board)
    every = [as_counter(board, counted) for counted in every_count(board) if can_be_placed(board, counted)]
    fullest = found.maximal(found.sizes)
    assert all(any(cut <= full for full in fullest) for cut in every)
    assert not any(one <= other for one in fullest for other in fullest if one is not other)
    assert all(found.fits(full) for full in fullest)


def test_the_fullest_cuts_beside_kept_instances_have_those_and_else_only_what_is_wanted() -> None:
    a100 = geometry("A100")
    small, half = read_wanted("1g.5gb").size, read_wanted("3g.20gb").size
    assert a100.maximal([small], counts(_3g_20gb=1)) == [counts(_3g_20gb=1, _1g_5gb=4)]
    assert a100.maximal([half]) == [counts(_3g_20gb=2)]
    assert a100.maximal([small], counts(_3g_20gb=3)) == []
    assert a100.most(small, counts(_4g_20gb=1)) == 3
    assert a100.most(half, counts(_4g_20gb=1)) == 1


@pytest.mark.parametrize(
    ("board", "wanted", "reason"),
    [
        ("A100", counts(_4g_20gb=1, _3g_20gb=1), None),
        ("A100", counts(_4g_20gb=2), "7 compute slices, and these need 8"),
        ("A100", counts(_3g_20gb=2), None),
        ("A100", counts(_3g_20gb=2, _1g_5gb=1), "8 memory slices, and these need 9"),
        ("A100", counts(_1g_5gb=8), "at most 7 instances, and these are 8"),
        ("A100", counts(_1g_5gb=6, _1g_5gb_me=1), None),
        ("A100", counts(_1g_5gb_me=2), "only one instance can have the media engines, and 2 ask"),
        ("A30", counts(_1g_6gb_me=1, _2g_12gb_me=1), "only one instance can have the media engines"),
        ("A30", counts(_2g_12gb=1, _1g_6gb=2), None),
        ("A30", counts(_1g_6gb=5), "at most 4 instances"),
        ("A100", counts(_1g_10gb=4), None),
        ("A100", counts(_1g_10gb=4, _2g_10gb=1), "8 memory slices, and these need 10"),
        ("A100", counts(_2g_10gb=1, _1g_10gb=2, _1g_5gb=2), None),
        ("A100", counts(_1g_10gb=3, _1g_5gb=2), None),
        ("A100", counts(_1g_6gb=1), "no instances of 1g.6gb"),
    ],
)
def test_a_cut_that_does_not_fit_breaks_a_rule_with_a_name(
    board: str, wanted: Counter[InstanceSize], reason: str
) -> None:
    found = geometry(board)
    assert found.fits(wanted) == (reason is None)
    if reason:
        assert reason in found.why_not(wanted)


def test_as_many_of_one_size_fit_as_the_catalogue_says() -> None:
    boards = [board for board in catalog.boards().values() if geometry_of(board.name)]
    assert {"A30", "A100", "A100D", "H100", "H100L", "H200"} <= {board.name for board in boards}
    for board in boards:
        for profile in board.profiles:
            if profile.mig:
                size = read_wanted(profile.name).size
                each = vgpus_per_instance(parse(profile.name).key)
                assert geometry(board.name).most(size) * each == profile.max_per_gpu, profile.name
                assert served_types(board.name, size)[profile.name] == each
                assert each <= 12
                if not board.gfx:
                    assert served_types(board.name, size) == {profile.name: 1}
                    assert served_type(board.name, size) == profile.name


PRO = "RTX Pro 6000 Blackwell DC"
# As `nvidia-smi mig -lgip` lists them.
PRO_PROFILES = [
    "1g.24gb",
    "1g.24gb+me",
    "1g.24gb+gfx",
    "1g.24gb+me.all",
    "1g.24gb-me",
    "2g.48gb",
    "2g.48gb+gfx",
    "2g.48gb+me.all",
    "2g.48gb-me",
    "4g.96gb",
    "4g.96gb+gfx",
]


@pytest.mark.parametrize(
    ("board", "sizes"),
    [
        (PRO, {"4g.96gb+gfx": 1, "2g.48gb+gfx": 2, "1g.24gb+gfx": 4}),
        ("RTX 6000D", {"2g.84gb+gfx": 1, "1g.42gb+gfx": 2}),
        ("RTX Pro 4500 Blackwell DC", {"2g.32gb+gfx": 1, "1g.16gb+gfx": 2}),
    ],
)
def test_boards_with_graphics_have_vgpus_only_on_graphics_instances(board: str, sizes: dict[str, int]) -> None:
    found = geometry(board)
    assert {size.name: found.most(size) for size in found.sizes} == sizes
    for name in ("1g.24gb", "1g.24gb+me", "1g.24gb+me.all", "1g.24gb-me"):
        size = read_wanted(name).size
        assert served_types(board, size) == {}
        assert serves_nothing(board, size, found.sizes)


@pytest.mark.parametrize(
    ("instance", "types"),
    [
        ("1g.24gb+gfx", {"1-2Q": 12, "1-3B": 8, "1-4A": 6, "1-6Q": 4, "1-8C": 3, "1-12C": 2, "1-24Q": 1}),
        ("2g.48gb+gfx", {"2-12Q": 4, "2-16A": 3, "2-24C": 2, "2-48C": 1}),
        ("4g.96gb+gfx", {"4-24Q": 4, "4-32C": 3, "4-48A": 2, "4-96Q": 1}),
    ],
)
def test_a_graphics_instance_serves_several_vgpus(instance: str, types: dict[str, int]) -> None:
    found = served_types(PRO, read_wanted(instance).size)
    for suffix, count in types.items():
        assert found[f"NVIDIA {PRO}-{suffix}"] == count
    assert (
        served_type(PRO, read_wanted(instance).size) == f"NVIDIA {PRO}-{instance[0]}-{read_wanted(instance).size.gib}C"
    )


def test_a_live_list_with_every_kind_of_instance_gives_a_geometry() -> None:
    found = geometry_from(f"MIG {name}" for name in PRO_PROFILES)
    assert found is not None
    counts = {"+me": 1, "+me.all": 1}
    for name in PRO_PROFILES:
        size = read_wanted(name).size
        assert size.name == name
        assert found.most(size) == counts.get(size.attribute, 4 // size.compute), name
    plain, all_media, without = (read_wanted(name).size for name in ("1g.24gb", "1g.24gb+me.all", "1g.24gb-me"))
    assert found.fits({all_media: 1, without: 3})
    assert not found.fits({all_media: 1, plain: 1})
    assert "all media engines" in found.why_not({all_media: 1, plain: 1})
    assert "it has 4 compute slices" in found.why_not({plain: 3, read_wanted("2g.48gb+gfx").size: 1})


@pytest.mark.parametrize("board", sorted(set(lab.GEOMETRIES) - set(PLACEMENTS)))
def test_the_driver_places_every_fullest_cut_of_the_names_that_it_lists(board: str) -> None:
    profiles = {profile.name: profile for profile in lab.GEOMETRIES[board].profiles}
    found = geometry_from(f"MIG {name}" for name in profiles)
    assert found is not None
    for cut in found.maximal(found.sizes):
        card = lab.MigCard(lab.GEOMETRIES[board])
        for size in found.sizes:
            for _number in range(cut[size]):
                card.create(profiles[size.name].id)
        assert len(card.instances) == sum(cut.values())


def test_without_the_catalogue_a_list_with_graphics_instances_shows_which_ones_serve_vgpus() -> None:
    listed = [read_wanted(name).size for name in ("1g.24gb", "1g.24gb+gfx")]
    assert [serves_nothing("RTX PRO 5000", size, listed) for size in listed] == [True, False]
    assert not serves_nothing("Z9", read_wanted("1g.24gb").size, listed[:1])


@pytest.mark.parametrize(
    ("instance", "served"),
    [
        ("1g.24gb", "1-24C"),
        ("1g.23gb", "1-24C"),
        ("1g.23gb+me", "1-24CME"),
        ("1g.47gb", "1-47C"),
        ("2g.47gb", "2-47C"),
        ("3g.93gb", "3-95C"),
        ("4g.93gb", "4-95C"),
        ("7g.186gb", "7-189C"),
    ],
)
def test_instances_of_a_gb200_are_known_by_their_slices(instance: str, served: str) -> None:
    assert served_type("GB200", read_wanted(instance).size) == f"NVIDIA GB200-{served}"


def test_slices_are_not_confused_with_others_of_twice_the_memory() -> None:
    assert served_type("A100", read_wanted("1g.10gb").size) == "GRID A100-1-10C"
    assert served_type("A100", read_wanted("1g.20gb").size) is None


def test_boards_without_mig_have_no_geometry() -> None:
    assert geometry_of("A2") is None
    assert geometry_of("no such board") is None


def test_the_names_a_gpu_lists_give_the_geometry_of_its_board() -> None:
    for board, table in PLACEMENTS.items():
        assert geometry_from(f"MIG {name}" for name in table) == geometry(board)
    assert geometry_from(["1g", "MIG"]) is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1g.5gb", InstanceRequest(InstanceSize(1, 5))),
        ("MIG 1g.5gb", InstanceRequest(InstanceSize(1, 5))),
        ("mig 1g.5gb+me", InstanceRequest(InstanceSize(1, 5, "+me"))),
        ("A100-1-5C", InstanceRequest(InstanceSize(1, 5), "A100")),
        ("GRID A100-1-5CME", InstanceRequest(InstanceSize(1, 5, "+me"), "A100")),
        ("nvidia.com/NVIDIA_H100L-3-47C", InstanceRequest(InstanceSize(3, 47), "H100L")),
        ("grid_a100-3-20c", InstanceRequest(InstanceSize(3, 20), "a100")),
        ("MIG 1g.24gb+GFX", InstanceRequest(InstanceSize(1, 24, "+gfx"))),
        ("1g.24gb+me.all", InstanceRequest(InstanceSize(1, 24, "+me.all"))),
        ("1g.24gb-me", InstanceRequest(InstanceSize(1, 24, "-me"))),
        (
            "nvidia.com/NVIDIA_RTX_Pro_6000_Blackwell_DC-1-2Q",
            InstanceRequest(InstanceSize(1, 24, "+gfx"), "RTX Pro 6000 Blackwell DC"),
        ),
    ],
)
def test_an_instance_is_read_in_every_spelling(text: str, wanted: InstanceRequest) -> None:
    assert read_wanted(text) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A100-10C", "time-sliced profile"),
        ("3g", "is not the name"),
        ("MIG", "is not"),
        ("0g.5gb", "is not"),
        ("RTX Pro 6000 Blackwell DC-1-24QGFX", "is not the name"),
        ("RTX Pro 6000 Blackwell DC-1-5Q", "is not the name"),
    ],
)
def test_what_is_not_an_instance_is_told(text: str, said: str) -> None:
    with pytest.raises(InvalidInstance, match=said):
        read_wanted(text)


def test_a_cut_is_described_from_the_largest_instance_down() -> None:
    assert format_instances(counts(_1g_5gb=2, _3g_20gb=1, _1g_5gb_me=1)) == "1 x 3g.20gb, 2 x 1g.5gb, 1 x 1g.5gb+me"
    assert format_instances({}) == "no instances"
