# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A Harvester cluster as the modules use it: read once, then changed by steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import access, resources as r, snapshot as snapshots
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.api import ApiServer
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.era import Era
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.holding import with_running_vms_bound
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.readiness import Goal
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.snapshot import Snapshot
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step

if TYPE_CHECKING:
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import settling

P = TypeVar("P")
# Seconds between two looks at GPUs that are still changing: at what watches brought, or at lists that are read again.
LOOK_PAUSE = 0.2
READ_PAUSE = 2.0


@dataclass(frozen=True)
class Planned(Generic[P]):
    """A plan, the cluster as it was planned with, and how much of the time is left for carrying it out.

    `unsettled` are the GPUs that matter for the plan and were still changing when it was made.
    """

    cluster: Cluster
    plan: P
    seconds: float
    warnings: tuple[str, ...] = ()
    unsettled: tuple[settling.Unsettled, ...] = ()


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
    # As the task gave it; nothing where the cluster itself was asked.
    version: str | None = None

    @classmethod
    def connect(cls, params: Mapping[str, Any]) -> Cluster:
        api, version = ApiServer(access.from_options(params)), params.get("harvester_version")
        return cls(api, snapshots.read(api, version), version)

    def read_again(self) -> Cluster:
        return replace(self, snapshot=snapshots.read(self.api, self.version))

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

    def plan(
        self,
        make: Callable[[Cluster], P],
        *,
        concerned: Callable[[Cluster], Collection[str]],
        touched: Callable[[P], Collection[str]] = lambda _plan: (),
        check_mode: bool,
        seconds: float,
        watch: bool = True,
        until_counted: bool = False,
    ) -> Planned[P]:
        """Make a plan once the GPUs that matter for it have settled.

        If the plan is refused, those are the GPUs `concerned`, else the ones that it touches. A plan that changes
        nothing waits for nobody, and neither does check mode: there the answer says that it is not final. Without
        `watch` the lists are read again instead, for callers that are not allowed to watch.
        """
        cluster, waited = self, 0.0
        stuck: frozenset[str] = frozenset()
        while True:
            refused: FleetError | None = None
            plan: P | None = None
            try:
                plan = make(cluster)
                gpus = touched(plan)
            except FleetError as error:
                refused, gpus = error, _concerned(concerned, cluster, error)
            if not gpus:
                return _decided(Planned(cluster, plan, seconds - waited), refused)
            # Only here: most tasks find nothing to do.
            from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import settling

            find = partial(settling.unsettled, gpus=gpus, now=cluster.api.now, until_counted=until_counted)
            found = find(cluster.snapshot)
            moving = [one for one in found if one.moving and one.gpu not in stuck]
            if check_mode or not moving or waited >= seconds:
                found = tuple(settling.stuck(one) if one.gpu in stuck else one for one in found)
                notes = settling.notes(found, check_mode=check_mode, seconds=waited, refused=bool(refused))
                return _decided(Planned(cluster, plan, seconds - waited, tuple(notes), found), refused)
            result = cluster.settle(moving, until_counted=until_counted, seconds=seconds - waited, watch=watch)
            waited = min(seconds, waited + result.seconds)
            if result.verdict == settling.STUCK:
                stuck |= {one.gpu for one in result.unsettled}
            # Not what the wait saw: VMs may have started meanwhile.
            cluster = cluster.read_again()

    def settle(
        self, moving: Sequence[settling.Unsettled], *, until_counted: bool, seconds: float, watch: bool
    ) -> settling.Settling:
        """Wait for GPUs that are still changing."""
        from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import settling
        from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.observation import Observation

        gpus = [one.gpu for one in moving]

        def find(snapshot: Snapshot) -> tuple[settling.Unsettled, ...]:
            return settling.unsettled(snapshot, gpus, self.api.now, until_counted=until_counted)

        if not watch:
            return settling.wait_until_settled(
                lambda: self.read_again().snapshot, find, seconds=seconds, pause=READ_PAUSE
            )
        watched = {path: getattr(self.snapshot, name) for path, name in snapshots.OBSERVABLE.items()}
        if not self.era.has_mig:
            del watched[r.MIG_CONFIGURATIONS]
        if not until_counted:
            del watched[r.NODES]
        with Observation(self.api, watched, seconds=seconds) as seen:
            seen.open()

            def look() -> Snapshot:
                seen.stop_if_given_up()
                lists: dict[str, Any] = {snapshots.OBSERVABLE[path]: seen.listing(path) for path in watched}
                return replace(self.snapshot, **lists)

            return settling.wait_until_settled(look, find, seconds=seconds, pause=LOOK_PAUSE)

    def apply(
        self,
        steps: Sequence[Step],
        goals: Sequence[Goal],
        predicted: Fleet,
        *,
        check_mode: bool,
        wait: bool,
        seconds: float,
        in_journal: bool = False,
    ) -> Applied:
        """Take the steps and wait for the goals; in check mode only ask whether the steps would be accepted.

        `in_journal` is for the run whose journal the GPUs carry. Anybody else is refused.
        """
        if not in_journal:
            self._refuse_held(steps)
        if not steps and (check_mode or not wait or not any(goal.lacking(self.snapshot) for goal in goals)):
            return Applied(predicted, steps)
        # Most tasks find everything in place and need none of this.
        from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import execution

        if check_mode:
            execution.rehearse(self.api, self.snapshot, steps)
            return Applied(predicted, steps)
        outcome = execution.Execution(self.api, self.snapshot, wait=wait, seconds=seconds).run(steps, goals)
        return Applied(outcome.snapshot.fleet, outcome.steps(steps), outcome.warnings, outcome.snapshot)

    def _refuse_held(self, steps: Sequence[Step]) -> None:
        gpus = [self.snapshot.gpus.items[name] for name in sorted({step.gpu for step in steps})]
        if any(r.JOURNAL_ANNOTATION in (gpu["metadata"].get("annotations") or {}) for gpu in gpus):
            from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import journal

            journal.refuse_held(gpus=gpus)


def _concerned(concerned: Callable[[Cluster], Collection[str]], cluster: Cluster, error: FleetError) -> Collection[str]:
    """The GPUs on whose state a refusal depends."""
    from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import settling

    if error.code not in settling.DEPENDS_ON_DEVICES:
        return ()
    try:
        return concerned(cluster)
    except FleetError:
        # It names a node or a GPU that does not exist, which the plan has found out already.
        return ()


def _decided(planned: Planned[P | None], refused: FleetError | None) -> Planned[P]:
    if refused is None:
        return cast("Planned[P]", planned)
    if planned.unsettled:
        moving = any(one.moving for one in planned.unsettled)
        refused.not_final(planned.warnings, [one.as_dict() for one in planned.unsettled], moving=moving)
    raise refused
