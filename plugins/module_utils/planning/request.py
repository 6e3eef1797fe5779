# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Demands on a fleet: a number of vGPUs of a profile on selected GPUs, under a policy."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import FleetError, InvalidDemand, NothingSelected, did_you_mean, join_names
from ..fleet.model import Fleet, could_be
from ..fleet.profile import Profile, parse

PER_FLEET = "fleet"
PER_NODE = "node"
PER_GPU = "gpu"

CONSOLIDATE = "consolidate"
SPREAD = "spread"


# Names or shell patterns. None stands for an option that was not given, which differs from an empty list.
Patterns: TypeAlias = "tuple[str, ...] | None"


def patterns(option: Sequence[str] | None) -> Patterns:
    """Return the value of a list option. Keep an option that was not given apart from an empty one."""
    return None if option is None else tuple(option)


class NoSuitableGpu(FleetError):
    code = "no_suitable_gpu"


@dataclass(frozen=True)
class Demand:
    """Exactly `count` vGPUs of a profile: in total, on each node or on each GPU.

    `nodes` and `gpus` are names or shell patterns; with both, a GPU has to match both. None means that the option was
    not given and selects every node or GPU. An empty tuple selects nothing.
    """

    profile: str
    count: int
    per: str = PER_FLEET
    nodes: Patterns = None
    gpus: Patterns = None

    def __post_init__(self) -> None:
        if self.per not in (PER_FLEET, PER_NODE, PER_GPU):
            raise InvalidDemand(f"{self.per!r} is not a scope for a count.", hint="Use fleet, node or gpu.")
        if self.count < 0:
            raise InvalidDemand(f"A count of {self.count} {self.profile} cannot be met.", hint="Use 0 or more.")

    def __str__(self) -> str:
        scope = "" if self.per == PER_FLEET else f" per {self.per}"
        where = ", ".join((*(self.nodes or ()), *(self.gpus or ())))
        return f"{self.count} x {self.profile}{scope}" + (f" on {where}" if where else "")

    def as_dict(self) -> dict[str, Any]:
        return {
            "profile": self.profile,
            "count": self.count,
            "per": self.per,
            "nodes": list(self.nodes or ()),
            "gpus": list(self.gpus or ()),
        }


@dataclass(frozen=True)
class Policy:
    """The changes that a plan may make. No policy allows changes to vGPUs that a VM holds."""

    exclusive: bool = False
    reprofile: bool = False
    enable_sriov: bool = False
    enable_mig: bool = False
    placement: str = CONSOLIDATE

    def __post_init__(self) -> None:
        if self.placement not in (CONSOLIDATE, SPREAD):
            raise InvalidDemand(f"{self.placement!r} is not a placement.", hint="Use consolidate or spread.")


@dataclass(frozen=True)
class Need:
    """An indivisible part of a demand: a number of vGPUs on any of these GPUs (indices into `Fleet.gpus`)."""

    demand: int
    profile: Profile
    count: int
    gpus: frozenset[int]
    scope: str


class GpuSelector:
    """A selector of GPUs by patterns, which evaluates each distinct selection once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._found: dict[tuple[Patterns, Patterns], frozenset[int]] = {}

    def gpus(self, nodes: Patterns, gpus: Patterns) -> frozenset[int]:
        key = (nodes, gpus)
        if key not in self._found:
            self._found[key] = self._select(nodes, gpus)
        return self._found[key]

    def _select(self, nodes: Patterns, gpus: Patterns) -> frozenset[int]:
        refuse_empty(nodes=nodes, gpus=gpus)
        fleet = self._fleet
        on = set(_matching("node", nodes or (), [node.name for node in fleet.ordered_nodes]))
        named = set(_matching("GPU", gpus or (), [gpu.name for gpu in fleet.gpus]))
        found = frozenset(
            index
            for index, gpu in enumerate(fleet.gpus)
            if (not nodes or gpu.node in on) and (not gpus or gpu.name in named)
        )
        if not found:
            where = f"nodes {join_names(nodes)}" if nodes else "the fleet"
            reserved = [
                node.name for node in fleet.nodes if node.reserved_for_containers and (not nodes or node.name in on)
            ]
            said = f"There is no GPU on {where}" + (f" that matches {join_names(gpus)}." if gpus else ".")
            if reserved:
                said += f" The GPUs of {join_names(reserved)} are reserved for containers."
            raise NothingSelected(said, hint=f"GPUs there are: {join_names(gpu.name for gpu in fleet.gpus)}.")
        return found


def refuse_empty(**selections: Sequence[str] | None) -> None:
    """Raise an error for a selection that is given but empty, such as the result of a filter that found nothing.

    Without this check, an empty selection could be taken for every GPU of the fleet.
    """
    for option, patterns in selections.items():
        if patterns is not None and not patterns:
            raise NothingSelected(
                f"{option} is an empty list, so nothing is selected.",
                hint=f"Name at least one, or leave {option} out. Add a condition to the task to skip it in this case.",
            )


def selected(fleet: Fleet, nodes: Sequence[str] | None, gpus: Sequence[str] | None) -> frozenset[str]:
    """Return the names of the GPUs that a task selects."""
    return frozenset(fleet.gpus[index].name for index in GpuSelector(fleet).gpus(patterns(nodes), patterns(gpus)))


def _matching(what: str, patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    found: list[str] = []
    exact = set(names)
    for pattern in patterns:
        matches = [pattern] if pattern in exact else fnmatch.filter(names, pattern)
        if not matches:
            alike = did_you_mean(pattern, names)
            meant = f"Did you mean {' or '.join(alike[:2])}? " if alike else ""
            raise NothingSelected(
                f"No {what} matches {pattern!r}.", hint=f"{meant}There are: {join_names(names, limit=20)}."
            )
        found.extend(matches)
    return found


def needs_of(fleet: Fleet, demands: Sequence[Demand], selections: GpuSelector) -> list[Need]:
    """Return the needs of the demands. Each vGPU serves one need: demands for the same profile add up."""
    needs: list[Need] = []
    suitable: dict[tuple[str, frozenset[int]], frozenset[int]] = {}
    for index, demand in enumerate(demands):
        profile = parse(demand.profile)
        chosen = selections.gpus(demand.nodes, demand.gpus)
        key = (profile.key[0], chosen)
        if key not in suitable:
            suitable[key] = frozenset(gpu for gpu in chosen if could_be(fleet.gpus[gpu], profile))
        fitting = suitable[key]
        _check_suitable(fleet, demand, chosen, fitting)
        needs.extend(
            Need(index, profile, demand.count, part, scope)
            for scope, part in _parts(fleet, demand, fitting)
            if demand.count
        )
    return needs


def _parts(fleet: Fleet, demand: Demand, fitting: frozenset[int]) -> Iterable[tuple[str, frozenset[int]]]:
    if demand.per == PER_FLEET:
        return [("", fitting)]
    if demand.per == PER_GPU:
        return [(f"GPU {fleet.gpus[index].name}", frozenset((index,))) for index in sorted(fitting)]
    by_node: dict[str, set[int]] = {}
    for index in sorted(fitting):
        by_node.setdefault(fleet.gpus[index].node, set()).add(index)
    return [(f"node {node}", frozenset(indices)) for node, indices in by_node.items()]


def _check_suitable(fleet: Fleet, demand: Demand, chosen: frozenset[int], fitting: frozenset[int]) -> None:
    missing = [node for node in demand.nodes or () if not any(fleet.gpus[index].node == node for index in fitting)]
    named = [node for node in missing if node in fleet.node_by_name]
    if fitting and not (named and demand.per == PER_NODE):
        return
    boards = {board for index in chosen for board in fleet.gpus[index].boards}
    where = f"on node {join_names(named)}" if named else "in the selection"
    raise NoSuitableGpu(
        f"No GPU {where} can have a {demand.profile}.",
        hint=f"The boards selected are: {join_names(boards)}; choose a profile of one of them.",
    )
