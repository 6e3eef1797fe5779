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


@pytest.mark.parametrize("surge", [1, 2, 3])
def test_m12_a_roll_with_one_to_spare_works_whatever_the_surge(surge: int) -> None:
    """One new machine starts, so an old one goes, and the next new machine gets its vGPU."""
    spare = fleet(gpu("n1:a", "4Q@m1 4Q@m2 4Q@m3 4Q"))
    assert not judged(spare, pool(3, "m1", "m2", "m3", surge=surge), rolls=True)
    assert cluster_api_replaces(4, 3, 3, surge, 0)


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
        # A share of the surge is rounded up, one of the unavailable machines down, and not both can be zero.
        ({"maxSurge": "1%", "maxUnavailable": "99%"}, 3, RollingUpdate(1, 2)),
        ({"maxSurge": 0, "maxUnavailable": "10%"}, 3, RollingUpdate(0, 1)),
        # 29 percent of 100 is 29, which a binary fraction is not.
        ({"maxSurge": "29%", "maxUnavailable": "58%"}, 100, RollingUpdate(29, 58)),
    ],
)
def test_limits_are_those_of_cluster_api(
    asked: dict[str, object] | None, quantity: int, expected: RollingUpdate
) -> None:
    assert RollingUpdate.of(asked, quantity) == expected


def cluster_api_replaces(total: int, held: int, quantity: int, surge: int, unavailable: int) -> bool:
    """Cluster API's MachineDeployment controller with `total` vGPUs and one vGPU per machine, in its own terms.

    Names are those of its rolling update: the new machine set is scaled up, then the old one down.
    """
    old_replicas, new_replicas = held, 0
    for _round in range(50):
        new_replicas += max(0, min(quantity - new_replicas, quantity + surge - old_replicas - new_replicas))
        new_available = min(new_replicas, total - old_replicas)
        min_available = quantity - min(unavailable, quantity)
        max_scaled_down = old_replicas + new_replicas - min_available - (new_replicas - new_available)
        available_to_spare = old_replicas + new_available - min_available
        if max_scaled_down > 0 and available_to_spare > 0:
            old_replicas -= min(old_replicas, max_scaled_down, available_to_spare)
        new_available = min(new_replicas, total - old_replicas)
    return old_replicas == 0 and new_available == quantity


@pytest.mark.parametrize(
    ("surge", "unavailable", "hangs"), [(1, 0, True), (1, 1, False), (2, 1, False), (2, 0, True), (0, 2, False)]
)
def test_m12_surge_and_unavailable_work_together(surge: int, unavailable: int, hangs: bool) -> None:
    """Quantity 2 on 2 vGPUs: with 1 and 1 the new machine waits, an old one goes, and the new one gets its vGPU."""
    full = fleet(gpu("n1:a", "4Q@m1 4Q@m2"))
    refusal = judged(full, pool(2, "m1", "m2", surge=surge, unavailable=unavailable), rolls=True)
    assert bool(refusal) is hangs
    assert cluster_api_replaces(2, 2, 2, surge, unavailable) is not hangs


def test_m12_another_profile_gets_nothing_from_machines_that_go() -> None:
    """Both limits are set, and the vGPUs that become free are of the wrong size."""
    record = fleet(gpu("n1:a", "4Q@m1 4Q@m2"), gpu("n2:a", "8Q@x 8Q"))
    refusal = judged(record, pool(2, "m1", "m2", vgpus={EIGHT_Q: 1}, surge=1, unavailable=1), rolls=True)
    assert refusal.startswith("pool_does_not_fit")


@given(st.integers(0, 4), st.integers(1, 4), st.integers(0, 3), st.integers(0, 4))
def test_m12_one_vgpu_each_is_replaced_whenever_cluster_api_does_it(
    held: int, quantity: int, surge: int, unavailable: int
) -> None:
    held = min(held, quantity)
    unavailable = unavailable or (0 if surge else 1)
    machines = [f"m{number}" for number in range(held)]
    words = [f"4Q@{name}" for name in machines] + ["4Q"] * (4 - held)
    wanted = pool(quantity, *machines, surge=surge, unavailable=unavailable)
    refused = bool(judged(fleet(gpu("n1:a", " ".join(words))), wanted, rolls=bool(held)))
    if not held:
        assert refused == (quantity > 4)
    else:
        assert refused is not cluster_api_replaces(4, held, quantity, surge, unavailable)
