"""The boards of the simulated vCenter against the catalog: two tables, kept apart so that each can be wrong alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog

TABLE = Path(__file__).parents[3] / "lab" / "go" / "vsphere" / "boards_table.go"
LAB: dict[str, dict[str, Any]] = json.loads(TABLE.read_text().split("`")[1])


def test_both_tables_have_the_same_boards():
    assert set(LAB) == set(catalog.boards())


@pytest.mark.parametrize("name", sorted(LAB))
def test_both_tables_have_the_same_profiles_of_a_board(name):
    board = catalog.boards()[name]
    listed = [
        (
            one["name"],
            one["series"],
            one["fb_mib"],
            one["max_per_gpu"],
            one.get("mig_slices", 0),
            one.get("variant", ""),
        )
        for one in LAB[name]["profiles"]
    ]
    known = [
        (catalog.vsphere_name(one.name), one.series, one.mib, one.max_per_gpu, one.slices, one.attribute or "")
        for one in board.profiles
    ]
    assert sorted(listed) == sorted(known)


@pytest.mark.parametrize("name", sorted(LAB))
def test_both_tables_describe_the_same_board(name):
    board, listed = catalog.boards()[name], LAB[name]
    assert listed["framebuffer_gib"] * 1024 == board.framebuffer_mib
    assert listed["gpus_per_board"] == board.gpus
    assert listed["mig_capable"] == board.mig_capable
    assert listed["device_id"].removeprefix("0x") in (board.pci_ids or ("",))
