# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan MIG layouts: select the GPUs, choose their instances, and refuse to remove instances in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from ...errors import FleetError, join_names
from ...fleet import catalog
from ...fleet.mig import (
    InstanceRequest,
    InstanceSize,
    MigGeometry,
    format_instances,
    geometry_of,
    match,
    read_wanted,
    served_type,
    served_types,
    serves_nothing,
)
from ...fleet.model import MIG, TIME_SLICED, Fleet, Gpu, Slot
from ...fleet.profile import board_key
from ...planning.request import GpuSelector, NoSuitableGpu, Patterns, patterns, selected
from ...planning.steps import DISABLE_SRIOV, ENABLE_SRIOV, REMOVE_MIG_INSTANCES, SET_MODE, Step, partitioning
from .. import paths as r
from ..conditions import Condition, SriovEnabled
from ..mig_conditions import MigDisabled, MigInstancesReady, configuration
from ..read.mig_configuration import OUT_OF_SYNC, SYNCED, MigConfiguration
from ..read.snapshot import Snapshot, mig_retried_remedy, skips_mig
from ..version import HarvesterVersion
from .in_use import DeviceInUse
from .sriov import GpuBlocked, VgpusEnabled


class InvalidLayout(FleetError):
    code = "invalid_layout"


class MigGeometryError(FleetError):
    code = "mig_geometry"


class MigNotPossible(FleetError):
    code = "mig_not_possible"


class NeedsRelayout(FleetError):
    code = "needs_relayout"


class MigIgnored(FleetError):
    code = "mig_ignored"


class NeedsSriov(FleetError):
    code = "sriov_off"


class MigUnstable(FleetError):
    """Harvester has not put a GPU into MIG mode yet, and keeps trying."""

    code = "mig_unstable"

    def __init__(self, gpu: Gpu, version: HarvesterVersion) -> None:
        super().__init__(
            f"GPU {gpu.name} offers time-sliced types, but {gpu.unstable}. When that succeeds, these types are gone.",
            hint=mig_retried_remedy(version, gpu.node),
        )


def _listed(wanted: InstanceRequest, geometry: MigGeometry) -> InstanceSize | None:
    """Return the instance of a GPU that a request means. A vGPU type means the instance with its slices."""
    if wanted.board:
        return match(wanted.size, geometry.sizes)
    return wanted.size if wanted.size in geometry.sizes else None


@dataclass(frozen=True)
class MigRequest:
    """The request of a task for each GPU that it selects."""

    instances: tuple[tuple[InstanceRequest, int], ...] = ()
    enabled: bool = True
    time_sliced: bool = False
    relayout: bool = False
    enable_sriov: bool = False
    nodes: Patterns = None
    gpus: Patterns = None

    def __str__(self) -> str:
        if self.time_sliced:
            return "mode time_sliced"
        return (
            format_instances({instance.size: count for instance, count in self.instances})
            if self.enabled
            else "state disabled"
        )

    def selected(self, fleet: Fleet) -> frozenset[str]:
        """Return the names of the GPUs on which the result of the task depends."""
        return selected(fleet, self.nodes, self.gpus)

    def plan_for(self, fleet: Fleet, snapshot: Snapshot) -> MigPlan:
        """Plan the request, with its wait conditions."""
        return plan_mig(fleet, snapshot, self)

    def resume(self, _fleet: Fleet, snapshot: Snapshot, steps: Sequence[Step], layouts: Sequence[_Layout]) -> MigPlan:
        """Return the plan that consists of the remaining steps of an interrupted run, and ends in these layouts."""
        gpus = {gpu.name: gpu for gpu in snapshot.fleet.gpus}
        targets = tuple(
            GpuTarget(
                gpus[layout.name],
                layout.mode,
                {read_wanted(name).size: count for name, count in layout.instances} if layout.mode == MIG else None,
                sharing=layout.sriov,
            )
            for layout in layouts
            if layout.name in gpus
        )
        return MigPlan(snapshot, targets, tuple(steps))

    @property
    def has_instances(self) -> bool:
        return self.enabled and not self.time_sliced


def request_from(params: Mapping[str, Any]) -> MigRequest:
    """Read the request from the options of a task."""
    entries = params["instances"] or []
    for entry in entries:
        if entry["count"] < 0:
            raise InvalidLayout(
                f"instances has a count of {entry['count']} for {entry['profile']}.", hint="Use 0 or more."
            )
    request = MigRequest(
        instances=tuple((read_wanted(entry["profile"]), entry["count"]) for entry in entries),
        enabled=params["state"] == "enabled",
        time_sliced=params["mode"] == TIME_SLICED,
        relayout=params["relayout"],
        enable_sriov=params["enable_sriov"],
        nodes=patterns(params["nodes"]),
        gpus=patterns(params["gpus"]),
    )
    if request.has_instances and not sum(count for _wanted, count in request.instances):
        raise InvalidLayout("instances is empty.", hint="Name at least one, or use state: disabled to have none.")
    if entries and not request.has_instances:
        which = "mode: time_sliced" if request.time_sliced else "state: disabled"
        raise InvalidLayout(f"instances and {which} exclude each other.", hint="Leave one of them out.")
    return request


@dataclass(frozen=True)
class GpuTarget:
    """The target state of one GPU. `instances` is None if any instances are acceptable."""

    gpu: Gpu
    mode: str
    instances: Mapping[InstanceSize, int] | None = field(default=None, hash=False)
    sharing: bool = True


@dataclass(frozen=True)
class MigPlan:
    """The target of each GPU, the steps to it and the wait conditions."""

    snapshot: Snapshot
    targets: tuple[GpuTarget, ...]
    steps: tuple[Step, ...]
    warnings: tuple[str, ...] = ()

    @cached_property
    def touched(self) -> frozenset[str]:
        """Return the names of the GPUs that have steps."""
        return frozenset(step.gpu for step in self.steps)

    @property
    def after(self) -> Fleet:
        """Return the fleet as it was read: `records` predicts the MIG state of the GPUs."""
        return self.snapshot.fleet

    @cached_property
    def conditions(self) -> list[Condition]:
        """Return the conditions to wait for on every selected GPU, including GPUs that an earlier run changed."""
        conditions: list[Condition] = []
        switched = {step.gpu for step in self.steps if step.action == ENABLE_SRIOV}
        for target in self.targets:
            gpu = target.gpu
            if target.mode == TIME_SLICED:
                conditions += [SriovEnabled(gpu.name, gpu.node)] if gpu.name in switched else []
            elif target.instances:
                conditions.append(MigInstancesReady(gpu.name, gpu.node, target.instances))
            elif target.instances is not None and (gpu.name in self.touched or instances_of(self.snapshot, gpu.name)):
                conditions.append(MigDisabled(gpu.name, gpu.node))
        return conditions

    def records(self, snapshot: Snapshot) -> list[dict[str, Any]]:
        """Return the records of the selected GPUs as a snapshot has them."""
        by_name = {gpu.name: gpu for gpu in snapshot.fleet.gpus}
        return [
            _record(by_name.get(target.gpu.name, target.gpu), configuration(snapshot, target.gpu.name))
            for target in self.targets
        ]

    @cached_property
    def predicted_records(self) -> list[dict[str, Any]]:
        """Return the records of the selected GPUs after all steps."""
        return [
            _predicted(target)
            if target.gpu.name in self.touched
            else _record(target.gpu, configuration(self.snapshot, target.gpu.name))
            for target in self.targets
        ]

    def diff(self) -> dict[str, Any]:
        """Return the difference for Ansible's diff mode."""
        sides = {"before": self.records(self.snapshot), "after": self.predicted_records}
        keys = ("vgpu_enabled", "mode", "state", "instances")
        return {
            side: {
                record["name"]: {key: record[key] for key in keys}
                for record in records
                if record["name"] in self.touched
            }
            for side, records in sides.items()
        }


def instances_of(snapshot: Snapshot, gpu: str) -> Mapping[InstanceSize, int]:
    """Return the MIG instances of a GPU."""
    mig = configuration(snapshot, gpu)
    return mig.instances if mig else {}


def _record(gpu: Gpu, found: MigConfiguration | None) -> dict[str, Any]:
    return {
        "name": gpu.name,
        "node": gpu.node,
        "address": gpu.address,
        "board": gpu.board,
        "mode": gpu.mode,
        "vgpu_enabled": gpu.sharing,
        "state": "enabled" if found and found.enabled else "disabled",
        "status": found.status if found else "",
        "message": found.message if found else "",
        "instances": _instance_records(gpu, found.instances if found else {}),
    }


def _predicted(one: GpuTarget) -> dict[str, Any]:
    has = bool(one.instances)
    status = SYNCED if has else "disabled" if one.mode == MIG and one.sharing else ""
    return {
        **_record(replace(one.gpu, mode=one.mode, sharing=one.sharing), None),
        "state": "enabled" if has else "disabled",
        "status": status,
        "instances": _instance_records(one.gpu, one.instances or {}),
    }


def _instance_records(gpu: Gpu, instances: Mapping[InstanceSize, int]) -> list[dict[str, Any]]:
    ordered = sorted(
        instances.items(), key=lambda item: (-item[0].gib, -item[0].compute, item[0].media, item[0].attribute)
    )
    return [
        {
            "profile": size.name,
            "type": served_type(gpu.board, size) if gpu.board else None,
            "types": served_types(gpu.board, size) if gpu.board else {},
            "count": count,
        }
        for size, count in ordered
        if count
    ]


def plan_mig(fleet: Fleet, snapshot: Snapshot, request: MigRequest) -> MigPlan:
    """Plan all GPUs together. If a GPU cannot reach its target, refuse before any GPU is changed."""
    if request.has_instances and not snapshot.version.has_mig:
        raise MigNotPossible(f"Harvester {snapshot.version} has no MIG.", hint="Upgrade to Harvester 1.7 or later.")
    chosen = [fleet.gpus[index] for index in sorted(GpuSelector(fleet).gpus(request.nodes, request.gpus))]
    planning = _Planning(snapshot, request)
    if request.time_sliced:
        done = [planning.time_sliced(gpu) for gpu in chosen]
    elif not request.enabled:
        done = [planning.without_instances(gpu) for gpu in chosen]
    else:
        done = [planning.cut(gpu, instances) for gpu, instances in planning.suitable(chosen)]
    return MigPlan(
        snapshot,
        tuple(target for target, _steps in done),
        tuple(step for _target, steps in done for step in steps),
        tuple(planning.warnings),
    )


class _Layout(Protocol):
    """The target of a GPU as a journal records it."""

    @property
    def name(self) -> str:
        """Return the name of the GPU."""

    @property
    def mode(self) -> str:
        """Return the mode of the GPU."""

    @property
    def sriov(self) -> bool:
        """Return whether SR-IOV is enabled."""

    @property
    def instances(self) -> Sequence[tuple[str, int]]:
        """Return the names of the instances, each with its count."""


Planned = tuple[GpuTarget, list[Step]]


class _Planning:
    def __init__(self, snapshot: Snapshot, request: MigRequest) -> None:
        self._snapshot = snapshot
        self._request = request
        self.warnings: list[str] = []

    # Selection

    def suitable(self, chosen: Sequence[Gpu]) -> list[tuple[Gpu, Counter[InstanceSize]]]:
        """Return the GPUs whose board supports all the instances. Refuse a GPU that is named in full and does not."""
        request = self._request
        found: list[tuple[Gpu, Counter[InstanceSize]]] = []
        others: list[tuple[Gpu, str]] = []
        for gpu in chosen:
            geometry = self._geometry(gpu)
            reason = self._unsuitable(gpu, geometry)
            if reason:
                others.append((gpu, reason))
            elif geometry:
                found.append((gpu, self._checked(gpu, geometry)))
        named = [(gpu, reason) for gpu, reason in others if gpu.name in (request.gpus or ())]
        if named or not found:
            said = "; ".join(f"GPU {gpu.name} {reason}" for gpu, reason in (named or others)[:5])
            raise NoSuitableGpu(
                f"{said}.", hint="Name instances that the board has, or leave the GPU out of the selection."
            )
        return found

    def _geometry(self, gpu: Gpu) -> MigGeometry | None:
        """Return the geometry that the GPU reports, else the one of its board."""
        found = configuration(self._snapshot, gpu.name)
        live = found.geometry if found else None
        return live or (geometry_of(gpu.boards[0]) if len(gpu.boards) == 1 else None)

    def _unsuitable(self, gpu: Gpu, geometry: MigGeometry | None) -> str:
        boards = join_names(gpu.boards)
        known = [board for board in map(catalog.find_board, gpu.boards) if board]
        if geometry is None:
            if known and not any(board.mig_capable for board in known):
                return f"({boards}) cannot be cut into MIG instances"
            return f"({boards}) is of a board whose MIG instances are not known"
        for wanted, count in self._request.instances:
            if not count:
                continue
            if wanted.board and board_key(wanted.board) not in map(board_key, gpu.boards):
                return f"is of board {boards}, and not {wanted.board}"
            size = _listed(wanted, geometry)
            if size is None:
                return (
                    f"({boards}) has no {wanted.size.name}; it has {join_names(size.name for size in geometry.sizes)}"
                )
            if serves_nothing(gpu.board, size, geometry.sizes):
                serving = [
                    candidate.name
                    for candidate in geometry.sizes
                    if not serves_nothing(gpu.board, candidate, geometry.sizes)
                ]
                which = f"; those that do are {join_names(serving)}" if serving else ""
                return f"({boards}) has no vGPU type for instances of {size.name}{which}"
        return ""

    def _checked(self, gpu: Gpu, geometry: MigGeometry) -> Counter[InstanceSize]:
        wanted: Counter[InstanceSize] = Counter()
        for one, count in self._request.instances:
            size = _listed(one, geometry)
            if size and count:
                wanted[size] += count
        if not geometry.fits(wanted):
            raise MigGeometryError(
                f"GPU {gpu.name} ({join_names(gpu.boards)}) cannot be cut into {format_instances(wanted)}:"
                f" {geometry.why_not(wanted)}.",
                hint="Ask for fewer or smaller instances.",
            )
        return Counter({size: wanted[size] for size in geometry.sizes if wanted[size]})

    # Steps

    def cut(self, gpu: Gpu, instances: Counter[InstanceSize]) -> Planned:
        target = GpuTarget(gpu, MIG, instances)
        found = configuration(self._snapshot, gpu.name)
        if gpu.unstable:
            raise MigUnstable(gpu, self._snapshot.version)
        if found and found.unreadable:
            raise InvalidLayout(
                f"GPU {gpu.name} has or requests MIG instances that cannot be read: {join_names(found.unreadable)}."
                " Its layout is left alone.",
                hint="Change it in Harvester's UI, or leave the GPU out.",
            )
        step = partitioning(gpu, instances)
        if not gpu.sharing:
            self._may_share(gpu)
            return target, [*self._mode_steps(gpu, MIG), Step(ENABLE_SRIOV, gpu.node, gpu.name), step]
        if gpu.mode != MIG:
            self._may_change(gpu, f"is time-sliced and should have {format_instances(instances)}")
            return target, [*self._restart(gpu, MIG), step]
        if found is None or not found.enabled:
            self._check_unused(gpu, f"cut GPU {gpu.name}")
            return target, [step]
        as_wanted = dict(found.instances) == dict(instances)
        asked_for = dict(found.requested) == dict(instances)
        if found.status != OUT_OF_SYNC and (as_wanted or (asked_for and not found.instances)):
            if asked_for or not self._request.relayout or _filled(gpu):
                if not asked_for:
                    self.warnings.append(
                        f"GPU {gpu.name} has {format_instances(instances)},"
                        " but its MIG configuration does not ask for them: they are lost at the next reboot."
                        " relayout: true writes them down, once it has no vGPUs."
                    )
                return target, []
            return target, [step]
        if found.status == OUT_OF_SYNC and asked_for:
            # Nobody can use these instances: they were never completed.
            self._check_no_vgpus(gpu, f"make the MIG instances of GPU {gpu.name} anew, which are out of sync")
            return target, [step]
        state = f"is out of sync{f' ({found.message})' if found.message else ''}" if found.status == OUT_OF_SYNC else ""
        has = state or f"has {format_instances(found.instances)}"
        self._may_change(gpu, f"{has} and should have {format_instances(instances)}")
        return target, [step]

    def without_instances(self, gpu: Gpu) -> Planned:
        target = GpuTarget(gpu, gpu.mode, Counter(), sharing=gpu.sharing)
        found = configuration(self._snapshot, gpu.name)
        if found is None or not found.enabled:
            return target, []
        self._check_no_vgpus(gpu, f"remove the MIG instances of GPU {gpu.name}")
        before = format_instances(found.instances)
        return target, [Step(REMOVE_MIG_INSTANCES, gpu.node, gpu.name, before=before, after=format_instances({}))]

    def time_sliced(self, gpu: Gpu) -> Planned:
        request, version = self._request, self._snapshot.version
        target = GpuTarget(gpu, TIME_SLICED, sharing=gpu.sharing or request.enable_sriov)
        if gpu.unstable:
            if not version.skips_mig:
                raise MigUnstable(gpu, version)
            # The GPU is not in MIG mode yet. The annotation ends the attempts, and its vGPUs stay as they are.
            return target, self._mode_steps(gpu, TIME_SLICED)
        if gpu.mode == MIG and not version.skips_mig:
            raise MigIgnored(
                f"GPU {gpu.name} cannot be kept time-sliced: Harvester {version} puts every GPU that can do MIG"
                f" into MIG mode and ignores the annotation {r.SKIP_MIG_ANNOTATION}.",
                hint="Harvester 1.9 is the first that reads it. Until then use MIG profiles on this GPU.",
            )
        if not gpu.sharing:
            steps = self._mode_steps(gpu, TIME_SLICED) if gpu.mode == MIG else []
            if request.enable_sriov:
                self._may_share(gpu)
                steps.append(Step(ENABLE_SRIOV, gpu.node, gpu.name))
            return target, steps
        if gpu.mode != MIG:
            return target, []
        self._may_change(gpu, "is in MIG mode and should be time-sliced")
        return target, self._restart(gpu, TIME_SLICED)

    def _mode_steps(self, gpu: Gpu, mode: str) -> list[Step]:
        marked = skips_mig(self._snapshot.gpus.items[gpu.name])
        if marked == (mode == TIME_SLICED):
            return []
        before = TIME_SLICED if mode == MIG else MIG
        return [Step(SET_MODE, gpu.node, gpu.name, before=before, after=mode)]

    def _restart(self, gpu: Gpu, mode: str) -> list[Step]:
        """Disable SR-IOV, set the mode and enable SR-IOV: Harvester reads the mode only while it enables SR-IOV."""
        found = configuration(self._snapshot, gpu.name)
        steps: list[Step] = []
        if found and found.enabled:
            steps.append(
                Step(
                    REMOVE_MIG_INSTANCES,
                    gpu.node,
                    gpu.name,
                    before=format_instances(found.instances),
                    after=format_instances({}),
                )
            )
        return [
            *steps,
            Step(DISABLE_SRIOV, gpu.node, gpu.name),
            *self._mode_steps(gpu, mode),
            Step(ENABLE_SRIOV, gpu.node, gpu.name),
        ]

    # Checks

    def _may_share(self, gpu: Gpu) -> None:
        if gpu.blocked:
            raise GpuBlocked(
                f"SR-IOV cannot be enabled on GPU {gpu.name}: {gpu.blocked}.",
                hint="Delete the PCIDeviceClaim of that name, or leave the GPU out.",
            )
        if not self._request.enable_sriov:
            raise NeedsSriov(
                f"SR-IOV is off on GPU {gpu.name}, and without it there are no MIG instances.",
                hint="Set enable_sriov: true, or switch it on with vgpu.fleet.harvester_sriov_gpu.",
            )

    def _may_change(self, gpu: Gpu, why: str) -> None:
        if not self._request.relayout:
            raise NeedsRelayout(
                f"GPU {gpu.name} {why}.",
                hint="Set relayout: true to have it disabled, changed and enabled again, which needs all its vGPUs"
                " disabled.",
            )
        self._check_no_vgpus(gpu, f"change GPU {gpu.name}, which {why}")

    def _check_no_vgpus(self, gpu: Gpu, action: str) -> None:
        filled = _filled(gpu)
        held = [slot for slot in filled if slot.holders]
        if held:
            raise DeviceInUse(held, action)
        self._check_unused(gpu, action)
        if filled:
            named = join_names(f"{slot.name} ({slot.profile or slot.wanted})" for slot in filled)
            raise VgpusEnabled(
                f"Cannot {action}: it has enabled vGPUs: {named}.",
                hint="Disable them first with vgpu.fleet.harvester_vgpu; no VM refers to them.",
            )

    def _check_unused(self, gpu: Gpu, action: str) -> None:
        """Refuse to change instances that a running VM uses, including a device that does not show its type.

        A VM that only names an empty device has no vGPU yet, and may be waiting for these instances.
        """
        naming = self._snapshot.users.holders
        used = [
            slot
            for slot in gpu.ordered_slots
            if slot.in_use and (slot.profile or any(holder not in naming(slot.name) for holder in slot.holders))
        ]
        if used:
            raise DeviceInUse(used, action)


def _filled(gpu: Gpu) -> list[Slot]:
    return [slot for slot in gpu.ordered_slots if not slot.empty]
