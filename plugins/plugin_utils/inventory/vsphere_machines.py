# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machines with vGPUs of a vCenter, from a snapshot and the data of VMware Tools. Pure, except for `read`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...module_utils.fleet.model import VSPHERE
from ...module_utils.vsphere.faults import Operation, moid_of
from ...module_utils.vsphere.options import hosts_of
from ...module_utils.vsphere.read import fleet as snapshots
from ...module_utils.vsphere.read.fleet import Snapshot
from ...module_utils.vsphere.read.inventory import VmFacts
from ...module_utils.vsphere.session import Properties, Session
from . import machines
from .addresses import interface, usable
from .machines import Record

GUEST_PATHS = ("guest.ipAddress", "guest.net", "guest.guestFullName", "config.guestFullName")
STATES = {"poweredOn": machines.RUNNING, "suspended": machines.SUSPENDED}


def read(params: Mapping[str, Any]) -> list[Record]:
    """Read hosts and VMs as for a snapshot, and the guests of all machines in one additional call."""
    with Session.open(params) as session:
        snapshot = snapshots.read(session, **hosts_of(params))
        references = [vm.reference for vm in with_vgpus(snapshot)]
        answer = session.read(Operation("read the guests of the VMs"), references, GUEST_PATHS)
    guests = {moid_of(reference): found for reference, found in answer}
    return records(snapshot, guests, str(params["hostname"]))


def with_vgpus(snapshot: Snapshot) -> list[VmFacts]:
    return [vm for vm in snapshot.inventory.vms if vm.vgpus and not vm.template]


def records(snapshot: Snapshot, guests: Mapping[str, Properties], vcenter: str) -> list[Record]:
    places = _places(snapshot)
    hosts = {host.moid: host for host in snapshot.inventory.hosts}
    found = []
    for vm in sorted(with_vgpus(snapshot), key=lambda vm: (vm.name, vm.moid)):
        host, guest = hosts.get(vm.host), guests.get(vm.moid, {})
        node = host.name if host and vm.running else None
        found.append(
            machines.machine(
                identity=f"{vcenter}/{vm.moid}",
                title=f"VM {vm.name} ({vm.moid}) of {vcenter}",
                key=vm.moid,
                host_name=vm.name,
                name=vm.name,
                platform=VSPHERE,
                cluster=(host.cluster if host else "") or vcenter,
                state=STATES.get(vm.power, machines.STOPPED),
                node=node,
                vgpus=list(_vgpus(vm, places.get(vm.moid, {}), node)),
                interfaces=list(_interfaces(guest)) if vm.running else [],
                datacenter=host.datacenter if host else None,
                compute_cluster=host.cluster if host else None,
                moid=vm.moid,
                guest_os=guest.get("guest.guestFullName") or guest.get("config.guestFullName"),
            )
        )
    return found


def _places(snapshot: Snapshot) -> dict[str, dict[str, list[str]]]:
    """Return the GPUs that hold the vGPUs of running VMs, by VM id and profile."""
    found: dict[str, dict[str, list[str]]] = {}
    for gpu, slot in snapshot.fleet.slots():
        for holder in slot.holders:
            if slot.profile and holder.running:
                by_profile = found.setdefault(holder.labels["moid"], {})
                by_profile.setdefault(slot.profile, []).append(gpu.name)
    return found


def _vgpus(vm: VmFacts, places: Mapping[str, list[str]], node: str | None) -> Iterator[Record]:
    left = {profile: list(gpus) for profile, gpus in places.items()}
    for _key, profile in vm.vgpus:
        gpus = left.get(profile)
        yield machines.vgpu(profile, gpu=gpus.pop(0) if gpus else None, node=node)


def _interfaces(guest: Properties) -> Iterator[Record]:
    """Yield the interfaces of the VM's network adapters, first the interface with the primary address of VMware Tools.

    Interfaces that exist only inside the guest, such as container bridges, belong to no adapter.
    """
    primary = guest.get("guest.ipAddress")
    seen = False
    for card in guest.get("guest.net") or []:
        if card.deviceConfigId is None or card.deviceConfigId < 0:
            continue
        listed = [str(address) for address in card.ipAddress or []]
        mine = primary in listed
        seen = seen or mine
        yield interface(card.network, listed, mac=card.macAddress, primary=mine)
    if not seen and usable(primary):
        yield interface("", [primary], primary=True)
