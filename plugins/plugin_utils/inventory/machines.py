# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with vGPUs as a record that can be cached, and its host variables. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ...module_utils.fleet import catalog
from ...module_utils.fleet.profile import Key, parse, parse_or_none
from . import addresses

Record = dict[str, Any]

RUNNING, STARTING, STOPPING, PAUSED, SUSPENDED, STOPPED = STATES = (
    "running",
    "starting",
    "stopping",
    "paused",
    "suspended",
    "stopped",
)
# The variables that every machine has. A variable that the platform does not provide is null.
OPTIONAL = ("namespace", "datacenter", "compute_cluster", "moid", "node", "guest_cluster", "pool", "guest_os")


def vgpu(
    type_name: str, *, device: str | None = None, address: str | None = None, gpu: str | None = None, node: str | None
) -> Record:
    """Return a vGPU of a machine. Unknown values are null."""
    short = catalog.spellings(type_name)["short"]
    return {"profile": short, "type": type_name, "device": device, "address": address, "gpu": gpu, "node": node}


def machine(
    *,
    identity: str,
    title: str,
    key: str,
    host_name: str,
    name: str,
    platform: str,
    cluster: str,
    state: str,
    vgpus: Sequence[Record],
    interfaces: Sequence[Record],
    labels: dict[str, str] | None = None,
    restart_required: bool = False,
    **optional: str | None,
) -> Record:
    """Return the record of a machine. `key` distinguishes machines of one name, `title` is for messages."""
    ordered = sorted(vgpus, key=lambda vgpu: (vgpu["type"], vgpu["device"] or "", vgpu["gpu"] or ""))
    return {
        "id": identity,
        "title": title,
        "key": key,
        "name": host_name,
        "interfaces": list(interfaces),
        "variables": {
            "id": identity,
            "name": name,
            "platform": platform,
            "cluster": cluster,
            "state": state,
            "profiles": sorted({vgpu["profile"] for vgpu in ordered}),
            "gpus": sorted({vgpu["gpu"] for vgpu in ordered if vgpu["gpu"]}),
            "vgpus": ordered,
            "labels": dict(sorted((labels or {}).items())),
            "restart_required": restart_required,
            **{variable: optional.get(variable) or None for variable in OPTIONAL},
        },
    }


def variables(record: Record, *, network: str | None = None, cluster: str | None = None) -> Record:
    """Return the host variables of a machine."""
    address = addresses.chosen(record["interfaces"], network)
    told = {
        **record["variables"],
        "address": address,
        "interfaces": addresses.shown(record["interfaces"]),
        **({"cluster": cluster} if cluster else {}),
    }
    found = {f"gpu_vm_{name}": value for name, value in told.items()}
    return {**found, "ansible_host": address} if address else found


@dataclass(frozen=True)
class Selection:
    """The filter for machines that become hosts. None means no filter; an empty list selects nothing."""

    states: frozenset[str]
    namespaces: Sequence[str] | None = None
    profiles: Sequence[str] | None = None
    require_address: bool = False

    def __post_init__(self) -> None:
        # Reject invalid profiles even if there is no machine to compare.
        for profile in self.profiles or ():
            parse(profile)

    def takes(self, found: Record) -> bool:
        """Return whether a machine with these variables becomes a host."""
        namespace = found["gpu_vm_namespace"]
        return (
            found["gpu_vm_state"] in self.states
            and bool(found["gpu_vm_address"] or not self.require_address)
            and (self.namespaces is None or namespace is None or _matches(namespace, self.namespaces))
            and (self._keys is None or any(_key(vgpu["type"]) in self._keys for vgpu in found["gpu_vm_vgpus"]))
        )

    @cached_property
    def _keys(self) -> frozenset[Key | str] | None:
        if self.profiles is None:
            return None
        return frozenset(map(_key, self.profiles))


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _key(profile: str) -> Key | str:
    """Return a key that is equal for all spellings of a profile, by the catalog or by the name itself."""
    parsed = parse_or_none(catalog.spellings(profile)["type"])
    return parsed.key if parsed else profile
