# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Apply steps: in order on each GPU, several GPUs in parallel, with one wait for all of them at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import FleetError, join_names
from ...fleet.mig import read_wanted
from ...fleet.model import TIME_SLICED
from ...kube.client import AdmissionDenied, ApiClient, Conflict, Forbidden, Json
from ...kube.connection import BadConnection
from ...kube.objects import ObjectList
from ...kube.watcher import Watcher
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
)
from .. import paths as r
from ..conditions import (
    Condition,
    NodeAllocatable,
    ObjectLookup,
    SriovDisabled,
    SriovEnabled,
    VgpuConfigured,
    VgpuRemoved,
    VgpuTypeAvailable,
    VgpuTypePermitted,
)
from ..mig_conditions import MigConfigAvailable, MigDisabled, MigInstancesReady, MigInstancesRemoved, configuration
from ..read.mig_configuration import DISABLING, OUT_OF_SYNC, enabling
from ..read.permitted_devices import REPAIR_HINT, entries_of, restored
from ..read.snapshot import OBSERVABLE, Snapshot, parent_of
from ..time_limit import SECONDS_PER_CLAIM
from .certain_causes import CertainCauses
from .diagnosis import Diagnosis
from .foreign_writes import ForeignWrites, decision

if TYPE_CHECKING:
    from .layout_journal import LayoutJournal

# Maximum number of GPUs that are changed in parallel. Each is a thread that mostly waits.
SIDE_BY_SIDE = 256
ABOUT_GPUS = (SriovEnabled, SriovDisabled, MigConfigAvailable, MigInstancesRemoved, MigDisabled, MigInstancesReady)
# How long a state that looks stuck may last: a share of the time limit, but at least as long as a node scan of
# Harvester takes, and a kubelet needs to report a device.
PATIENCE = 0.1
MIN_PATIENCE = 30.0
NAMED = 5
# How long the name of a type may take to follow the status of a vGPU.
NAME_SECONDS = 10.0
# A controller often writes the status between our read and our write, but rarely many times in a row.
CONFLICTS = 10
HTTP_CONFLICT = 409
CONFLICT_PAUSE = 0.05

G = TypeVar("G", bound=Condition)


class TimedOut(FleetError):
    """The request was not complete within the time limit."""

    code = "timeout"

    def __init__(
        self,
        seconds: float,
        waiting: Sequence[tuple[Condition, str]],
        causes: Sequence[str],
        moving: Sequence[str] = (),
    ) -> None:
        said = "; ".join(f"{_what(condition)}: {lack}" for condition, lack in waiting[:NAMED])
        more = f"; and {len(waiting) - NAMED} more" if len(waiting) > NAMED else ""
        hints = [f"Likely causes: {'; '.join(causes)}."] if causes else []
        if moving:
            hints.append(f"Still changing: {'; '.join(moving)}. Run the task again, or set a longer wait_timeout.")
        hint = " ".join(hints) or "Nothing was found that would explain it."
        super().__init__(f"Not done after {seconds:g} s. {said}{more}.", hint=hint)
        self.causes = list(causes)
        self.moving = list(moving)
        self.waiting = [
            {"device": condition.device, "node": condition.node, "missing": lack} for condition, lack in waiting
        ]

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "waiting": self.waiting, "causes": self.causes, "moving": self.moving}


class MigOutOfSync(FleetError):
    """Not all MIG instances could be created."""

    code = "mig_out_of_sync"
    changed = True


class NotPermitted(FleetError):
    """KubeVirt does not permit VMs to use a vGPU that is otherwise ready."""

    code = "not_permitted"

    def __init__(self, resources: Sequence[str], *, forbidden: bool) -> None:
        grant = f"Grant the right to patch kubevirts in namespace {r.SYSTEM_NAMESPACE}, or ask an administrator. "
        super().__init__(
            f"KubeVirt does not permit {join_names(resources)}: its list of permitted devices lacks it, so no VM can"
            " start with it.",
            hint=f"{grant if forbidden else ''}{REPAIR_HINT}",
        )


class Refused(FleetError):
    """The cluster rejected a step."""

    code = "refused"


@dataclass
class RunResult:
    """The result of a run. `done` holds the steps that the server accepted, with their slots."""

    snapshot: Snapshot
    done: list[Step] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    # Resources that were added to KubeVirt's list of permitted devices.
    permitted: list[str] = field(default_factory=list)

    def steps(self, planned: Sequence[Step]) -> list[Step]:
        """Return the steps in the order of the plan, which GPUs that are changed in parallel do not keep."""
        place = {gpu: number for number, gpu in enumerate(dict.fromkeys(step.gpu for step in planned))}
        return sorted(self.done, key=lambda step: place[step.gpu])


def patch_for(step: Step, seen: ObjectLookup) -> tuple[str, str, Json]:
    """Return the resource, the object and the merge patch of a step."""
    if step.action in (ENABLE_SRIOV, DISABLE_SRIOV):
        return r.GPUS, step.gpu, {"spec": {"enabled": step.action == ENABLE_SRIOV}}
    if step.action == SET_MODE:
        skip = "true" if step.after == TIME_SLICED else None
        return r.GPUS, step.gpu, {"metadata": {"annotations": {r.SKIP_MIG_ANNOTATION: skip}}}
    if step.action == CREATE_MIG_INSTANCES:
        wanted = {read_wanted(name).size: count for name, count in step.instances}
        return r.MIG_CONFIGURATIONS, step.gpu, enabling(seen.get(r.MIG_CONFIGURATIONS, step.gpu) or {}, wanted)
    if step.action == REMOVE_MIG_INSTANCES:
        return r.MIG_CONFIGURATIONS, step.gpu, DISABLING
    if step.action == CORRECT:
        return r.VGPUS, step.slot or "", {"spec": {"vGPUTypeName": step.after}}
    if step.action == ENABLE:
        # Send both in one request: the webhook checks the type against the available types when the device is enabled.
        return r.VGPUS, step.slot or "", _marked(step, seen, {"enabled": True, "vGPUTypeName": step.after})
    # A type that remains would be configured again unexpectedly (harvester.md 6.6).
    return r.VGPUS, step.slot or "", _marked(step, seen, {"enabled": False, "vGPUTypeName": ""})


def _marked(step: Step, seen: ObjectLookup, spec: Json) -> Json:
    """Return the patch with the owner mark of the vGPU to enable. An earlier mark is removed."""
    found = seen.get(r.VGPUS, step.slot or "") or {}
    marked = r.OWNER_ANNOTATION in ((found.get("metadata") or {}).get("annotations") or {})
    if not (step.owner or marked):
        return {"spec": spec}
    return {"metadata": {"annotations": {r.OWNER_ANNOTATION: step.owner}}, "spec": spec}


def merged(item: Json, patch: Json) -> Json:
    """Return an object after a merge patch."""
    result = dict(item)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merged(item.get(key) or {}, value)
        else:
            result[key] = value
    return result


def _at_revision(body: Json, current: Json) -> Json:
    """Return the patch for this version of the object: the server refuses it if the object has changed since."""
    revision = current["metadata"].get("resourceVersion")
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": revision}} if revision else body


def steps_by_gpu(steps: Iterable[Step]) -> list[list[Step]]:
    ordered = list(steps)
    return [list(group) for _gpu, group in groupby(ordered, key=lambda step: step.gpu)]


def dry_run(api: ApiClient, snapshot: Snapshot, steps: Sequence[Step]) -> None:
    """Send the steps that do not depend on each other as a dry run (harvester.md 10.9)."""
    possible = [step for chain in steps_by_gpu(steps) for step in _independent(snapshot, chain)]

    def attempt(step: Step) -> Any:
        path, name, body = patch_for(step, snapshot)
        try:
            return api.patch(f"{path}/{name}", body, dry_run=True)
        except AdmissionDenied as error:
            raise _refusal(step, error) from error

    if possible:
        api.together([partial(attempt, step) for step in possible])


def _independent(snapshot: Snapshot, chain: list[Step]) -> Iterable[Step]:
    changed = False
    for step in chain:
        vgpu = snapshot.vgpus.items.get(step.slot or "")
        if step.action == CREATE_MIG_INSTANCES:
            found = configuration(snapshot, step.gpu)
            if found is not None and not changed:
                # An enabled configuration is disabled first, and only that request can be validated now.
                yield replace(step, action=REMOVE_MIG_INSTANCES) if found.enabled else step
            changed = True
        elif step.action == ENABLE:
            offered = ((vgpu or {}).get("status") or {}).get("availableTypes") or {}
            if not changed and vgpu is not None and step.after in offered and not vgpu["spec"].get("enabled"):
                yield step
        elif step.action == REMOVE_MIG_INSTANCES:
            # The webhook refuses the removal while vGPUs are enabled, which earlier steps disable.
            if not changed:
                yield step
            changed = True
        else:
            yield step
            changed = True


class StepRunner:
    """One run of steps on a cluster."""

    def __init__(
        self,
        api: ApiClient,
        snapshot: Snapshot,
        *,
        wait: bool,
        seconds: float,
        journal: LayoutJournal | None = None,
    ) -> None:
        self._api = api
        self._snapshot = snapshot
        self.waits = wait
        self._seconds = seconds
        self._journal = journal
        self._foreign = ForeignWrites()
        # Steps that another user with the same request has applied in the meantime.
        self._found_done: list[Step] = []
        # GPUs to which a request was sent.
        self._asked: set[str] = set()
        self.result = RunResult(snapshot)
        self._steps: Sequence[Step] = ()
        self._conditions: Sequence[Condition] = ()
        self._watched: Sequence[str] = ()

    def run(self, steps: Sequence[Step], conditions: Sequence[Condition]) -> RunResult:
        """Apply the steps, then wait for the conditions unless the task does not wait."""
        listings = self._listings(steps, conditions)
        self._watched = tuple(listings)
        self._steps, self._conditions = steps, conditions
        awaited = [condition.device for condition in conditions if isinstance(condition, (VgpuConfigured, VgpuRemoved))]
        self._foreign = ForeignWrites.of(self._snapshot, steps, awaited)
        with Watcher(self._api, listings, seconds=self._seconds, related=parent_of) as seen:
            seen.inspect = self._foreign.inspect
            seen.describe = partial(self._describe, seen)
            seen.find_cause = CertainCauses(
                self._api, partial(self._waiting_nodes, seen), partial(seen.get, r.NODES)
            ).find
            try:
                if self.waits or any(map(self._waits_in_between, steps_by_gpu(steps))):
                    seen.open()
                self._run_steps(steps_by_gpu(steps), seen)
                if self.waits:
                    self._reach([*self._conditions_of_steps(), *conditions], seen)
            except FleetError as error:
                error.changed = bool(self.result.done or self.result.permitted)
                raise
            changes: dict[str, Any] = {OBSERVABLE[path]: seen.listing(path) for path in listings}
            boards = {gpu.name: gpu.boards for gpu in self._snapshot.fleet.gpus}
            self.result.snapshot = replace(self._snapshot, **changes, boards=boards)
        return self.result

    def _missing(self, seen: Watcher) -> list[tuple[Condition, str]]:
        conditions = [*self._conditions_of_steps(), *self._conditions]
        return [(condition, text) for condition in conditions if (text := condition.missing(seen))]

    def _waiting_nodes(self, seen: Watcher) -> set[str]:
        done = set(self.result.done)
        return {condition.node for condition, _text in self._missing(seen)} | {
            step.node for step in self._steps if step not in done
        }

    def _describe(self, seen: Watcher) -> str:
        """Return the state of the run in one line: how much is done, and what is missing on which node."""
        missing = self._missing(seen)
        by_node = Counter(condition.node for condition, _text in missing)
        parts = []
        if len(self.result.done) < len(self._steps):
            parts.append(f"{len(self.result.done)} of {len(self._steps)} changes requested")
        parts += [f"node {node}: {count} not ready yet" for node, count in sorted(by_node.items())[:NAMED]]
        if len(by_node) > NAMED:
            parts.append(f"{len(by_node) - NAMED} more nodes")
        if missing:
            condition, text = missing[0]
            parts.append(f"{condition.device}: {text}" if condition.device else text)
        return "; ".join(parts)

    def _waits_in_between(self, chain: Sequence[Step]) -> bool:
        """Return whether a step depends on the effect of another, so that even a task without wait has to wait."""
        actions = {step.action for step in chain}
        if actions == {ENABLE}:
            wanted = [VgpuTypeAvailable(step.slot or "", step.node, step.after or "", self.version) for step in chain]
            return any(condition.missing(self._snapshot) for condition in wanted)
        return len(chain) > 1 and actions != {DISABLE}

    def _listings(self, steps: Sequence[Step], conditions: Sequence[Condition]) -> Mapping[str, ObjectList]:
        snapshot = self._snapshot
        listings = {r.VGPUS: snapshot.vgpus, r.NODES: snapshot.nodes}
        if snapshot.version.vendor_vfio:
            listings[r.CLAIMS] = snapshot.claims
        of_gpus = any(step.action not in (ENABLE, DISABLE, CORRECT) for step in steps)
        of_gpus = of_gpus or any(isinstance(condition, ABOUT_GPUS) for condition in conditions)
        if steps or of_gpus:
            # Also if only vGPUs change: another user may disable SR-IOV on their GPU in the meantime.
            listings[r.GPUS] = snapshot.gpus
        if of_gpus and snapshot.version.has_mig:
            listings[r.MIG_CONFIGURATIONS] = snapshot.mig
        if snapshot.kubevirts is not None and any(isinstance(item, VgpuTypePermitted) for item in conditions):
            listings[r.KUBEVIRTS] = snapshot.kubevirts
        return listings

    def _run_steps(self, by_gpu: list[list[Step]], seen: Watcher) -> None:
        if not by_gpu:
            return
        with ThreadPoolExecutor(max_workers=min(SIDE_BY_SIDE, len(by_gpu))) as pool:
            futures = [pool.submit(self._one_gpu, chain, seen) for chain in by_gpu]
        errors = [error for future in futures if (error := future.exception()) is not None]
        unknown = [error for error in errors if not isinstance(error, FleetError)]
        for error in (*unknown, *errors):
            raise error

    def _one_gpu(self, chain: list[Step], seen: Watcher) -> None:
        turns = _GpuStepRunner(self, seen, chain)
        name, journal = chain[0].gpu, self._journal
        try:
            if journal:
                written = journal.begin(name)
                if written is not None:
                    seen.put(r.GPUS, written)
            for step in chain:
                if journal:
                    journal.going_on()
                turns.take(step)
            if journal:
                journal.end(name)
        except FleetError as error:
            if journal:
                journal.failed(name, touched=name in self._asked)
            # The other GPUs stop as well. The next run applies the remaining steps.
            seen.abort(error)
            raise

    @property
    def patience(self) -> float:
        return max(self._seconds * PATIENCE, MIN_PATIENCE)

    def send(self, step: Step, seen: Watcher) -> None:
        self.ask(step, seen)
        self.result.done.append(step)

    def found_done(self, step: Step, seen: Watcher) -> bool:
        """Return whether a vGPU is already enabled as the step requests. The task also waits for such a vGPU."""
        spec = (seen.get(r.VGPUS, step.slot or "") or {}).get("spec") or {}
        done = bool(spec.get("enabled")) and spec.get("vGPUTypeName") == step.after
        if done:
            self._found_done.append(step)
        return done

    def ask(self, step: Step, seen: Watcher) -> None:
        """Send the patch of a step without recording the step as done."""
        last: Conflict | None = None
        for attempt in range(CONFLICTS):
            seen.raise_if_aborted()
            path, name, body = patch_for(step, seen)
            current = seen.get(path, name)
            if current is not None:
                body = _at_revision(body, current)
                self._foreign.sending(path, current, merged(current, body))
                changed = self._foreign.inspect(path, name, current)
                if changed:
                    raise changed
            first = step.gpu not in self._asked
            # Record the GPU before sending: if the answer gets lost, it is unknown whether the request was carried out.
            self._asked.add(step.gpu)
            try:
                answer = self._api.patch(f"{path}/{name}", body)
            except AdmissionDenied as error:
                if first:
                    self._asked.discard(step.gpu)
                raise _refusal(step, error) from error
            except Conflict as error:
                last = error
                time.sleep(CONFLICT_PAUSE * attempt)
                found = self._read_again(path, name, seen)
                # The answer of the server got lost: the write was already done when it was sent again.
                if found is None or decision(path, found) != decision(path, merged(current or {}, body)):
                    continue
                answer = found
            except BadConnection:
                # No attempt got an answer, although the server may have carried out one of them.
                found = self._read_again(path, name, seen)
                if found is None or decision(path, found) != decision(path, merged(current or {}, body)):
                    raise
                answer = found
            self._foreign.sent(path, answer)
            seen.put(path, answer)
            return
        raise Conflict(
            f"{step.slot or step.gpu} changes faster than it can be written.",
            status=HTTP_CONFLICT,
            hint="Run it again.",
        ) from last

    def _read_again(self, path: str, name: str, seen: Watcher) -> Json | None:
        """Return the current object. Use a list, because the documented roles do not permit to get a single object."""
        found = ObjectList.of(self._api.get(path, fieldSelector=f"metadata.name={name}")).items.get(name)
        if found is not None:
            seen.put(path, found)
        return found

    def _conditions_of_steps(self) -> list[Condition]:
        """Return the conditions for the final state of each vGPU that steps change."""
        last = {step.slot: step for step in (*self.result.done, *self._found_done) if step.slot}
        return [
            VgpuConfigured(slot, step.node, step.after, self.version)
            if step.after
            else VgpuRemoved(slot, step.node, self.version)
            for slot, step in last.items()
            if slot
        ]

    def _reach(self, conditions: Sequence[Condition], seen: Watcher) -> None:
        counts = [condition for condition in conditions if isinstance(condition, NodeAllocatable)]
        permits = [condition for condition in conditions if isinstance(condition, VgpuTypePermitted)]
        of_nodes = (NodeAllocatable, VgpuTypePermitted)
        unmet = self._await([condition for condition in conditions if not isinstance(condition, of_nodes)], seen)
        if unmet:
            raise self.timed_out(unmet, seen)
        short = self._await_counts(counts, seen)
        stuck = [condition for condition in short if condition.device_plugin_stale(seen)]
        if len(stuck) < len(short):
            raise self.timed_out([condition for condition in short if condition not in stuck], seen)
        for condition in stuck:
            self.result.warnings.append(
                f"Node {condition.node}: {condition.missing(seen)} for {condition.resource}, though all are configured."
                " Its device plugin has lost count of a vGPU that was enabled again;"
                f" restart the {r.PCIDEVICES_DAEMONSET} pod on that node: {r.restart_command(condition.node)}"
            )
        lacking = self._await(permits, seen, seconds=self.patience)
        if not lacking:
            return
        may_patch = self._restore({condition.resource for condition in lacking}, seen)
        if may_patch:
            lacking = self._await(lacking, seen, seconds=self.patience)
        if lacking:
            raise NotPermitted([condition.resource for condition in lacking], forbidden=not may_patch)

    def _restore(self, lost: Collection[str], seen: Watcher) -> bool:
        """Add types of these vGPUs to KubeVirt's list again, and return whether the user may do so.

        The controllers of Harvester lose entries if a cluster has vGPUs of several types (harvester.md 9.5), and add a
        lost entry only when a vGPU of its type is enabled again.
        """
        lists: dict[str, Any] = {OBSERVABLE[path]: seen.listing(path) for path in self._watched}
        fleet = replace(self._snapshot, **lists).fleet
        pci_devices = ObjectList.of(self._api.get(r.PCI_DEVICES)).items if self.version.vendor_vfio else {}
        path = f"{r.KUBEVIRTS}/{r.KUBEVIRT.rpartition('/')[2]}"
        for attempt in range(CONFLICTS):
            kubevirt = seen.get(r.KUBEVIRTS, r.KUBEVIRT)
            patch = restored(kubevirt, entries_of(fleet, self.version, pci_devices), lost) if kubevirt else {}
            if not patch:
                break
            try:
                seen.put(r.KUBEVIRTS, self._api.patch(path, patch))
                changed = patch["spec"]["configuration"]["permittedHostDevices"].values()
                written = {entry["resourceName"] for entries in changed for entry in entries}
                self.result.permitted += sorted(written & set(lost))
                break
            except Forbidden:
                return False
            except Conflict:
                # The controllers write the same list.
                time.sleep(CONFLICT_PAUSE * attempt)
                if found := ObjectList.of(self._api.get(r.KUBEVIRTS)).items.get(r.KUBEVIRT):
                    seen.put(r.KUBEVIRTS, found)
        return True

    def _await_counts(self, conditions: Sequence[NodeAllocatable], seen: Watcher) -> list[NodeAllocatable]:
        """Wait until the nodes report all vGPUs as allocatable. Give up early on a count that looks stuck."""
        while True:
            short = self._await(conditions, seen, seconds=self.patience)
            if not seen.seconds_left or all(condition.device_plugin_stale(seen) for condition in short):
                return short

    def _await(self, conditions: Sequence[G], seen: Watcher, *, seconds: float | None = None) -> list[G]:
        def reached(condition: Condition) -> bool:
            return not condition.missing(seen)

        late = seen.wait_for_all(
            {number: partial(reached, condition) for number, condition in enumerate(conditions)},
            {number: condition.about for number, condition in enumerate(conditions)},
            seconds=seconds,
        )
        return [condition for number, condition in enumerate(conditions) if number in late]

    def timed_out(self, conditions: Sequence[Condition], seen: Watcher) -> FleetError:
        if seen.unanswered:
            return seen.unanswered
        waiting = [(condition, condition.missing(seen)) for condition in conditions]
        gpus = {self._gpu_of(condition) for condition in conditions} - {""}
        about_types = (VgpuConfigured, VgpuTypeAvailable)
        wanted = {condition.type_name for condition in conditions if isinstance(condition, about_types)}
        causes = Diagnosis(self._api).causes((condition.node for condition in conditions), gpus, wanted)
        # All vGPUs are configured before their number is waited for, so only the node does not count them.
        uncounted = {condition.node for condition in conditions if isinstance(condition, NodeAllocatable)}
        if not causes:
            causes = [
                f"The device plugins of node {node} are not registered with its kubelet, for example since the kubelet"
                f" restarted; restart the {r.PCIDEVICES_DAEMONSET} pod on that node: {r.restart_command(node)}"
                for node in sorted(uncounted)
            ]
        return TimedOut(self._seconds, waiting, causes, self._moving(seen, gpus))

    def _moving(self, seen: Watcher, gpus: Collection[str]) -> list[str]:
        """Describe what Harvester still works on: the claims that nodes remove, and other GPUs that change."""
        # Import here: only timeouts need this.
        from ..read import settling

        lists: dict[str, Any] = {OBSERVABLE[path]: seen.listing(path) for path in self._watched}
        snapshot = replace(self._snapshot, **lists)
        moving = [gpu for gpu in settling.unsettled(snapshot, gpus, self._api.now) if gpu.moving]
        going = Counter(
            (claim.get("spec") or {}).get("nodeName", "")
            for claim in snapshot.claims.items.values()
            if "deletionTimestamp" in claim["metadata"]
        )
        nodes = [node for node in sorted({unsettled.node for unsettled in moving}) if going[node]]
        return [
            f"node {node} removes {going[node]} claims of vGPUs, one after the other, and needs about"
            f" {going[node] * SECONDS_PER_CLAIM:g} s more"
            for node in nodes
        ] + [f"GPU {unsettled.gpu} ({unsettled.reason})" for unsettled in moving if unsettled.node not in nodes][:NAMED]

    def _gpu_of(self, condition: Condition) -> str:
        if isinstance(condition, ABOUT_GPUS):
            return condition.device
        vgpu = self._snapshot.vgpus.items.get(condition.device)
        return parent_of(vgpu) if vgpu else ""

    @property
    def version(self) -> Any:
        return self._snapshot.version

    def unused_slots(self, gpu: str, seen: Watcher, taken: Collection[str]) -> list[str]:
        """Return the vGPU devices of a GPU that no step uses yet, ordered by address."""
        names = ((seen.get(r.GPUS, gpu) or {}).get("status") or {}).get("vGPUDevices") or []
        return [name for name in sorted(names) if name not in taken]


class _GpuStepRunner:
    """The steps of one GPU. Each step waits for the effects of earlier steps that it needs."""

    def __init__(self, execution: StepRunner, seen: Watcher, chain: list[Step]) -> None:
        self._execution = execution
        self._seen = seen
        self._taken = {step.slot for step in chain if step.slot}
        self._cleared: list[VgpuRemoved] = []
        # The conditions that the steps on the GPU itself lead to.
        self._state: list[Condition] = []
        self._last = chain[-1]
        self._cut = any(step.action == CREATE_MIG_INSTANCES for step in chain)

    def take(self, step: Step) -> None:
        version = self._execution.version
        self._need(self._state)
        if step.action == ENABLE_SRIOV:
            self._execution.send(step, self._seen)
            self._state = [SriovEnabled(step.gpu, step.node)]
        elif step.action == CREATE_MIG_INSTANCES:
            self._need(self._cleared)
            self._state = [*self._state, *self._partition(step)]
        elif step.action == REMOVE_MIG_INSTANCES:
            self._need(self._cleared)
            self._execution.send(step, self._seen)
            self._state = [MigDisabled(step.gpu, step.node)]
        elif step.action in (SET_MODE, CORRECT):
            self._execution.send(step, self._seen)
        elif step.action == DISABLE and step.slot:
            self._settle(step)
            self._execution.send(step, self._seen)
            self._cleared.append(VgpuRemoved(step.slot, step.node, version))
        elif step.action == ENABLE:
            chosen = step if step.slot else self._placed(step)
            if self._execution.found_done(chosen, self._seen):
                return
            self._need([VgpuTypeAvailable(chosen.slot or "", chosen.node, chosen.after or "", version)])
            self._execution.send(chosen, self._seen)
        elif step.action == DISABLE_SRIOV:
            # Claims without virtual functions are hard to remove, and their node still offers them (harvester.md 4.1).
            self._need(self._cleared)
            functions = frozenset(self._execution.unused_slots(step.gpu, self._seen, ()))
            self._execution.send(step, self._seen)
            self._state = [SriovDisabled(step.gpu, step.node, functions)]

    def _partition(self, step: Step) -> Sequence[Condition]:
        """Replace the MIG instances of a GPU: remove the existing ones, request the new ones, and check the status."""
        gpu, node, seen, execution = step.gpu, step.node, self._seen, self._execution
        self._need([MigConfigAvailable(gpu, node)])
        found = configuration(seen, gpu)
        if found and found.enabled:
            execution.ask(replace(step, action=REMOVE_MIG_INSTANCES), seen)
        self._need([MigInstancesRemoved(gpu, node)])
        execution.send(step, seen)
        serving = MigInstancesReady(gpu, node, {read_wanted(name).size: count for name, count in step.instances})
        if step is self._last and not execution.waits:
            return []

        def settled() -> bool:
            now = configuration(seen, gpu)
            return now is None or now.settled

        if not seen.until(settled, about=[gpu]):
            raise execution.timed_out([serving], seen)
        made = configuration(seen, gpu)
        if made and made.status == OUT_OF_SYNC:
            raise self._rolled_back(step, made.message)
        return [serving]

    def _rolled_back(self, step: Step, said: str) -> MigOutOfSync:
        """Remove the instances that Harvester created before a failure: they would be unusable (harvester.md 8.1)."""
        gone = MigDisabled(step.gpu, step.node)
        self._execution.ask(replace(step, action=REMOVE_MIG_INSTANCES), self._seen)
        late = self._seen.wait_for_all(
            {"": lambda: not gone.missing(self._seen)}, {"": [step.gpu]}, seconds=self._execution.patience
        )
        after = f"Undoing it is not done yet: {gone.missing(self._seen)}." if late else "It has no instances now."
        return MigOutOfSync(
            f"GPU {step.gpu} could not be cut into {step.after}: {said or 'its MIG configuration is out of sync'}.",
            hint=f"{after} The log of the pcidevices controller on node {step.node} has what the driver said.",
        )

    def _settle(self, step: Step) -> None:
        """Wait for the type's name before a disable (harvester.md 6.3).

        Up to 1.7, a disable without the name never reaches the node. From 1.9 on, it leaves the name behind.
        """
        name = step.slot or ""
        if not self._execution.version.name_follows_status:
            return

        def settled() -> bool:
            status = (self._seen.get(r.VGPUS, name) or {}).get("status") or {}
            return bool(status.get("configureVGPUTypeName")) or not status.get("vGPUStatus")

        if self._execution.version.vendor_vfio:
            # The name may have got lost for good, and the disable is not harmful.
            self._seen.wait_for_all({"": settled}, {"": [name]}, seconds=NAME_SECONDS)
        else:
            self._seen.until(settled, about=[name])

    def _placed(self, step: Step) -> Step:
        if self._cut:
            # The vGPU devices offer the types of new instances one after the other.
            self._seen.until(lambda: self._offering(step) is not None, about=[step.gpu])
        name = self._offering(step)
        if name is not None:
            self._taken.add(name)
            return replace(step, slot=name)
        raise Refused(
            f"GPU {step.gpu} offers no {step.after} although SR-IOV is on now.",
            hint="Its board may be another than its PCI id suggests; run the task again to plan with what it offers.",
        )

    def _offering(self, step: Step) -> str | None:
        """Return the first device that offers the type of a step."""
        for name in self._execution.unused_slots(step.gpu, self._seen, self._taken):
            status = (self._seen.get(r.VGPUS, name) or {}).get("status") or {}
            if step.after in (status.get("availableTypes") or {}):
                return name
        return None

    def _need(self, conditions: Sequence[Condition]) -> None:
        about = frozenset().union(*(condition.about for condition in conditions))
        if conditions and not self._seen.until(
            lambda: not any(condition.missing(self._seen) for condition in conditions), about=about
        ):
            raise self._execution.timed_out(
                [condition for condition in conditions if condition.missing(self._seen)], self._seen
            )


def _refusal(step: Step, error: AdmissionDenied) -> Refused:
    device = step.slot or step.gpu
    return Refused(f"The cluster rejected the change to {device}: {error.text}.", hint=_advice(error.text))


def _advice(text: str) -> str:
    if "is in use with VM" in text:
        return "Detach it from the VM first: vgpu.fleet.harvester_vgpu_vm."
    if "is not a valid profile" in text:
        return "What the GPU offers has changed since it was read; run the task again."
    return ""


def _what(condition: Condition) -> str:
    if isinstance(condition, (NodeAllocatable, VgpuTypePermitted)):
        return f"{condition.resource} on node {condition.node}"
    kind = "GPU" if isinstance(condition, ABOUT_GPUS) else "vGPU"
    return f"{kind} {condition.device} on node {condition.node}"
