# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply the steps of a plan to a cluster, or ask the server in check mode whether it would accept them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.conditions import Condition
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.snapshot import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step

if TYPE_CHECKING:
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.layout_journal import LayoutJournal


@dataclass(frozen=True)
class ApplyResult:
    """The fleet afterwards, or as it would be, and the steps that were or would be taken."""

    fleet: Fleet
    steps: Sequence[Step]
    warnings: Sequence[str] = ()
    # What was seen at the end; None where nothing was looked at again.
    snapshot: Snapshot | None = None


def apply_steps(
    cluster: Cluster,
    steps: Sequence[Step],
    goals: Sequence[Condition],
    predicted: Fleet,
    *,
    check_mode: bool,
    wait: bool,
    seconds: float,
    in_journal: bool = False,
    journal: LayoutJournal | None = None,
) -> ApplyResult:
    """Take the steps and wait for the goals; in check mode only ask whether the steps would be accepted.

    `in_journal` is for the run whose journal the GPUs carry. Anybody else is refused. GPUs on which something is
    taken away before something is built get an entry in `journal` for that time.
    """
    if not in_journal:
        _refuse_held(cluster, steps)
    if not steps and (check_mode or not wait or not any(goal.missing(cluster.snapshot) for goal in goals)):
        return ApplyResult(predicted, steps)
    # Most tasks find everything in place and need none of this.
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import runner as execution

    if check_mode:
        execution.dry_run(cluster.api, cluster.snapshot, steps)
        return ApplyResult(predicted, steps)
    if journal:
        journal.plan(cluster.snapshot, execution.steps_by_gpu(steps))
    run = execution.StepRunner(cluster.api, cluster.snapshot, wait=wait, seconds=seconds, journal=journal)
    outcome = run.run(steps, goals)
    return ApplyResult(outcome.snapshot.fleet, outcome.steps(steps), outcome.warnings, outcome.snapshot)


def _refuse_held(cluster: Cluster, steps: Sequence[Step]) -> None:
    gpus = [cluster.snapshot.gpus.items[name] for name in sorted({step.gpu for step in steps})]
    if any(r.JOURNAL_ANNOTATION in (gpu["metadata"].get("annotations") or {}) for gpu in gpus):
        from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply import journal

        journal.refuse_held(gpus=gpus)
