# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a plan takes on a thousand GPUs with 32 slots each and a hundred demands.

python tests/bench/planner.py [--gpus 1000] [--repeat 3]
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, Holder, Node, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import Plan, plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Patterns, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import DoesNotFit

SLOTS = 32
GPUS_PER_NODE = 8
MOST = {2: 24, 4: 12, 8: 6, 16: 3, 48: 1}
PROFILES = [f"NVIDIA L40S-{size}{series}" for size in MOST for series in "QA"]
OFFERED = tuple(PROFILES)


def empty(gpus: int) -> Fleet:
    return _fleet(gpus, lambda _number: [])


def busy(gpus: int) -> Fleet:
    """Every GPU differs: another size, another number of vGPUs, some of them held."""
    rng = random.Random(7)

    def filled(_number: int) -> list[tuple[str, bool]]:
        size = rng.choice(list(MOST))
        count = rng.randint(0, MOST[size])
        return [(f"NVIDIA L40S-{size}{rng.choice('QA')}", rng.random() < 0.3) for _vgpu in range(count)]

    return _fleet(gpus, filled)


def _fleet(gpus: int, filled: Callable[[int], list[tuple[str, bool]]]) -> Fleet:
    nodes: dict[str, list[Gpu]] = {}
    for number in range(gpus):
        node = f"gpu-{number // GPUS_PER_NODE:03}"
        name = f"{node}-{number % GPUS_PER_NODE}"
        vgpus = filled(number)
        slots = [
            Slot(f"{name}-{place:02}", f"{place:02}", profile, profile, allocatable=True, holders=_holders(name, held))
            for place, (profile, held) in enumerate(vgpus)
        ]
        offered = OFFERED if not vgpus else None
        slots += [Slot(f"{name}-{place:02}", f"{place:02}", offered=offered) for place in range(len(vgpus), SLOTS)]
        nodes.setdefault(node, []).append(
            Gpu(name, node, address=name, boards=("L40S",), slots=tuple(slots), vf_capacity=SLOTS)
        )
    return Fleet(tuple(Node(name, gpus=tuple(members)) for name, members in nodes.items()))


def _holders(name: str, held: bool) -> tuple[Holder, ...]:
    return (Holder(f"vm-{name}", "default", running=True),) if held else ()


def demands(kind: str, count: int) -> list[Demand]:
    rng = random.Random(11)
    if kind == "fleet":
        return [Demand(rng.choice(PROFILES), rng.randint(1, 30)) for _number in range(count)]
    if kind == "racks":
        return [
            Demand(rng.choice(PROFILES), rng.randint(1, 12), nodes=(f"gpu-{number % 13:02}*",))
            for number in range(count)
        ]
    if kind == "nodes":
        return [Demand(rng.choice(PROFILES), 1, per="node", nodes=(f"gpu-{number:03}",)) for number in range(count)]
    return [Demand("NVIDIA L40S-4Q", 2, per="gpu"), Demand("NVIDIA L40S-4A", 1, per="node")]


def at_least(fleet: Fleet, asked: list[Demand]) -> list[Demand]:
    """The demands raised to what VMs hold: a count is exact, and cannot be lower than that."""
    totals: Counter[tuple[str, Patterns]] = Counter()
    for demand in asked:
        totals[demand.profile, demand.nodes] += demand.count
    found: list[Demand] = []
    for demand in asked:
        missing = max(0, _held(fleet, demand) - totals[demand.profile, demand.nodes])
        totals[demand.profile, demand.nodes] += missing
        found.append(replace(demand, count=demand.count + missing))
    return found


def _held(fleet: Fleet, demand: Demand) -> int:
    return sum(
        bool(slot.holders) and slot.profile == demand.profile
        for gpu, slot in fleet.slots()
        if demand.nodes is None or any(fnmatchcase(gpu.node, pattern) for pattern in demand.nodes)
    )


def cases(gpus: int) -> Iterator[tuple[str, Fleet, list[Demand], Policy]]:
    bare, full = empty(gpus), busy(gpus)
    for kind in ("fleet", "racks", "nodes", "gpus"):
        yield f"empty fleet, {kind}", bare, demands(kind, 100), Policy()
    yield "empty fleet, fleet, spread", bare, demands("fleet", 100), Policy(placement="spread")
    fleet_wide, by_rack = (at_least(full, demands(kind, 100)) for kind in ("fleet", "racks"))
    yield "busy fleet, fleet", full, fleet_wide, Policy()
    yield "busy fleet, racks", full, by_rack, Policy()
    yield "busy fleet, fleet, reprofile", full, fleet_wide, Policy(reprofile=True)
    yield "busy fleet, racks, reprofile, spread", full, by_rack, Policy(reprofile=True, placement="spread")
    yield "empty fleet, racks, exclusive", bare, demands("racks", 100), Policy(exclusive=True)
    placed = plan(bare, demands("racks", 100), Policy()).after
    yield "all in place, racks", placed, demands("racks", 100), Policy()
    yield "all in place, racks, exclusive", placed, demands("racks", 100), Policy(exclusive=True)
    yield "too much by far", bare, [*demands("fleet", 99), Demand("NVIDIA L40S-48Q", 2 * gpus)], Policy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.gpus} GPUs with {SLOTS} slots each, 100 demands; best CPU time of {options.repeat}")
    for name, fleet, asked, policy in cases(options.gpus):
        best, found = float("inf"), ""
        for _time in range(options.repeat):
            begun = time.process_time()
            found = _describe(lambda: plan(fleet, asked, policy))  # noqa: B023
            best = min(best, time.process_time() - begun)
        print(f"{best * 1000:8.0f} ms  {name}: {found}")


def _describe(planned: Callable[[], Plan]) -> str:
    try:
        found = planned()
    except DoesNotFit as error:
        counts = f"{len(error.shortfalls)} reasons, {len(error.suggestions)} suggestions"
        return f"does not fit, {counts}, exhaustive {error.exhaustive}"
    return f"{len(found.steps)} steps on {len(found.touched)} GPUs, optimal {found.optimal}"


if __name__ == "__main__":
    main()
