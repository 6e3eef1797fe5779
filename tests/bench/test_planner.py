"""The planner on a thousand GPUs: `python tests/bench/planner.py` prints more of it."""

from __future__ import annotations

import time

from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit

from tests.bench import planner

GPUS = 1000
SECONDS = 1.0


def test_a_hundred_demands_on_a_thousand_gpus_are_planned_in_well_under_a_second() -> None:
    taken = {}
    for name, fleet, asked, policy in planner.cases(GPUS):
        begun = time.process_time()
        try:
            plan(fleet, asked, policy)
        except DoesNotFit:
            # Trying what would help takes longer than seeing that it does not fit.
            continue
        taken[name] = time.process_time() - begun
        print(f"\n  {GPUS} GPUs, {name}: {taken[name] * 1000:.0f} ms", end="")
    print()
    assert max(taken.values()) < SECONDS
