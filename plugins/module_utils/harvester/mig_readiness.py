# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is waited for on GPUs in MIG mode: a configuration to write to, its instances, and the types they serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import listing
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import resources as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.mig_configuration import (
    OUT_OF_SYNC,
    SYNCED,
    MigConfiguration,
    read_configuration,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.readiness import Seen
from ansible_collections.vgpu.fleet.plugins.module_utils.mig import Size, described, size_of
from ansible_collections.vgpu.fleet.plugins.module_utils.profile import parse_or_none

# Harvester never looks again at a configuration that was disabled before it had any instance.
STUCK = "its MIG configuration is disabled and still {}; switching SR-IOV off and on resets it"


def configuration(seen: Seen, gpu: str) -> MigConfiguration | None:
    item = seen.get(r.MIG_CONFIGURATIONS, gpu)
    return read_configuration(item) if item is not None else None


@dataclass(frozen=True)
class _MigGoal:
    """About one GPU."""

    device: str
    node: str

    @property
    def about(self) -> frozenset[str]:
        return frozenset((self.device,))


@dataclass(frozen=True)
class MigListed(_MigGoal):
    """There is a MIG configuration, and it says which instances the GPU could have."""

    def lacking(self, seen: Seen) -> str:
        found = configuration(seen, self.device)
        if found is None:
            return "it has no MIG configuration, which Harvester makes when SR-IOV is switched on"
        return "" if found.profiles else "its MIG configuration lists no profiles"


@dataclass(frozen=True)
class MigCleared(_MigGoal):
    """No instances are left, and the configuration takes a new request."""

    def lacking(self, seen: Seen) -> str:
        found = configuration(seen, self.device)
        if found is None:
            return "it has no MIG configuration"
        if found.enabled:
            return "its MIG configuration is enabled"
        if found.instances:
            return f"it still has {described(found.instances)}"
        if found.settled:
            return STUCK.format(found.status)
        return "" if found.counted else "its MIG configuration does not say what is available"


@dataclass(frozen=True)
class MigGone(_MigGoal):
    """MIG is off: there is no configuration, or it is disabled and nothing is left of its instances."""

    def lacking(self, seen: Seen) -> str:
        found = configuration(seen, self.device)
        if found is None:
            return ""
        if found.enabled or found.instances:
            return f"it still has {described(found.instances)}"
        return STUCK.format(found.status) if found.settled else ""


@dataclass(frozen=True)
class MigServing(_MigGoal):
    """The GPU has exactly these instances, and its vGPU devices offer the types that they serve."""

    instances: Mapping[Size, int] = field(default_factory=dict, hash=False)

    def lacking(self, seen: Seen) -> str:
        found = configuration(seen, self.device)
        if found is None:
            return "it has no MIG configuration"
        if found.status == OUT_OF_SYNC:
            return f"its MIG configuration is out of sync{f' ({found.message})' if found.message else ''}"
        if found.status != SYNCED or dict(found.instances) != {size: n for size, n in self.instances.items() if n}:
            return f"it has {described(found.instances)} and not {described(self.instances)}"
        served = set(_types(seen, self.device))
        missing = [size.name for size, count in self.instances.items() if count and size not in served]
        return f"none of its vGPU devices offers what {listing(missing)} serves" if missing else ""


def _types(seen: Seen, gpu: str) -> Iterator[Size]:
    """The instances whose types some vGPU device of a GPU offers or has."""
    names = ((seen.get(r.GPUS, gpu) or {}).get("status") or {}).get("vGPUDevices") or []
    for name in names:
        status = (seen.get(r.VGPUS, name) or {}).get("status") or {}
        for type_name in (*(status.get("availableTypes") or ()), status.get("configureVGPUTypeName")):
            parsed = parse_or_none(type_name)
            size = size_of(parsed) if parsed else None
            if size:
                yield size
