# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fleet and what is asked of it: the steps that get there, or why it cannot be had."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile_resolver import ProfileResolver
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.problem import Problem
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.shortfall import explain
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step, after_steps, steps_to
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.surplus import (
    Stuck,
    find_surplus,
    without_surplus,
)


@dataclass(frozen=True)
class Plan:
    """Steps in order, the GPUs' order being that of the fleet.

    `waiting` are slots that were asked for before and are not ready yet, `drifted` those that are not what they were
    asked to be and that the plan leaves alone. `optimal` tells that no plan touches fewer GPUs. It is False for plans
    that lower a number, since which of the unused vGPUs go is decided before the rest is planned. `stuck` are vGPUs
    that should go and have to stay, so that there are more than were asked for.
    """

    steps: tuple[Step, ...] = ()
    waiting: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    optimal: bool = True
    stuck: tuple[Stuck, ...] = ()
    fleet: Fleet = field(default_factory=Fleet, repr=False, compare=False)

    @property
    def changed(self) -> bool:
        return bool(self.steps)

    @property
    def touched(self) -> tuple[str, ...]:
        """The GPUs that something is done to."""
        return tuple(dict.fromkeys(step.gpu for step in self.steps))

    def by_gpu(self) -> Iterator[tuple[str, list[Step]]]:
        """Steps that have to be done one after the other; different GPUs may be done side by side."""
        for gpu, steps in groupby(self.steps, key=lambda step: step.gpu):
            yield gpu, list(steps)

    def outcome(self) -> Fleet:
        """The fleet with all steps done."""
        return after_steps(self.fleet, self.steps)

    def as_dict(self) -> dict[str, Any]:
        return {
            "steps": [step.as_dict() for step in self.steps],
            "waiting": list(self.waiting),
            "drifted": list(self.drifted),
            "optimal": self.optimal,
            "stuck": [one.as_dict() for one in self.stuck],
        }


def known_profiles(fleet: Fleet) -> ProfileResolver:
    """The type names of the live system, and behind them those of the catalogue."""
    return ProfileResolver(fleet.type_names())


def plan(fleet: Fleet, demands: Sequence[Demand], policy: Policy | None = None) -> Plan:
    """Plan all demands together: as many vGPUs of each profile as they ask for, no fewer and no more.

    Raises DoesNotFit with reasons and the nearest changes if there is not enough room, and CountInUse if VMs hold more
    than was asked for.
    """
    known = known_profiles(fleet)
    resolved = [replace(demand, profile=known.resolve(demand.profile)) for demand in demands]
    problem = Problem(fleet.assign_unbound(), resolved, policy or Policy())
    surplus = find_surplus(problem)
    if surplus.steps:
        problem = Problem(without_surplus(problem.fleet, surplus.steps), resolved, problem.policy)
    layout = problem.layout
    # Which vGPUs are removed decides where others fit, and only one choice is tried.
    optimal = layout.exhaustive and not surplus.steps and not surplus.stuck
    if not layout.fits:
        raise explain(problem, replace(layout, exhaustive=optimal))
    by_gpu: dict[int, list[Step]] = {}
    number_of = {gpu.name: index for index, gpu in enumerate(fleet.gpus)}
    for step in surplus.steps:
        by_gpu.setdefault(number_of[step.gpu], []).append(step)
    for index, target in layout.targets.items():
        by_gpu.setdefault(index, []).extend(steps_to(problem.sites[index], target, problem.names))
    steps = [step for _index, on_gpu in sorted(by_gpu.items()) for step in on_gpu]
    repaired = {step.slot for step in steps}
    slots = [slot for index in sorted(problem.selected) for slot in fleet.gpus[index].ordered_slots]
    return Plan(
        tuple(steps),
        waiting=_names(slot for slot in slots if slot.state == "requested" and slot.name not in repaired),
        drifted=_names(slot for slot in slots if slot.drifted and slot.name not in repaired),
        optimal=optimal,
        stuck=surplus.stuck,
        fleet=fleet,
    )


def _names(slots: Iterator[Slot]) -> tuple[str, ...]:
    return tuple(slot.name for slot in slots)
