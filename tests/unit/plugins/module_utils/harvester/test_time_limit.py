"""Default time limits grow with the number of vGPUs that a node changes one after the other."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import version as versions
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.runner import TimedOut
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.time_limit import TimeLimit
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import DISABLE, DISABLE_SRIOV, Step
from hypothesis import given, strategies as st

from tests.unit.plugins.module_utils.harvester.objects import claim, snapshot


def steps(*counts: int) -> list[Step]:
    """So many vGPUs to disable on each node, and SR-IOV at the end."""
    found: list[Step] = []
    for number, count in enumerate(counts):
        node = f"n{number}"
        found += [Step(DISABLE, node, f"{node}-gpu", f"{node}-{place}", before="any") for place in range(count)]
        found.append(Step(DISABLE_SRIOV, node, f"{node}-gpu"))
    return found


@pytest.mark.parametrize(
    ("version", "counts", "seconds"),
    # M10: two boards with 32 vGPUs each need 320 s from 1.8 on.
    [("1.7", (64,), 364), ("1.8", (64,), 620), ("1.8", (4, 64, 8), 620), ("1.9", (256,), 1580), ("1.8", (), 300)],
)
def test_m10_the_default_grows_with_the_busiest_node(version: str, counts: tuple[int, ...], seconds: float) -> None:
    assert TimeLimit.of(None).for_steps(steps(*counts), versions.from_option(version)) == seconds


@given(st.integers(1, 10_000), st.lists(st.integers(0, 64), max_size=4))
def test_a_limit_that_is_given_does_not_grow(seconds: int, counts: list[int]) -> None:
    limit = TimeLimit.of(seconds)
    assert limit.for_steps(steps(*counts), versions.from_option("1.8")) == seconds
    assert limit.until_settled(snapshot(claims=[claim(going=True)])) == seconds


def test_claims_that_are_being_removed_count_for_the_wait_before_the_plan() -> None:
    going = [claim(number, going=True) for number in (4, 5, 6)]
    assert TimeLimit.of(None).until_settled(snapshot(claims=[*going, claim(7)])) == 315
    assert TimeLimit.of(None).for_steps([], versions.from_option("1.8"), left=120) == 120


def test_m10_a_timeout_says_what_is_still_changing() -> None:
    late = TimedOut(300, [], [], ["node n1 removes 12 claims of vGPUs, one after the other, and needs about 60 s more"])
    assert "Still changing: node n1 removes 12 claims" in late.hint
    assert "wait_timeout" in late.hint
    assert late.as_dict()["moving"] == late.moving
    assert "Nothing was found" in TimedOut(300, [], []).hint
