# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Common part of the results of the modules that change GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from ..apply.apply import ApplyResult
from ..apply.task import P
from ..settled_plan import Planned
from .records import Record


@dataclass(frozen=True)
class GpuTaskResult(Generic[P]):
    """The plan, and what was applied of it."""

    planned: Planned[P]
    applied: ApplyResult

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the warnings about GPUs that have not settled, of the plan and of its steps."""
        of_version = self.planned.cluster.version.warnings
        return (*of_version, *self.planned.warnings, *self.planned.plan.warnings, *self.applied.warnings)

    @property
    def steps(self) -> list[Record]:
        return [step.as_dict() for step in self.applied.steps]

    @property
    def unsettled(self) -> list[Record]:
        return [gpu.as_dict() for gpu in self.planned.unsettled]
