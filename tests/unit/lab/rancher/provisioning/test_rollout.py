"""The order in which machines are added and removed when a pool changes (harvester.md 14.7)."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from lab.rancher.provisioning.rollout import Limits, Machines, limits, next_replicas


@pytest.mark.parametrize(
    ("asked", "quantity", "expected"),
    [
        (None, 3, Limits(1, 0)),
        ({"maxSurge": 0, "maxUnavailable": 1}, 3, Limits(0, 1)),
        ({"maxSurge": 0}, 3, Limits(0, 1)),
        ({"maxSurge": "50%", "maxUnavailable": "50%"}, 3, Limits(2, 1)),
        ({"maxSurge": "1", "maxUnavailable": None}, 3, Limits(1, 0)),
    ],
)
def test_limits(asked: dict[str, object] | None, quantity: int, expected: Limits) -> None:
    assert limits(asked, quantity) == expected


def test_a_new_machine_comes_before_an_old_one_goes() -> None:
    sets = {"old": Machines(2, 2), "new": Machines(0, 0)}
    assert next_replicas(2, Limits(1, 0), "new", sets) == {"new": 1}
    assert next_replicas(2, Limits(1, 0), "new", {**sets, "new": Machines(1, 0)}) == {}
    assert next_replicas(2, Limits(1, 0), "new", {**sets, "new": Machines(1, 1)}) == {"old": 1}


def test_without_surge_an_old_machine_goes_first() -> None:
    sets = {"old": Machines(2, 2), "new": Machines(0, 0)}
    assert next_replicas(2, Limits(0, 1), "new", sets) == {"old": 1}
    assert next_replicas(2, Limits(0, 1), "new", {"old": Machines(1, 1), "new": Machines(0, 0)}) == {"new": 1}


def test_a_new_machine_that_never_comes_holds_the_roll_for_ever() -> None:
    assert next_replicas(2, Limits(1, 0), "new", {"old": Machines(2, 2), "new": Machines(1, 0)}) == {}


def test_old_machines_that_are_broken_go_first() -> None:
    assert next_replicas(2, Limits(1, 0), "new", {"old": Machines(2, 1), "new": Machines(1, 1)}) == {"old": 1}


def test_scaling() -> None:
    assert next_replicas(3, Limits(1, 0), "new", {"new": Machines(1, 1)}) == {"new": 3}
    assert next_replicas(1, Limits(1, 0), "new", {"new": Machines(3, 3)}) == {"new": 1}


@given(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3), st.integers(0, 6))
def test_a_roll_ends_and_never_leaves_its_limits(quantity: int, surge: int, unavailable: int, before: int) -> None:
    allowed = limits({"maxSurge": surge, "maxUnavailable": unavailable}, quantity)
    sets = {"old": Machines(before, before), "new": Machines(0, 0)}
    for _step in range(100):
        change = next_replicas(quantity, allowed, "new", sets)
        if not change:
            break
        # Machines that are asked for become ready before the next look.
        sets |= {name: Machines(count, count) for name, count in change.items()}
        total = sum(one.replicas for one in sets.values())
        assert total <= max(quantity + allowed.surge, before)
        assert total >= min(quantity - allowed.unavailable, before)
    assert sets["new"].replicas == quantity
    assert sets["old"].replicas == 0
