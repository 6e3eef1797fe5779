# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait conditions for GPUs in MIG mode: the configuration, its instances, and the types that they serve."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import join_names
from ..fleet.mig import InstanceSize, format_instances, match, size_of
from ..fleet.profile import parse_or_none
from . import paths as r
from .conditions import ObjectLookup
from .read.mig_configuration import OUT_OF_SYNC, SYNCED, MigConfiguration, read_configuration

if TYPE_CHECKING:
    from .read.snapshot import Snapshot

# Harvester does not process a configuration again that was disabled before it had any instance.
STUCK = "its MIG configuration is disabled and still {}; switching SR-IOV off and on resets it"


def configuration(seen: ObjectLookup, gpu: str) -> MigConfiguration | None:
    item = seen.get(r.MIG_CONFIGURATIONS, gpu)
    return read_configuration(item) if item is not None else None


def mig_layouts(snapshot: Snapshot) -> dict[str, str]:
    """Return a description of the MIG instances of each GPU that has any."""
    configurations = {name: read_configuration(item) for name, item in snapshot.mig.items.items()}
    return {name: format_instances(mig.instances) for name, mig in configurations.items() if mig.instances}


@dataclass(frozen=True)
class _MigCondition:
    """A condition on one GPU."""

    device: str
    node: str

    @property
    def about(self) -> frozenset[str]:
        return frozenset((self.device,))


@dataclass(frozen=True)
class MigConfigAvailable(_MigCondition):
    """The GPU has a MIG configuration that lists the available instances."""

    def missing(self, seen: ObjectLookup) -> str:
        found = configuration(seen, self.device)
        if found is None:
            return "it has no MIG configuration, which Harvester makes when SR-IOV is switched on"
        return "" if found.profiles else "its MIG configuration lists no profiles"


@dataclass(frozen=True)
class MigInstancesRemoved(_MigCondition):
    """The GPU has no instances, and its MIG configuration accepts a new request."""

    def missing(self, seen: ObjectLookup) -> str:
        found = configuration(seen, self.device)
        if found is None:
            return "it has no MIG configuration"
        if found.enabled:
            return "its MIG configuration is enabled"
        if found.instances:
            return f"it still has {format_instances(found.instances)}"
        if found.settled:
            return STUCK.format(found.status)
        return "" if found.counted else "its MIG configuration does not say what is available"


@dataclass(frozen=True)
class MigDisabled(_MigCondition):
    """MIG is disabled: the GPU has no MIG configuration, or a disabled one without instances."""

    def missing(self, seen: ObjectLookup) -> str:
        found = configuration(seen, self.device)
        if found is None:
            return ""
        if found.enabled or found.instances:
            return f"it still has {format_instances(found.instances)}"
        return STUCK.format(found.status) if found.settled else ""


@dataclass(frozen=True)
class MigInstancesReady(_MigCondition):
    """The GPU has exactly these instances, and its vGPU devices offer the types that they serve."""

    instances: Mapping[InstanceSize, int] = field(default_factory=dict, hash=False)

    def missing(self, seen: ObjectLookup) -> str:
        found = configuration(seen, self.device)
        if found is None:
            return "it has no MIG configuration"
        if found.status == OUT_OF_SYNC:
            return f"its MIG configuration is out of sync{f' ({found.message})' if found.message else ''}"
        wanted = found.own(self.instances)
        if found.status != SYNCED or dict(found.instances) != wanted:
            return f"it has {format_instances(found.instances)} and not {format_instances(wanted)}"
        served = set(_types(seen, self.device))
        missing = [size.name for size, count in self.instances.items() if count and match(size, served) is None]
        return f"none of its vGPU devices offers what {join_names(missing)} serves" if missing else ""


def _types(seen: ObjectLookup, gpu: str) -> Iterator[InstanceSize]:
    """Yield the instance sizes whose types a vGPU device of the GPU offers or has."""
    names = ((seen.get(r.GPUS, gpu) or {}).get("status") or {}).get("vGPUDevices") or []
    for name in names:
        status = (seen.get(r.VGPUS, name) or {}).get("status") or {}
        for type_name in (*(status.get("availableTypes") or ()), status.get("configureVGPUTypeName")):
            parsed = parse_or_none(type_name)
            size = size_of(parsed) if parsed else None
            if size:
                yield size
