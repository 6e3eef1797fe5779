# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Comparison of the requested location of a VM with its actual location. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ....errors import FleetError
from ...names import path_parts, real_name

# The name in paths of the folder that holds all VMs of a datacenter.
VM_FOLDER = "vm"
# The root resource pool of a cluster, which users do not name.
ROOT_POOL = "Resources"


class VmElsewhere(FleetError):
    code = "vm_elsewhere"


@dataclass(frozen=True)
class Place:
    """The requested location of a VM. Empty fields were not set."""

    datacenter: str = ""
    folder: str = ""
    cluster: str = ""
    resource_pool: str = ""
    esxi_host: str = ""

    @property
    def compute(self) -> bool:
        return bool(self.cluster or self.resource_pool or self.esxi_host)

    @property
    def given(self) -> bool:
        return bool(self.compute or self.datacenter or self.folder)


@dataclass(frozen=True)
class Location:
    """The actual location of a VM. `datacenter` and `path` are inventory paths, `pool` is a path below the cluster."""

    path: str
    datacenter: str = ""
    cluster: str = ""
    pool: str = ""
    running: bool = False
    # The host and all hosts of its cluster, read only if the task names a host.
    host: str = ""
    beside: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]


def is_datacenter(given: str, path: str) -> bool:
    """Return whether `given` is the name or the inventory path of the datacenter."""
    return "/" + "/".join(path_parts(given)) == path or real_name(given) == real_name(path.rpartition("/")[2])


def folder_path(folder: str, datacenter: str) -> str:
    """Return a path such as `/dc1/vm/team` for any notation of a folder, or "" if the datacenter is unknown."""
    parts, home = path_parts(folder), path_parts(datacenter)
    if folder.startswith("/"):
        return _joined(parts)
    if VM_FOLDER in parts[1:]:
        # The folder begins with the name or the path of its datacenter.
        end = parts.index(VM_FOLDER, 1)
        if parts[:end] in (home, home[-1:]) or (not home and end == 1):
            return _joined([*(home or parts[:end]), *parts[end:]])
    if not home:
        return ""
    return _joined([*home, VM_FOLDER, *(parts[1:] if parts[:1] == [VM_FOLDER] else parts)])


def is_pool(given: str, pool: str, cluster: str) -> bool:
    """Return whether `given` is the name of the resource pool, or its path with or without the cluster."""
    wanted = given.strip("/")
    paths = (pool, f"{cluster}/{pool}", f"{cluster}/{ROOT_POOL}/{pool}")
    return wanted in paths or wanted == pool.rpartition("/")[2]


def contradictions(place: Place, location: Location) -> list[str]:
    """Return the differences between the requested and the actual location of a VM."""
    wrong = []
    if place.datacenter and not is_datacenter(place.datacenter, location.datacenter):
        wrong.append(f"its datacenter is {location.datacenter}, not {place.datacenter}")
    if place.folder and location.folder != folder_path(place.folder, location.datacenter):
        wrong.append(f"its folder is {location.folder}, not {place.folder}")
    return wrong + compute_contradictions(place, location)


def compute_contradictions(place: Place, location: Location) -> list[str]:
    wrong = []
    if place.cluster and location.cluster != place.cluster:
        wrong.append(f"its cluster is {location.cluster or 'not known'}, not {place.cluster}")
    if place.resource_pool and not is_pool(place.resource_pool, location.pool, location.cluster):
        wrong.append(f"its resource pool is {location.cluster}/{location.pool}, not {place.resource_pool}")
    if place.esxi_host and location.running and location.host != place.esxi_host:
        wrong.append(f"it runs on host {location.host or 'not known'}, not on {place.esxi_host}")
    # A stopped VM is only registered on its host and can start on any host of its cluster.
    if place.esxi_host and not location.running and place.esxi_host not in location.beside:
        wrong.append(f"host {place.esxi_host} is not in its cluster, {location.cluster or 'not known'}")
    return wrong


def elsewhere(said: str, found: list[tuple[Location, list[str]]]) -> VmElsewhere:
    """Return the error for VM `said` of the task. `found` lists VMs of that name with their contradictions."""
    each = "; ".join(f"{location.path}: {', '.join(wrong)}" for location, wrong in found)
    return VmElsewhere(
        f"VM {said} is not where the task says ({each}).",
        hint="Nothing was changed. Correct the place, use another name, or say with folder and datacenter which VM of"
        " that name is meant.",
    )


def _joined(parts: list[str]) -> str:
    return "/" + "/".join(parts)
