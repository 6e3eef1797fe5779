# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of harvester_mig."""

from __future__ import annotations

from dataclasses import dataclass

from ..apply.journaled_task import JournaledTask
from ..decide.mig import MigPlan
from .gpu_task import GpuTaskResult
from .records import Record


@dataclass(frozen=True)
class MigResult(GpuTaskResult[MigPlan]):
    """The result of harvester_mig."""

    task: JournaledTask

    def as_result(self) -> Record:
        """Return the keys that the module documents."""
        plan, task = self.planned.plan, self.task
        snapshot = self.applied.snapshot or self.planned.cluster.snapshot
        return {
            "changed": bool(plan.steps) or task.changed,
            "gpus": plan.predicted_records if task.check_mode else plan.records(snapshot),
            "steps": self.steps,
            "finished": task.finished,
            "undone": task.undone,
            "unsettled": self.unsettled,
            "diff": plan.diff(),
        }
