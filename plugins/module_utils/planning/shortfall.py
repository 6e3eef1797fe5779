# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reasons why demands do not fit: the rule on each GPU, the holders, and the smallest change that helps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from ..errors import FleetError, join_names
from .capacity import Blocker, group_of
from .components import Layout, Unplaced
from .problem import Problem
from .steps import CREATE_MIG_INSTANCES, DISABLE, steps_to
from .surplus import CountInUse, find_surplus

# Limits for messages: a fleet of thousands of GPUs would have thousands of reasons.
GPUS_NAMED = 8
RELEASES_TRIED = 12
DEMANDS_LOWERED = 3


@dataclass(frozen=True)
class Reason:
    """A rule that blocks a demand, with the first of the GPUs it applies to and their number."""

    rule: str
    detail: str
    gpus: tuple[str, ...]
    gpu_count: int
    holders: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = self.gpu_count - 3
        return ", ".join(self.gpus[:3]) + (f" and {more} more" if more > 0 else "") + f": {self.detail}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "detail": self.detail,
            "gpus": list(self.gpus),
            "gpu_count": self.gpu_count,
            "holders": list(self.holders),
        }


@dataclass(frozen=True)
class Shortfall:
    """The missing part of a demand, its scope and the reasons. `demand` is its index in the request."""

    demand: int
    profile: str
    count: int
    missing: int
    scope: str
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        if not self.count:
            return "; ".join(map(str, self.reasons)) + "."
        where = f" on {self.scope}" if self.scope else ""
        why = "; ".join(map(str, self.reasons[:4])) or "other demands take the room"
        return f"{self.missing} of {self.count} {self.profile} do not fit{where} ({why})."

    def as_dict(self) -> dict[str, Any]:
        return {
            "demand": self.demand,
            "profile": self.profile,
            "count": self.count,
            "missing": self.missing,
            "scope": self.scope,
            "reasons": [reason.as_dict() for reason in self.reasons],
        }


@dataclass(frozen=True)
class Suggestion:
    """A change that makes the demands fit, verified on the fleet."""

    change: str
    text: str
    details: Mapping[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {"change": self.change, "text": self.text, **self.details}


class DoesNotFit(FleetError):
    code = "does_not_fit"

    def __init__(
        self, shortfalls: Iterable[Shortfall], suggestions: Iterable[Suggestion], *, exhaustive: bool = True
    ) -> None:
        self.shortfalls = tuple(shortfalls)
        self.suggestions = tuple(suggestions)
        self.exhaustive = exhaustive
        said = " ".join(map(str, self.shortfalls[:5]))
        more = len(self.shortfalls) - 5
        if more > 0:
            said += f" {more} more demands do not fit."
        if not exhaustive:
            said += " The search reached its limit, so a layout that fits may exist."
        would = " or ".join(suggestion.text for suggestion in self.suggestions)
        super().__init__(said, hint=f"It would fit with {would}." if would else "No single change would make it fit.")

    def not_final(self, notes: Sequence[str], unsettled: list[dict[str, Any]], *, moving: bool) -> None:
        super().not_final(notes, unsettled, moving=moving)
        self.exhaustive = self.exhaustive and not moving
        self.suggestions = () if moving else self.suggestions

    def as_dict(self) -> dict[str, Any]:
        return {
            **super().as_dict(),
            "exhaustive": self.exhaustive,
            "shortfalls": [shortfall.as_dict() for shortfall in self.shortfalls],
            "suggestions": [suggestion.as_dict() for suggestion in self.suggestions],
        }


def explain(problem: Problem, layout: Layout) -> DoesNotFit:
    """Return the error for a layout that does not meet its demands."""
    shortfalls = [_shortfall(problem, layout, missing) for missing in layout.missing]
    shortfalls += _unasked(problem, layout)
    return DoesNotFit(shortfalls, _suggestions(problem, shortfalls), exhaustive=layout.exhaustive)


def _shortfall(problem: Problem, layout: Layout, missing: Unplaced) -> Shortfall:
    need = missing.need
    by_reason: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for index in sorted(need.gpus):
        obstacle = _obstacle(problem, layout, missing, index)
        gpus, holders = by_reason.setdefault((obstacle.rule, obstacle.detail), ([], []))
        gpus.append(problem.sites[index].gpu.name)
        holders += [holder.path for holder in obstacle.holders if holder.path not in holders]
    reasons = tuple(
        Reason(rule, detail, tuple(gpus[:GPUS_NAMED]), len(gpus), tuple(holders))
        for (rule, detail), (gpus, holders) in by_reason.items()
    )
    return Shortfall(need.demand, need.profile.name, need.count, missing.count, need.scope, reasons)


def _obstacle(problem: Problem, layout: Layout, missing: Unplaced, index: int) -> Blocker:
    key = missing.need.profile.key
    room = problem.planning.room(index, group_of(key), problem.means)
    if isinstance(room, Blocker):
        return room
    # vGPUs that VMs hold occupy places.
    held = tuple(slot for slot, its in problem.sites[index].held if its != key)
    beside = " beside" if held else ""
    if not any(key in keys for keys, _count in room.lanes):
        return Blocker("not_offered", f"the driver does not offer it there{beside}", held)
    target = layout.targets.get(index)
    planned = {} if target is None else {problem.names[key]: count for key, count in target.assigned.items() if count}
    has = ", ".join(f"{count} x {name}" for name, count in sorted(planned.items()))
    why = f"this plan fills it with {has}" if has else "its room goes to other demands"
    if held:
        return Blocker("taken", f"{why} beside", held)
    # VMs that hold vGPUs of the same profile block the GPU too: its MIG instances cannot be replaced.
    same = tuple(slot for slot in problem.sites[index].gpu.ordered_slots if slot.holders)
    return Blocker("taken", f"{why}, and it cannot be changed under" if same else why, same)


def _unasked(problem: Problem, layout: Layout) -> Iterator[Shortfall]:
    for index in layout.unasked:
        site = problem.sites[index]
        for slot, _key in site.held:
            profile = slot.profile or slot.wanted or ""
            holders = tuple(holder.path for holder in slot.holders)
            detail = f"{slot.name} is held by {join_names(map(str, slot.holders))}, and nobody asked for it"
            reason = Reason("in_use", detail, (site.gpu.name,), 1, holders)
            yield Shortfall(-1, profile, 0, 0, f"GPU {site.gpu.name}", (reason,))


def _suggestions(problem: Problem, shortfalls: list[Shortfall]) -> list[Suggestion]:
    """Return the changes that would make the demands fit, the least disruptive first."""
    found = list(_allowing(problem))
    found += _lowering(problem, shortfalls)
    if not any("options" in change.details for change in found):
        found += _detaching(problem, shortfalls)
    return found


def _allowing(problem: Problem) -> Iterator[Suggestion]:
    policy = problem.policy
    may = [] if policy.enable_mig or not any(need.profile.mig for need in problem.needs) else ["enable_mig"]
    may += [] if policy.enable_sriov else ["enable_sriov"]
    may += [] if policy.reprofile or policy.exclusive else ["reprofile"]
    for size in range(1, len(may) + 1):
        found = False
        for names in combinations(may, size):
            options: dict[str, Any] = dict.fromkeys(names, True)
            allowed = problem.under(replace(policy, **options))
            if allowed.fits:
                found = True
                text = " and ".join(f"{name}: true" for name in names)
                if "enable_mig" not in names:
                    yield Suggestion(names[-1], text, {"options": options})
                    continue
                tasks = _mig_tasks(allowed)
                said = "; ".join(
                    f"instances {task['layout']} on GPU {join_names(task['gpus'], limit=3)}" for task in tasks
                )
                by_hand = f" (or first vgpu.fleet.harvester_mig: {said})" if tasks else ""
                yield Suggestion("enable_mig", text + by_hand, {"options": options, "tasks": tasks})
        if found:
            return


def _mig_tasks(problem: Problem) -> list[dict[str, Any]]:
    """Return the tasks that create the MIG instances of a plan, or none if vGPUs have to be disabled first."""
    by_layout: dict[tuple[Any, ...], list[str]] = {}
    for index, target in sorted(problem.layout.targets.items()):
        steps = steps_to(problem.sites[index], target, problem.names)
        if any(step.action == DISABLE for step in steps):
            return []
        gpu = problem.sites[index].gpu
        for step in steps:
            if step.action == CREATE_MIG_INSTANCES:
                which = (step.after, step.instances, bool(step.before), not gpu.sharing)
                by_layout.setdefault(which, []).append(gpu.name)
    return [
        {
            "gpus": gpus,
            "layout": layout,
            "instances": [{"profile": name, "count": count} for name, count in instances],
            "relayout": relayout,
            "enable_sriov": sriov,
        }
        for (layout, instances, relayout, sriov), gpus in by_layout.items()
    ]


def _lowering(problem: Problem, shortfalls: list[Shortfall]) -> Iterator[Suggestion]:
    missing: dict[int, int] = {}
    for shortfall in shortfalls:
        if shortfall.demand >= 0:
            missing[shortfall.demand] = max(shortfall.missing, missing.get(shortfall.demand, 0))
    for number in sorted(missing, key=lambda number: (-missing[number], number))[:DEMANDS_LOWERED]:
        low = _most(problem, number, missing[number])
        if low > 0 or (low == 0 and len(problem.demands) > 1):
            profile = problem.demands[number].profile
            text = f"count: {low} for {profile}" if low else f"no {profile}"
            yield Suggestion("count", text, {"demand": number, "profile": profile, "count": low})


def _most(problem: Problem, number: int, missing: int) -> int:
    """Return the highest count of one demand that fits beside the others. The search starts at the placed count."""
    low, high = -1, problem.demands[number].count
    guess = high - missing
    while high - low > 1:
        if _fits_exactly(problem.with_count(number, guess)):
            low = guess
        else:
            high = guess
        guess = low + 1 if low == high - missing else (low + high) // 2
    return low


def _fits_exactly(problem: Problem) -> bool:
    """Return whether a changed count fits and is not lower than the number that VMs hold."""
    try:
        find_surplus(problem.under(replace(problem.policy, exclusive=False)))
    except CountInUse:
        return False
    return problem.fits


def _detaching(problem: Problem, shortfalls: list[Shortfall]) -> Iterator[Suggestion]:
    """Suggest detaching the fewest VMs that block one GPU."""
    sets = {reason.holders for shortfall in shortfalls for reason in shortfall.reasons if reason.holders}
    policy = problem.policy
    allowed = policy if policy.exclusive else replace(policy, reprofile=True)
    for vms in sorted(sets, key=lambda vms: (len(vms), vms))[:RELEASES_TRIED]:
        if problem.without_vms(vms).under(allowed).fits:
            text = f"the vGPUs of {join_names(vms)} detached"
            if not (policy.reprofile or policy.exclusive):
                text += " and reprofile: true"
            yield Suggestion("detach", text, {"vms": list(vms), "reprofile": allowed.reprofile})
            return
