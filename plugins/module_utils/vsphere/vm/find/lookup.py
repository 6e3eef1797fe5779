# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lookup of the VM of a task by its name and location."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...names import is_same_path
from ...session import Session
from ..apply import HostCache
from ..decide.place import Location, contradictions, elsewhere
from ..request import VmRequest
from .finder import VmFinder
from .read import VmSnapshot, read_vm


def look_up(session: Session, request: VmRequest, tree: VmFinder, hosts: HostCache) -> VmSnapshot | None:
    """Return the VM that the request identifies, or None.

    Reject a VM of this name in another location, unless its datacenter lacks the requested cluster or host.
    """
    identity, place = request.identity, request.place
    candidates = tree.candidates(identity)
    if len(candidates) > 1 and not place.compute:
        raise tree.ambiguous(identity.name, candidates)
    seen = [_seen(session, reference, request, hosts) for reference in candidates]
    judged = [(vm, contradictions(place, vm.location)) for vm in seen]
    inside = [one for one, wrong in judged if not wrong]
    if len(inside) > 1:
        raise tree.ambiguous(identity.name, [vm.reference for vm in inside])
    if inside:
        return inside[0]
    near = [(one.location, wrong) for one, wrong in judged if identity.certain or _in_reach(one, request, hosts)]
    if near:
        raise elsewhere(identity.said, near)
    return None


def left_alone(request: VmRequest, tree: VmFinder) -> list[str]:
    """Return the paths of other VMs that have the requested name."""
    if request.identity.certain:
        return []
    return [entry.path for entry in tree.named(request.identity.name)]


def _seen(session: Session, reference: Any, request: VmRequest, hosts: HostCache) -> VmSnapshot:
    seen = read_vm(session, reference, request.identity.said, compute=request.place.compute)
    if not request.place.esxi_host:
        return seen
    home = next((host for host in hosts.all if host.moid == seen.machine.host), None)
    location: Location = replace(
        seen.location,
        host=home.name if home else "",
        beside=tuple(host.name for host in hosts.beside(seen.machine)),
    )
    return replace(seen, location=location)


def _in_reach(seen: VmSnapshot, request: VmRequest, hosts: HostCache) -> bool:
    """Return whether the VM's datacenter has the requested cluster or host. Names are unique per datacenter only."""
    place = request.place
    if not place.cluster and not place.esxi_host:
        return True
    return any(
        is_same_path(host.datacenter_path, seen.location.datacenter)
        for host in hosts.all
        if place.cluster in ("", host.cluster) and place.esxi_host in ("", host.name)
    )
