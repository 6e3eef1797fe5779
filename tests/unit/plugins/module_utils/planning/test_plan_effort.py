# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan costs, in function calls: they are the same on every machine. `tests/bench/planner.py` has the clock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy

from tests.bench import planner as bench

Case = tuple[Callable[[int], Fleet], list[Demand], Policy]

CASES: dict[str, Case] = {
    "an empty fleet": (bench.empty, bench.demands("fleet", 30), Policy()),
    "a busy fleet, reprofiled": (bench.busy, bench.demands("fleet", 10), Policy(reprofile=True)),
    "something on every GPU": (bench.empty, [Demand("NVIDIA L40S-4Q", 2, per="gpu")], Policy()),
    "spread": (bench.empty, bench.demands("fleet", 20), Policy(placement="spread")),
}


def calls(act: Callable[[], object]) -> int:
    count = 0

    def tally(_frame: object, happening: str, _detail: object) -> None:
        nonlocal count
        count += happening in ("call", "c_call")

    sys.setprofile(tally)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", CASES)
def test_effort_grows_no_faster_than_the_fleet(name: str) -> None:
    made, demands, policy = CASES[name]
    small, large = made(500), made(1500)
    on_small, on_large = (bench.at_least(one, demands) for one in (small, large))
    # The first plan of all fills the caches of names.
    plan(small, on_small, policy)
    assert calls(lambda: plan(large, on_large, policy)) < 4.5 * calls(lambda: plan(small, on_small, policy))


def test_a_thousand_gpus_with_32_slots_and_a_hundred_demands_take_less_than_a_million_calls() -> None:
    demands = bench.demands("racks", 100)
    bare, busy = bench.empty(1000), bench.busy(1000)
    assert calls(lambda: plan(bare, demands)) < 1_000_000
    raised = bench.at_least(busy, demands)
    assert calls(lambda: plan(busy, raised, Policy(reprofile=True))) < 1_000_000
    placed = plan(bare, demands).after
    assert calls(lambda: plan(placed, demands)) < 500_000
    halved = [replace(demand, count=demand.count // 2) for demand in demands]
    assert calls(lambda: plan(placed, halved)) < 1_000_000


def test_the_catalogue_costs_nothing_until_it_is_asked() -> None:
    """Importing it defines the table; reading it waits for the first question."""
    code = (
        "from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog;"
        "print(catalog.boards.cache_info().currsize)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_environment())
    assert shown.stdout.strip() == "0"


def _environment() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(path for path in sys.path if path), "PYTHONDONTWRITEBYTECODE": "1"}
