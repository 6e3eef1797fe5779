# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The results of the modules that change GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.layout import VgpuPlan
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.mig import MigPlan
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.sriov import SriovPlan
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.records import (
    Record,
    diff,
    gpu_records,
    profile_records,
    vgpu_records,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import after_steps

if TYPE_CHECKING:
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.apply import ApplyResult
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.task import JournaledTask
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.settled_plan import Planned

P = TypeVar("P", SriovPlan, MigPlan, VgpuPlan)


@dataclass(frozen=True)
class _GpuTaskResult(Generic[P]):
    """The common part of the results: the plan, and what was applied of it."""

    planned: Planned[P]
    applied: ApplyResult

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings about GPUs that have not settled, of the plan and of its steps."""
        return (*self.planned.warnings, *self.planned.plan.warnings, *self.applied.warnings)

    @property
    def _steps(self) -> list[Record]:
        return [step.as_dict() for step in self.applied.steps]

    @property
    def _unsettled(self) -> list[Record]:
        return [gpu.as_dict() for gpu in self.planned.unsettled]


@dataclass(frozen=True)
class SriovResult(_GpuTaskResult[SriovPlan]):
    """The result of harvester_sriov_gpu."""

    def as_result(self) -> Record:
        """Return the keys that the module documents."""
        plan = self.planned.plan
        return {
            "changed": bool(plan.steps),
            "gpus": gpu_records(self.applied.fleet, plan.gpus),
            "steps": self._steps,
            "unsettled": self._unsettled,
            "diff": diff(plan.fleet, plan.after, plan.gpus),
        }


@dataclass(frozen=True)
class MigResult(_GpuTaskResult[MigPlan]):
    """The result of harvester_mig."""

    task: JournaledTask

    def as_result(self) -> Record:
        """Return the keys that the module documents."""
        plan, task = self.planned.plan, self.task
        snapshot = self.applied.snapshot or self.planned.cluster.snapshot
        return {
            "changed": bool(plan.steps) or task.changed,
            "gpus": plan.predicted_records if task.check_mode else plan.records(snapshot),
            "steps": self._steps,
            "finished": task.finished,
            "undone": task.undone,
            "unsettled": self._unsettled,
            "diff": plan.diff(),
        }


@dataclass(frozen=True)
class VgpuResult(_GpuTaskResult[VgpuPlan]):
    """The result of harvester_vgpu."""

    task: JournaledTask

    def as_result(self) -> Record:
        """Return the keys that the module documents."""
        plan, task = self.planned.plan, self.task
        vgpus = vgpu_records(self.applied.fleet, plan.scope.includes)
        # A step on a GPU that had no virtual functions yet gets its slot while the plan is applied.
        same = tuple(self.applied.steps) == plan.steps
        after = plan.after if same else after_steps(plan.fleet, self.applied.steps)
        return {
            "changed": bool(plan.steps) or task.changed,
            "vgpus": vgpus,
            "profiles": profile_records(vgpus, plan.version),
            "plan": {**plan.plan.as_dict(), "steps": self._steps},
            "finished": task.finished,
            "undone": task.undone,
            "unsettled": self._unsettled,
            "diff": diff(plan.fleet, after, plan.touched),
        }
