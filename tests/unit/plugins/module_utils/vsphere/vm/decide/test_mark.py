# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose a VM is decides what a task may do to it."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.mark import (
    Mark,
    NotOurs,
    OwnerClaim,
    Unfinished,
    mark_of,
    refuse_to_start_unfinished,
)

OURS, THEIRS, NOBODYS = Mark("team-b", "complete"), Mark("team-a", "complete"), Mark()
PATH = "/dc1/vm/gpu-1"


def refused(rule, *args) -> bool:
    try:
        rule(*args)
    except NotOurs as error:
        return PATH in error.message
    return False


@pytest.mark.parametrize("mark", [OURS, THEIRS, NOBODYS], ids=["ours", "theirs", "nobodys"])
@pytest.mark.parametrize(("adopt", "certain", "placed"), list(itertools.product([False, True], repeat=3)))
def test_a1_what_a_task_may_do_to_a_vm(mark, adopt, certain, placed):
    claim = OwnerClaim("team-b", adopt, certain, placed)
    foreign = mark is THEIRS and not certain
    assert refused(claim.refuse_foreign, PATH, mark) is foreign
    if foreign:
        return
    unproven = mark is not OURS and not certain and not adopt
    assert refused(claim.refuse_to_delete, PATH, "vm-1", mark) is unproven
    assert refused(claim.refuse_to_stop, PATH, "vm-1", mark) is (unproven and not placed)
    assert claim.wanted(mark) == ({"vgpu.fleet.owner": "team-b"} if adopt and mark is not OURS else {})


def test_the_mark_is_read_from_extra_config():
    assert mark_of({"vgpu.fleet.owner": "team-a", "vgpu.fleet.stage": "cloned", "other": "x"}) == Mark(
        "team-a", "cloned"
    )
    assert mark_of({"other": "x"}) == Mark()


@pytest.mark.parametrize(
    ("stage", "unfinished"), [("", False), ("complete", False), ("cloned", True), ("some-later-stage", True)]
)
def test_a8_only_a_creation_that_was_cut_off_keeps_a_vm_from_starting(stage, unfinished):
    assert Mark("team-b", stage).unfinished is unfinished
    if unfinished:
        with pytest.raises(Unfinished, match=PATH):
            refuse_to_start_unfinished(PATH, Mark("team-b", stage))
    else:
        refuse_to_start_unfinished(PATH, Mark("team-b", stage))
