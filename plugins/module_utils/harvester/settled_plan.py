# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan a change once the GPUs that matter for it have settled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from ..errors import FleetError, join_names
from . import paths as r
from .cluster import Cluster
from .read import snapshot as snapshots
from .read.snapshot import Snapshot

if TYPE_CHECKING:
    from .read import settling

P = TypeVar("P")
# Seconds between two checks of GPUs that are still changing, either of the watched objects or of lists that are read
# again.
LOOK_PAUSE = 0.2
READ_PAUSE = 2.0


@dataclass(frozen=True)
class Planned(Generic[P]):
    """A plan, the cluster that it was made for, and the time that is left to apply it.

    `unsettled` holds the GPUs that matter for the plan and were still changing when it was made.
    """

    cluster: Cluster
    plan: P
    seconds: float
    warnings: tuple[str, ...] = ()
    unsettled: tuple[settling.Unsettled, ...] = ()


def plan_when_settled(
    cluster: Cluster,
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

    If the plan is refused, these are the GPUs `concerned`, otherwise the GPUs that the plan touches. A plan without
    changes does not wait, and neither does check mode, where a warning says that the result is not final. Without
    `watch`, the lists are read again instead, for callers that are not allowed to watch.
    """
    waited = 0.0
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
        # Import here: most tasks have nothing to change.
        from .read import settling

        find = partial(settling.unsettled, gpus=gpus, now=cluster.api.now, until_counted=until_counted)
        found = find(cluster.snapshot)
        moving = [gpu for gpu in found if gpu.moving and gpu.gpu not in stuck]
        if check_mode or not moving or waited >= seconds:
            found = tuple(settling.stuck(gpu) if gpu.gpu in stuck else gpu for gpu in found)
            notes = settling.notes(found, check_mode=check_mode, seconds=waited, refused=bool(refused))
            return _decided(Planned(cluster, plan, seconds - waited, tuple(notes), found), refused)
        result = _settle(cluster, moving, until_counted=until_counted, seconds=seconds - waited, watch=watch)
        waited = min(seconds, waited + result.seconds)
        if result.verdict == settling.STUCK:
            stuck |= {gpu.gpu for gpu in result.unsettled}
        # Read again instead of using the watched objects: VMs may have started in the meantime.
        cluster = cluster.read_again()


def _settle(
    cluster: Cluster, moving: Sequence[settling.Unsettled], *, until_counted: bool, seconds: float, watch: bool
) -> settling.Settling:
    """Wait for GPUs that are still changing."""
    from ..kube.watcher import Watcher
    from .read import settling

    gpus = [gpu.gpu for gpu in moving]

    def find(snapshot: Snapshot) -> tuple[settling.Unsettled, ...]:
        return settling.unsettled(snapshot, gpus, cluster.api.now, until_counted=until_counted)

    if not watch:
        return settling.wait_until_settled(
            lambda: cluster.read_again().snapshot, find, seconds=seconds, pause=READ_PAUSE
        )
    watched = {path: getattr(cluster.snapshot, name) for path, name in snapshots.OBSERVABLE.items()}
    # Whether KubeVirt permits a vGPU makes no difference for the GPUs.
    del watched[r.KUBEVIRTS]
    if not cluster.version.has_mig:
        del watched[r.MIG_CONFIGURATIONS]
    if not until_counted:
        del watched[r.NODES]
    with Watcher(cluster.api, watched, seconds=seconds) as seen:
        seen.describe = lambda: f"waiting for {join_names(gpus)} to settle: {moving[0].reason}"
        seen.open()

        def look() -> Snapshot:
            seen.raise_if_aborted()
            lists: dict[str, Any] = {snapshots.OBSERVABLE[path]: seen.listing(path) for path in watched}
            return replace(cluster.snapshot, **lists)

        return settling.wait_until_settled(look, find, seconds=seconds, pause=LOOK_PAUSE)


def _concerned(concerned: Callable[[Cluster], Collection[str]], cluster: Cluster, error: FleetError) -> Collection[str]:
    """Return the GPUs on whose state a refusal depends."""
    from .read import settling

    if error.code not in settling.DEPENDS_ON_DEVICES:
        return ()
    try:
        return concerned(cluster)
    except FleetError:
        # The request names a node or a GPU that does not exist. The plan has already reported it.
        return ()


def _decided(planned: Planned[P | None], refused: FleetError | None) -> Planned[P]:
    if refused is None:
        return cast("Planned[P]", planned)
    if planned.unsettled:
        moving = any(gpu.moving for gpu in planned.unsettled)
        refused.not_final(planned.warnings, [gpu.as_dict() for gpu in planned.unsettled], moving=moving)
    raise refused
