# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply the steps of a plan to a cluster, or send them as a dry run in check mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import join_names
from ...fleet.model import Fleet
from ...planning.steps import Step
from .. import paths as r
from ..cluster import Cluster
from ..conditions import Condition, VgpuTypePermitted
from ..read.permitted_devices import REPAIR_HINT
from ..read.snapshot import Snapshot

if TYPE_CHECKING:
    from .layout_journal import LayoutJournal


@dataclass(frozen=True)
class ApplyResult:
    """The fleet after the task, or its prediction in check mode, and the steps that were or would be applied."""

    fleet: Fleet
    steps: Sequence[Step]
    warnings: Sequence[str] = ()
    # The last state that was watched. None if the task did not wait.
    snapshot: Snapshot | None = None
    # Resources that were or would be added to KubeVirt's list of permitted devices.
    permitted: Sequence[str] = ()


def apply_steps(
    cluster: Cluster,
    steps: Sequence[Step],
    conditions: Sequence[Condition],
    after: Fleet,
    *,
    check_mode: bool,
    wait: bool,
    seconds: float,
    in_journal: bool = False,
    journal: LayoutJournal | None = None,
) -> ApplyResult:
    """Apply the steps and wait for the conditions. In check mode, send the steps as a dry run and return `after`.

    Refuse GPUs that carry the journal of a run, unless `in_journal` says that it is the caller's. GPUs that lose
    vGPUs, instances or SR-IOV before they get new ones have an entry in `journal` during the change.
    """
    if not in_journal:
        _refuse_held(cluster, steps)
    if not steps and (
        check_mode or not wait or not any(condition.missing(cluster.snapshot) for condition in conditions)
    ):
        return _predicted(cluster, steps, conditions, after, wait=wait)
    # Most tasks have nothing to apply and do not need the runner.
    from . import runner

    if check_mode:
        runner.dry_run(cluster.api, cluster.snapshot, steps)
        return _predicted(cluster, steps, conditions, after, wait=wait)
    if journal:
        journal.plan(cluster.snapshot, runner.steps_by_gpu(steps))
    step_runner = runner.StepRunner(cluster.api, cluster.snapshot, wait=wait, seconds=seconds, journal=journal)
    done = step_runner.run(steps, conditions)
    return ApplyResult(done.snapshot.fleet, done.steps(steps), done.warnings, done.snapshot, done.permitted)


def _predicted(
    cluster: Cluster, steps: Sequence[Step], conditions: Sequence[Condition], after: Fleet, *, wait: bool
) -> ApplyResult:
    """Return the result of a task that is in check mode or does not wait.

    Warn about types that vGPUs have and KubeVirt does not permit. Only a task that waits adds them to the list.
    """
    lacking = _unpermitted(cluster, conditions)
    if not lacking:
        return ApplyResult(after, steps)
    remedy = "The task adds it to the list of permitted devices, unless Harvester does." if wait else REPAIR_HINT
    warning = f"KubeVirt does not permit {join_names(lacking)}, so no VM can start. {remedy}"
    return ApplyResult(after, steps, [warning], permitted=lacking if wait else ())


def _unpermitted(cluster: Cluster, conditions: Sequence[Condition]) -> list[str]:
    """Return the resources of existing vGPUs that the task is about and KubeVirt does not permit."""
    existing = {cluster.version.resource(name) for name in cluster.snapshot.fleet.not_permitted or ()}
    return [
        condition.resource
        for condition in conditions
        if isinstance(condition, VgpuTypePermitted) and condition.resource in existing
    ]


def _refuse_held(cluster: Cluster, steps: Sequence[Step]) -> None:
    gpus = [cluster.snapshot.gpus.items[name] for name in sorted({step.gpu for step in steps})]
    if any(r.JOURNAL_ANNOTATION in (gpu["metadata"].get("annotations") or {}) for gpu in gpus):
        from . import journal

        journal.refuse_held(gpus=gpus)
