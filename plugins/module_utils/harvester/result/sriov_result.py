# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The result of harvester_sriov_gpu."""

from __future__ import annotations

from dataclasses import dataclass

from ..decide.sriov import SriovPlan
from .gpu_task import GpuTaskResult
from .records import Record, diff, gpu_records
from .summaries import FULL, gpu_summaries


@dataclass(frozen=True)
class SriovResult(GpuTaskResult[SriovPlan]):
    """The result of harvester_sriov_gpu."""

    detail: str = FULL

    def as_result(self) -> Record:
        """Return the keys that the module documents."""
        plan = self.planned.plan
        gpus = gpu_records if self.detail == FULL else gpu_summaries
        return {
            "changed": bool(plan.steps),
            "gpus": gpus(self.applied.fleet, plan.gpus),
            "steps": self.steps,
            "unsettled": self.unsettled,
            "diff": diff(plan.fleet, plan.after, plan.gpus),
        }
