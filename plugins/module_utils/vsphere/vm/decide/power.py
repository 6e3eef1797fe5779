# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan of the power changes of a VM, within the permissions of the task. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import FleetError
from .model import OFF, ON, SUSPENDED, VmState

PRESENT = "present"
POWERED_ON = "powered_on"
POWERED_OFF = "powered_off"
ABSENT = "absent"

NEVER = "never"
SOFT = "soft"
HARD = "hard"


class PowerCycleRequired(FleetError):
    code = "power_cycle_required"


class SuspendedVm(FleetError):
    code = "vm_suspended"


@dataclass(frozen=True)
class PowerPlan:
    """The power changes of a VM. `stop` is empty, soft or hard; `after` is the final power state."""

    stop: str = ""
    start: bool = False
    after: str = OFF

    @property
    def changed(self) -> bool:
        return bool(self.stop or self.start)


def power_plan(
    machine: VmState,
    state: str,
    reasons: Sequence[str],
    *,
    power_cycle: str = NEVER,
    discard_suspended: bool = False,
) -> PowerPlan:
    """Plan the power changes of a VM. `reasons` are the changes that require a powered-off VM."""
    wanted = {POWERED_ON: ON, POWERED_OFF: OFF, ABSENT: OFF, PRESENT: machine.power}[state]
    must_stop = bool(reasons) or state in (POWERED_OFF, ABSENT)
    if machine.power == OFF:
        return PowerPlan(start=wanted == ON, after=wanted)
    if machine.power == SUSPENDED:
        return _suspended(machine, wanted, reasons, must_stop=must_stop, discard=discard_suspended)
    if not must_stop:
        return PowerPlan(after=ON)
    # state: powered_off already permits stopping the VM. Shut down the guest unless power_cycle is hard.
    if power_cycle == NEVER and state != POWERED_OFF:
        raise _refusal(machine, state, reasons)
    return PowerPlan(stop=HARD if power_cycle == HARD else SOFT, start=wanted == ON, after=wanted)


def _suspended(machine: VmState, wanted: str, reasons: Sequence[str], *, must_stop: bool, discard: bool) -> PowerPlan:
    if not must_stop:
        return PowerPlan(start=wanted == ON, after=wanted)
    if not discard:
        why = f" It is needed for this: {_and(reasons)}." if reasons else ""
        raise SuspendedVm(
            f"VM {machine.name} is suspended and would have to be powered off, which loses what its memory holds.{why}",
            hint="Resume it and shut it down, or allow it with discard_suspended: true.",
        )
    # The suspended memory is discarded, so the VM is stopped.
    after = ON if wanted == ON else OFF
    return PowerPlan(stop=HARD, start=after == ON, after=after)


def _refusal(machine: VmState, state: str, reasons: Sequence[str]) -> PowerCycleRequired:
    if state == ABSENT:
        message = f"VM {machine.name} runs and is to be deleted."
    else:
        message = f"VM {machine.name} runs and has to be powered off for this: {_and(reasons)}."
    return PowerCycleRequired(message, hint="Nothing was changed. Allow it with power_cycle: soft, or hard.")


def _and(reasons: Sequence[str]) -> str:
    return "; ".join(reasons)
