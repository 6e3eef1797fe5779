# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Power control of a VM, and the host and GPUs of a running VM."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...errors import FleetError
from .. import tasks
from ..faults import Operation, VsphereError, error_from, moid_of
from ..session import Properties, Session
from ..waiting import until_holds
from .decide.model import VmState
from .decide.power import SOFT, PowerPlan
from .find.read import VmSnapshot
from .hosts import CandidateHosts
from .request import VmRequest

# Maximum time to wait for a GPU to list a started VM. The API does not document how current the list is.
ASSIGNMENT_SECONDS = 60
# Time to watch one host before reading the VM's host again, since DRS may have moved the VM.
HOST_SECONDS = 10
# Time to watch the power state before looking for the VM's power-on task again.
POWER_SECONDS = 5
# Seconds between attempts to start a VM while another task runs on it.
PAUSE = 0.5
LONGEST_PAUSE = 5

POWER_ON = "VirtualMachine.powerOn"


class ShutdownFailed(FleetError):
    code = "shutdown_failed"


class NotStarted(FleetError):
    """A VM that did not reach the state poweredOn in time, and may still do so."""

    code = "timeout"
    certain = False


@dataclass(frozen=True)
class VmLocation:
    """The host of a running VM, and the addresses of the GPUs that list the VM."""

    host: str
    gpus: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def refuse_soft_without_tools(machine: VmState, power: PowerPlan, request: VmRequest) -> None:
    if power.stop == SOFT and not machine.tools_running and not request.power_off_force:
        raise ShutdownFailed(
            f"VM {machine.name} cannot be shut down: VMware Tools does not run in it.",
            hint="Nothing was changed. Install it, or use power_cycle: hard or power_off_force: true.",
        )


class PowerControl:
    def __init__(self, session: Session, request: VmRequest) -> None:
        self._session = session
        self._request = request

    # Stopping
    def stop(self, seen: VmSnapshot, how: str) -> None:
        name = seen.machine.name
        subject = Operation(f"shut VM {name} down", vm=name)
        if how == SOFT and (seen.machine.tools_running or not self._request.power_off_force):
            if not self._unless_off(seen, subject, lambda: self._session.call(subject, seen.reference.ShutdownGuest)):
                return
            if self._is_off(seen, subject):
                return
            if not self._request.power_off_force:
                raise ShutdownFailed(
                    f"VM {name} did not shut down within {self._request.power_off_timeout} s.",
                    hint="It was asked to and may still do it; apart from that nothing was changed. Give it more"
                    " power_off_timeout, or use power_off_force: true to power it off after that.",
                )
        subject = Operation(f"power VM {name} off", vm=name)
        self._unless_off(seen, subject, lambda: self._run(subject, seen.reference.PowerOffVM_Task))

    def _unless_off(self, seen: VmSnapshot, subject: Operation, stop: Callable[[], Any]) -> bool:
        """Stop the VM. Return False if vCenter refuses because another client has already stopped the VM."""
        try:
            stop()
        except VsphereError as error:
            if error.code != "invalid_power_state" or self._power(seen.reference, subject) != "poweredOff":
                raise
            return False
        return True

    def _is_off(self, seen: VmSnapshot, subject: Operation) -> bool:
        seconds = self._request.power_off_timeout
        return self._reaches(seen.reference, subject, "poweredOff", seconds=seconds)

    # Starting
    def start(
        self, seen: VmSnapshot, vgpus: Sequence[str], reach: CandidateHosts | None, host: str | None
    ) -> VmLocation:
        """Start the VM on the given host, or on the host that DRS or vSphere chooses."""
        name = seen.machine.name
        subject = Operation(f"power VM {name} on", vm=name, profiles=tuple(sorted(set(vgpus))))
        if host is not None and reach is not None:
            target = reach.host(host).reference
            self._persistently(
                seen, subject, lambda: self._run(subject.on(host), seen.reference.PowerOnVM_Task, target)
            )
        elif (
            self._request.auto
            and reach is not None
            and reach.places_itself(seen.machine.moid)
            and seen.datacenter is not None
        ):
            self._persistently(seen, subject, lambda: self._by_drs(subject, seen))
        else:
            self._persistently(seen, subject, lambda: self._run(subject, seen.reference.PowerOnVM_Task))
        seat = self.seat(seen.reference, name, expected=bool(vgpus))
        only = self._request.creation.esxi_host or host
        if only and seat.host and seat.host != only:
            # vCenter falls back to the VM's current host if the named host is not compatible. Do not move a running VM.
            strayed = f"VM {name} was to start on host {only}, and vCenter started it on {seat.host}."
            seat = replace(seat, warnings=(*seat.warnings, strayed))
        return seat

    def _persistently(self, seen: VmSnapshot, subject: Operation, start: Callable[[], Any]) -> None:
        """Retry the start while another task, such as the VM snapshot of a backup, runs on the VM."""
        deadline = time.monotonic() + self._request.wait_timeout
        pause = PAUSE
        while True:
            try:
                start()
            except VsphereError as error:
                if error.code == "invalid_power_state" and self._power(seen.reference, subject) == "poweredOn":
                    return
                if not error.retryable or time.monotonic() + pause > deadline:
                    raise
            else:
                return
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _by_drs(self, subject: Operation, seen: VmSnapshot) -> None:
        """Start the VM through DRS and wait for its power state.

        The outer task can succeed although the VM does not start, and its result does not always contain the VM's own
        task: the API reference promises that task only for VMs that DRS does not manage.
        """
        before = self._read(seen.reference, subject, "recentTask")
        known = {moid_of(task) for task in before.get("recentTask") or []}
        result = self._run(subject, seen.datacenter.PowerOnMultiVM_Task, [seen.reference])
        for refused in (result.notAttempted if result else None) or []:
            raise error_from(refused.fault, subject, self._session.name_of)
        attempts = (result.attempted if result else None) or []
        recommended = (result.recommendations if result else None) or []
        if recommended and not attempts:
            # The automation level of the VM is manual: DRS recommends a host and the client has to start the VM.
            self._run(subject, seen.reference.PowerOnVM_Task, *_recommended_host(recommended))
        self._await_power(subject, seen, [attempt.task for attempt in attempts if attempt.task is not None], known)

    def _await_power(self, subject: Operation, seen: VmSnapshot, started: list[Any], known: Collection[str]) -> None:
        """Wait until the VM is powered on, and raise the error of its power-on task if it fails.

        The power-on tasks are the `started` tasks of the result or, without these, tasks that are not `known`.
        """
        deadline = time.monotonic() + self._request.wait_timeout
        while True:
            left = deadline - time.monotonic()
            found = self._read(seen.reference, subject, "runtime.powerState", "recentTask")
            if str(found.get("runtime.powerState")) == "poweredOn":
                return
            for task in started or self._new_starts(found, subject, known):
                tasks.wait(self._session, task, subject, timeout=max(left, 0))
            if self._reaches(seen.reference, subject, "poweredOn", seconds=min(left, POWER_SECONDS)):
                return
            if left <= 0:
                raise NotStarted(
                    f"VM {seen.machine.name} was not powered on within {self._request.wait_timeout} seconds.",
                    hint="vCenter accepted the request and may still start it. Look at its tasks, or wait longer.",
                )

    def _new_starts(self, found: Properties, subject: Operation, known: Collection[str]) -> list[Any]:
        """Return new power-on tasks. Ignore read errors, since the tasks only serve to explain a failure."""
        new = [task for task in found.get("recentTask") or [] if moid_of(task) not in known]
        with suppress(VsphereError):
            read = self._session.read(subject, new, ["info.descriptionId"])
            return [task for task, values in read if values.get("info.descriptionId") == POWER_ON]
        return []

    def _run(self, subject: Operation, method: Any, *args: Any) -> Any:
        return tasks.run(self._session, subject, method, *args, timeout=self._request.wait_timeout)

    # State
    def power(self, seen: VmSnapshot) -> str:
        """Return the current power state, or an empty string if it cannot be read."""
        with suppress(FleetError):
            name = seen.machine.name
            return self._power(seen.reference, Operation(f"tell whether VM {name} runs", vm=name))
        return ""

    def has_run(self, reference: Any, name: str) -> bool:
        """Return whether the VM runs, has run or is being started. Raise an error if this cannot be determined."""
        subject = Operation(f"tell whether VM {name} has run", vm=name)
        found = self._read(reference, subject, "runtime.powerState", "runtime.bootTime", "recentTask")
        if str(found.get("runtime.powerState")) != "poweredOff" or found.get("runtime.bootTime") is not None:
            return True
        ended = self._session.read(subject, found.get("recentTask") or [], ["info.descriptionId", "info.state"])
        return any(
            values.get("info.descriptionId") == POWER_ON and values.get("info.state") != "error"
            for _task, values in ended
        )

    def _power(self, reference: Any, subject: Operation) -> str:
        return str(self._read(reference, subject, "runtime.powerState").get("runtime.powerState"))

    def _read(self, reference: Any, subject: Operation, *paths: str) -> Properties:
        read = self._session.read(subject, [reference], paths)
        return read[0][1] if read else {}

    def _reaches(self, reference: Any, subject: Operation, state: str, *, seconds: float) -> bool:
        if self._power(reference, subject) == state:
            return True
        if seconds <= 0:
            return False

        def holds(properties: Properties) -> bool:
            return str(properties.get("runtime.powerState")) == state

        paths = ["runtime.powerState"]
        return until_holds(self._session, subject, reference, paths, holds, timeout=seconds) is not None

    def seat(self, reference: Any, name: str, *, host: Any = None, expected: bool = False) -> VmLocation:
        """Return the location of the running VM.

        If GPUs are `expected` to list the VM, wait until one does, and warn if none does in time. The list is
        informational: a VM that no GPU lists can run normally.
        """
        subject = Operation(f"tell where VM {name} runs", vm=name)
        deadline = time.monotonic() + min(ASSIGNMENT_SECONDS, self._request.wait_timeout)
        host = host or self._host_of(reference, subject)
        found: Properties = {}
        while host is not None:
            paths = ["name", "config.graphicsInfo", *(["configManager.graphicsManager"] if expected else [])]
            found = self._read(host, subject, *paths)
            gpus = _listing(found, reference)
            if gpus or not expected:
                return VmLocation(str(found.get("name") or moid_of(host)), gpus)
            self._refresh(found, subject)
            left = deadline - time.monotonic()
            if left > 0:
                seconds = min(left, HOST_SECONDS)
                later = until_holds(
                    self._session,
                    subject,
                    host,
                    paths[:2],
                    lambda shown: bool(_listing(shown, reference)),
                    timeout=seconds,
                )
                if later is not None:
                    return VmLocation(str(later.get("name") or moid_of(host)), _listing(later, reference))
            if deadline - time.monotonic() <= 0:
                break
            host = self._host_of(reference, subject)
        if host is None:
            return VmLocation("")
        where = str(found.get("name") or moid_of(host))
        doubt = (
            f"VM {name} runs on host {where}, and none of the host's GPUs lists it yet. Look at the host with"
            " vgpu.fleet.vsphere_gpu_info, and at the guest with nvidia-smi."
        )
        return VmLocation(where, warnings=(doubt,))

    def _host_of(self, reference: Any, subject: Operation) -> Any:
        return self._read(reference, subject, "runtime.host").get("runtime.host")

    def _refresh(self, found: Properties, subject: Operation) -> None:
        """Refresh the host's GPU list if possible. Few accounts have the required privilege, so ignore errors."""
        manager = found.get("configManager.graphicsManager")
        if manager is not None:
            with suppress(FleetError, AttributeError):
                self._session.call(subject, manager.RefreshGraphicsManager)


def _recommended_host(recommendations: Sequence[Any]) -> list[Any]:
    actions = [action for recommendation in recommendations for action in recommendation.action or []]
    hosts = [getattr(action, "targetHost", None) for action in actions]
    return [host for host in hosts if host is not None][:1]


def _listing(properties: Properties, vm: Any) -> tuple[str, ...]:
    gpus = properties.get("config.graphicsInfo") or []
    return tuple(sorted(str(gpu.pciId) for gpu in gpus if any(moid_of(user) == moid_of(vm) for user in gpu.vm or [])))
