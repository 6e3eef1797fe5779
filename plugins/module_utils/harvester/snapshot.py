# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One reading of the cluster: a constant number of lists, side by side, and the record made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ansible_collections.vgpu.fleet.plugins.module_utils import catalog, fleet as record
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import era as eras, resources as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.api import ApiServer, Forbidden, Json, NotFound
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.mig_configuration import (
    OUT_OF_SYNC,
    read_configuration,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.known import KnownProfiles
from ansible_collections.vgpu.fleet.plugins.module_utils.mig import served_type, size_of
from ansible_collections.vgpu.fleet.plugins.module_utils.profile import parse_or_none

# The lists that are followed by watches, and where a snapshot keeps them.
OBSERVABLE = {
    r.GPUS: "gpus",
    r.VGPUS: "vgpus",
    r.NODES: "nodes",
    r.CLAIMS: "claims",
    r.MIG_CONFIGURATIONS: "mig",
}


class AddonMissing(FleetError):
    code = "addon_missing"


@dataclass(frozen=True)
class Listing:
    """A list as the API gave it, by name (namespace/name for what lives in one)."""

    items: Mapping[str, Json] = field(default_factory=dict)
    revision: str = "0"

    @classmethod
    def of(cls, answer: Json) -> Listing:
        items = {key_of(item): item for item in answer.get("items") or []}
        return cls(items, str((answer.get("metadata") or {}).get("resourceVersion", "0")))


def key_of(item: Json) -> str:
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


@dataclass(frozen=True)
class Snapshot:
    """The lists of one reading. Everything else is computed from them."""

    era: eras.Era
    gpus: Listing
    vgpus: Listing
    nodes: Listing
    vms: Listing
    instances: Listing
    claims: Listing
    pci_devices: Listing = field(default_factory=Listing)
    mig: Listing = field(default_factory=Listing)
    # The boards of GPUs as an earlier reading found them: one that was switched off does not show its own any more.
    boards: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def get(self, path: str, name: str) -> Json | None:
        """An object by the path of its resource."""
        listing: Listing = getattr(self, OBSERVABLE[path])
        return listing.items.get(name)

    @cached_property
    def known(self) -> KnownProfiles:
        names: set[str] = set()
        for vgpu in self.vgpus.items.values():
            status = vgpu.get("status") or {}
            names.update(status.get("availableTypes") or ())
            if status.get("configureVGPUTypeName"):
                names.add(status["configureVGPUTypeName"])
        return KnownProfiles(sorted(names))

    @cached_property
    def users(self) -> Users:
        return Users(self)

    @cached_property
    def children(self) -> dict[str, list[Json]]:
        """vGPU devices by the name of their GPU. Labels get lost (facts 4.4.10), addresses do not."""
        found: dict[str, list[Json]] = {}
        for vgpu in self.vgpus.items.values():
            found.setdefault(parent_of(vgpu), []).append(vgpu)
        return found

    @cached_property
    def fleet(self) -> record.Fleet:
        counted = self._counted()
        by_node: dict[str, list[record.Gpu]] = {}
        for name, gpu in self.gpus.items.items():
            slots = tuple(self._slot(vgpu, counted) for vgpu in self.children.get(name, []))
            by_node.setdefault(gpu["spec"].get("nodeName", ""), []).append(self._gpu(name, gpu, slots))
        nodes = tuple(self._node(name, node, by_node.get(name, [])) for name, node in self.nodes.items.items())
        return record.Fleet(nodes, self.users.unbound_claims())

    def _node(self, name: str, node: Json, gpus: list[record.Gpu]) -> record.Node:
        status = node.get("status") or {}
        conditions = {one["type"]: one["status"] for one in status.get("conditions") or []}
        return record.Node(
            name=name,
            ready=conditions.get("Ready") == "True",
            schedulable=not (node.get("spec") or {}).get("unschedulable", False),
            labels=(node["metadata"].get("labels") or {}),
            gpus=tuple(gpus),
            advertised=self.advertised(node),
        )

    def advertised(self, node: Json) -> dict[str, int]:
        """The node's allocatable vGPUs by type name; a resource that no known type has is kept by its own name."""
        counts: dict[str, int] = {}
        for resource, amount in ((node.get("status") or {}).get("allocatable") or {}).items():
            if resource.startswith("nvidia.com/"):
                counts[self.known.by_resource(resource) or resource] = int(amount)
        return counts

    def _gpu(self, name: str, gpu: Json, slots: tuple[record.Slot, ...]) -> record.Gpu:
        by_device = self.boards.get(name) or _boards_by_device(self.pci_devices.items.get(name))
        boards = _boards_by_types(slots) or by_device
        mig = self.mig.items.get(name)
        return record.Gpu(
            name=name,
            node=gpu["spec"].get("nodeName", ""),
            address=gpu["spec"].get("address", ""),
            boards=boards,
            mode=record.MIG if self._in_mig_mode(name, gpu, boards, slots) else record.TIME_SLICED,
            sharing=bool(gpu["spec"].get("enabled")),
            vf_capacity=len((gpu.get("status") or {}).get("vfAddresses") or []) or None,
            slots=slots,
            max_instances=_mig_instances(mig, boards, slots),
            blocked="claimed for passthrough" if name in self.claims.items else "",
        )

    def _in_mig_mode(self, name: str, gpu: Json, boards: tuple[str, ...], slots: tuple[record.Slot, ...]) -> bool:
        """Whether a GPU is in MIG mode, or will be with SR-IOV on: from 1.7 on Harvester sees to that (facts 3.2)."""
        shown = [parsed.mig for parsed in map(parse_or_none, _types(slots)) if parsed]
        if name in self.mig.items or any(shown):
            return True
        capable = bool(boards) and all(board and board.mig_capable for board in map(catalog.find_board, boards))
        return capable and not shown and self.era.has_mig and not (self.era.skips_mig and skips_mig(gpu))

    def _slot(self, vgpu: Json, counted: set[str]) -> record.Slot:
        name, spec, status = vgpu["metadata"]["name"], vgpu["spec"], vgpu.get("status") or {}
        configured = self.configured_as(vgpu)
        asked = spec.get("vGPUTypeName") or configured
        # A type that was never a type is still asked for, and stands in the way.
        wanted = (asked or UNNAMED) if spec.get("enabled") else None
        offered = tuple(status.get("availableTypes") or ())
        handed_out = self.handed_out_as(vgpu)
        if handed_out and configured:
            configured = handed_out
        elif handed_out and handed_out != wanted:
            # A claim that its vGPU left behind: whatever is put here would be handed out as that (facts 4.4.1).
            offered = tuple(one for one in offered if one == handed_out)
        return record.Slot(
            name=name,
            address=spec.get("address", ""),
            profile=configured,
            wanted=wanted,
            allocatable=name in counted,
            holders=self.users.holders(name),
            offered=offered,
        )

    def configured_as(self, vgpu: Json) -> str | None:
        """The type that the driver has put on a device.

        From 1.8 on the driver only knows its number. If the controller's note of the name got lost, the claim, which
        was made for the same request, still has it.
        """
        status = vgpu.get("status") or {}
        if status.get("vGPUStatus") != r.CONFIGURED:
            return None
        return status.get("configureVGPUTypeName") or self.handed_out_as(vgpu)

    def handed_out_as(self, vgpu: Json) -> str | None:
        """The type under which a node hands this device out, where that is recorded.

        From 1.8 on that is a claim's business, and it may name another type than the status does (facts 4.4.7).
        """
        claim = self.claims.items.get(vgpu["metadata"]["name"]) if self.era.vendor_vfio else None
        resource = claimed_resource(claim)
        if resource is None:
            return None
        status_type = (vgpu.get("status") or {}).get("configureVGPUTypeName") or ""
        if resource == self.era.resource(status_type):
            return str(status_type)
        return self.known.by_resource(resource) or resource

    def _counted(self) -> set[str]:
        """The vGPUs that their nodes count as allocatable.

        A node only says how many of a type there are. If they are fewer than the devices, those that VMs run on are
        among them for certain, and of the rest the first are taken to be.
        """
        by_resource: dict[tuple[str, str], list[str]] = {}
        for name, vgpu in self.vgpus.items.items():
            type_name = self.configured_as(vgpu)
            if type_name and self._bound(name, type_name):
                node = vgpu["spec"].get("nodeName", "")
                by_resource.setdefault((node, self.era.resource(type_name)), []).append(name)
        counted: set[str] = set()
        for (node, resource), names in by_resource.items():
            amount = allocatable(self.nodes.items.get(node), resource)
            if amount < len(names):
                names.sort(key=lambda name: (not any(user.running for user in self.users.holders(name)), name))
            counted.update(names[:amount])
        return counted

    def _bound(self, name: str, type_name: str) -> bool:
        if not self.era.vendor_vfio:
            return True
        claim = self.claims.items.get(name)
        bound = claim is not None and (claim.get("status") or {}).get("passthroughEnabled")
        return bool(bound) and claimed_resource(claim) == self.era.resource(type_name)


# What is asked of a vGPU that is enabled without a type.
UNNAMED = "(no type)"


def parent_of(vgpu: Json) -> str:
    spec = vgpu["spec"]
    return r.device_name(spec.get("nodeName", ""), spec.get("parentGPUDeviceAddress", ""))


def skips_mig(gpu: Json) -> bool:
    """Whether a GPU is marked to stay time-sliced."""
    return (gpu["metadata"].get("annotations") or {}).get(r.SKIP_MIG_ANNOTATION) == "true"


def claimed_resource(claim: Json | None) -> str | None:
    """The resource that a vGPU's claim makes its node advertise; None for one that is on its way out."""
    if claim is None or "deletionTimestamp" in claim["metadata"]:
        return None
    return (claim["metadata"].get("annotations") or {}).get(r.OVERRIDE_ANNOTATION)


def allocatable(node: Json | None, resource: str, *, kind: str = "allocatable") -> int:
    return int((((node or {}).get("status") or {}).get(kind) or {}).get(resource, "0"))


def _types(slots: tuple[record.Slot, ...]) -> Iterator[str]:
    """One type of each slot that shows any."""
    for slot in slots:
        if slot.profile:
            yield slot.profile
        elif slot.offered:
            yield slot.offered[0]


def _boards_by_types(slots: tuple[record.Slot, ...]) -> tuple[str, ...]:
    for name in _types(slots):
        parsed = parse_or_none(name)
        if parsed is not None:
            return (parsed.board,)
    return ()


def _boards_by_device(device: Json | None) -> tuple[str, ...]:
    if device is None:
        return ()
    found = catalog.boards_with_pci_id((device.get("status") or {}).get("deviceId", ""))
    return tuple(board.name for board in found if board.sriov)


def _mig_instances(mig: Json | None, boards: tuple[str, ...], slots: tuple[record.Slot, ...]) -> dict[str, int]:
    """How many GPU instances serve each type, by the MIG configuration: an instance of 1g.5gb serves A100-1-5C."""
    if mig is None:
        return {}
    configuration = read_configuration(mig)
    counts = configuration.instances
    names = {name for slot in slots for name in ((slot.profile or ""), *(slot.offered or ()))}
    shown = {size_of(parsed): name for name in sorted(names) if (parsed := parse_or_none(name))}
    found: dict[str, int] = {}
    if configuration.counted and configuration.status != OUT_OF_SYNC:
        found.update({name: 0 for size, name in shown.items() if size})
    for size, count in counts.items():
        name = shown.get(size) or (served_type(boards[0], size) if len(boards) == 1 else None)
        if name:
            found[name] = count
    return found


class Users:
    """Which VMs hold, or would take, which devices: by allocation note, by spec, and by count."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._by_device: dict[str, dict[str, record.Holder]] = {}
        self._claims: list[record.Claim] = []
        for key, vm in snapshot.vms.items.items():
            self._read(key, vm, requested(vm))
        for key, instance in snapshot.instances.items.items():
            if key not in snapshot.vms.items:
                self._read(key, instance, _requested_by((instance.get("spec") or {}).get("domain")))

    def holders(self, device: str) -> tuple[record.Holder, ...]:
        return tuple(holder for _key, holder in sorted(self._by_device.get(device, {}).items()))

    def unbound_claims(self) -> tuple[record.Claim, ...]:
        return tuple(self._claims)

    def _read(self, key: str, vm: Json, wanted: list[tuple[str, str]]) -> None:
        instance = self._snapshot.instances.items.get(key)
        running = instance is not None and (instance.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        metadata = vm["metadata"]
        holder = record.Holder(
            name=metadata["name"],
            namespace=metadata.get("namespace", ""),
            running=running,
            labels=metadata.get("labels") or {},
        )
        noted = [device for devices in allocation(vm).values() for device in devices]
        named = [name for name, _resource in wanted if name in self._snapshot.vgpus.items]
        # While it runs the note is the truth and names in the spec are wishes; when it is stopped both count.
        for device in noted if running and noted else [*noted, *named]:
            self._by_device.setdefault(device, {})[key] = holder
        if wanted:
            self._count_unbound(wanted, noted, named, holder, instance)

    def _count_unbound(
        self,
        wanted: list[tuple[str, str]],
        noted: list[str],
        named: list[str],
        holder: record.Holder,
        instance: Json | None,
    ) -> None:
        # The names in the spec of a running VM bind nothing: until its note is written nobody knows what it got.
        bound = set(noted) if holder.running else {*noted, *named}
        counts: dict[str, int] = {}
        for _name, resource in wanted:
            profile = self._snapshot.known.by_resource(resource)
            if profile:
                counts[profile] = counts.get(profile, 0) + 1
        for device in bound:
            profile = self._profile_of(device)
            if counts.get(profile):
                counts[profile] -= 1
        node = ((instance or {}).get("status") or {}).get("nodeName") if holder.running else None
        late = self._after_restart(counts, bound, instance) if holder.running else {}
        for profile, count in sorted(counts.items()):
            now = count - late.get(profile, 0)
            if now > 0:
                self._claims.append(record.Claim(profile, now, holder, node))
            if late.get(profile, 0) > 0:
                # Without any vGPU yet, it may be started on any node.
                where = node if bound or now > 0 else None
                self._claims.append(record.Claim(profile, late[profile], holder, where, after_restart=True))

    def _after_restart(self, counts: Mapping[str, int], bound: set[str], instance: Json | None) -> dict[str, int]:
        """Of what a running VM asks for, what its instance was started without."""
        domain = ((instance or {}).get("spec") or {}).get("domain")
        if domain is None:
            return {}
        started: dict[str, int] = {}
        for _name, resource in _requested_by(domain):
            profile = self._snapshot.known.by_resource(resource)
            if profile:
                started[profile] = started.get(profile, 0) + 1
        for device in bound:
            profile = self._profile_of(device)
            if started.get(profile):
                started[profile] -= 1
        return {profile: max(count - started.get(profile, 0), 0) for profile, count in counts.items()}

    def _profile_of(self, device: str) -> str:
        status = (self._snapshot.vgpus.items.get(device) or {}).get("status") or {}
        return str(status.get("configureVGPUTypeName") or "")


def devices_of(vm: Json) -> Json:
    template = ((vm.get("spec") or {}).get("template") or {}).get("spec") or {}
    devices: Json = (template.get("domain") or {}).get("devices") or {}
    return devices


def requested(vm: Json) -> list[tuple[str, str]]:
    """(name, resource) of each device a VM asks for, in either era's field."""
    return _requested_by({"devices": devices_of(vm)})


def _requested_by(domain: Json | None) -> list[tuple[str, str]]:
    devices = (domain or {}).get("devices") or {}
    return [
        (device.get("name", ""), device.get("deviceName", ""))
        for field_name in ("gpus", "hostDevices")
        for device in devices.get(field_name) or []
    ]


def allocation(vm: Json) -> dict[str, list[str]]:
    """Devices by resource from a VM's allocation note; a broken note reads as none (see `broken_notes`)."""
    note = (vm["metadata"].get("annotations") or {}).get(r.ALLOCATION_NOTE)
    try:
        details = json.loads(note) if note else {}
    except ValueError:
        return {}
    found: dict[str, list[str]] = {}
    if isinstance(details, dict):
        for part in ("gpus", "hostdevices"):
            for resource, devices in (details.get(part) or {}).items():
                found.setdefault(resource, []).extend(devices or [])
    return found


def broken_notes(vms: Listing) -> list[str]:
    """VMs whose note is not JSON: one of them takes down the controllers of all nodes (facts 4.4.5)."""
    broken = []
    for key, vm in vms.items.items():
        note = (vm["metadata"].get("annotations") or {}).get(r.ALLOCATION_NOTE)
        if note:
            try:
                json.loads(note)
            except ValueError:
                broken.append(key)
    return broken


def read(api: ApiServer, harvester_version: str | None = None) -> Snapshot:
    """Seven requests side by side, or six if the version is given.

    One more where a card does not show what it is, and one more for MIG.
    """

    def listed(path: str) -> Listing:
        return Listing.of(api.get(path))

    def optional(path: str) -> Listing:
        try:
            return listed(path)
        except NotFound:
            return Listing()

    def told_era() -> eras.Era | None:
        if harvester_version:
            return eras.chosen(harvester_version)
        try:
            found = api.get_or_none(r.SERVER_VERSION)
        except Forbidden:
            return None
        return eras.told(str(found.get("value") or "")) if found else None

    try:
        told, gpus, vgpus, nodes, vms, instances, claims = api.together(
            [
                # First, since a version without vGPUs has no GPU devices either, and that is the better reason.
                told_era,
                lambda: listed(r.GPUS),
                lambda: listed(r.VGPUS),
                lambda: listed(r.NODES),
                lambda: optional(r.VMS),
                lambda: optional(r.INSTANCES),
                lambda: listed(r.CLAIMS),
            ]
        )
    except NotFound as error:
        raise AddonMissing(
            "The cluster has no GPU devices in its API.",
            hint=f"Enable the addon {r.PCIDEVICES_ADDON} first: vgpu.fleet.harvester_addon.",
        ) from error
    era = told or eras.seen(vgpus.items.values())
    shown: set[str] = set()
    mig = False
    for vgpu in vgpus.items.values():
        type_name = _shown_type(vgpu)
        if type_name:
            shown.add(parent_of(vgpu))
            mig = mig or bool((parsed := parse_or_none(type_name)) and parsed.mig)
    # A card that shows no type is told by its PCI id. If it is on and still shows none it may be in MIG mode.
    silent = set(gpus.items) - shown
    mig = mig or any(gpus.items[name]["spec"].get("enabled") for name in silent)
    pci_devices, migs = api.together(
        [
            lambda: listed(r.PCI_DEVICES) if silent else Listing(),
            lambda: optional(r.MIG_CONFIGURATIONS) if mig and era.has_mig else Listing(),
        ]
    )
    return Snapshot(era, gpus, vgpus, nodes, vms, instances, claims, pci_devices, migs)


def _shown_type(vgpu: Json) -> str | None:
    status = vgpu.get("status") or {}
    return status.get("configureVGPUTypeName") or next(iter(status.get("availableTypes") or ()), None)
