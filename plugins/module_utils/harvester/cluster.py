# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Harvester cluster as the modules use it: read once, then changed by steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import access, snapshot as snapshots
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.api import ApiServer
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.era import Era
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.holding import with_running_vms_bound
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.readiness import Goal
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.snapshot import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step


@dataclass(frozen=True)
class Applied:
    """The fleet afterwards, or as it would be, and the steps that were or would be taken."""

    fleet: Fleet
    steps: Sequence[Step]
    warnings: Sequence[str] = ()
    # What was seen at the end; None where nothing was looked at again.
    snapshot: Snapshot | None = None


@dataclass(frozen=True)
class Cluster:
    api: ApiServer
    snapshot: Snapshot

    @classmethod
    def connect(cls, params: Mapping[str, Any]) -> Cluster:
        api = ApiServer(access.from_options(params))
        return cls(api, snapshots.read(api, params.get("harvester_version")))

    @property
    def era(self) -> Era:
        return self.snapshot.era

    @cached_property
    def safe_fleet(self) -> Fleet:
        """The fleet to plan changes with: everything that a running VM may have counts as held."""
        return with_running_vms_bound(self.snapshot.fleet)

    @property
    def functions(self) -> dict[str, frozenset[str]]:
        """The names of the vGPU devices of each GPU."""
        children = self.snapshot.children
        return {gpu: frozenset(vgpu["metadata"]["name"] for vgpu in vgpus) for gpu, vgpus in children.items()}

    def apply(
        self,
        steps: Sequence[Step],
        goals: Sequence[Goal],
        predicted: Fleet,
        *,
        check_mode: bool,
        wait: bool,
        seconds: float,
    ) -> Applied:
        """Take the steps and wait for the goals; in check mode only ask whether the steps would be accepted."""
        if not steps and (check_mode or not wait or not any(goal.lacking(self.snapshot) for goal in goals)):
            return Applied(predicted, steps)
        # Most tasks find everything in place and need none of this.
        from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import execution

        if check_mode:
            execution.rehearse(self.api, self.snapshot, steps)
            return Applied(predicted, steps)
        outcome = execution.Execution(self.api, self.snapshot, wait=wait, seconds=seconds).run(steps, goals)
        return Applied(outcome.snapshot.fleet, outcome.steps(steps), outcome.warnings, outcome.snapshot)
