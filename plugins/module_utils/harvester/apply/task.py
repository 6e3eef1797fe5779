# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks that change GPUs: plan a request when the GPUs have settled, then apply it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from ...fleet.model import Fleet
from ...planning.steps import Step
from ..cluster import Cluster
from ..conditions import Condition
from ..read.snapshot import Snapshot
from ..settled_plan import Planned, plan_when_settled
from ..time_limit import TimeLimit
from .apply import ApplyResult, apply_steps

if TYPE_CHECKING:
    from .layout_journal import LayoutJournal


class GpuPlan(Protocol):
    """A plan that owns its steps, its wait conditions and the fleet after it."""

    @property
    def steps(self) -> Sequence[Step]:
        """Return the changes, in order on each GPU."""

    @property
    def touched(self) -> Collection[str]:
        """Return the names of the GPUs that the steps change."""

    @property
    def conditions(self) -> Sequence[Condition]:
        """Return the conditions to wait for."""

    @property
    def after(self) -> Fleet:
        """Return the fleet as it is after the steps."""

    @property
    def warnings(self) -> Sequence[str]:
        """Return the warnings about the plan."""


P = TypeVar("P", bound=GpuPlan)
P_co = TypeVar("P_co", bound=GpuPlan, covariant=True)


class GpuRequest(Protocol[P_co]):
    """A request for GPUs that can be planned."""

    def selected(self, fleet: Fleet) -> Collection[str]:
        """Return the names of the GPUs that the request selects."""

    def plan_for(self, fleet: Fleet, snapshot: Snapshot) -> P_co:
        """Plan the request."""


@dataclass
class GpuTask:
    """A task on a cluster, with its time limit."""

    cluster: Cluster
    check_mode: bool = False
    wait: bool = True
    limit: TimeLimit = field(default_factory=lambda: TimeLimit.of(None))

    def plan(self, request: GpuRequest[P]) -> Planned[P]:
        """Plan the request when the GPUs that matter for it have settled."""
        return plan_when_settled(
            self.cluster,
            lambda cluster: request.plan_for(cluster.fleet_for_planning, cluster.snapshot),
            concerned=lambda cluster: request.selected(cluster.snapshot.fleet),
            touched=lambda plan: plan.touched,
            check_mode=self.check_mode,
            seconds=self.limit.until_settled(self.cluster.snapshot),
        )

    def apply(self, planned: Planned[P]) -> ApplyResult:
        """Apply the plan and wait for its conditions, or send it as a dry run in check mode."""
        return self._apply(planned)

    def _apply(
        self, planned: Planned[P], *, in_journal: bool = False, journal: LayoutJournal | None = None
    ) -> ApplyResult:
        return apply_steps(
            planned.cluster,
            planned.plan.steps,
            planned.plan.conditions,
            planned.plan.after,
            check_mode=self.check_mode,
            wait=self.wait,
            seconds=self.limit.for_steps(planned.plan.steps, planned.cluster.version, left=planned.seconds),
            in_journal=in_journal,
            journal=journal,
        )
