# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import (
    InvalidProfile,
    parse,
    resource_name,
    vsphere_name,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile_resolver import (
    AmbiguousProfile,
    ProfileResolver,
    UnknownProfile,
)

READINGS = [
    # spelling, board, MiB, series, slices, attribute
    ("NVIDIA A2-2Q", "A2", 2048, "Q", 0, ""),
    ("A2-2Q", "A2", 2048, "Q", 0, ""),
    ("nvidia.com/NVIDIA_A2-2Q", "A2", 2048, "Q", 0, ""),
    ("grid_t4-1a", "t4", 1024, "A", 0, ""),
    ("grid_v100d-4c", "v100d", 4096, "C", 0, ""),
    ("nvidia_a40-8q", "a40", 8192, "Q", 0, ""),
    ("nvidia_l40s-48q", "l40s", 49152, "Q", 0, ""),
    ("Tesla T4-16Q", "T4", 16384, "Q", 0, ""),
    ("  NVIDIA  L40S-8Q \n", "L40S", 8192, "Q", 0, ""),
    ("GRID M60-0B", "M60", 512, "B", 0, ""),
    ("GRID T4-2B4", "T4", 2048, "B", 0, "4"),
    ("A100-3-20C", "A100", 20480, "C", 3, ""),
    ("grid_a100-3-20c", "a100", 20480, "C", 3, ""),
    ("GRID A100D-1-10CME", "A100D", 10240, "C", 1, "ME"),
    ("nvidia.com/NVIDIA_A30-1-6CME", "A30", 6144, "C", 1, "ME"),
    ("NVIDIA RTX5000-Ada-2Q", "RTX5000-Ada", 2048, "Q", 0, ""),
    ("RTX6000-Ada-24Q", "RTX6000-Ada", 24576, "Q", 0, ""),
    ("NVIDIA RTX Pro 6000 Blackwell DC-2-48Q", "RTX Pro 6000 Blackwell DC", 49152, "Q", 2, ""),
    ("NVIDIA RTX Pro 6000 Blackwell DC-4-96QGFX", "RTX Pro 6000 Blackwell DC", 98304, "Q", 4, "GFX"),
    ("nvidia.com/NVIDIA_RTX_Pro_6000_Blackwell_DC-12Q", "RTX Pro 6000 Blackwell DC", 12288, "Q", 0, ""),
]


@pytest.mark.parametrize(("text", "board", "mib", "series", "slices", "attribute"), READINGS)
def test_every_spelling_gives_board_size_series_slices_and_attribute(
    text: str, board: str, mib: int, series: str, slices: int, attribute: str
) -> None:
    read = parse(text)
    assert (read.board, read.mib, read.series, read.slices, read.attribute) == (board, mib, series, slices, attribute)
    assert read.mig == bool(slices)


@pytest.mark.parametrize(
    "text", ["GRID RTX T4-4", "NVIDIA A40-12", "A2", "", "-2Q", "nvidia.com/gpu", "A2-Q", "A2-2X", "A2-٢Q", "2Q"]
)
def test_names_without_size_and_series_letter_are_refused(text: str) -> None:
    with pytest.raises(InvalidProfile, match=r"is not the name of a vGPU profile.*series letter"):
        parse(text)


def test_all_spellings_of_a_profile_have_the_same_key_and_others_have_not() -> None:
    spellings = ["NVIDIA A2-2Q", "a2-2q", "nvidia.com/NVIDIA_A2-2Q", "nvidia_a2-2q", "GRID A2-2Q"]
    assert len({parse(text).key for text in spellings}) == 1
    others = ["A2-2Q", "A16-2Q", "A2-4Q", "A2-2C", "A2-1-2Q", "A2-1-2QME"]
    assert len({parse(text).key for text in others}) == len(others)


def test_a_profile_prints_its_short_name_whatever_the_spelling() -> None:
    assert parse("nvidia.com/NVIDIA_A30-1-6CME").short == "A30-1-6CME"
    assert parse("GRID M60-0B").short == "M60-0B"
    assert parse("GRID T4-2B4").short == "T4-2B4"


@pytest.mark.parametrize(
    ("type_name", "resource"),
    [
        ("NVIDIA A2-2Q", "nvidia.com/NVIDIA_A2-2Q"),
        ("NVIDIA A100-4C", "nvidia.com/NVIDIA_A100-4C"),
        ("GRID A100-4C", "nvidia.com/GRID_A100-4C"),
        ("GRID T4-1Q", "nvidia.com/GRID_T4-1Q"),
        ("NVIDIA A30-1-6C", "nvidia.com/NVIDIA_A30-1-6C"),
        ("NVIDIA A30-1-6CME", "nvidia.com/NVIDIA_A30-1-6CME"),
        ("NVIDIA RTX5000-Ada-2Q", "nvidia.com/NVIDIA_RTX5000-Ada-2Q"),
        ("NVIDIA RTX Pro 6000 Blackwell DC-2-48Q", "nvidia.com/NVIDIA_RTX_Pro_6000_Blackwell_DC-2-48Q"),
        ("GRID RTX T4-4", "nvidia.com/GRID_RTX_T4-4"),
        ("  NVIDIA  L40S-8Q \n", "nvidia.com/NVIDIA_L40S-8Q"),
        ("NVIDIA X/Y.Z-1Q", "nvidia.com/NVIDIA_X_Y_Z-1Q"),
        ("NVIDIA A2-4Q(b)+", "nvidia.com/NVIDIA_A2-4Q(b)+"),
        ("", "nvidia.com/"),
        # Blanks at the ends go by Unicode, runs inside by ASCII only.
        ("\u00a0NVIDIA\u00a0A2-2Q\u3000", "nvidia.com/NVIDIA\u00a0A2-2Q"),
        ("\x1cNVIDIA A2-2Q", "nvidia.com/\x1cNVIDIA_A2-2Q"),
        ("NVIDIA\t\n A2-2Q", "nvidia.com/NVIDIA_A2-2Q"),
    ],
)
def test_a_type_becomes_the_resource_that_harvester_advertises(type_name: str, resource: str) -> None:
    assert resource_name(type_name) == resource


def test_before_harvester_1_5_1_the_resource_is_upper_case_and_its_prefix_is_not() -> None:
    assert resource_name("NVIDIA RTX5000-Ada-2Q", upper_case=True) == "nvidia.com/NVIDIA_RTX5000-ADA-2Q"


def test_a_type_becomes_the_name_that_vsphere_lists() -> None:
    assert vsphere_name("GRID T4-1A") == "grid_t4-1a"
    assert vsphere_name("NVIDIA L40S-48Q") == "nvidia_l40s-48q"
    assert vsphere_name("NVIDIA RTX Pro 6000 Blackwell DC-12Q") == "nvidia_rtx_pro_6000_blackwell_dc-12q"


@pytest.mark.parametrize(
    "spelling",
    [
        "NVIDIA RTX5000-Ada-2Q",
        "RTX5000-Ada-2Q",
        "rtx5000-ada-2q",
        "nvidia.com/NVIDIA_RTX5000-Ada-2Q",
        "nvidia.com/NVIDIA_RTX5000-ADA-2Q",
        "nvidia_rtx5000-ada-2q",
        " NVIDIA RTX5000-Ada-2Q ",
    ],
)
@pytest.mark.parametrize("live", [["NVIDIA RTX5000-Ada-2Q", "NVIDIA RTX5000-Ada-4Q"], []])
def test_any_spelling_finds_the_known_name(spelling: str, live: list[str]) -> None:
    assert ProfileResolver(live).resolve(spelling) == "NVIDIA RTX5000-Ada-2Q"


def test_the_live_name_wins_over_the_catalogue_since_the_system_takes_no_other() -> None:
    assert ProfileResolver().resolve("A100-4C") == "GRID A100-4C"
    assert ProfileResolver(["NVIDIA A100-4C"]).resolve("A100-4C") == "NVIDIA A100-4C"
    assert ProfileResolver(["NVIDIA A100-4C"]).resolve("GRID A100-4C") == "NVIDIA A100-4C"


def test_two_live_names_for_one_profile_are_ambiguous_unless_written_in_full() -> None:
    known = ProfileResolver(["NVIDIA A100-4C", "GRID A100-4C"])
    assert known.resolve("GRID A100-4C") == "GRID A100-4C"
    with pytest.raises(AmbiguousProfile, match="may mean any of: GRID A100-4C, NVIDIA A100-4C"):
        known.resolve("A100-4C")


def test_a_resource_is_matched_with_known_types_and_never_read_backwards() -> None:
    known = ProfileResolver(["NVIDIA X/Y.Z-1Q", "NVIDIA A2-4Q"])
    assert known.by_resource("nvidia.com/NVIDIA_X_Y_Z-1Q") == "NVIDIA X/Y.Z-1Q"
    assert known.resolve("nvidia.com/NVIDIA_X_Y_Z-1Q") == "NVIDIA X/Y.Z-1Q"
    assert known.by_resource("nvidia.com/GRID_T4-1Q") == "GRID T4-1Q"
    assert known.by_resource("nvidia.com/NVIDIA_Z9-1Q") is None
    assert known.by_resource("nvidia.com/") is None
    assert known.by_resource("nvidia.com/gpu") is None
    assert ProfileResolver(["NVIDIA X Y-1Q", "NVIDIA X.Y-1Q"]).by_resource("nvidia.com/NVIDIA_X_Y-1Q") is None


def test_the_last_word_is_enough_where_only_one_name_ends_in_it() -> None:
    assert ProfileResolver().resolve("DC-2-48Q") == "NVIDIA RTX Pro 6000 Blackwell DC-2-48Q"
    two = ProfileResolver(["NVIDIA RTX Pro 6000 Blackwell DC-16Q", "NVIDIA RTX Pro 4500 Blackwell DC-16Q"])
    with pytest.raises(AmbiguousProfile, match=r"4500.*6000"):
        two.resolve("DC-16Q")


def test_an_unknown_profile_is_an_error_that_lists_the_nearest() -> None:
    live = ["NVIDIA A2-2Q", "NVIDIA A2-4Q", "NVIDIA L40S-8Q"]
    with pytest.raises(UnknownProfile) as caught:
        ProfileResolver(live).resolve("NVIDIA A2-5Q")
    assert "'NVIDIA A2-5Q'" in caught.value.message
    assert "NVIDIA A2-2Q" in caught.value.hint
    assert caught.value.as_dict()["code"] == "unknown_profile"
    with pytest.raises(InvalidProfile):
        ProfileResolver(live).resolve("nonsense")


def test_every_type_of_the_catalogue_is_found_by_each_of_its_spellings() -> None:
    known = ProfileResolver()
    for name in catalog.type_names():
        spelt = catalog.spellings(name)
        assert {known.resolve(spelling) for spelling in spelt.values()} == {name}, name
        assert known.by_resource(spelt["resource"]) == name
        assert known.by_resource(resource_name(name, upper_case=True)) == name
