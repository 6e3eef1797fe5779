# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Give a VM an exact set of vGPUs, restart it if requested, and wait until it runs with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import FleetError, did_you_mean, join_names
from ...kube.client import AdmissionDenied, Conflict, Forbidden, Json
from ...kube.connection import BadConnection
from ...kube.watcher import Watcher
from .. import paths as r
from ..cluster import Cluster
from ..result.records import spellings
from . import model as vm_devices, rules as vm_rules
from .model import VmPlan, VmState

ATTEMPTS = 10
NOT_FOUND_PHRASE = "not found in pcidevice"
NODES_PHRASE = "is not on the same node"


class VmNotFound(FleetError):
    code = "vm_not_found"


class InvalidRequest(FleetError):
    code = "invalid_request"


class RestartRefused(FleetError):
    code = "restart_refused"


class VmTimeout(FleetError):
    code = "timeout"


@dataclass(frozen=True)
class VmRequest:
    """The request of a task.

    If not `present`, `vgpus` of None stands for all vGPUs of the VM, and an empty list for none of them.
    """

    name: str
    namespace: str
    vgpus: Sequence[Mapping[str, Any]] | None
    present: bool = True
    exclusive: bool = True
    restart: bool = False
    compute: bool = False

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> VmRequest:
        """Read the request from the options of a task."""
        return cls(
            name=params["name"],
            namespace=params["namespace"],
            vgpus=params["vgpus"],
            present=params["state"] == "present",
            exclusive=params["exclusive"],
            restart=params["restart"] == "if_needed",
            compute=params["compute"],
        )

    def target(self, machine: VmState) -> dict[str, int]:
        """Return how many vGPUs of each type the VM should have."""
        asked: dict[str, int] = {}
        for vgpu in self.vgpus or ():
            if vgpu["count"] < 1:
                raise InvalidRequest(
                    f"{vgpu['profile']} is asked for with count {vgpu['count']}.",
                    hint="Use 1 or more, or leave it out.",
                )
            name = machine.known.resolve(vgpu["profile"])
            asked[name] = asked.get(name, 0) + vgpu["count"]
        has = dict(machine.vgpus)
        if not self.present:
            return {} if self.vgpus is None else {name: count for name, count in has.items() if name not in asked}
        if self.exclusive:
            return asked
        return {name: max(has.get(name, 0), asked.get(name, 0)) for name in {**has, **asked}}


@dataclass
class VmResult:
    """The result of a task. `predicted` means that nothing was written."""

    plan: VmPlan
    machine: VmState
    predicted: bool
    warnings: list[str] = field(default_factory=list)

    def as_result(self) -> Json:
        """Return the keys that the module documents."""
        plan, machine = self.plan, self.machine
        unknown = self.predicted and plan.restart
        allocated = {} if unknown else machine.allocated()
        vgpus = [
            {
                "profile": profile,
                "spellings": spellings(profile, machine.version),
                "device": allocated[profile][index] if index < len(allocated.get(profile, [])) else None,
            }
            for profile, count in sorted(plan.vgpus.items())
            for index in range(count)
        ]
        return {
            "changed": plan.changed,
            "vm": {
                "name": machine.name,
                "namespace": machine.vm["metadata"].get("namespace", ""),
                "running": machine.running,
                "node": None if unknown else machine.node,
            },
            "vgpus": vgpus,
            "restarted": plan.restart,
            "restart_required": plan.restart_required,
            "diff": plan.diff,
        }


class VmChange:
    """Change the vGPUs of one VM."""

    def __init__(self, cluster: Cluster, request: VmRequest, *, wait: bool, seconds: float) -> None:
        self._cluster = cluster
        self._api = cluster.api
        self._request = request
        self._wait = wait
        self._seconds = seconds
        self._key = f"{request.namespace}/{request.name}"
        self._path = f"/apis/kubevirt.io/v1/namespaces/{request.namespace}/virtualmachines/{request.name}"
        self._warnings: list[str] = []

    def run(self, *, check_mode: bool) -> VmResult:
        """Plan the request and apply it. In check mode, send the plan as a dry run."""
        plan = self.plan()
        return self.dry_run(plan) if check_mode else self.apply(plan)

    def plan(self) -> VmPlan:
        """Plan the request, and refuse it if the VM could not start or another run holds the VM."""
        plan = self._plan(self._machine())
        if plan.changed or plan.restart:
            self._refuse_held(plan.machine.vm)
        if plan.changed:
            self._judge(plan)
        self._warnings += vm_rules.warnings(self._key, plan.vgpus, compute=self._request.compute)
        self._warnings += vm_rules.firmware_warnings(
            self._key, plan.vgpus, efi=plan.machine.efi, version=self._cluster.version
        )
        if plan.machine.note is None:
            self._warnings.append(self._broken_note(plan))
        if plan.restart_required:
            has, asks = vm_devices.described(plan.machine.running_vgpus), vm_devices.described(plan.vgpus)
            self._warnings.append(
                f"VM {self._key} runs with {has} and is to have {asks}: it gets them when it is restarted. Use restart:"
                " if_needed to have the module restart it."
            )
        return plan

    def dry_run(self, plan: VmPlan) -> VmResult:
        """Send the plan as a dry run and return the predicted result."""
        if plan.writes:
            self._dry_run(plan)
        return VmResult(plan, plan.machine, predicted=True, warnings=self._warnings)

    def apply(self, plan: VmPlan) -> VmResult:
        """Write the plan, and restart the VM if the plan says so."""
        machine = plan.machine
        if plan.writes:
            plan, machine = self._write(plan)
        if plan.restart:
            machine = self._restart(machine)
        return VmResult(plan, machine, predicted=False, warnings=self._warnings)

    @staticmethod
    def _refuse_held(vm: Json) -> None:
        if r.JOURNAL_ANNOTATION in (vm["metadata"].get("annotations") or {}):
            from ..apply import journal

            journal.refuse_held(vms=[vm])

    # Reading and planning
    def _machine(self) -> VmState:
        snapshot = self._cluster.snapshot
        vm = snapshot.vms.items.get(self._key)
        if vm is None:
            raise self._not_found()
        return VmState(vm, snapshot.instances.items.get(self._key), snapshot.version, snapshot.known)

    def _not_found(self) -> VmNotFound:
        namespace, name = self._request.namespace, self._request.name
        there = [path.split("/")[1] for path in self._cluster.snapshot.vms.items if path.startswith(f"{namespace}/")]
        if not there and self._namespace_is_missing():
            return VmNotFound(
                f"There is no VM {name}, since there is no namespace {namespace}.", hint="Check the option namespace."
            )
        elsewhere = [path for path in self._cluster.snapshot.vms.items if path.endswith(f"/{name}")]
        alike = did_you_mean(name, there, limit=2)
        if elsewhere:
            hint = f"One of that name is in namespace {elsewhere[0].split('/')[0]}."
        elif alike:
            hint = f"Did you mean {' or '.join(alike)}?"
        else:
            hint = f"VMs there: {join_names(there)}."
        return VmNotFound(f"There is no VM {name} in namespace {namespace}.", hint=hint)

    def _namespace_is_missing(self) -> bool:
        try:
            return self._api.get_or_none(f"/api/v1/namespaces/{self._request.namespace}") is None
        except Forbidden:
            return False

    def _plan(self, machine: VmState) -> VmPlan:
        return vm_devices.plan(machine, self._request.target(machine), restart=self._request.restart)

    def _judge(self, plan: VmPlan) -> None:
        vm, vgpus, fleet = self._key, plan.vgpus, self._cluster.snapshot.fleet
        if plan.writes:
            names = [device.get("name", "") for device in plan.devices[vm_devices.HOST_DEVICES]]
            vm_rules.refuse_devices_of_different_nodes(vm, names, self._cluster.snapshot.nodes.items)
        grows = any(count > plan.machine.vgpus.get(name, 0) for name, count in vgpus.items())
        if grows:
            vm_rules.refuse_what_cannot_boot(vm, vgpus)
            vm_rules.refuse_what_no_node_has(vm, vgpus, fleet)
        if not vgpus or not (grows or plan.restart) or vm_rules.node_with_room(vm, vgpus, fleet):
            return
        reason = vm_rules.no_room_now(vm, vgpus, fleet)
        if plan.restart:
            raise vm_rules.NoRoom(
                f"VM {vm} would stop and not start again: {reason}.",
                hint="Free some of them or make more, or use restart: never.",
            )
        self._warnings.append(f"VM {vm} cannot start with its vGPUs now: {reason}.")

    @staticmethod
    def _broken_note(plan: VmPlan) -> str:
        text = (
            f"The allocation note of VM {plan.machine.path} is not JSON, which stops the pcidevices controllers of all"
            " nodes."
        )
        return f"{text} It is removed." if plan.note_text is None else f"{text} Stop the VM to have it removed."

    # Applying
    def _dry_run(self, plan: VmPlan) -> None:
        """Send the plan as a dry run. Ignore a conflict: a run outside check mode plans again with the changed VM."""
        try:
            self._api.patch(self._path, plan.patch, dry_run=True)
        except Conflict:
            pass
        except AdmissionDenied as error:
            raise self._translated(error) from error

    def _write(self, plan: VmPlan) -> tuple[VmPlan, VmState]:
        for _attempt in range(ATTEMPTS):
            try:
                written = self._api.patch(self._path, plan.patch)
                return plan, plan.machine.with_vm(written, plan.machine.instance)
            except (Conflict, BadConnection) as error:
                found = self._plan(self._again(plan.machine))
                unanswered = isinstance(error, BadConnection) or error.repeated
                if not found.writes:
                    # If the answer of our own write got lost, the change is ours.
                    return (plan if unanswered else found), found.machine
                if isinstance(error, BadConnection):
                    raise
                plan = found
            except AdmissionDenied as error:
                raise self._translated(error) from error
        raise Conflict(f"VM {self._key} changes faster than it can be written.", status=409, hint="Run it again.")

    def _again(self, machine: VmState) -> VmState:
        instance = self._path.replace("/virtualmachines/", "/virtualmachineinstances/")
        vm, running = self._api.together([lambda: self._api.get(self._path), lambda: self._api.get_or_none(instance)])
        return machine.with_vm(vm, running)

    def _translated(self, error: AdmissionDenied) -> FleetError:
        said = error.message.split(": ", 1)[-1].rstrip(".")
        if NOT_FOUND_PHRASE in said:
            return vm_rules.NotOffered(
                f"The cluster does not know all devices of VM {self._key}: {said}.",
                hint="Make the vGPUs first: vgpu.fleet.harvester_vgpu. A device that is no vGPU has to be enabled for"
                " passthrough.",
            )
        if NODES_PHRASE in said:
            return vm_rules.CannotBoot(
                f"The devices of VM {self._key} are on different nodes: {said}.",
                hint="All devices of a VM come from one node.",
            )
        return error

    # Restarting and waiting
    def _restart(self, machine: VmState) -> VmState:
        self._act("restart")
        if not self._wait:
            return machine
        before = ((machine.instance or {}).get("metadata") or {}).get("uid")
        snapshot = self._cluster.snapshot
        watched = {r.VMS: snapshot.vms, r.INSTANCES: snapshot.instances}
        with Watcher(self._api, watched, seconds=self._seconds) as seen:

            def current() -> VmState:
                return machine.with_vm(seen.get(r.VMS, self._key) or machine.vm, seen.get(r.INSTANCES, self._key))

            def runs() -> bool:
                instance = current().instance or {}
                again = (instance.get("metadata") or {}).get("uid") not in (None, before)
                return again and (instance.get("status") or {}).get("phase") == "Running"

            def describe() -> str:
                phase = ((current().instance or {}).get("status") or {}).get("phase") or "absent"
                return f"VM {self._key} restarts: its instance is {phase}"

            seen.describe = describe
            if not seen.until(runs):
                raise self._not_running(current())
            if not seen.until(lambda: current().noted):
                self._warnings.append(
                    f"VM {self._key} runs, but Harvester has not written down which vGPUs it got: are the pods of"
                    f" {r.PCIDEVICES_ADDON} running?"
                )
            return current()

    def _not_running(self, machine: VmState) -> VmTimeout:
        instance = machine.instance or {}
        conditions = [
            *((instance.get("status") or {}).get("conditions") or []),
            *((machine.vm.get("status") or {}).get("conditions") or []),
        ]
        said = [
            condition["message"]
            for condition in conditions
            if condition.get("status") == "False" and condition.get("message")
        ]
        phase = (instance.get("status") or {}).get("phase") or "absent"
        state = (machine.vm.get("status") or {}).get("printableStatus") or "unknown"
        why = f": {said[0].rstrip('.')}" if said else ""
        return VmTimeout(
            f"VM {self._key} does not run {self._seconds:.0f} s after its restart (status {state}, instance"
            f" {phase}){why}.",
            hint="See what is free with vgpu.fleet.vgpu_availability.",
        )

    def _act(self, action: str) -> None:
        namespace, name = self._request.namespace, self._request.name
        path = f"/apis/subresources.kubevirt.io/v1/namespaces/{namespace}/virtualmachines/{name}"
        try:
            self._api.act(f"{path}/{action}")
        except Conflict as error:
            raise RestartRefused(
                f"KubeVirt did not {action} VM {self._key}: {error.message}",
                hint="Its vGPUs are in its spec already; they take effect when it is restarted.",
            ) from error
