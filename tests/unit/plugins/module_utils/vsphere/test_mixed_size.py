# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mixed sizes by NVIDIA's placement ids, against published numbers and against a search of all arrangements."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import mixed_size
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.mixed_size import Room, SizePlaces, places_of, room
from hypothesis import given, settings, strategies as st

ROOT = Path(__file__).parents[5]
# The most vGPUs of each size in mixed-size mode that NVIDIA's user guide lists, by framebuffer.
PUBLISHED = {
    ("nvidia_a16-{}q", 16): {16: 1, 8: 2, 4: 4, 2: 8, 1: 16},
    ("nvidia_a10-{}q", 24): {24: 1, 12: 2, 8: 2, 6: 4, 4: 4, 3: 8, 2: 8, 1: 16},
    ("grid_a100-{}c", 40): {40: 1, 20: 2, 10: 4, 8: 4, 5: 8, 4: 8},
    ("nvidia_a40-{}q", 48): {48: 1, 24: 2, 16: 2, 12: 4, 8: 4, 6: 8, 4: 8, 3: 16, 2: 16, 1: 30},
    ("nvidia_l40-{}q", 48): {48: 1, 24: 2, 16: 2, 12: 4, 8: 4, 6: 8, 4: 8, 3: 16, 2: 16, 1: 16},
    ("nvidia_h100-{}c", 80): {80: 1, 40: 2, 20: 4, 16: 4, 10: 8, 8: 8, 5: 16, 4: 16},
    ("nvidia_h100l-{}c", 94): {94: 1, 47: 2, 23: 4, 15: 4, 11: 8, 6: 8, 4: 16},
}
# Starts from the same guide.
STARTS = {
    ("nvidia_a40-16q", 48): (0, 32),
    ("nvidia_a40-8q", 48): (0, 16, 24, 40),
    ("nvidia_a40-4q", 48): (0, 8, 12, 20, 24, 32, 36, 44),
    ("nvidia_a10-8q", 24): (0, 16),
    ("grid_a100-8c", 40): (0, 12, 20, 32),
    ("nvidia_h100l-15c", 94): (0, 32, 47, 79),
}


@pytest.mark.parametrize(("pattern", "region"), PUBLISHED)
def test_an_empty_gpu_takes_the_published_numbers(pattern, region):
    for size, most in PUBLISHED[pattern, region].items():
        places = places_of(pattern.format(size), region)
        assert places is not None, (pattern, size)
        assert room(region, {}, places) == Room(most, most), (pattern, size)


@pytest.mark.parametrize(("profile", "region"), STARTS)
def test_the_starts_are_the_published_ones(profile, region):
    assert places_of(profile, region).starts == STARTS[profile, region]


def test_blackwell_takes_as_many_as_in_equal_size_mode():
    places = places_of("nvidia_rtx_pro_6000_blackwell_dc-32q", 96)
    assert places == SizePlaces(32, (0, 32, 64))


def test_the_labs_table_of_numbers_and_our_rule_agree():
    """The lab has the starts as numbers, made in another way, so an error in one of the two shows here."""
    text = (ROOT / "lab/go/vsphere/admission/placement_table.go").read_text()
    kinds = dict(re.findall(r'^\t"([^"]+)": +"(\w+)",$', text, re.MULTILINE))
    tables = {
        kind: {
            int(size): tuple(sorted({int(start) for start in starts.split(",")}))
            for size, starts in re.findall(r"^\t\t(\d+): +\{([^}]*)\},$", body, re.MULTILINE)
        }
        for kind, body in re.findall(r'^\t"(\w+)": \{\n(.*?)\n\t\},$', text, re.MULTILINE | re.DOTALL)
    }
    compared = 0
    for board, kind in kinds.items():
        region = catalog.find_board(board).framebuffer_mib // 1024
        for name in catalog.type_names(board):
            places = places_of(name, region)
            if places is not None:
                assert places.starts == tables[kind][places.size], name
                compared += 1
    assert compared > 300
    assert len(tables) == 18


def test_boards_without_mixed_sizes_and_unknown_profiles_have_no_places():
    assert places_of("grid_t4-4q", 16) is None
    assert places_of("nvidia_z9-4q", 48) is None
    assert places_of("grid_a100-3-20c", 40) is None


def a40(*sizes):
    return Counter(places_of(f"nvidia_a40-{size}q", 48) for size in sizes)


@pytest.mark.parametrize(
    ("present", "wanted", "least", "most"),
    [
        ((16, 16), 8, 2, 2),
        ((24, 16), 8, 1, 1),
        ((16,), 8, 3, 3),
        ((12, 16), 8, 2, 2),
        ((8, 8), 16, 0, 2),
        ((48,), 1, 0, 0),
        ((24,), 24, 1, 1),
    ],
)
def test_b_the_numbers_of_an_a40_with_running_vgpus(present, wanted, least, most):
    places = places_of(f"nvidia_a40-{wanted}q", 48)
    assert room(48, a40(*present), places) == Room(least, most)


def test_no_more_than_the_drivers_limit():
    assert room(48, Counter({places_of("nvidia_a40-1q", 48): 30}), places_of("nvidia_a40-2q", 48)).most <= 2


def test_vgpus_that_contradict_the_rule_prove_nothing():
    """Three vGPUs of 16 GB cannot be on an A40 by the rule."""
    found = room(48, a40(16, 16, 16), places_of("nvidia_a40-1q", 48))
    assert (found.least, found.exact) == (0, True)
    found = room(48, a40(24, 16, 4), places_of("nvidia_a40-1q", 48))
    assert 0 <= found.least <= found.most <= 4


def test_a_crowded_gpu_is_answered_without_a_long_search():
    present = a40(*[1] * 9, *[2] * 6, *[3] * 4, *[4] * 2)
    found = room(48, present, places_of("nvidia_a40-1q", 48))
    assert 0 <= found.least <= found.most


def arrangements(region, present):
    """Yield the free units of the region for every way to place the vGPUs, without cleverness."""
    choices = [combinations(places.starts, count) for places, count in present.items()]
    for chosen in product(*choices):
        taken = [
            unit
            for places, starts in zip(present, chosen, strict=True)
            for start in starts
            for unit in range(start, start + places.size)
        ]
        if len(taken) == len(set(taken)) and all(unit < region for unit in taken):
            yield set(range(region)).difference(taken)


def by_brute_force(region, present, wanted):
    counts = [
        sum(1 for start in wanted.starts if free.issuperset(range(start, start + wanted.size)))
        for free in arrangements(region, present)
    ]
    return (min(counts), max(counts)) if counts else None


BOARDS = [("nvidia_a40-{}q", 48), ("nvidia_a10-{}q", 24), ("grid_a100-{}c", 40), ("nvidia_l40-{}q", 48)]
SIZES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 40, 48)


@st.composite
def crowds(draw):
    pattern, region = draw(st.sampled_from(BOARDS))
    known = [places for size in SIZES if (places := places_of(pattern.format(size), region))]
    present = Counter(draw(st.lists(st.sampled_from(known), max_size=3)))
    return region, present, draw(st.sampled_from(known))


@settings(max_examples=100, deadline=None)
@given(crowds())
def test_the_range_is_that_of_all_arrangements(crowd):
    region, present, wanted = crowd
    expected = by_brute_force(region, present, wanted)
    found = room(region, present, wanted)
    if expected is None:
        assert found.least == 0
    else:
        assert (found.least, found.most) == expected


@settings(max_examples=100, deadline=None)
@given(crowds())
def test_one_more_vgpu_never_makes_room(crowd):
    region, present, wanted = crowd
    before = room(region, present, wanted)
    if before.least:
        after = room(region, present + Counter([wanted]), wanted)
        assert after.least >= before.least - 1
        assert after.most <= before.most


def test_the_search_gives_way_to_a_bound_that_holds(monkeypatch):
    monkeypatch.setattr(mixed_size, "MAX_STATES", 1)
    exact = Room(0, 2)
    assert room(48, a40(8, 8), places_of("nvidia_a40-16q", 48)) == exact
