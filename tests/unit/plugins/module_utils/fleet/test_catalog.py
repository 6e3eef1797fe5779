# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse

# Written down from the sources once more, apart from the table: type, instances, whether computed.
INSTANCES = [
    ("NVIDIA A2-1Q", 16, False),
    ("NVIDIA A2-2Q", 8, False),
    ("NVIDIA A2-4Q", 4, False),
    ("NVIDIA A2-8C", 2, False),
    ("NVIDIA A2-16Q", 1, False),
    ("NVIDIA A2-1B", 16, True),
    ("NVIDIA A2-3B", 5, True),
    ("NVIDIA A10-3Q", 8, False),
    ("NVIDIA A10-24A", 1, True),
    ("NVIDIA A16-1Q", 16, False),
    ("NVIDIA A30-4C", 6, False),
    ("NVIDIA A30-1-6C", 4, False),
    ("NVIDIA A30-1-6CME", 1, False),
    ("NVIDIA A30-4-24C", 1, False),
    ("NVIDIA A40-1Q", 32, False),
    ("NVIDIA A40-2Q", 24, False),
    ("NVIDIA A40-4Q", 12, False),
    ("NVIDIA A40-48C", 1, False),
    ("GRID A100-4C", 10, False),
    ("GRID A100-10C", 4, False),
    ("GRID A100-1-5C", 7, False),
    ("GRID A100-2-10C", 3, False),
    ("GRID A100-3-20C", 2, False),
    ("GRID A100-4-20C", 1, False),
    ("GRID A100-7-40C", 1, False),
    ("GRID A100-1-10C", 4, False),
    ("NVIDIA L4-2Q", 12, False),
    ("NVIDIA L40S-1Q", 32, False),
    ("NVIDIA L40S-8Q", 6, False),
    ("NVIDIA L40S-3B", 16, True),
    ("NVIDIA H100-4C", 20, False),
    ("NVIDIA H100-1-10C", 7, False),
    ("NVIDIA H100L-11C", 8, False),
    ("NVIDIA H100L-7-94C", 1, False),
    ("NVIDIA H200-8C", 16, False),
    ("NVIDIA RTX Pro 6000 Blackwell DC-1-2Q", 48, False),
    ("NVIDIA RTX Pro 6000 Blackwell DC-2-48Q", 2, False),
    ("GRID RTX8000P-4C", 8, False),
    ("GRID RTX8000P-4Q", 12, False),
    ("GRID M60-0Q", 16, True),
    ("GRID T4-16Q", 1, False),
]


@pytest.mark.parametrize(("type_name", "count", "derived"), INSTANCES)
def test_instances_per_gpu_are_as_the_sources_say_and_computed_ones_are_marked(
    type_name: str, count: int, derived: bool
) -> None:
    limit = catalog.max_instances(type_name)
    assert (limit.count, limit.source) == (count, "derived" if derived else "catalog")


@pytest.mark.parametrize(
    ("board", "gib", "architecture", "prefix", "vsphere", "mig", "sriov"),
    [
        ("A2", 16, "ampere", "NVIDIA A2-", "nvidia_a2-", False, True),
        ("L40S", 48, "ada", "NVIDIA L40S-", "nvidia_l40s-", False, True),
        ("A100", 40, "ampere", "GRID A100-", "grid_a100-", True, True),
        ("H100L", 94, "hopper", "NVIDIA H100L-", "nvidia_h100l-", True, True),
        ("T4", 16, "turing", "GRID T4-", "grid_t4-", False, False),
        ("RTX5000-Ada", 32, "ada", "NVIDIA RTX5000-Ada-", "nvidia_rtx5000-ada-", False, True),
    ],
)
def test_a_board_has_framebuffer_prefixes_and_abilities(
    board: str, gib: int, architecture: str, prefix: str, vsphere: str, mig: bool, sriov: bool
) -> None:
    found = catalog.boards()[board]
    assert (found.framebuffer_mib, found.architecture) == (gib * 1024, architecture)
    assert (found.type_prefix, found.vsphere_prefix) == (prefix, vsphere)
    assert (found.mig_capable, found.sriov) == (mig, sriov)


def test_the_table_is_whole_and_consistent() -> None:
    boards = catalog.boards()
    assert len(boards) == 66
    assert len(list(catalog.type_names())) == len(set(catalog.type_names())) == 1237
    for board in boards.values():
        largest = max(profile.mib for profile in board.profiles)
        assert largest == board.framebuffer_mib, board.name
        for profile in board.profiles:
            assert parse(profile.name).short == profile.short
            # No count can need more memory than there is, except that MIG profiles count slices.
            assert profile.mig or profile.max_per_gpu * profile.mib <= board.framebuffer_mib, profile.name
        most = max(profile.max_per_gpu for profile in board.profiles)
        assert not board.sriov or (board.vfs or board.vfs_at_least) >= most, board.name


def test_no_type_has_the_name_of_a_configuration_of_vgpu_device_manager() -> None:
    assert not [name for name in catalog.type_names() if name.endswith(("GFX", "NOME", "MEALL"))]
    assert catalog.find_profile("NVIDIA RTX Pro 6000 Blackwell DC-4-96QGFX") is None
    assert catalog.find_profile("NVIDIA RTX Pro 6000 Blackwell DC-4-96Q") is not None


def test_boards_with_graphics_instances_are_marked_and_within_the_limits_of_the_driver() -> None:
    marked = {board.name for board in catalog.boards().values() if board.gfx}
    assert marked == {"RTX 6000D", "RTX Pro 4500 Blackwell DC", "RTX Pro 6000 Blackwell DC"}
    assert [board.name for board in catalog.boards_with_pci_id("0x2C3A")] == ["RTX Pro 4500 Blackwell DC"]
    for board in catalog.boards().values():
        for profile in board.profiles:
            assert profile.max_per_gpu <= (48 if profile.mig else 32), profile.name


def test_virtual_functions_are_exact_where_proven_and_a_lower_bound_elsewhere() -> None:
    assert catalog.boards()["A2"].vfs == 16
    assert catalog.boards()["L40S"].vfs == 32
    assert (catalog.boards()["A40"].vfs, catalog.boards()["A40"].vfs_at_least) == (None, 32)


def test_boards_are_found_by_pci_id_and_two_may_share_one() -> None:
    assert [board.name for board in catalog.boards_with_pci_id("26b9")] == ["L40S"]
    assert [board.name for board in catalog.boards_with_pci_id("0x26B9")] == ["L40S"]
    assert {board.name for board in catalog.boards_with_pci_id("25b6")} == {"A2", "A16"}
    assert catalog.boards_with_pci_id("ffff") == ()


def test_a_board_is_found_however_its_name_is_spelt() -> None:
    assert catalog.find_board("rtx_pro_6000_blackwell_dc") is catalog.boards()["RTX Pro 6000 Blackwell DC"]
    assert catalog.find_board("nothing") is None


def test_full_size_q_and_c_types_allow_several_per_vm_where_known() -> None:
    allowed = {profile.short: profile.multi_vgpu for profile in catalog.boards()["A2"].profiles}
    assert allowed["A2-16Q"] is True
    assert allowed["A2-16C"] is True
    assert allowed["A2-16A"] is False
    assert allowed["A2-8Q"] is False
    assert allowed["A2-3B"] is None
    assert {profile.multi_vgpu for profile in catalog.boards()["L40S"].profiles} == {None}


def test_the_live_system_wins_over_the_table() -> None:
    limit = catalog.max_instances("NVIDIA A2-4Q", live={"NVIDIA A2-4Q": 3})
    assert (limit.count, limit.source, limit.exact) == (3, "live", True)


def test_a_profile_that_the_table_lacks_is_divided_from_the_framebuffer_or_unknown() -> None:
    assert catalog.max_instances("NVIDIA Z9-8Q", framebuffer_mib=48 * 1024) == catalog.Limit(6, "estimated")
    # The driver has at most 32 time-sliced vGPUs on a GPU, whatever the framebuffer.
    assert catalog.max_instances("NVIDIA Z9-1Q", framebuffer_mib=48 * 1024) == catalog.Limit(32, "estimated")
    assert catalog.max_instances("NVIDIA Z9-1Q", framebuffer_mib=31 * 1024) == catalog.Limit(31, "estimated")
    assert catalog.max_instances("NVIDIA Z9-8Q") == catalog.Limit(None, "unknown")


def test_a_profile_is_returned_in_all_its_spellings() -> None:
    assert catalog.spellings("nvidia_a40-8q") == {
        "type": "NVIDIA A40-8Q",
        "short": "A40-8Q",
        "resource": "nvidia.com/NVIDIA_A40-8Q",
        "vsphere": "nvidia_a40-8q",
    }
    assert catalog.spellings("NVIDIA Z9-8Q")["resource"] == "nvidia.com/NVIDIA_Z9-8Q"
