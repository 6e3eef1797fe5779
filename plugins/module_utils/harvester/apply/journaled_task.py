# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A task that changes layouts under a journal: it recovers what was cut off before, then plans and applies."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.apply import ApplyResult, apply_steps
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.conditions import Condition
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.settled_plan import Planned, plan_when_settled
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step

if TYPE_CHECKING:
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.layout_journal import (
        GpuLayout,
        LayoutJournal,
    )

# What does not make a request another one.
UNIMPORTANT = frozenset({"wait", "wait_timeout", "fail_fast", "take_over"})


class HasSteps(Protocol):
    @property
    def steps(self) -> Sequence[Step]: ...


P = TypeVar("P", bound=HasSteps)


@dataclass
class JournaledTask:
    """`request` is what the task asks for, and `said` the same in words."""

    cluster: Cluster
    request: Mapping[str, object]
    said: str
    take_over: bool = False
    check_mode: bool = False
    finished: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    _in_journal: bool = False

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        module: str,
        params: Mapping[str, Any],
        said: object,
        options: Collection[str],
        check: bool,
    ) -> JournaledTask:
        """`options` are all of the module's; those of the connection are not part of what it asks for."""
        asked = {name: params[name] for name in sorted(set(options) - UNIMPORTANT)}
        return cls(cluster, {"module": module, **asked}, f"{module} {said}", params["take_over"], check)

    def plan(
        self,
        make: Callable[[Cluster], P],
        *,
        concerned: Callable[[Cluster], Collection[str]],
        touched: Callable[[P], Collection[str]],
        preview: Callable[[Cluster, Sequence[Step], Sequence[GpuLayout]], P],
        seconds: float,
    ) -> Planned[P]:
        """Plan once nothing is left of runs that were cut off.

        In check mode such a run is not finished, and `preview` makes a plan of what is left of it.
        """
        gpus = self.cluster.snapshot.gpus.items.values()
        if any(r.JOURNAL_ANNOTATION in (gpu["metadata"].get("annotations") or {}) for gpu in gpus):
            # Most tasks meet no journal.
            from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import layout_journal

            journal = self._journal()
            with journal.keeper:
                found = layout_journal.recovered(
                    self.cluster,
                    journal,
                    concerned,
                    take_over=self.take_over,
                    check_mode=self.check_mode,
                    seconds=seconds,
                )
            self.finished, self.undone = found.finished, found.undone
            if self.check_mode and found.pending:
                self._in_journal = True
                layouts = found.layouts()
                plan = preview(self.cluster, layout_journal.steps_of(self.cluster, layouts), layouts)
                lines = (*found.lines(), "What is left to do is planned after that.")
                return Planned(self.cluster, plan, seconds, lines)
            found.refuse_others(lambda cluster: bool(make(cluster).steps))
            self.cluster = found.cluster
        return plan_when_settled(
            self.cluster, make, concerned=concerned, touched=touched, check_mode=self.check_mode, seconds=seconds
        )

    def apply(self, planned: Planned[P], goals: Sequence[Condition], predicted: Fleet, *, wait: bool) -> ApplyResult:
        def apply(journal: LayoutJournal | None = None) -> ApplyResult:
            return apply_steps(
                planned.cluster,
                planned.plan.steps,
                goals,
                predicted,
                check_mode=self.check_mode,
                wait=wait,
                seconds=planned.seconds,
                in_journal=self._in_journal,
                journal=journal,
            )

        if self.check_mode or not planned.plan.steps:
            return apply()
        journal = self._journal()
        with journal.keeper:
            return apply(journal)

    @property
    def changed(self) -> bool:
        """Whether anything was changed, or would be, before the plan itself."""
        return bool(self.finished or self.undone)

    def _journal(self) -> LayoutJournal:
        from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.layout_journal import LayoutJournal

        return LayoutJournal(self.cluster.api, self.request, self.said)
