# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Conversion of the vCenter inventory into a Fleet. Pure.

On vSphere a vGPU exists only while its VM runs. A GPU therefore has a slot for each running vGPU and one empty slot
with the available profiles. Powered-off VMs claim vGPUs of their cluster, or of their host if DRS is disabled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...fleet import catalog, model as record
from ...fleet.profile import board_key, parse_or_none
from ...fleet.profile_resolver import ProfileResolver
from ..session import Session
from . import inventory as facts, mig
from .inventory import GpuFacts, HostFacts, Inventory, VmFacts
from .occupancy import GpuAssignment, occupancy

MODES = {"sameSize": record.TIME_SLICED, "mixedSize": record.MIXED_SIZE, "multiInstanceGpu": record.MIG}
# Since this version, a GPU accepts all profiles of one size; older versions accept only one profile (vsphere.md 3.2).
SIZES_PIN = (8, 0, 2)


@dataclass(frozen=True)
class Snapshot:
    inventory: Inventory

    @cached_property
    def hosts(self) -> Mapping[str, HostFacts]:
        return {host.name: host for host in self.inventory.hosts}

    @cached_property
    def vms(self) -> Mapping[str, VmFacts]:
        """Return the VMs of GPU hosts, by id."""
        return {vm.moid: vm for vm in self.inventory.vms}

    def cluster_of(self, holder: record.Holder) -> str:
        """Return the id of the VM's cluster, or an empty string if the VM is not in the snapshot."""
        vm = self.vms.get(holder.labels.get("moid", ""))
        return self._cluster_ids.get(vm.host, "") if vm else ""

    @cached_property
    def _cluster_ids(self) -> Mapping[str, str]:
        return {host.moid: host.cluster_id for host in self.inventory.hosts}

    @cached_property
    def fleet(self) -> record.Fleet:
        return self._fleet(frozenset())

    def fleet_without(self, *moids: str) -> record.Fleet:
        """Return the fleet without these VMs: neither their vGPUs nor their claims."""
        if any(self.vms[moid].running for moid in moids if moid in self.vms):
            return self._fleet(frozenset(moids))
        if not moids:
            return self.fleet
        released = frozenset(moids)
        kept = tuple(claim for claim in self.fleet.claims if claim.holder.labels["moid"] not in released)
        return replace(self.fleet, claims=kept)

    def with_host(self, changed: HostFacts) -> Snapshot:
        """Return the snapshot with one host changed. The records of the other hosts are shared."""
        hosts = tuple(changed if host.moid == changed.moid else host for host in self.inventory.hosts)
        snapshot = Snapshot(replace(self.inventory, hosts=hosts))
        snapshot._built.update({key: built for key, built in self._built.items() if key[0] != changed.moid})
        return snapshot

    @cached_property
    def known(self) -> ProfileResolver:
        """Return a resolver for the profiles that the hosts offer, in vSphere spelling."""
        return ProfileResolver(sorted({name for host in self.inventory.hosts for name in host.profiles}))

    @cached_property
    def notes(self) -> Mapping[str, tuple[str, ...]]:
        """Return by GPU the reasons why its counts are not exact."""
        return {name: notes for host in self.inventory.gpu_hosts for name, notes in self.notes_of(host).items()}

    def notes_of(self, host: HostFacts) -> Mapping[str, tuple[str, ...]]:
        """Return the notes on the GPUs of one host, by name of the GPU."""
        if host.moid not in self._notes:
            self._notes[host.moid] = {gpu_name(host.name, gpu.address): notes for gpu, notes in self._gpu_notes(host)}
        return self._notes[host.moid]

    @cached_property
    def _notes(self) -> dict[str, Mapping[str, tuple[str, ...]]]:
        return {}

    @cached_property
    def _built(self) -> dict[tuple[str, frozenset[str]], tuple[record.Node, GpuAssignment]]:
        """Return the cache of host records, by host id and excluded VMs."""
        return {}

    @cached_property
    def holders(self) -> Mapping[str, record.Holder]:
        """Return the VMs as holders, by id. VMs that share a name get their id as namespace."""
        counted = Counter(vm.name for vm in self.inventory.vms)
        hosts = {host.moid: host for host in self.inventory.hosts}
        return {
            vm.moid: record.Holder(
                name=vm.name,
                namespace=vm.moid if counted[vm.name] > 1 else "",
                running=vm.running,
                labels={
                    "moid": vm.moid,
                    "name": vm.name,
                    "host": hosts[vm.host].name if vm.host in hosts else "",
                    "cluster": hosts[vm.host].cluster if vm.host in hosts else "",
                    "datacenter": hosts[vm.host].datacenter if vm.host in hosts else "",
                },
            )
            for vm in self.inventory.vms
        }

    @cached_property
    def _by_host(self) -> Mapping[str, list[VmFacts]]:
        found: dict[str, list[VmFacts]] = {}
        for vm in self.inventory.vms:
            found.setdefault(vm.host, []).append(vm)
        return found

    def _vms_on(self, host: HostFacts) -> list[VmFacts]:
        return self._by_host.get(host.moid, [])

    # Building
    def _fleet(self, without: frozenset[str]) -> record.Fleet:
        nodes: list[record.Node] = []
        claims: list[record.UnboundRequest] = []
        for host in self.inventory.hosts:
            vms = [vm for vm in self._vms_on(host) if vm.vgpus and vm.moid not in without]
            node, on_gpus = self._build(host, vms, without)
            nodes.append(node)
            for vm in vms:
                if vm.template or (vm.running and vm.moid not in on_gpus.unlisted):
                    continue
                # The host is known if the VM runs, or if it will start without DRS.
                where = host.name if vm.running or not host.drs else None
                counted = Counter(profile for _key, profile in vm.vgpus)
                claims.extend(
                    record.UnboundRequest(profile, count, self.holders[vm.moid], where)
                    for profile, count in sorted(counted.items())
                )
        return record.Fleet(tuple(nodes), tuple(claims))

    def _build(
        self, host: HostFacts, vms: Sequence[VmFacts], without: frozenset[str]
    ) -> tuple[record.Node, GpuAssignment]:
        key = (host.moid, without.intersection(vm.moid for vm in self._vms_on(host)) if without else without)
        if key not in self._built:
            on_gpus = self._occupancy(host, vms)
            self._built[key] = (self._node(host, on_gpus), on_gpus)
        return self._built[key]

    def _occupancy(self, host: HostFacts, vms: Sequence[VmFacts]) -> GpuAssignment:
        mixing = {gpu.address: mode_of(host, gpu) != record.TIME_SLICED for gpu in host.gpus}
        return occupancy(host.gpus, [vm for vm in vms if vm.running], mixing, by_type=pinned_by_type(host))

    def _node(self, host: HostFacts, on_gpus: GpuAssignment) -> record.Node:
        return record.Node(
            name=host.name,
            ready=host.connected,
            schedulable=not host.maintenance,
            labels={
                "cluster": host.cluster,
                "datacenter": host.datacenter,
                "moid": host.moid,
                "version": host.version,
                "assignment_policy": host.policy,
            },
            gpus=tuple(self._gpu(host, gpu, on_gpus) for gpu in host.gpus),
        )

    def _gpu(self, host: HostFacts, gpu: GpuFacts, on_gpus: GpuAssignment) -> record.Gpu:
        name = gpu_name(host.name, gpu.address)
        held = [
            (self.holders[moid], profile)
            for moid, profiles in sorted(on_gpus.by_gpu.get(gpu.address, {}).items())
            for profile in sorted(profiles.elements())
        ]
        slots = [
            record.Slot(
                name=f"{name}-{number}",
                profile=profile,
                wanted=profile,
                allocatable=True,
                holders=(holder,),
            )
            for number, (holder, profile) in enumerate(held, start=1)
        ]
        blocked = why_blocked(host, gpu)
        offered = offers(host, gpu)
        if held and pinned_by_type(host) and mode_of(host, gpu) == record.TIME_SLICED:
            offered = tuple(type_name for type_name in offered if type_name == held[0][1])
        if not blocked:
            slots.append(record.Slot(name=f"{name}-free", offered=offered))
        boards = boards_of(host, gpu)
        mode = mode_of(host, gpu)
        return record.Gpu(
            name=name,
            node=host.name,
            platform=record.VSPHERE,
            address=gpu.address,
            boards=boards,
            framebuffer_mib=_framebuffer(host, gpu, boards),
            mode=mode,
            sharing=gpu.graphics_type == facts.SHARED_DIRECT,
            slots=tuple(slots),
            max_instances=mig.instances(boards, offered, [profile for _holder, profile in held])
            if mode == record.MIG
            else {},
            blocked=blocked,
        )

    def _gpu_notes(self, host: HostFacts) -> Iterator[tuple[GpuFacts, tuple[str, ...]]]:
        on_gpus = self._occupancy(host, [vm for vm in self._vms_on(host) if vm.vgpus])
        here = {vm.moid for vm in self._vms_on(host)}
        unlisted = [
            f"VM {self.vms[moid].name} runs with vGPUs, and no GPU of host {host.name} lists it."
            for moid in sorted(on_gpus.unlisted)
        ]
        for gpu in host.gpus:
            mode = mode_of(host, gpu)
            notes = list(unlisted)
            if mode == record.MIG and gpu.vms:
                notes.append("Where MIG instances lie is known to the driver only.")
            if gpu.vgpu_mode not in MODES and len({_is_mig(name) for name in offers(host, gpu, any_mode=True)}) > 1:
                notes.append("Before 8.0.3 vSphere does not tell whether a GPU is in MIG mode.")
            notes.extend(
                f"How many vGPUs of VM {self.vms[moid].name} are on this GPU is not told."
                for moid in sorted(on_gpus.ambiguous & set(gpu.vms))
            )
            notes.extend(
                f"The GPU lists VM {moid}, which host {host.name} does not have."
                for moid in sorted(set(gpu.vms) - here)
            )
            yield gpu, tuple(notes)


def gpu_name(host: str, address: str) -> str:
    """Return the GPU name, made of host and PCI address as on Harvester."""
    return f"{host}-{address.replace(':', '').replace('.', '')}"


def pinned_by_type(host: HostFacts) -> bool:
    return bool(host.numbers) and host.numbers < SIZES_PIN


def mode_of(host: HostFacts, gpu: GpuFacts) -> str:
    """Return the mode of a GPU. Before 8.0.3, a GPU is in MIG mode if it offers only MIG profiles."""
    if gpu.vgpu_mode in MODES:
        return MODES[gpu.vgpu_mode]
    listed = offers(host, gpu, any_mode=True)
    return record.MIG if listed and all(map(_is_mig, listed)) else record.TIME_SLICED


def offers(host: HostFacts, gpu: GpuFacts, *, any_mode: bool = False) -> tuple[str, ...]:
    """Return the host's profiles for this GPU, matched by PCI id or, before 7.0.3, by the board in the name."""
    if host.details and gpu.device is not None:
        listed = [detail.name for detail in host.details if detail.device == gpu.device]
    else:
        wanted = {board_key(board) for board in _boards_by_id(host, gpu)}
        parsed = ((name, parse_or_none(name)) for name in host.profiles)
        listed = [name for name, one in parsed if one and (not wanted or one.key[0] in wanted)]
    if not any_mode:
        in_mig = mode_of(host, gpu) == record.MIG
        listed = [name for name in listed if _is_mig(name) == in_mig]
    return tuple(dict.fromkeys(listed))


def boards_of(host: HostFacts, gpu: GpuFacts) -> tuple[str, ...]:
    """Return the possible boards of a GPU, by its profiles or else by its PCI id, which boards can share."""
    named = {offer.board for offer in map(parse_or_none, offers(host, gpu, any_mode=True)) if offer}
    found = {board.name if (board := catalog.find_board(name)) else name for name in named}
    return tuple(sorted(found)) or _boards_by_id(host, gpu)


def _boards_by_id(host: HostFacts, gpu: GpuFacts) -> tuple[str, ...]:
    if gpu.device is None:
        return ()
    boards = catalog.boards_with_pci_id(f"{gpu.device >> 16:04x}")
    named = {profile.key[0] for profile in map(parse_or_none, host.profiles) if profile}
    shown = [board.name for board in boards if board_key(board.name) in named]
    return tuple(shown or (board.name for board in boards))


def _framebuffer(host: HostFacts, gpu: GpuFacts, boards: Sequence[str]) -> int | None:
    """Return the framebuffer from the host or else the catalog. graphicsInfo reports slightly less (vsphere.md 3.1)."""
    if gpu.device is not None and gpu.device in host.framebuffers:
        return host.framebuffers[gpu.device]
    known = {board.framebuffer_mib for board in map(catalog.find_board, boards) if board}
    return known.pop() if len(known) == 1 else None


def why_blocked(host: HostFacts, gpu: GpuFacts) -> str:
    """Return the first reason why this GPU serves no vGPUs."""
    if not host.connected:
        return f"host {host.name} is not connected"
    if host.maintenance:
        return f"host {host.name} is in maintenance mode"
    if gpu.graphics_type == facts.DIRECT:
        return "it is given away whole (DirectPath I/O)"
    configured = host.configured.get(gpu.address)
    if gpu.graphics_type != facts.SHARED_DIRECT:
        if configured and configured.graphics_type == facts.SHARED_DIRECT:
            return "it will be shared direct only after a restart of Xorg or of the host"
        return "it is not shared direct"
    if not offers(host, gpu):
        return f"host {host.name} offers no vGPU profiles for it: the NVIDIA host driver is missing or does not work"
    return ""


def _is_mig(name: str) -> bool:
    parsed = parse_or_none(name)
    return bool(parsed and parsed.mig)


def read(
    session: Session,
    *,
    datacenter: str | None = None,
    cluster: str | None = None,
    esxi_hosts: Sequence[str] | None = None,
) -> Snapshot:
    return Snapshot(facts.read(session, datacenter=datacenter, cluster=cluster, esxi_hosts=esxi_hosts))
