# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan for demands on a fleet: its steps, or the reasons why the demands do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..fleet.model import Fleet, Slot
from ..fleet.profile_resolver import ProfileResolver
from .problem import Problem
from .request import Demand, Policy
from .shortfall import explain
from .steps import Step, after_steps, steps_to
from .surplus import Stuck, find_surplus, without_surplus


@dataclass(frozen=True)
class Plan:
    """The steps from a fleet to its demands, sorted by GPU in the order of the fleet.

    `waiting`: slots that an earlier run requested and that are not ready yet.
    `drifted`: slots whose vGPU differs from its request and that the plan leaves alone.
    `optimal`: whether no plan with changes as mild touches fewer GPUs. Milder changes come first, even on more GPUs.
    False if the plan lowers a count, because the unused vGPUs to remove are chosen before the rest is planned, and if
    the capacity of a GPU is an estimate.
    `stuck`: surplus vGPUs that cannot be removed.
    `gpus`, `profiles`: the GPUs that the demands select and the type names that they name.
    """

    steps: tuple[Step, ...] = ()
    waiting: tuple[str, ...] = ()
    drifted: tuple[str, ...] = ()
    optimal: bool = True
    stuck: tuple[Stuck, ...] = ()
    fleet: Fleet = field(default_factory=Fleet, repr=False, compare=False)
    gpus: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    profiles: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @property
    def changed(self) -> bool:
        return bool(self.steps)

    @property
    def touched(self) -> tuple[str, ...]:
        """Return the names of the GPUs that have steps."""
        return tuple(dict.fromkeys(step.gpu for step in self.steps))

    @cached_property
    def after(self) -> Fleet:
        """Return the fleet after all steps."""
        return after_steps(self.fleet, self.steps)

    def as_dict(self) -> dict[str, Any]:
        return {
            "steps": [step.as_dict() for step in self.steps],
            "waiting": list(self.waiting),
            "drifted": list(self.drifted),
            "optimal": self.optimal,
            "stuck": [vgpu.as_dict() for vgpu in self.stuck],
        }


def known_profiles(fleet: Fleet) -> ProfileResolver:
    """Return a resolver for the type names of the fleet, then for those of the catalog."""
    return ProfileResolver(fleet.type_names())


def plan(fleet: Fleet, demands: Sequence[Demand], policy: Policy | None = None) -> Plan:
    """Plan all demands together: exactly as many vGPUs of each profile as they request.

    Raise DoesNotFit with reasons and suggestions if they do not fit, and CountInUse if VMs hold more vGPUs than
    requested.
    """
    known = known_profiles(fleet)
    resolved = [replace(demand, profile=known.resolve(demand.profile)) for demand in demands]
    problem = Problem(fleet.assign_unbound(), resolved, policy or Policy())
    surplus = find_surplus(problem)
    if surplus.steps:
        problem = Problem(without_surplus(problem.fleet, surplus.steps), resolved, problem.policy)
    layout = problem.layout
    # The choice of vGPUs to remove decides where others fit, and only one choice is tried.
    optimal = layout.exhaustive and problem.planning.certain and not surplus.steps and not surplus.stuck
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
        gpus=frozenset(fleet.gpus[index].name for index in problem.selected),
        profiles=frozenset(demand.profile for demand in resolved),
    )


def _names(slots: Iterator[Slot]) -> tuple[str, ...]:
    return tuple(slot.name for slot in slots)
