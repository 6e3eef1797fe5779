# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MigConfiguration objects: requested and actual instances, and the patch for them (harvester.md 2.4 and 8.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...fleet.mig import InstanceSize, MigGeometry, geometry_from, match, read_size
from ...kube.client import Json

SYNCED = "synced"
OUT_OF_SYNC = "out-of-sync"


@dataclass(frozen=True)
class MigConfiguration:
    """A MIG configuration: `requested` comes from the spec, `instances` is the last count of the GPU in the status.

    A GPU that was disabled and enabled again may have instances that were not requested (harvester.md 8.3), and while
    the configuration is out of sync the count is outdated.
    """

    enabled: bool = False
    status: str = ""
    message: str = ""
    requested: Mapping[InstanceSize, int] = field(default_factory=Counter, hash=False)
    instances: Mapping[InstanceSize, int] = field(default_factory=Counter, hash=False)
    profiles: tuple[str, ...] = ()
    # Whether the status lists the profiles. Until then no request is accepted.
    counted: bool = False
    # Requested or existing instances whose names cannot be read.
    unreadable: tuple[str, ...] = ()

    @property
    def settled(self) -> bool:
        return self.status in (SYNCED, OUT_OF_SYNC)

    def own(self, instances: Mapping[InstanceSize, int]) -> dict[InstanceSize, int]:
        """Return instances under the names that the GPU lists for their slices."""
        listed = [size for size in map(read_size, self.profiles) if size]
        return {match(size, listed) or size: count for size, count in instances.items() if count}

    @property
    def geometry(self) -> MigGeometry | None:
        return geometry_from(self.profiles)


def read_configuration(item: Json) -> MigConfiguration:
    spec, status = item.get("spec") or {}, item.get("status") or {}
    requested: Counter[InstanceSize] = Counter()
    instances: Counter[InstanceSize] = Counter()
    unreadable: set[str] = set()
    entries = spec.get("profileSpec") or []
    for entry in entries:
        name, count = entry.get("name") or "", entry.get("requested") or 0
        size = read_size(name)
        if size and count > 0:
            requested[size] += count
        elif count > 0:
            unreadable.add(name)
    for entry in status.get("profileStatus") or []:
        name, numbers = entry.get("name") or "", entry.get("vGPUID") or ()
        size = read_size(name)
        if size and numbers:
            instances[size] += len(numbers)
        elif numbers:
            unreadable.add(name)
    return MigConfiguration(
        enabled=bool(spec.get("enabled")),
        status=status.get("status") or "",
        message=status.get("message") or "",
        requested=requested,
        instances=instances,
        profiles=tuple(entry.get("name") or "" for entry in entries),
        counted=bool(status.get("profileStatus")),
        unreadable=tuple(sorted(unreadable)),
    )


def enabling(item: Json, instances: Mapping[InstanceSize, int]) -> Json:
    """Return the patch that requests these instances and no others.

    Harvester creates instances in the order of the spec, and small instances that come first would block the room of
    large ones (harvester.md 8.1). Entries whose names cannot be read stay as they are, after the others.
    """
    instances = read_configuration(item).own(instances)
    entries = (item.get("spec") or {}).get("profileSpec") or []
    known = [(size, entry) for entry in entries if (size := read_size(entry.get("name") or ""))]
    known.sort(key=lambda item: item[0].order)
    spec = [{**entry, "requested": instances.get(size, 0)} for size, entry in known]
    spec += [entry for entry in entries if not read_size(entry.get("name") or "")]
    return {"spec": {"enabled": True, "profileSpec": spec}}


DISABLING: Json = {"spec": {"enabled": False}}
