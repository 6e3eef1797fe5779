# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The demands of a task: machines that have to fit, with the vGPUs of each. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidDemand
from ..fleet.model import Holder
from ..fleet.profile_resolver import ProfileResolver
from .label_selector import Selector, parse_selector


@dataclass(frozen=True)
class MachineDemand:
    """A number of machines with the same vGPUs, and `surge` more while they are replaced."""

    name: str
    machines: int
    vgpus: Mapping[str, int] = field(hash=False)
    surge: int = 0
    owner: Selector | None = None
    vms: frozenset[str] = frozenset()

    def owns(self, holder: Holder) -> bool:
        return holder.path in self.vms or (self.owner is not None and self.owner.matches(holder.labels))

    @property
    def vgpus_per_machine(self) -> str:
        return ", ".join(f"{count} x {profile}" for profile, count in sorted(self.vgpus.items()))


def read_demand(entries: Sequence[Mapping[str, Any]], known: ProfileResolver) -> list[MachineDemand]:
    """Return the demands with the profile names of this system. Raise InvalidDemand for an invalid entry."""
    demands = []
    for entry in entries:
        name = entry["name"]
        vgpus: dict[str, int] = {}
        for vgpu in entry.get("vgpus") or []:
            profile = known.resolve(vgpu["profile"])
            vgpus[profile] = vgpus.get(profile, 0) + _at_least(1, vgpu.get("count", 1), "count", name)
        if not vgpus:
            raise InvalidDemand(f"The demand {name} names no vGPUs.", hint="List at least one profile in vgpus.")
        owner = parse_selector(entry["owner"]) if entry.get("owner") else None
        machines = _at_least(0, entry["machines"], "machines", name)
        surge = _at_least(0, entry.get("surge") or 0, "surge", name)
        demands.append(MachineDemand(name, machines, vgpus, surge, owner, frozenset(entry.get("vms") or ())))
    names = [demand.name for demand in demands]
    if len(set(names)) != len(names):
        raise InvalidDemand("Two demands have the same name.", hint="Give each demand a unique name.")
    return demands


def _at_least(minimum: int, number: int, option: str, demand: str) -> int:
    if number < minimum:
        raise InvalidDemand(f"The demand {demand} has {option} {number}.", hint=f"Use {minimum} or more.")
    return number
