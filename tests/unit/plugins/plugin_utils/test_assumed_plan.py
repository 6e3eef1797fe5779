"""A layout is planned on GPUs that are only assumed, from the catalog alone."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.filter.assumed_plan import assumed_plan
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from hypothesis import given, settings, strategies as st

TWO = [{"nodes": ["gpu-a", "gpu-b"], "board": "A2"}]


def test_the_whole_plan_is_shown() -> None:
    plan = assumed_plan(TWO, [{"profile": "A2-4Q", "count": 2, "per": "node"}])
    assert plan["problem"] == ""
    assert sum("SR-IOV" in step for step in plan["steps"]) == 2
    assert sum("A2-4Q" in step for step in plan["steps"]) == 4


def test_mig_instances_are_part_of_the_plan() -> None:
    assume = [{"nodes": ["train"], "board": "A100-40GB", "count": 2}]
    boards = [name for name in catalog.boards() if name.startswith("A100")]
    plan = assumed_plan([{**assume[0], "board": boards[0]}], [{"profile": "A100-3-20C", "count": 2}], enable_mig=True)
    assert plan["problem"] == "", plan
    assert any("MIG" in step or "3g" in step for step in plan["steps"]), plan["steps"]


@pytest.mark.parametrize(
    ("assume", "layout", "problem"),
    [
        (TWO, [{"profile": "A2-4Q", "count": 99}], "99"),
        (TWO, [{"profile": "A2-5Q", "count": 1}], "A2-5Q"),
        (TWO, [{"profile": "A2-4Q"}], "count"),
        ([{"nodes": ["gpu-a"], "board": "A22"}], [], "Board A22 is not in the catalog."),
        ([{"node": "gpu-a", "board": "A2"}], [], "An assumption needs nodes and board"),
    ],
)
def test_what_does_not_fit_or_makes_no_sense_is_a_problem(assume: Any, layout: Any, problem: str) -> None:
    plan = assumed_plan(assume, layout)
    assert problem in plan["problem"]
    assert plan["lines"] == []


@settings(deadline=None, max_examples=40)
@given(board=st.sampled_from(sorted(catalog.boards())), count=st.integers(1, 3), data=st.data())
def test_any_profile_of_a_board_is_planned_or_refused_with_the_reason(
    board: str, count: int, data: st.DataObject
) -> None:
    profile = data.draw(st.sampled_from(sorted(catalog.type_names(board))))
    layout = [{"profile": profile, "count": 1}]
    plan = assumed_plan([{"nodes": ["n"], "board": board, "count": count}], layout, enable_mig=True)
    assert bool(plan["steps"]) != bool(plan["problem"])
    assert not plan["problem"] or "virtual functions" in plan["problem"] or "MIG" in plan["problem"], plan["problem"]
