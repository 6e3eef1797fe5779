# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A MigConfiguration: what it asks for, what the card has, and the request that changes it (facts 1.3 and 3.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.api import Json
from ansible_collections.vgpu.fleet.plugins.module_utils.mig import Geometry, Size, geometry_from, read_size

SYNCED = "synced"
OUT_OF_SYNC = "out-of-sync"


@dataclass(frozen=True)
class MigConfiguration:
    """`requested` is what the spec asks for, `instances` what the status last counted on the card.

    A card that was switched off and on again may have instances that the spec does not ask for (facts 4.4.4), and while
    it is out of sync the count is that of an earlier time.
    """

    enabled: bool = False
    status: str = ""
    message: str = ""
    requested: Mapping[Size, int] = field(default_factory=Counter, hash=False)
    instances: Mapping[Size, int] = field(default_factory=Counter, hash=False)
    profiles: tuple[str, ...] = ()
    # Whether the status lists the profiles, without which no request is accepted.
    counted: bool = False

    @property
    def settled(self) -> bool:
        return self.status in (SYNCED, OUT_OF_SYNC)

    @property
    def geometry(self) -> Geometry | None:
        return geometry_from(self.profiles)


def read_configuration(item: Json) -> MigConfiguration:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    requested: Counter[Size] = Counter()
    instances: Counter[Size] = Counter()
    entries = spec.get("profileSpec") or []
    for entry in entries:
        size = read_size(entry.get("name", ""))
        if size and entry.get("requested", 0) > 0:
            requested[size] += entry["requested"]
    for entry in status.get("profileStatus") or []:
        size = read_size(entry.get("name", ""))
        if size and entry.get("vGPUID"):
            instances[size] += len(entry["vGPUID"])
    return MigConfiguration(
        enabled=bool(spec.get("enabled")),
        status=status.get("status") or "",
        message=status.get("message") or "",
        requested=requested,
        instances=instances,
        profiles=tuple(entry.get("name", "") for entry in entries),
        counted=bool(status.get("profileStatus")),
    )


def enabling(item: Json, instances: Mapping[Size, int]) -> Json:
    """The patch that asks for these instances and no others.

    Harvester creates them in the order of the spec, and small ones first would lie in the way of large ones
    (facts 3.6 M1).
    """
    entries = [(read_size(entry.get("name", "")), entry) for entry in (item.get("spec") or {}).get("profileSpec") or []]
    entries.sort(key=lambda one: (-one[0].gib, -one[0].compute, not one[0].media) if one[0] else (0, 0, True))
    spec = [{**entry, "requested": instances.get(size, 0) if size else 0} for size, entry in entries]
    return {"spec": {"enabled": True, "profileSpec": spec}}


DISABLING: Json = {"spec": {"enabled": False}}
