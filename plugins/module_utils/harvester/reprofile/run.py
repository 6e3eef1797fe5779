# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply a new layout to GPUs that VMs use, with a journal, so that an interrupted run can be finished.

Before the first VM is stopped, the run writes everything that is needed to finish or undo it to the GPUs and VMs. The
steps depend on the current state, not on what was already done, so they can be repeated from any point.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from ...errors import FleetError, InvalidDemand, join_names
from ...fleet.model import Fleet, Holder
from ...kube.client import ApiClient, Conflict, Json
from ...kube.objects import ObjectList
from ...kube.watcher import Watcher
from ...planning.request import PER_GPU, Demand, GpuSelector, Patterns, patterns, refuse_empty
from .. import paths as r
from ..apply import journal
from ..apply.apply import apply_steps
from ..apply.journal import CHANGING, DONE, PLANNED, UNDOING, Entry
from ..cluster import Cluster
from ..decide import layout as vgpu_layout
from ..decide.devices import DeviceRequest
from ..decide.owners import marked_as_before
from ..decide.sriov import plan_sriov
from ..read import snapshot as snapshots
from ..read.snapshot import Snapshot
from ..time_limit import TimeLimit
from ..vm import model as vm_devices
from ..vm.model import VmState
from .plan import POLICY, Having, path_of, reprofile_plan, without
from .records import (
    ALWAYS,
    MANUAL,
    RUN_FIELDS,
    Batch,
    GpuRecord,
    VmRecord,
    batches_of,
    given,
    phase_of,
    put_into,
    same_entries,
    with_devices,
    without_vgpus,
)

HALTED = "Halted"
RESTORED = "Everything is as it was before."
MARK_ATTEMPTS = 5


class ReprofileRefused(FleetError):
    code = "reprofile_refused"


class ReprofileFailed(FleetError):
    """A step failed. `lost` describes what could not be restored."""

    code = "reprofile_failed"
    changed = True

    def __init__(self, what: str, reason: str, lost: Sequence[str]) -> None:
        after = f"Not put back: {'; '.join(lost)}" if lost else RESTORED
        hint = (
            "What to put back is in the journal on these objects: run the same again to finish, or set take_over to"
            " undo it."
            if lost
            else ""
        )
        super().__init__(f"{what} could not be changed. {reason} {after}", hint=hint)
        self.lost = list(lost)

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "not_put_back": self.lost}


class StepFailed(FleetError):
    """The reason of a ReprofileFailed."""


@dataclass(frozen=True)
class ReprofileRequest:
    """The request of a task."""

    layout: tuple[tuple[str, int], ...]
    gpus: Patterns = None
    nodes: Patterns = None
    vms: tuple[Mapping[str, Any], ...] = ()
    vm_labels: Mapping[str, str] = field(default_factory=dict)
    serial: int = 1

    def __post_init__(self) -> None:
        if not self.layout:
            raise InvalidDemand("The layout is empty.", hint="Name at least one profile and its count.")
        if not self.gpus and not self.nodes:
            raise InvalidDemand("Neither gpus nor nodes select any GPU.", hint="Name at least one.")
        if self.serial < 1:
            raise InvalidDemand(f"serial is {self.serial}.", hint="Use 1 or more.")
        twice = [path for path, count in Counter(map(path_of, self.vms)).items() if count > 1]
        if twice:
            raise InvalidDemand(f"VM {join_names(twice)} is listed more than once in vms.", hint="Name each VM once.")

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> ReprofileRequest:
        """Read the request from the options of a task. Refuse an empty selection."""
        refuse_empty(gpus=params["gpus"], nodes=params["nodes"])
        return cls(
            layout=tuple((entry["profile"], entry["count"]) for entry in params["layout"]),
            gpus=patterns(params["gpus"]),
            nodes=patterns(params["nodes"]),
            vms=tuple(params["vms"] or ()),
            vm_labels={name: str(value) for name, value in (params["vm_labels"] or {}).items()},
            serial=params["serial"],
        )

    @property
    def digest(self) -> str:
        """Return a digest that is equal for equal targets. Options that only affect the pace are left out."""
        vms = {
            path_of(vm): vm.get("vgpus")
            and sorted((str(vgpu["profile"]).casefold(), int(vgpu.get("count") or 1)) for vgpu in vm["vgpus"])
            for vm in self.vms
        }
        layout = sorted((profile.casefold(), count) for profile, count in self.layout)
        return journal.digest(
            {
                "layout": layout,
                "gpus": sorted(self.gpus or ()),
                "nodes": sorted(self.nodes or ()),
                "vms": vms,
                "vm_labels": dict(self.vm_labels),
            }
        )

    @property
    def listed(self) -> list[Json]:
        return [{"profile": profile, "count": count} for profile, count in self.layout]

    def on(self, gpus: Iterable[str]) -> vgpu_layout.VgpuRequest:
        demands = tuple(Demand(profile, count, PER_GPU, gpus=tuple(gpus)) for profile, count in self.layout)
        return vgpu_layout.VgpuRequest(demands=demands, policy=POLICY)


@dataclass
class ReprofileResult:
    """The result of a task."""

    changed: bool
    plan: Json
    journals: list[Json]
    finished: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def as_result(self) -> Json:
        return {
            "changed": self.changed,
            "plan": self.plan,
            "journals": self.journals,
            "finished": self.finished,
            "undone": self.undone,
        }


class Reprofile:
    """One run of harvester_reprofile."""

    def __init__(
        self,
        api: ApiClient,
        version: str | None,
        request: ReprofileRequest,
        *,
        limit: TimeLimit,
        take_over: bool = False,
    ) -> None:
        self._api = api
        self._version = version
        self._request = request
        self._limit = limit
        self._seconds = limit.seconds
        self._take_over = take_over
        self._keeper = journal.Keeper(api, secrets.token_hex(4))
        asked = join_names((f"{count} x {profile}" for profile, count in request.layout), limit=6)
        self._entry = Entry(
            self._keeper.run, request.digest, journal.now(), journal.who(), task=f"harvester_reprofile {asked}"
        )
        self.warnings: list[str] = []
        self._gone: set[str] = set()

    def run(self, *, check_mode: bool) -> ReprofileResult:
        """Finish or undo interrupted runs, plan the request and apply it. In check mode, only plan."""
        try:
            with self._keeper:
                result = self._run(check_mode)
        except FleetError as error:
            error.warnings = self.warnings
            raise
        result.warnings = self.warnings
        return result

    def _run(self, check_mode: bool) -> ReprofileResult:
        cluster = self._read()
        names = self._selected(cluster.snapshot.fleet)
        found = journal.by_run(journal.entries(_items(cluster.snapshot.gpus), _items(cluster.snapshot.vms)))
        own = {run: some for run, some in found.items() if _request_of(some) == self._entry.request}
        others = {run: some for run, some in found.items() if run not in own and self._concerned(some, names, cluster)}
        result = ReprofileResult(False, {}, [journal.as_record(some) for some in (*own.values(), *others.values())])
        if others and not self._take_over:
            raise journal.Held(
                f"{self._overlap(others, names, cluster)} {'; '.join(map(journal.described, others.values()))}.",
                hint="Run that one again to finish it. If it is dead, take_over (vgpu_reprofile_take_over) undoes it"
                " first.",
            )
        if check_mode and (own or others):
            lines = [f"Undo {journal.described(some)}." for some in others.values()]
            lines += [f"Finish {journal.described(some)}." for some in own.values()]
            result.plan = {"work": [], "lines": [*lines, "What is left to do is planned after that."]}
            result.changed = True
            return result
        for run, some in others.items():
            self._undo_run(run, some)
            result.undone.append(run)
        for run, some in own.items():
            if self._finish_run(run, some):
                result.finished.append(run)
        result.changed = bool(result.undone or result.finished)
        if result.changed:
            cluster = self._read()
        self._plan_and_do(cluster, names, result, check_mode)
        return result

    def _plan_and_do(self, cluster: Cluster, names: Sequence[str], result: ReprofileResult, check_mode: bool) -> None:
        missing = sorted({path_of(vm) for vm in self._request.vms} - set(cluster.snapshot.vms.items))
        self.warnings += [f"There is no VM {path}. It is left out." for path in missing if path not in self._gone]
        plan = reprofile_plan(
            cluster.snapshot.fleet,
            names,
            self._request.listed,
            vms=self._request.vms,
            vm_labels=self._request.vm_labels,
            serial=self._request.serial,
            having=_having(cluster.snapshot),
        )
        if plan["refusals"]:
            error = ReprofileRefused(
                " ".join(plan["refusals"]),
                hint="VMs that may be stopped are those in vgpu_reprofile_vms or with vgpu_reprofile_vm_labels.",
            )
            error.changed = result.changed
            raise error
        result.plan = {"work": plan["work"], "lines": plan["lines"]}
        if plan["work"]:
            result.changed = True
            if not check_mode:
                self._do(cluster, plan["work"])

    # Reading
    def _read(self) -> Cluster:
        return Cluster(self._api, snapshots.read(self._api, self._version))

    def _selected(self, fleet: Fleet) -> list[str]:
        chosen = GpuSelector(fleet).gpus(self._request.nodes, self._request.gpus)
        return [fleet.gpus[index].name for index in sorted(chosen)]

    def _paths(self, names: Sequence[str], cluster: Cluster) -> set[str]:
        """Return the paths of the objects that the request is about."""
        labels = self._request.vm_labels
        vms = {path_of(vm) for vm in self._request.vms}
        for key, vm in cluster.snapshot.vms.items.items():
            has = vm["metadata"].get("labels") or {}
            if labels and all(has.get(name) == value for name, value in labels.items()):
                vms.add(key)
        return {*map(journal.gpu_path, names), *map(journal.vm_path, vms)}

    def _concerned(self, some: Mapping[str, Entry], names: Sequence[str], cluster: Cluster) -> bool:
        return not self._paths(names, cluster).isdisjoint(some)

    def _overlap(self, others: Mapping[str, Mapping[str, Entry]], names: Sequence[str], cluster: Cluster) -> str:
        shared = sorted(self._paths(names, cluster) & {path for some in others.values() for path in some})
        return f"{join_names(map(journal.said, shared))} {'belongs' if len(shared) == 1 else 'belong'} to"

    # Interrupted runs
    def _undo_run(self, run: str, some: Mapping[str, Entry]) -> None:
        if any(entry.phase == journal.UNREADABLE for entry in some.values()):
            raise journal.Held(
                f"{join_names(map(journal.said, some))} has a journal that cannot be read, so it cannot be undone.",
                hint=f"Look at the annotation {journal.JOURNAL}, put right what it tells, and remove it.",
            )
        if journal.wait_for_end(self._api, run, journal.DEAD_SECONDS) == "alive":
            raise journal.Held(
                f"It is not taken over, since it is at work: {journal.described(some)}.", hint="Wait for it to end."
            )
        some = self._adopted(run)
        for batch in batches_of(some):
            lost = self._undone(batch)
            if lost:
                raise ReprofileFailed(batch.said, f"The run {run} was to be undone first.", lost)
        self._release(list(some))

    def _finish_run(self, run: str, some: Mapping[str, Entry]) -> bool:
        """Finish an interrupted run of the same request. Return False if the run has ended by itself."""
        how = journal.wait_for_end(self._api, run, self._seconds)
        if how == "alive":
            raise journal.Held(
                f"The same is being done by {journal.described(some)}, which has not ended in {self._seconds:.0f} s.",
                hint="Wait for it to end.",
            )
        some = self._adopted(run)
        begun = batches_of(some)
        for batch in begun:
            self._forward(batch)
        self._release(list(self._keeper.held))
        return bool(begun)

    def _adopted(self, run: str) -> dict[str, Entry]:
        """Take over the journal of a dead run. If two runs try, only one gets it."""
        cluster = self._read()
        found = journal.by_run(journal.entries(_items(cluster.snapshot.gpus), _items(cluster.snapshot.vms)))
        some = found.get(run, {})
        for path, entry in some.items():
            self._keeper.take(path, replace(entry, by=self._entry.by), over=run)
        return some

    # Applying
    def _do(self, cluster: Cluster, work: Sequence[Json]) -> None:
        # Take all objects, ordered by name, before changing any of them.
        gpus = sorted({name for change in work for name in change["gpus"]})
        vms = sorted({path_of(vm) for change in work for vm in change["vms"]})
        try:
            for path in (*map(journal.gpu_path, gpus), *map(journal.vm_path, vms)):
                self._keeper.take(path, self._entry)
        except FleetError:
            self._release(list(self._keeper.held))
            raise
        for number, change in enumerate(work):
            try:
                batch = self._noted(cluster if number == 0 else self._read(), change)
            except FleetError:
                self._release(list(self._keeper.held))
                raise
            later = {path for other in work[number + 1 :] for path in self._paths_of(other)}
            self._forward(batch, later)

    @staticmethod
    def _paths_of(change: Json) -> set[str]:
        return {
            *map(journal.gpu_path, change["gpus"]),
            *(journal.vm_path(path_of(vm)) for vm in change["vms"]),
        }

    def _noted(self, cluster: Cluster, change: Json) -> Batch:
        """Write the current state to the journal, first on the VMs, then on the GPUs, before changing them."""
        gpus = tuple(GpuRecord.of(gpu) for gpu in cluster.snapshot.fleet.gpus if gpu.name in change["gpus"])
        names, paths = tuple(gpu.name for gpu in gpus), tuple(path_of(vm) for vm in change["vms"])
        together = replace(self._entry, gpus=names, vms=paths)
        # For a VM that is changed without GPUs, no other entry records whether the change has begun.
        phase = PLANNED if gpus else CHANGING
        vms: list[VmRecord] = []
        for vm in change["vms"]:
            path = path_of(vm)
            item = self._keeper.read(journal.vm_path(path))
            if item is None:
                self._note_gone(path)
                continue
            record = VmRecord.of(
                self._machine(cluster.snapshot, path, item), {vgpu["profile"]: vgpu["count"] for vgpu in vm["after"]}
            )
            entry = replace(together, phase=phase, before=record.before(), after={"vgpus": dict(record.gets)})
            if self._keeper.take(journal.vm_path(path), entry) is None:
                self._note_gone(path)
                continue
            vms.append(record)
        for gpu in gpus:
            entry = replace(
                together,
                phase=CHANGING,
                before=gpu.as_dict(),
                after={"layout": self._request.listed},
            )
            self._keeper.take(journal.gpu_path(gpu.name), entry)
        return Batch(gpus, tuple(vms))

    def _forward(self, batch: Batch, later: Collection[str] = ()) -> None:
        """Bring GPUs and VMs to the target, however much was already done. If that fails, restore them."""
        try:
            self._change(batch)
        except journal.Lost:
            raise
        except FleetError as error:
            lost = self._undone(batch)
            self._release(set(later) - set(batch.paths) if lost else list(self._keeper.held))
            raise ReprofileFailed(batch.said, str(error), lost) from error
        self._end(batch, later)

    def _end(self, batch: Batch, later: Collection[str] = ()) -> None:
        """Remove the journal of a batch that is done or undone. Objects of a later batch get a planned entry again."""
        for name in batch.gpu_names:
            self._mark(name, DONE)
        for path in batch.paths:
            if path in later:
                self._keeper.take(path, self._entry)
            else:
                self._keeper.drop(path)

    def _change(self, batch: Batch) -> None:
        self._free(batch.vms, self._must_be_freed(batch))
        if batch.gpus:
            self._step("Change the profiles", lambda: self._apply(self._request.on(batch.gpu_names), batch))
        self._bring_back(batch.vms, before=False)
        self._check(batch)

    def _must_be_freed(self, batch: Batch) -> list[VmRecord]:
        """Return the VMs to stop and to detach vGPUs from: once the layout is in place, only VMs that lack vGPUs."""
        cluster = self._read()
        fleet = without(cluster.fleet_for_planning, {vm.path for vm in batch.vms})
        try:
            there = not batch.gpus or not self._request.on(batch.gpu_names).plan(fleet).steps
        except FleetError:
            there = False
        return [vm for vm in batch.vms if not there or self._lacks(cluster.snapshot, vm)]

    def _lacks(self, snapshot: Snapshot, vm: VmRecord) -> bool:
        item = snapshot.vms.items.get(vm.path)
        if item is None:
            return False
        machine = self._machine(snapshot, vm.path, item)
        return machine.vgpus != Counter(vm.gets) or machine.restart_required

    def _free(self, vms: Sequence[VmRecord], chosen: Sequence[VmRecord]) -> None:
        running = [vm for vm in vms if vm in chosen and vm.ran]
        self._step("Stop the VMs", lambda: self._stop(running))
        self._step("Take the vGPUs out of the VMs", lambda: self._each(chosen, self._take_out))

    def _stop(self, vms: Sequence[VmRecord]) -> None:
        def halt(vm: VmRecord) -> None:
            def body(item: Json) -> Json | None:
                spec = item.get("spec") or {}
                if spec.get("runStrategy") == HALTED:
                    return None
                return {"spec": {"running": None, "runStrategy": HALTED}}

            self._edit(vm, body)

        self._each(vms, halt)
        paths = [vm.path for vm in vms if vm.path not in self._gone]
        still: list[str] = []

        def ended(seen: Watcher) -> bool:
            # An instance that has ended also keeps its VM from starting again.
            still[:] = [path for path in paths if seen.get(r.INSTANCES, path) is not None]
            return not still

        if paths and not self._until(ended, lambda: f"waiting for {join_names(still)} to stop"):
            raise StepFailed(f"Stop the VMs: {join_names(still)} still runs after {self._seconds:.0f} s.")

    def _take_out(self, vm: VmRecord) -> None:
        def body(item: Json) -> Json | None:
            machine = self._current(vm, item)
            return _devices_patch(machine, without_vgpus(machine))

        self._edit(vm, body)

    def _apply(self, request: vgpu_layout.VgpuRequest, batch: Batch) -> None:
        self._keeper.stop_if_lost()
        cluster = self._read()
        plan = request.plan_for(cluster.fleet_for_planning, cluster.snapshot)
        owners = {gpu.name: gpu.owner_by_device for gpu in batch.gpus}
        plan = plan.with_steps(marked_as_before(plan.steps, owners))
        applied = apply_steps(
            cluster,
            plan.steps,
            plan.conditions,
            plan.after,
            check_mode=False,
            wait=True,
            seconds=self._limit.for_steps(plan.steps, cluster.version),
            in_journal=True,
        )
        self.warnings += applied.warnings

    def _bring_back(self, vms: Sequence[VmRecord], *, before: bool) -> None:
        """Give each VM its vGPUs, new or old, and start it if it ran. Try all VMs even if one fails."""
        if not vms:
            return
        names = list(self._read().snapshot.vgpus.items)
        failed: dict[str, str] = {}

        def give(vm: VmRecord) -> None:
            def body(item: Json) -> Json | None:
                machine = self._current(vm, item)
                recorded = with_devices(machine, put_into(machine, vm.devices))
                devices = recorded.devices if before else given(recorded, vm.gets, names)
                patch = _devices_patch(machine, devices)
                if before and not vm.ran and machine.version.keeps_stale_annotations and vm.note != machine.note_text:
                    patch = patch or {}
                    patch.setdefault("metadata", {})["annotations"] = {r.ALLOCATION_NOTE: vm.note}
                run = vm.run_patch | ({"runStrategy": ALWAYS} if vm.manual else {})
                if vm.ran and any((item.get("spec") or {}).get(name) != value for name, value in run.items()):
                    patch = patch or {}
                    patch.setdefault("spec", {}).update(run)
                return patch

            self._edit(vm, body)

        for vm in vms:
            try:
                give(vm)
            except journal.Lost:
                raise
            except FleetError as error:
                failed[vm.path] = str(error)
        started = [vm for vm in vms if vm.ran and vm.path not in failed and vm.path not in self._gone]
        failed |= self._not_running([vm for vm in started if vm.ready])
        for vm in started:
            if vm.manual:
                try:
                    self._edit(vm, lambda _item: {"spec": {"runStrategy": MANUAL}})
                except journal.Lost:
                    raise
                except FleetError as error:
                    failed.setdefault(vm.path, str(error))
        if failed:
            raise _VmsFailed(failed)

    def _not_running(self, vms: Sequence[VmRecord]) -> dict[str, str]:
        """Return the VMs that do not run when the time is up, each with the reason if known."""
        late: dict[str, str] = {}

        def run(seen: Watcher) -> bool:
            late.clear()
            for vm in vms:
                item = seen.get(r.VMS, vm.path)
                if item is None:
                    self._note_gone(vm.path)
                elif phase_of(seen.get(r.INSTANCES, vm.path)) != "Running":
                    late[vm.path] = _why_not_running(item, self._seconds)
            return not late

        if vms and not self._until(run, lambda: f"waiting for {join_names(late)} to run"):
            return late
        return {}

    def _check(self, batch: Batch) -> None:
        snapshot = self._read().snapshot
        slots = [slot for gpu in snapshot.fleet.gpus if gpu.name in batch.gpu_names for slot in gpu.slots]
        there = [slot for slot in slots if not slot.empty]
        usable = [slot for slot in there if slot.state == "allocatable"]
        wanted = len(batch.gpus) * sum(count for _profile, count in self._request.layout)
        if not len(there) == len(usable) == wanted:
            raise StepFailed(
                f"Check the result: there are {len(there)} vGPUs, of which {len(usable)} can be used, and"
                f" {wanted} were asked for."
            )
        lacking = [vm.path for vm in batch.vms if self._lacks(snapshot, vm)]
        if lacking:
            raise StepFailed(f"Check the result: {join_names(lacking)} does not have the vGPUs that were asked for.")

    # Undoing
    def _undone(self, batch: Batch) -> list[str]:
        """Restore the previous state as far as possible, and remove the journal if complete. Return the failures."""
        lost: list[str] = []

        def tried(what: str, step: Callable[[], object]) -> None:
            try:
                step()
            except journal.Lost:
                raise
            except _VmsFailed as error:
                lost.extend(f"{path}: {said}" for path, said in error.failed.items())
            except FleetError as error:
                lost.append(f"{what}: {error}")

        for name in batch.gpu_names:
            tried("", partial(self._mark, name, UNDOING))
        lost.clear()
        fleet = self._read_or_none()
        if fleet is None or any(gpu.differs(fleet) for gpu in batch.gpus):
            # A VM that cannot be stopped keeps its vGPU. The next step fails if that matters.
            tried("", lambda: self._free(batch.vms, batch.vms))
            lost.clear()
        if batch.gpus:
            tried(f"the profiles of {batch.said}", lambda: self._put_back_layout(batch))
        tried("the VMs", lambda: self._bring_back(batch.vms, before=True))
        if not lost:
            self._put_back_marks(batch)
            tried("what there is now", lambda: self._compare(batch, lost))
        if not lost:
            tried("the journal", lambda: self._end(batch))
        return lost

    def _read_or_none(self) -> Fleet | None:
        try:
            return self._read().snapshot.fleet
        except FleetError:
            return None

    def _mark(self, name: str, phase: str) -> None:
        path = journal.gpu_path(name)
        if path in self._keeper.held:
            self._keeper.take(path, replace(self._keeper.held[path], phase=phase))

    def _put_back_layout(self, batch: Batch) -> None:
        now = {gpu.name: gpu for gpu in self._read().snapshot.fleet.gpus}
        requests: list[DeviceRequest] = []
        for gpu in batch.gpus:
            before = dict(gpu.vgpus)
            requests += [DeviceRequest(device, profile) for device, profile in gpu.vgpus]
            present = now[gpu.name].slots if gpu.name in now else ()
            requests += [
                DeviceRequest(slot.name, enabled=False) for slot in present if slot.wanted and slot.name not in before
            ]
        if requests:
            self._apply(vgpu_layout.VgpuRequest(devices=tuple(requests), policy=POLICY), batch)
        off = [gpu.name for gpu in batch.gpus if not gpu.sriov]
        if off:
            cluster = self._read()
            # Without the check for MIG instances: those were on the GPU before the run, while SR-IOV was disabled.
            plan = plan_sriov(
                cluster.fleet_for_planning,
                nodes=None,
                gpus=off,
                enabled=False,
                functions=cluster.snapshot.vgpu_names_by_gpu,
            )
            apply_steps(
                cluster,
                plan.steps,
                plan.conditions,
                plan.after,
                check_mode=False,
                wait=True,
                seconds=self._limit.for_steps(plan.steps, cluster.version),
                in_journal=True,
            )

    def _put_back_marks(self, batch: Batch) -> None:
        """Restore missing owner marks of vGPUs that stayed enabled. A mark that cannot be restored is a warning.

        A failure here does not keep the journal, because every later undo would meet the same mark.
        """
        try:
            snapshot = self._read().snapshot
            lost = {device: marks for gpu in batch.gpus for device, marks in gpu.lost_marks(snapshot.fleet).items()}
        except FleetError:
            # The comparison that follows reads the same objects and reports the error.
            return
        for device, (before, _now) in sorted(lost.items()):
            try:
                self._keeper.stop_if_lost()
                self._put_back_mark(snapshot.vgpus.items.get(device), device, before)
            except journal.Lost:
                raise
            except FleetError as error:
                self.warnings.append(f"The mark of owner {before} on vGPU {device} could not be restored. {error}")

    def _put_back_mark(self, found: Json | None, device: str, owner: str) -> None:
        """Mark a vGPU, unless somebody else has marked it: also between this run's read and its write."""
        for attempt in range(1, MARK_ATTEMPTS + 1):
            if found is None:
                return
            now = (found["metadata"].get("annotations") or {}).get(r.OWNER_ANNOTATION)
            if now is not None:
                self.warnings.append(
                    f"vGPU {device} belonged to owner {owner} and was marked for owner {now} meanwhile. It is left so."
                )
                return
            revision = found["metadata"].get("resourceVersion")
            mark = {"annotations": {r.OWNER_ANNOTATION: owner}, "resourceVersion": revision}
            try:
                self._api.patch(f"{r.VGPUS}/{device}", {"metadata": mark})
                return
            except Conflict:
                # Controllers write the status of the object as well.
                if attempt == MARK_ATTEMPTS:
                    raise
                found = ObjectList.of(self._api.get(r.VGPUS, fieldSelector=f"metadata.name={device}")).items.get(device)

    def _compare(self, batch: Batch, lost: list[str]) -> None:
        """Compare with the state before, so that the message claims a full restore only if it is verified."""
        snapshot = self._read().snapshot
        lost += [f"the layout of {gpu.name}" for gpu in batch.gpus if gpu.differs(snapshot.fleet)]
        for vm in batch.vms:
            item = snapshot.vms.items.get(vm.path)
            if item is None:
                self._note_gone(vm.path)
                continue
            machine = self._machine(snapshot, vm.path, item)
            if not same_entries(machine.devices, put_into(machine, vm.devices)):
                lost.append(f"{vm.path}: its device entries")
            spec = item.get("spec") or {}
            if {name: spec[name] for name in RUN_FIELDS if name in spec} != dict(vm.run):
                lost.append(f"{vm.path}: its run strategy")

    def _release(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._keeper.drop(path)

    # VMs
    def _machine(self, snapshot: Snapshot, path: str, item: Json) -> VmState:
        return VmState(item, snapshot.instances.items.get(path), snapshot.version, snapshot.known)

    def _current(self, vm: VmRecord, item: Json) -> VmState:
        """Return the current VM. The names of types are read once."""
        path = journal.vm_path(vm.path).replace("/virtualmachines/", "/virtualmachineinstances/")
        return VmState(item, self._api.get_or_none(path), self._types.version, self._types.known)

    @cached_property
    def _types(self) -> Snapshot:
        return self._read().snapshot

    def _each(self, vms: Sequence[VmRecord], step: Callable[[VmRecord], None]) -> None:
        for vm in vms:
            step(vm)

    def _edit(self, vm: VmRecord, body: Callable[[Json], Json | None]) -> None:
        self._keeper.stop_if_lost()
        if self._keeper.write(journal.vm_path(vm.path), body) is None:
            self._note_gone(vm.path)

    def _note_gone(self, path: str) -> None:
        if path not in self._gone:
            self._gone.add(path)
            self.warnings.append(f"VM {path} is gone: somebody deleted it meanwhile. It is left out.")

    def _until(self, condition: Callable[[Watcher], bool], describe: Callable[[], str]) -> bool:
        vms, instances = self._api.together([lambda: self._api.get(r.VMS), lambda: self._api.get(r.INSTANCES)])
        watched = {r.VMS: ObjectList.of(vms), r.INSTANCES: ObjectList.of(instances)}
        with Watcher(self._api, watched, seconds=self._seconds) as seen:
            seen.describe = describe
            return seen.until(lambda: condition(seen))

    @staticmethod
    def _step(name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except (journal.Lost, StepFailed):
            raise
        except FleetError as error:
            raise StepFailed(f"{name}: {error}") from error


class _VmsFailed(FleetError):
    """Failures by VM."""

    def __init__(self, failed: Mapping[str, str]) -> None:
        said = " ".join(f"{path}: {why}" for path, why in sorted(failed.items()))
        super().__init__(f"Give the VMs their vGPUs and start them: {said}")
        self.failed = dict(sorted(failed.items()))


def _why_not_running(vm: Json, seconds: float) -> str:
    status = vm.get("status") or {}
    said = [
        condition["message"]
        for condition in status.get("conditions") or []
        if condition.get("status") == "False" and condition.get("message")
    ]
    why = f": {said[0].rstrip('.')}" if said else ""
    return f"does not run after {seconds:.0f} s (status {status.get('printableStatus') or 'unknown'}){why}."


def _devices_patch(machine: VmState, devices: Mapping[str, list[Json]]) -> Json | None:
    plan = vm_devices.planned(machine, devices)
    return plan.patch if plan.writes else None


def _items(listing_: ObjectList) -> list[Json]:
    return list(listing_.items.values())


def _request_of(some: Mapping[str, Entry]) -> str:
    return next(iter(some.values())).request


def _having(snapshot: Snapshot) -> Iterable[Having]:
    for key, vm in snapshot.vms.items.items():
        machine = VmState(vm, snapshot.instances.items.get(key), snapshot.version, snapshot.known)
        metadata = vm["metadata"]
        holder = Holder(
            metadata["name"],
            metadata.get("namespace", ""),
            running=machine.running,
            labels=metadata.get("labels") or {},
        )
        yield Having(holder, machine.vgpus, machine.restart_required)
