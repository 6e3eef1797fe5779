# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether pools fit together, and whether a pool can be replaced: what is refused, and what is said then."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.rancher.rollout import (
    PoolDemand,
    PoolDoesNotFit,
    RollingUpdate,
    RollWouldHang,
    refuse_what_does_not_fit,
)
from hypothesis import given, strategies as st

from tests.unit.plugins.module_utils.fleets import fleet, gpu, vm

FOUR_Q, EIGHT_Q = "NVIDIA A2-4Q", "NVIDIA A2-8Q"
FULL = "4Q@m1 4Q@m2 4Q@m3 4Q@m4"


def pool(
    quantity: int, *machines: str, vgpus: dict[str, int] | None = None, name: str = "demo/gpu", **limits: int
) -> PoolDemand:
    paths = tuple(f"default/{one}" for one in machines)
    return PoolDemand(name, quantity, {FOUR_Q: 1} if vgpus is None else vgpus, paths, RollingUpdate(**limits))


def judged(record: Fleet, wanted: PoolDemand, *others: PoolDemand, rolls: bool = False) -> str:
    try:
        refuse_what_does_not_fit(record, others, wanted, rolls=rolls)
    except (PoolDoesNotFit, RollWouldHang) as refusal:
        return f"{refusal.code}: {refusal}"
    return ""


def test_a_pool_as_large_as_what_is_free_fits_and_one_more_does_not() -> None:
    free = fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q 4Q"))
    assert not judged(free, pool(4))
    refusal = judged(free, pool(5))
    assert refusal.startswith(
        "pool_does_not_fit: Pool demo/gpu does not fit: of 5 machines with 1 x NVIDIA A2-4Q each, 1"
    )
    assert "4 of 4 x NVIDIA A2-4Q are free" in refusal


def test_what_a_pool_has_is_not_asked_for_again() -> None:
    full = fleet(gpu("n1:a", FULL))
    assert not judged(full, pool(4, "m1", "m2", "m3", "m4"))
    assert "of 1 more machines" in judged(full, pool(5, "m1", "m2", "m3", "m4"))


def test_pools_that_fit_alone_do_not_fit_together() -> None:
    free = fleet(gpu("n1:a", "4Q 4Q 4Q 4Q"))
    other = pool(3, name="demo/train")
    assert not judged(free, pool(2))
    assert not judged(free, pool(1), other)
    refusal = judged(free, pool(2), other)
    assert "3 machines of pool demo/train are still to come" in refusal


def test_other_pools_that_have_their_machines_ask_for_nothing() -> None:
    record = fleet(gpu("n1:a", "4Q@m1 4Q@m2 4Q 4Q"))
    assert not judged(record, pool(2), pool(2, "m1", "m2", name="demo/train"))


def test_vms_that_wait_for_a_node_are_served_before_a_new_pool() -> None:
    waiting = UnboundRequest(FOUR_Q, 1, vm("stuck", running=False))
    record = fleet(gpu("n1:a", "4Q 4Q"), claims=[waiting])
    assert not judged(record, pool(1))
    assert "default/stuck" in judged(record, pool(2))


def test_all_vgpus_of_a_machine_come_from_one_node() -> None:
    spread = fleet(gpu("n1:a", "4Q"), gpu("n2:a", "4Q"))
    assert "pool_does_not_fit" in judged(spread, pool(1, vgpus={FOUR_Q: 2}))


def test_a_lost_node_counts_for_nothing_and_is_named() -> None:
    record = fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q 4Q"), down=["n2"])
    assert "n2 is not ready" in judged(record, pool(3))
    assert not judged(record, pool(2))


def test_a_roll_on_a_full_fleet_hangs_and_the_setting_that_would_not_is_named() -> None:
    full = fleet(gpu("n1:a", FULL))
    mine = ("m1", "m2", "m3", "m4")
    refusal = judged(full, pool(4, *mine), rolls=True)
    assert refusal.startswith("roll_would_hang")
    assert "rolling_update: {max_surge: 0, max_unavailable: 1}" in refusal
    assert not judged(full, pool(4, *mine, surge=0, unavailable=1), rolls=True)


def test_a_roll_with_one_to_spare_works_and_a_larger_surge_is_told_the_size_that_does() -> None:
    spare = fleet(gpu("n1:a", "4Q@m1 4Q@m2 4Q@m3 4Q"))
    mine = ("m1", "m2", "m3")
    assert not judged(spare, pool(3, *mine), rolls=True)
    refusal = judged(spare, pool(3, *mine, surge=2), rolls=True)
    assert "It works with rolling_update: {max_surge: 1}, where fewer come at a time." in refusal


def test_another_profile_needs_room_of_its_own() -> None:
    record = fleet(gpu("n1:a", "4Q@m1 4Q@m2"), gpu("n2:a", "8Q 8Q"))
    assert not judged(record, pool(2, "m1", "m2", vgpus={EIGHT_Q: 1}), rolls=True)
    refusal = judged(record, pool(3, "m1", "m2", vgpus={EIGHT_Q: 1}), rolls=True)
    assert refusal.startswith("pool_does_not_fit")
    # What the old machines set free is of no use to the new ones, so no setting helps.
    assert "max_surge" not in refusal


def test_a_pool_that_shrinks_needs_no_room() -> None:
    assert not judged(fleet(gpu("n1:a", FULL)), pool(2, "m1", "m2", "m3", "m4"))


def test_machines_without_vgpus_are_not_our_business() -> None:
    assert not judged(fleet(gpu("n1:a", FULL)), pool(9, vgpus={}))


@pytest.mark.parametrize(
    ("asked", "quantity", "expected"),
    [
        (None, 3, RollingUpdate(1, 0)),
        ({"maxSurge": 0}, 3, RollingUpdate(0, 1)),
        ({"maxSurge": "50%", "maxUnavailable": "50%"}, 3, RollingUpdate(2, 1)),
        ({"maxSurge": "0%", "maxUnavailable": 2}, 3, RollingUpdate(0, 2)),
    ],
)
def test_limits_are_those_of_cluster_api(
    asked: dict[str, object] | None, quantity: int, expected: RollingUpdate
) -> None:
    assert RollingUpdate.of(asked, quantity) == expected


@given(st.integers(0, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 2))
def test_one_vgpu_each_is_a_matter_of_counting(held: int, quantity: int, surge: int, unavailable: int) -> None:
    """On one GPU of four: a roll works if the new machines find room, at first and at last."""
    held = min(held, quantity)
    unavailable = unavailable or (0 if surge else 1)
    machines = [f"m{number}" for number in range(held)]
    words = [f"4Q@{name}" for name in machines] + ["4Q"] * (4 - held)
    wanted = pool(quantity, *machines, surge=surge, unavailable=unavailable)
    refused = bool(judged(fleet(gpu("n1:a", " ".join(words))), wanted, rolls=bool(held)))
    free = 4 - held
    if not held:
        assert refused == (quantity > free)
        return
    gone = min(unavailable, held) if not surge else 0
    first = min(quantity, max(quantity + surge - held + gone, 1))
    assert refused == (quantity > 4 or first > free + gone)
