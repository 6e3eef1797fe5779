# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of harvester_vgpu."""

from __future__ import annotations

from dataclasses import dataclass

from ...planning.steps import after_steps
from ..apply.journaled_task import JournaledTask
from ..decide.layout import VgpuPlan
from .gpu_task import GpuTaskResult
from .records import Record, diff, profile_records, vgpu_records


@dataclass(frozen=True)
class VgpuResult(GpuTaskResult[VgpuPlan]):
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
            "changed": bool(plan.steps or self.applied.permitted) or task.changed,
            "vgpus": vgpus,
            "profiles": profile_records(vgpus, plan.version),
            "plan": {**plan.plan.as_dict(), "steps": self.steps},
            "finished": task.finished,
            "undone": task.undone,
            "unsettled": self.unsettled,
            "permitted": list(self.applied.permitted),
            "diff": diff(plan.fleet, after, plan.touched),
        }
