# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tasks that change layouts under a journal, so that an interrupted run can be finished or undone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...fleet.model import Fleet
from ...planning.steps import Step
from .. import paths as r
from ..cluster import Cluster
from ..read.snapshot import Snapshot
from ..settled_plan import Planned
from ..time_limit import TimeLimit
from .apply import ApplyResult
from .task import GpuRequest, GpuTask, P, P_co

if TYPE_CHECKING:
    from .layout_journal import GpuLayout, LayoutJournal

# Options that do not change the target of a task.
NOT_IN_REQUEST = frozenset({"wait", "wait_timeout", "fail_fast", "take_over"})


class ResumableRequest(GpuRequest[P_co], Protocol[P_co]):
    """A request whose interrupted runs can be finished."""

    def resume(self, fleet: Fleet, snapshot: Snapshot, steps: Sequence[Step], layouts: Sequence[GpuLayout]) -> P_co:
        """Plan the rest of an interrupted run."""


@dataclass
class JournaledTask(GpuTask):
    """A task that changes layouts under a journal: it finishes or undoes interrupted runs before it plans.

    `request` holds the options that define the target of the task, and `description` is the same as text. `finished`
    and `undone` are the interrupted runs.
    """

    request: Mapping[str, object] = field(default_factory=dict)
    description: str = ""
    take_over: bool = False
    finished: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    _in_journal: bool = False

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        module: str,
        params: Mapping[str, Any],
        request: object,
        options: Collection[str],
        check_mode: bool,
    ) -> JournaledTask:
        """Create the task of a module. `options` are the module's own, without those of the connection."""
        own = {name: params[name] for name in sorted(set(options) - NOT_IN_REQUEST)}
        return cls(
            cluster,
            check_mode,
            params["wait"],
            TimeLimit.of(params["wait_timeout"]),
            request={"module": module, **own},
            description=f"{module} {request}",
            take_over=params["take_over"],
        )

    def recover_and_plan(self, request: ResumableRequest[P]) -> Planned[P]:
        """Finish or undo interrupted runs on the selected GPUs, then plan the request.

        In check mode an interrupted run is not finished: the plan consists of its remaining steps.
        """
        gpus = self.cluster.snapshot.gpus.items.values()
        if any(r.JOURNAL_ANNOTATION in (gpu["metadata"].get("annotations") or {}) for gpu in gpus):
            # Most tasks find no journal.
            from . import layout_journal

            journal = self._journal()
            with journal.keeper:
                recovery = layout_journal.recovered(
                    self.cluster,
                    journal,
                    lambda cluster: request.selected(cluster.snapshot.fleet),
                    take_over=self.take_over,
                    check_mode=self.check_mode,
                    seconds=self.limit.seconds,
                )
            self.finished, self.undone = recovery.finished, recovery.undone
            if self.check_mode and recovery.pending:
                self._in_journal = True
                layouts = recovery.layouts()
                steps = layout_journal.steps_of(self.cluster, layouts)
                plan = request.resume(self.cluster.fleet_for_planning, self.cluster.snapshot, steps, layouts)
                lines = (*recovery.lines(), "What is left to do is planned after that.")
                return Planned(self.cluster, plan, self.limit.seconds, lines)
            recovery.refuse_others(
                lambda cluster: bool(request.plan_for(cluster.fleet_for_planning, cluster.snapshot).steps)
            )
            self.cluster = recovery.cluster
        return self.plan(request)

    def apply(self, planned: Planned[P]) -> ApplyResult:
        """Apply the plan under a journal, or send it as a dry run in check mode."""
        if self.check_mode or not planned.plan.steps:
            return self._apply(planned, in_journal=self._in_journal)
        journal = self._journal()
        with journal.keeper:
            return self._apply(planned, in_journal=self._in_journal, journal=journal)

    @property
    def changed(self) -> bool:
        """Return whether interrupted runs were, or would be, finished or undone."""
        return bool(self.finished or self.undone)

    def _journal(self) -> LayoutJournal:
        from .layout_journal import LayoutJournal

        return LayoutJournal(self.cluster.api, self.request, self.description)
