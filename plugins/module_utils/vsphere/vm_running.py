# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stopping and starting a VM, and seeing that it runs with its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere import tasks, vm_watch
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Subject, error_from, moid_of
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Properties, Session
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_power import SOFT, PowerPlan
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_reach import Reach
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_reading import Sighting
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_request import Request
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm_state import Machine

# A host may show its GPUs' VMs a little later than they start (facts 3.3).
ASSIGNMENT_SECONDS = 60


class ShutdownFailed(FleetError):
    code = "shutdown_failed"


class NotAssigned(FleetError):
    code = "gpu_not_assigned"


@dataclass(frozen=True)
class Seat:
    """Where a running VM is: its host, and the addresses of the GPUs that list it."""

    host: str
    gpus: tuple[str, ...] = ()


def refuse_soft_without_tools(machine: Machine, power: PowerPlan, request: Request) -> None:
    if power.stop == SOFT and not machine.tools_running and not request.power_off_force:
        raise ShutdownFailed(
            f"VM {machine.name} cannot be shut down: VMware Tools does not run in it.",
            hint="Nothing was changed. Install it, or use power_cycle: hard or power_off_force: true.",
        )


class Running:
    def __init__(self, session: Session, request: Request) -> None:
        self._session = session
        self._request = request

    def stop(self, seen: Sighting, how: str) -> None:
        name = seen.machine.name
        subject = Subject(f"shut VM {name} down", vm=name)
        if how == SOFT and (seen.machine.tools_running or not self._request.power_off_force):
            self._session.call(subject, seen.reference.ShutdownGuest)
            if self._is_off(seen, subject):
                return
            if not self._request.power_off_force:
                raise ShutdownFailed(
                    f"VM {name} did not shut down within {self._request.power_off_timeout} s.",
                    hint="It was asked to and may still do it; apart from that nothing was changed. Give it more"
                    " power_off_timeout, or use power_off_force: true to power it off after that.",
                )
        subject = Subject(f"power VM {name} off", vm=name)
        tasks.run(self._session, subject, seen.reference.PowerOffVM_Task, timeout=self._request.wait_timeout)

    def _is_off(self, seen: Sighting, subject: Subject) -> bool:
        def holds(properties: Properties) -> bool:
            return str(properties.get("runtime.powerState")) == "poweredOff"

        seconds = self._request.power_off_timeout
        paths = ["runtime.powerState"]
        return vm_watch.until(self._session, subject, seen.reference, paths, holds, seconds=seconds) is not None

    def start(self, seen: Sighting, vgpus: Sequence[str], reach: Reach | None, host: str | None) -> Seat:
        """On the given host, or where DRS or vSphere puts it."""
        name = seen.machine.name
        subject = Subject(f"power VM {name} on", vm=name, profiles=tuple(sorted(set(vgpus))))
        if host is not None and reach is not None:
            target = reach.host(host).reference
            self._run(subject.on(host), seen.reference.PowerOnVM_Task, target)
        elif self._request.auto and reach is not None and reach.places_itself and seen.datacenter is not None:
            self._by_drs(subject, seen)
        else:
            self._run(subject, seen.reference.PowerOnVM_Task)
        return self.seat(seen.reference, name, expected=bool(vgpus))

    def _by_drs(self, subject: Subject, seen: Sighting) -> None:
        """The outer task's success says nothing about the VM (facts 1.5)."""
        result = self._run(subject, seen.datacenter.PowerOnMultiVM_Task, [seen.reference])
        for refused in (result.notAttempted if result else None) or []:
            raise error_from(refused.fault, subject, self._session.name_of)
        for attempt in (result.attempted if result else None) or []:
            if attempt.task is not None:
                tasks.wait(self._session, attempt.task, subject, timeout=self._request.wait_timeout)

    def _run(self, subject: Subject, method: Any, *args: Any) -> Any:
        return tasks.run(self._session, subject, method, *args, timeout=self._request.wait_timeout)

    def seat(self, reference: Any, name: str, *, host: Any = None, expected: bool = False) -> Seat:
        """Where the VM runs. If GPUs are expected to list it, that is waited for."""
        subject = Subject(f"tell where VM {name} runs", vm=name)
        if host is None:
            read = self._session.read(subject, [reference], ["runtime.host"])
            host = read[0][1].get("runtime.host") if read else None
        if host is None:
            return Seat("")
        paths = ["name", "config.graphicsInfo"]
        (found,) = (values for _reference, values in self._session.read(subject, [host], paths))
        gpus = _listing(found, reference)
        if expected and not gpus:
            later = vm_watch.until(
                self._session,
                subject,
                host,
                paths,
                lambda properties: bool(_listing(properties, reference)),
                seconds=min(ASSIGNMENT_SECONDS, self._request.wait_timeout),
            )
            if later is None:
                raise NotAssigned(
                    f"VM {name} runs on host {found.get('name')}, and none of its GPUs lists it.",
                    hint="Look at the host with vgpu.fleet.vsphere_gpu_info, and at the guest with nvidia-smi.",
                )
            found, gpus = later, _listing(later, reference)
        return Seat(str(found.get("name") or moid_of(host)), gpus)


def _listing(properties: Properties, vm: Any) -> tuple[str, ...]:
    gpus = properties.get("config.graphicsInfo") or []
    return tuple(sorted(str(gpu.pciId) for gpu in gpus if any(moid_of(one) == moid_of(vm) for one in gpu.vm or [])))
