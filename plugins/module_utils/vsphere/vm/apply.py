# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reconcile an existing VM with a request: read, plan, apply and verify."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ...errors import FleetError
from .. import privileges, tasks
from ..faults import Operation, VsphereError
from ..read import inventory
from ..read.device_groups import SINCE as GROUPS_SINCE, GroupOffer
from ..read.inventory import HostFacts
from ..session import Session
from . import cloud_init as vm_cloud_init, spec as vm_spec
from .decide import placement as vm_placement, plan as vm_plan, privileges as needed_privileges, rules as vm_rules
from .decide.mark import OWNER, refuse_to_start_unfinished
from .decide.model import VmState
from .decide.plan import DesiredVm, VmPlan
from .decide.power import ABSENT, HARD, PRESENT
from .decide.requirements import needs_of
from .dry_run import dry_run
from .find.read import VmSnapshot, read_vm
from .hosts import CandidateHosts, only_host
from .power import PowerControl, VmLocation, refuse_soft_without_tools
from .request import VmRequest
from .result import VmResult, named_groups, named_pci_devices, named_vgpus, predicted_groups

ATTEMPTS = 6
# Seconds between attempts, multiplied by the attempt number: another task on the VM has to finish first.
PAUSE = 0.5


class IsTemplate(FleetError):
    code = "vm_is_template"


@dataclass(frozen=True)
class Decision:
    """A plan with the request and the hosts it is based on. `host` is None if DRS or vSphere chooses the host."""

    plan: VmPlan
    wish: DesiredVm
    reach: CandidateHosts | None = None
    host: str | None = None
    warnings: tuple[str, ...] = ()


class HostCache:
    """All hosts of the vCenter, read on first access."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @cached_property
    def all(self) -> Sequence[HostFacts]:
        return inventory.read_hosts(self._session)

    def around(self, machine: VmState, *, only: str = "") -> CandidateHosts:
        """Return the hosts of the cluster in which the VM is registered, or only the host that the task names."""
        home = next((host for host in self.all if host.moid == machine.host), None)
        beside = [host for host in self.all if home and host.cluster_id == home.cluster_id]
        if only:
            beside = only_host(beside or self.all, only)
        return CandidateHosts(self._session, beside)

    def beside(self, machine: VmState) -> Sequence[HostFacts]:
        """Return the hosts of the VM's cluster."""
        return self.around(machine).hosts

    def name(self, moid: str | None) -> str | None:
        return next((host.name for host in self.all if host.moid == moid), None)


class ReconfigureVm:
    """Reconfiguration, power changes and deletion of an existing VM."""

    def __init__(self, session: Session, request: VmRequest, hosts: HostCache) -> None:
        self._session = session
        self._request = request
        self._hosts = hosts
        self._running = PowerControl(session, request)

    def run(self, seen: VmSnapshot, *, check_mode: bool) -> VmResult:
        claim, machine = self._request.claim, seen.machine
        claim.refuse_foreign(seen.path, machine.mark)
        if self._request.state == ABSENT:
            claim.refuse_to_delete(seen.path, machine.moid, machine.mark)
        decision = self.decide(seen)
        if decision.plan.power.stop:
            claim.refuse_to_stop(seen.path, machine.moid, machine.mark)
        if decision.plan.power.start and not self._finishes(machine):
            refuse_to_start_unfinished(seen.path, machine.mark)
        if check_mode:
            if not decision.plan.deletes:
                dry_run(self._session, seen, decision.plan)
            return self.predicted(seen, decision)
        if not decision.plan.changed:
            return self.shown(seen, decision.plan)
        return self.apply(seen, decision)

    # Planning
    def decide(self, seen: VmSnapshot) -> Decision:
        machine = seen.machine
        if machine.template:
            raise IsTemplate(
                f"{machine.name} is a template, which is not changed here.",
                hint="Convert it to a VM first, or name a new VM and give it as template.",
            )
        settled = self._settled(machine)
        if settled is not None:
            return settled
        reach = self._hosts.around(machine, only=self._request.creation.esxi_host)
        offers = reach.group_offers if self._request.device_groups else {}
        wish = self._wish(machine, sorted({*reach.profiles, *machine.vgpus}), offers)
        validate_devices(machine.name, machine, wish, reach)
        plan = vm_plan.plan(machine, wish, self._session.version)
        refuse_soft_without_tools(machine, plan.power, self._request)
        host, doubts = self._room(machine, plan, reach)
        return Decision(plan, wish, reach, host, doubts)

    def _finishes(self, machine: VmState) -> bool:
        """Return whether the task can complete an interrupted creation, for which it has to name the template."""
        return machine.mark.unfinished and bool(self._request.creation.template)

    def _wish(
        self, machine: VmState, profiles: Sequence[str], offers: Mapping[str, GroupOffer] | None = None
    ) -> DesiredVm:
        options = self._request.claim.wanted(machine.mark)
        if self._finishes(machine):
            macs = [card.mac for card in machine.cards]
            options |= vm_cloud_init.finishing(machine.name, self._request.creation, macs)
        return replace(self._request.wish(profiles, offers), options=options)

    def _settled(self, machine: VmState) -> Decision | None:
        """Return a decision based on the VM alone if no host data is needed: no change, stop or delete only."""
        wish = self._wish(machine, sorted(machine.vgpus))
        willing = replace(wish, power_cycle=HARD, discard_suspended=True)
        try:
            plan = vm_plan.plan(machine, willing, self._session.version)
        except FleetError:
            return None
        if plan.devices.changed or plan.preparation.changed or plan.power.start:
            return None
        plan = vm_plan.plan(machine, wish, self._session.version)
        refuse_soft_without_tools(machine, plan.power, self._request)
        return Decision(plan, wish)

    def _room(self, machine: VmState, plan: VmPlan, reach: CandidateHosts) -> tuple[str | None, tuple[str, ...]]:
        """Return the host to start the VM on, and warnings. Without devices, leave the choice to vSphere."""
        if not plan.power.start:
            return None, ()
        only = self._request.creation.esxi_host or None
        if not self._request.auto or not plan.devices.any:
            return only, ()
        current = self._hosts.name(machine.host)
        return choose_host(machine.name, plan, reach, without=machine, current=current, only=only)

    # Applying
    def apply(self, seen: VmSnapshot, decision: Decision) -> VmResult:
        plan = decision.plan
        if needed_privileges.steps(plan) > 1:
            # The refusal of a later step would leave the VM stopped or half-changed.
            privileges.require(self._session, {seen.reference: needed_privileges.needed(plan)})
        stopped = upgraded = False
        try:
            if plan.power.stop:
                self._running.stop(seen, plan.power.stop)
                stopped = True
            if plan.deletes:
                return self._delete(seen, plan)
            upgraded = self._upgrade(seen, plan)
            if plan.reconfigures:
                self._reconfigure(seen, decision, fresh=not stopped and not upgraded)
        except FleetError as error:
            error.changed = stopped or upgraded or not error.certain
            if stopped and seen.machine.running and plan.power.start:
                self._bring_back(seen, decision, error)
            elif upgraded:
                error.message += f" The hardware version of VM {seen.machine.name} was raised before, which stays."
            raise
        return self.finish(seen, decision, stopped=stopped)

    def has_run(self, reference: Any, name: str) -> bool:
        return self._running.has_run(reference, name)

    def finish(self, seen: VmSnapshot, decision: Decision, *, stopped: bool = False) -> VmResult:
        """Start the VM if the plan says so, and read the resulting state."""
        plan = decision.plan
        seat = None
        if plan.power.start:
            if self._request.creation.template and not seen.machine.mark.stage:
                # Another run may still be creating the VM: the clone had no mark yet when this run read it.
                fresh = read_vm(self._session, seen.reference, plan.machine.name)
                refuse_to_start_unfinished(fresh.path, fresh.machine.mark)
            try:
                seat = self._running.start(seen, plan.devices.all_vgpus, decision.reach, decision.host)
            except FleetError as error:
                error.changed = plan.reconfigures or plan.upgrades or stopped or not error.certain
                if stopped:
                    error.message += f" VM {plan.machine.name} was powered off for the change"
                    off = error.certain and self._running.power(seen) == "poweredOff"
                    error.message += " and is still off." if off else "; whether it runs again is not known."
                raise
        shown = self.shown(read_vm(self._session, seen.reference, plan.machine.name), plan, seat)
        shown.warnings += decision.warnings
        return shown

    def _delete(self, seen: VmSnapshot, plan: VmPlan) -> VmResult:
        name = seen.machine.name
        subject = Operation(f"delete VM {name}", vm=name)
        tasks.run(self._session, subject, seen.reference.Destroy_Task, timeout=self._request.wait_timeout)
        owner = seen.machine.mark.owner or None
        return VmResult(True, name, seen.machine.moid, seen.machine.uuid, seen.folder, owner, diff=plan.diff())

    def _upgrade(self, seen: VmSnapshot, plan: VmPlan) -> bool:
        """Upgrade the hardware version in a separate task: older versions reject newer devices (vsphere.md 5.4)."""
        if not plan.upgrades:
            return False
        name, version = seen.machine.name, f"vmx-{plan.preparation.upgrade_to}"
        subject = Operation(f"upgrade the hardware of VM {name} to {version}", vm=name)
        tasks.run(self._session, subject, seen.reference.UpgradeVM_Task, version, timeout=self._request.wait_timeout)
        return True

    def _reconfigure(self, seen: VmSnapshot, decision: Decision, *, fresh: bool) -> None:
        """Reconfigure the VM in one task. If the VM changed in the meantime, read it and plan again."""
        plan = decision.plan
        for attempt in range(1, ATTEMPTS + 1):
            if not fresh:
                plan = self._again(seen, decision)
                if not plan.reconfigures:
                    return
            fresh = False
            added = [profile for group in plan.devices.add_groups for profile in group.vgpus]
            name, profiles = plan.machine.name, tuple(sorted({*plan.devices.add_vgpus, *added}))
            subject = Operation(f"change VM {name}", vm=name, profiles=profiles)
            spec = vm_spec.reconfiguration(self._session, plan)
            try:
                reconfigure = seen.reference.ReconfigVM_Task
                tasks.run(self._session, subject, reconfigure, spec, timeout=self._request.wait_timeout)
            except VsphereError as error:
                if not error.retryable or attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE * attempt)
            else:
                return

    def _again(self, seen: VmSnapshot, decision: Decision) -> VmPlan:
        machine = read_vm(self._session, seen.reference, seen.machine.name).machine
        return vm_plan.plan(machine, replace(decision.wish, state=PRESENT), self._session.version)

    def _bring_back(self, seen: VmSnapshot, decision: Decision, error: FleetError) -> None:
        """Restart the VM after a failed change and add its differences from the previous state to the error."""
        name = seen.machine.name
        try:
            before = [*seen.machine.vgpus.elements(), *(vgpu for group in seen.machine.groups for vgpu in group.vgpus)]
            self._running.start(seen, sorted(before), decision.reach, None)
            differences = seen.machine.differences(read_vm(self._session, seen.reference, name).machine)
        except FleetError as other:
            error.message += f" VM {name} was powered off for it and could not be started: {other.message}"
            return
        error.message += f" VM {name} was powered off for it and runs again"
        error.message += f", but not as it was: {'; '.join(differences)}." if differences else " as it was."

    # Results
    def shown(self, seen: VmSnapshot, plan: VmPlan, seat: VmLocation | None = None) -> VmResult:
        machine = seen.machine
        if machine.running and seat is None:
            seat = self._running.seat(seen.reference, machine.name, host=seen.properties.get("runtime.host"))
        return VmResult(
            changed=plan.changed,
            name=machine.name,
            moid=machine.moid,
            uuid=machine.uuid,
            folder=seen.folder,
            owner=machine.mark.owner or None,
            power=machine.power,
            host=seat.host if seat else None,
            gpus=seat.gpus if seat else (),
            vgpus=named_vgpus(machine),
            pci_devices=named_pci_devices(machine),
            device_groups=named_groups(machine.groups),
            restarted=plan.restarts,
            diff=plan.diff(),
            warnings=[*warnings(plan), *(seat.warnings if seat else ())],
        )

    def predicted(self, seen: VmSnapshot, decision: Decision) -> VmResult:
        plan, machine = decision.plan, seen.machine
        if not plan.changed:
            return self.shown(seen, plan)
        gone = {device.key for device in plan.devices.remove}
        kept = replace(machine, devices=tuple(device for device in machine.devices if device.key not in gone))
        stays = machine.running and not plan.power.changed and not plan.deletes
        seat = (
            self._running.seat(seen.reference, machine.name, host=seen.properties.get("runtime.host"))
            if stays
            else None
        )
        return VmResult(
            changed=True,
            name=machine.name,
            moid=machine.moid,
            uuid=machine.uuid,
            folder=seen.folder,
            owner=plan.options.get(OWNER, machine.mark.owner) or None,
            power=plan.power.after,
            host=seat.host if seat else None,
            gpus=seat.gpus if seat else (),
            vgpus=[] if plan.deletes else named_vgpus(kept) + [(None, name) for name in plan.devices.add_vgpus],
            pci_devices=[]
            if plan.deletes
            else named_pci_devices(kept) + [(None, request) for request in plan.devices.add_pci],
            device_groups=[] if plan.deletes else predicted_groups(plan.devices),
            restarted=plan.restarts,
            diff=plan.diff(),
            warnings=[*warnings(plan), *decision.warnings],
        )


def validate_devices(name: str, machine: VmState, wish: DesiredVm, reach: CandidateHosts) -> None:
    """Reject devices that no host can provide or that cannot be combined in a VM, before any change."""
    if wish.state == ABSENT:
        return
    devices = vm_plan.device_diff(machine, wish)
    if devices.add_groups:
        if not reach.groups_supported:
            raise vm_rules.InvalidRequest(
                f"VM {name} cannot have device groups: this vCenter, or the installed pyVmomi, does not support them.",
                hint=f"They exist since vSphere API {GROUPS_SINCE}.",
            )
        offered = {host: list(offers) for host, offers in reach.device_groups.items()}
        vm_rules.refuse_groups_that_no_host_offers(name, devices.groups, offered)
    if devices.add_vgpus:
        vm_rules.refuse_what_no_host_offers(name, devices.vgpu_counts, reach.offers)
    if devices.add_vgpus or devices.add_groups:
        together = Counter(devices.all_vgpus) + machine.foreign_vgpus
        several = sum(together.values()) > 1
        vm_rules.refuse_what_cannot_boot(name, together, api_version=reach.api_version)
        if several:
            # A VM with an older hardware version is upgraded before the devices are added.
            grouped = bool(devices.groups)
            needed = needs_of(devices.all_vgpus, api_version=reach.api_version, grouped=grouped).hardware_version
            most = reach.most_vgpus(max(machine.hardware_version, needed if wish.prepare else 0))
            vm_rules.refuse_what_cannot_boot(name, together, most=most, api_version=reach.api_version)
    if devices.add_pci:
        vm_rules.refuse_what_no_host_has(name, devices.pci, reach.pci_devices)


def choose_host(
    name: str,
    plan: VmPlan,
    reach: CandidateHosts,
    *,
    without: VmState | None,
    current: str | None,
    only: str | None,
) -> tuple[str | None, tuple[str, ...]]:
    """Return the host with free capacity that the planner prefers, or None if DRS chooses among such hosts.

    Also return warnings about hosts of which vCenter reports another capacity. `without` is the VM if it exists.
    """
    devices, moid = plan.devices, without.moid if without else ""
    lacking: dict[str, str] = {}
    if devices.all_pci:
        lacking |= vm_placement.without_devices(devices.all_pci, reach.free_pci_devices(moid))
    # The numbers of vCenter include the devices of a VM that runs now, so they do not hold for its host.
    foreign = [host.name for host in reach.hosts if not (without and without.running and host.name == current)]
    if devices.groups:
        told = reach.remaining_groups(devices.groups)
        offers = {host: list(groups) for host, groups in reach.device_groups.items()}
        told = {host: told[host] for host in foreign if host in told}
        lacking |= vm_placement.without_groups(devices.groups, offers, told)
    vgpus = Counter(devices.all_vgpus)
    reported = {host: reach.remaining[host] for host in foreign if host in reach.remaining} if vgpus else {}
    fleet = reach.snapshot.fleet_without(moid)
    found = vm_placement.rooms(fleet, vgpus, current=current, lacking=lacking, reported=reported)
    vm_placement.refuse_without_room(name, devices, found)
    if only:
        return only, found.warnings
    return None if reach.places_itself(moid) else found.best, found.warnings


def warnings(plan: VmPlan) -> list[str]:
    if not plan.lacking:
        return []
    return [
        f"VM {plan.machine.name} may not start with its devices, since prepare is off and it lacks this:"
        f" {'; '.join(plan.lacking)}."
    ]
