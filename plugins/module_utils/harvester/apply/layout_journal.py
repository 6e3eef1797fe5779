# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Journal of a change that removes something from a GPU before it creates something else, and recovery of the change.

A run that is interrupted in between leaves a GPU without the vGPUs, MIG instances or SR-IOV that it had, and no other
object records them. So the run first writes the current and the target layout to the GPU. Changes that only add or only
remove need no journal: running the same task again converges, and nothing is lost.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import FleetError, join_names
from ...fleet.mig import format_instances, read_wanted
from ...fleet.model import MIG, TIME_SLICED, Gpu, Slot
from ...kube.client import ApiClient, Json
from ...planning.steps import (
    CORRECT,
    CREATE_MIG_INSTANCES,
    DISABLE,
    DISABLE_SRIOV,
    ENABLE,
    ENABLE_SRIOV,
    REMOVE_MIG_INSTANCES,
    SET_MODE,
    Step,
    after_steps,
    partitioning,
)
from ..cluster import Cluster
from ..decide.in_use import DeviceInUse
from ..mig_conditions import configuration
from ..read.snapshot import Snapshot, skips_mig
from ..settled_plan import plan_when_settled
from . import journal
from .apply import apply_steps
from .journal import CHANGING, STOPPED, UNDOING, Entry

TAKING = (DISABLE, REMOVE_MIG_INSTANCES, DISABLE_SRIOV)
BUILDING = (ENABLE, CREATE_MIG_INSTANCES, ENABLE_SRIOV)
Instances = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class GpuLayout:
    """The layout of a GPU, current or target: vGPUs by device, their owners, SR-IOV, mode and MIG instances."""

    name: str
    vgpus: tuple[tuple[str, str], ...] = ()
    sriov: bool = True
    mode: str = TIME_SLICED
    instances: Instances = ()
    owners: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot, gpu: Gpu) -> GpuLayout:
        return cls(gpu.name, _vgpus(gpu), gpu.sharing, gpu.mode, _instances(snapshot, gpu.name), _owners(gpu))

    def after(self, snapshot: Snapshot, chain: Sequence[Step]) -> GpuLayout:
        """Return the layout after the steps of this GPU."""
        fleet = after_steps(snapshot.fleet, [step for step in chain if step.action in (DISABLE, ENABLE, CORRECT)])
        gpu = next(gpu for gpu in fleet.gpus if gpu.name == self.name)
        sriov, mode, instances = self.sriov, self.mode, self.instances
        for step in chain:
            if step.action in (ENABLE_SRIOV, DISABLE_SRIOV):
                sriov = step.action == ENABLE_SRIOV
            elif step.action == SET_MODE:
                mode = step.after or mode
            elif step.action == REMOVE_MIG_INSTANCES:
                instances = ()
            elif step.action == CREATE_MIG_INSTANCES:
                mode, instances = MIG, tuple(sorted(step.instances))
        return GpuLayout(self.name, _vgpus(gpu), sriov, mode, instances, _owners(gpu))

    def as_dict(self) -> Json:
        return {
            "vgpus": [list(vgpu) for vgpu in self.vgpus],
            "sriov": self.sriov,
            "mode": self.mode,
            "instances": [list(instance) for instance in self.instances],
            "owners": dict(self.owners),
        }

    @classmethod
    def read(cls, name: str, found: Mapping[str, Any]) -> GpuLayout:
        return cls(
            name,
            tuple((device, profile) for device, profile in found["vgpus"]),
            bool(found["sriov"]),
            found.get("mode") or TIME_SLICED,
            tuple((size, int(count)) for size, count in found.get("instances") or ()),
            tuple(sorted((found.get("owners") or {}).items())),
        )


def _vgpus(gpu: Gpu) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((slot.name, slot.profile or slot.wanted or "") for slot in gpu.slots if slot.wanted))


def _owners(gpu: Gpu) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((slot.name, slot.owner) for slot in gpu.slots if slot.wanted and slot.owner))


def _instances(snapshot: Snapshot, name: str) -> Instances:
    found = configuration(snapshot, name)
    if found is None or not found.enabled:
        return ()
    return tuple(sorted((size.name, count) for size, count in found.instances.items() if count))


def _own_names(snapshot: Snapshot, name: str, instances: Instances) -> Instances:
    """Return instances under the names of the GPU: before SR-IOV was enabled, a plan had only those of the catalog."""
    found = configuration(snapshot, name)
    if found is None:
        return instances
    own = found.own({read_wanted(one).size: count for one, count in instances})
    return tuple(sorted((size.name, count) for size, count in own.items()))


def needs_journal(chain: Sequence[Step]) -> bool:
    """Return whether the steps on a GPU remove something before they create something."""
    taken = False
    for step in chain:
        # Creating MIG instances on a GPU that has instances removes those first.
        taken = taken or step.action in TAKING or (step.action == CREATE_MIG_INSTANCES and bool(step.before))
        if taken and step.action in BUILDING:
            return True
    return False


def steps_toward(snapshot: Snapshot, gpu: Gpu, layout: GpuLayout) -> list[Step]:
    """Return the steps from the current state of a GPU to a layout, however much of it was already applied."""
    now = GpuLayout.of(snapshot, gpu)
    layout = replace(layout, instances=_own_names(snapshot, gpu.name, layout.instances))
    marked = skips_mig(snapshot.gpus.items[gpu.name])
    mode_is_wrong = layout.mode != gpu.mode
    restart = gpu.sharing and (mode_is_wrong or not layout.sriov)
    cut_anew = layout.sriov and layout.mode == MIG and (restart or now.instances != layout.instances)
    wanted = dict(layout.vgpus)
    filled = [slot for slot in gpu.ordered_slots if not slot.empty]
    leaving = [slot for slot in filled if restart or cut_anew or not _is(slot, wanted.get(slot.name))]
    used = [slot for slot in leaving if slot.holders]
    if used:
        raise DeviceInUse(used, f"bring GPU {gpu.name} to the layout in its journal")
    staying = {slot.name for slot in filled} - {slot.name for slot in leaving}

    def step(action: str, slot: str | None = None, before: str | None = None, after: str | None = None) -> Step:
        return Step(action, gpu.node, gpu.name, slot, before=before, after=after)

    steps = [step(DISABLE, slot.name, before=slot.profile or slot.wanted) for slot in leaving]
    instances = dict(now.instances)
    if restart:
        if now.instances:
            steps.append(_uncut(step, instances))
        steps.append(step(DISABLE_SRIOV))
    if mode_is_wrong and marked != (layout.mode == TIME_SLICED):
        steps.append(step(SET_MODE, before=gpu.mode, after=layout.mode))
    if layout.sriov and (restart or not gpu.sharing):
        steps.append(step(ENABLE_SRIOV))
    if cut_anew and layout.instances:
        steps.append(partitioning(gpu, {read_wanted(name).size: count for name, count in layout.instances}))
    elif cut_anew and now.instances and not restart:
        steps.append(_uncut(step, instances))
    owners = dict(layout.owners)
    return steps + [
        replace(step(ENABLE, name, after=profile), owner=owners.get(name))
        for name, profile in layout.vgpus
        if name not in staying
    ]


def _uncut(step: Callable[..., Step], instances: Mapping[str, int]) -> Step:
    sizes = {read_wanted(name).size: count for name, count in instances.items()}
    return step(REMOVE_MIG_INSTANCES, before=format_instances(sizes), after=format_instances({}))


def _is(slot: Slot, profile: str | None) -> bool:
    return profile is not None and slot.wanted == profile and slot.profile in (None, profile)


class LayoutJournal:
    """The journal entries of one task. `entry` identifies the task and its request."""

    def __init__(self, api: ApiClient, request: Mapping[str, object], task: str) -> None:
        self.keeper = journal.Keeper(api, secrets.token_hex(4))
        self.entry = Entry(
            self.keeper.run, journal.digest(request), journal.now(), journal.who(), phase=CHANGING, task=task
        )
        self._planned: dict[str, Entry] = {}
        self._adopted: set[str] = set()

    def plan(self, snapshot: Snapshot, chains: Iterable[Sequence[Step]]) -> None:
        """Record the current and the target layout of the GPUs that need a journal."""
        gpus = {gpu.name: gpu for gpu in snapshot.fleet.gpus}
        for chain in chains:
            name = chain[0].gpu
            if name not in self._planned and needs_journal(chain):
                before = GpuLayout.of(snapshot, gpus[name])
                self._planned[name] = replace(
                    self.entry,
                    gpus=(name,),
                    before=before.as_dict(),
                    after=before.after(snapshot, chain).as_dict(),
                )

    def adopt(self, name: str, entry: Entry, phase: str) -> None:
        """Continue the journal of a run that is dead."""
        own = replace(entry, run=self.keeper.run, by=self.entry.by, phase=phase)
        self._planned[name] = own
        self._adopted.add(name)
        self.keeper.take(journal.gpu_path(name), own, over=entry.run)

    def begin(self, name: str) -> Json | None:
        """Write the entry of a GPU before its first step. Return the GPU, or None if no entry was written."""
        path = journal.gpu_path(name)
        if name not in self._planned or path in self.keeper.held:
            return None
        return self.keeper.take(path, self._planned[name])

    def going_on(self) -> None:
        """Stop if another run has taken over the journal."""
        self.keeper.stop_if_lost()

    def end(self, name: str) -> None:
        """Remove the entry of a GPU after its last step."""
        if journal.gpu_path(name) in self.keeper.held:
            self.keeper.drop(journal.gpu_path(name))

    def release(self) -> None:
        """Remove the remaining entries of other runs, and start with an empty journal."""
        for path in list(self.keeper.held):
            self.keeper.drop(path)
        self._planned.clear()
        self._adopted.clear()

    def failed(self, name: str, *, touched: bool) -> None:
        """Leave the entry for the next run, and record that this run has ended."""
        path = journal.gpu_path(name)
        if path not in self.keeper.held:
            return
        if not touched and name not in self._adopted:
            self.keeper.drop(path)
            return
        try:
            self.keeper.take(path, replace(self.keeper.held[path], phase=STOPPED))
        except FleetError:
            # The next run then waits until it detects that this run is dead.
            return


@dataclass
class Recovery:
    """Interrupted runs on the GPUs of a task. The task finishes its own, and undoes others only with `take_over`."""

    journal: LayoutJournal
    cluster: Cluster
    gpus: frozenset[str]
    take_over: bool = False
    finished: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)

    @property
    def _found(self) -> dict[str, dict[str, Entry]]:
        """Return the journal entries of GPUs and VMs that concern the task, by run."""
        snapshot = self.cluster.snapshot
        every = journal.by_run(journal.entries(snapshot.gpus.items.values(), snapshot.vms.items.values()))
        here = {journal.gpu_path(name) for name in self.gpus}
        return {run: some for run, some in every.items() if self._is_own(some) or not here.isdisjoint(some)}

    def _is_own(self, some: Mapping[str, Entry]) -> bool:
        return next(iter(some.values())).request == self.journal.entry.request

    @property
    def own(self) -> dict[str, dict[str, Entry]]:
        return {run: some for run, some in self._found.items() if self._is_own(some)}

    @property
    def others(self) -> dict[str, dict[str, Entry]]:
        return {run: some for run, some in self._found.items() if not self._is_own(some)}

    @property
    def to_undo(self) -> dict[str, dict[str, Entry]]:
        return self.others if self.take_over else {}

    @property
    def pending(self) -> bool:
        return bool(self.own or self.to_undo)

    def refuse_others(self, has_steps: Callable[[Cluster], bool]) -> None:
        """Refuse to plan with GPUs in the journal of another run, unless there is nothing to change."""
        if self.take_over or not self.others:
            return
        try:
            refused = has_steps(self.cluster)
        except FleetError:
            # The plan may succeed after that run has ended.
            refused = True
        if refused:
            raise journal.Held(
                f"The GPUs belong to {'; '.join(map(journal.described, self.others.values()))}.",
                hint="Nothing was changed. Wait for that run, or run its task again to finish it. If it is dead,"
                " take_over: true undoes it first.",
            )

    def layouts(self) -> list[GpuLayout]:
        """Return the target layouts of the GPUs of the interrupted runs."""
        return [
            GpuLayout.read(path.rsplit("/", 1)[-1], layout)
            for side, runs in (("before", self.to_undo), ("after", self.own))
            for some in runs.values()
            for path, entry in some.items()
            if (layout := getattr(entry, side)) is not None
        ]

    def lines(self) -> list[str]:
        undo = [f"Undo {journal.described(some)}." for some in self.to_undo.values()]
        return undo + [f"Finish {journal.described(some)}." for some in self.own.values()]

    def check(self) -> None:
        """Refuse interrupted runs that this task cannot recover."""
        for some in self.to_undo.values():
            if any(entry.phase == journal.UNREADABLE for entry in some.values()):
                raise journal.Held(
                    f"{join_names(map(journal.said, some))} has a journal that cannot be read, so it cannot be undone.",
                    hint=f"Look at the annotation {journal.JOURNAL}, put right what it tells, and remove it.",
                )
            if any(entry.vms or path.startswith(journal.VM_PATHS) for path, entry in some.items()):
                raise journal.Held(
                    f"The objects belong to {journal.described(some)}, which stops VMs.",
                    hint="Finish or undo that run with vgpu.fleet.harvester_reprofile.",
                )

    def wait(self, seconds: float) -> None:
        """Wait until the runs have ended or are dead."""
        for runs, most, said in (
            (self.own, seconds, "The same is being done by"),
            (self.to_undo, journal.DEAD_SECONDS, "It is not taken over, since it is at work:"),
        ):
            for run, some in runs.items():
                if all(entry.phase == STOPPED for entry in some.values()):
                    continue
                if journal.wait_for_end(self.cluster.api, run, most) == "alive":
                    raise journal.Held(f"{said} {journal.described(some)}.", hint="Wait for it to end.")

    def adopt(self) -> list[GpuLayout]:
        """Take over the journals of dead runs. If two tasks try, only one gets them."""
        layouts = self.layouts()
        for phase, runs, done in ((UNDOING, self.to_undo, self.undone), (CHANGING, self.own, self.finished)):
            for run, some in runs.items():
                done.append(run)
                for path, entry in some.items():
                    self.journal.adopt(path.rsplit("/", 1)[-1], entry, phase)
        return layouts


def steps_of(cluster: Cluster, layouts: Iterable[GpuLayout]) -> list[Step]:
    gpus = {gpu.name: gpu for gpu in cluster.fleet_for_planning.gpus}
    return [
        step
        for layout in layouts
        if layout.name in gpus
        for step in steps_toward(cluster.snapshot, gpus[layout.name], layout)
    ]


def recovered(
    cluster: Cluster,
    layout_journal: LayoutJournal,
    gpus: Callable[[Cluster], Collection[str]],
    *,
    take_over: bool,
    check_mode: bool,
    seconds: float,
) -> Recovery:
    """Finish or undo the interrupted runs on the GPUs of a task. In check mode, only find them."""
    try:
        chosen = frozenset(gpus(cluster))
    except FleetError:
        # The request names a GPU that does not exist. The plan reports it.
        chosen = frozenset()
    recovery = Recovery(layout_journal, cluster, chosen, take_over)
    if not recovery.pending:
        return recovery
    recovery.check()
    if check_mode:
        recovery.undone, recovery.finished = list(recovery.to_undo), list(recovery.own)
        return recovery
    recovery.wait(seconds)
    recovery.cluster = cluster.read_again()
    if recovery.pending:
        layouts = recovery.adopt()
        names = frozenset(layout.name for layout in layouts)
        planned = plan_when_settled(
            recovery.cluster.read_again(),
            lambda now: steps_of(now, layouts),
            concerned=lambda _now: names,
            touched=lambda _steps: names,
            check_mode=False,
            seconds=seconds,
        )
        apply_steps(
            planned.cluster,
            planned.plan,
            [],
            planned.cluster.snapshot.fleet,
            check_mode=False,
            wait=True,
            seconds=planned.seconds,
            in_journal=True,
            journal=layout_journal,
        )
        layout_journal.release()
        recovery.cluster = cluster.read_again()
    return recovery
