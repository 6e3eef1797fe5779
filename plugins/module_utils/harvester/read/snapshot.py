# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the lists of a cluster with a constant number of parallel requests, and build the fleet from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ...errors import FleetError
from ...fleet import catalog, model as record
from ...fleet.mig import read_size, served_keys, size_of, vgpus_per_instance
from ...fleet.profile import parse_or_none
from ...fleet.profile_resolver import ProfileResolver
from ...kube.client import ApiClient, Forbidden, Json, NotFound
from ...kube.objects import ObjectList
from .. import paths as r, version as versions
from .launcher_pods import read_launcher_pods
from .mig_configuration import OUT_OF_SYNC, read_configuration
from .permitted_devices import PermittedDevices
from .vm_usage import Device, Pods, VmUsage, is_live, quantity, started_with

# The lists that are watched, and the attributes of the snapshot that hold them.
OBSERVABLE = {
    r.GPUS: "gpus",
    r.VGPUS: "vgpus",
    r.NODES: "nodes",
    r.CLAIMS: "claims",
    r.MIG_CONFIGURATIONS: "mig",
    r.KUBEVIRTS: "kubevirts",
}


class AddonMissing(FleetError):
    code = "addon_missing"


@dataclass(frozen=True)
class Snapshot:
    """The lists of a cluster as read once. Everything else is computed from them."""

    version: versions.HarvesterVersion
    gpus: ObjectList
    vgpus: ObjectList
    nodes: ObjectList
    vms: ObjectList
    instances: ObjectList
    claims: ObjectList
    pci_devices: ObjectList = field(default_factory=ObjectList)
    mig: ObjectList = field(default_factory=ObjectList)
    # Launcher pods, read only if the instances do not show all vGPUs in use.
    pods: Pods = field(default_factory=Pods)
    # KubeVirt's configuration. None if it cannot be read: the permitted devices are unknown then.
    kubevirts: ObjectList | None = None
    # The server's time when the lists were read, in seconds; None if unknown.
    now: float | None = None
    # The boards of GPUs from an earlier snapshot: a GPU whose SR-IOV was disabled no longer shows its board.
    boards: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def get(self, path: str, name: str) -> Json | None:
        """Return an object by the path of its resource and its name."""
        listing: ObjectList | None = getattr(self, OBSERVABLE[path])
        return listing.items.get(name) if listing else None

    @cached_property
    def permitted(self) -> PermittedDevices | None:
        """Return KubeVirt's list of permitted devices, or None if it is unknown or permits every device."""
        return PermittedDevices.of(self.get(r.KUBEVIRTS, r.KUBEVIRT))

    @cached_property
    def known(self) -> ProfileResolver:
        names: set[str] = set()
        for vgpu in self.vgpus.items.values():
            status = vgpu.get("status") or {}
            names.update(status.get("availableTypes") or ())
            if status.get("configureVGPUTypeName"):
                names.add(status["configureVGPUTypeName"])
        return ProfileResolver(sorted(names))

    @cached_property
    def users(self) -> VmUsage:
        """Return the devices that VMs hold or request."""
        devices = {name: self._device(vgpu) for name, vgpu in self._vgpus()}
        users = VmUsage(self.vms.items, self.instances.items, devices, self.known, self.pods, self.now)
        for name, vgpu in self._vgpus():
            for holder in self._other_holders(name, vgpu):
                users.hold(name, holder)
        return users

    def _device(self, vgpu: Json) -> Device:
        asked, configured = vgpu["spec"].get("vGPUTypeName"), self.configured_type(vgpu)
        lasts = not (asked and configured) or asked == configured
        return Device(vgpu["spec"].get("nodeName", ""), self._types_of(vgpu), lasts)

    def _vgpus(self) -> Iterable[tuple[str, Json]]:
        return self.vgpus.items.items()

    def _types_of(self, vgpu: Json) -> frozenset[str]:
        return frozenset(filter(None, (self.configured_type(vgpu), self.claimed_type(vgpu))))

    def _other_holders(self, name: str, vgpu: Json) -> Iterator[record.Holder]:
        """Yield the holders of a device other than the VMs that were read."""
        claim = self.claims.items.get(name)
        if claim is not None and is_made_by_hand(claim):
            yield record.Holder(name, running=True, kind="PCIDeviceClaim")
        node = vgpu["spec"].get("nodeName", "")
        if not self.pods.readable and self.configured_type(vgpu) and not is_ready(self.nodes.items.get(node)):
            yield record.Holder(node, running=True, kind="an unknown VM on node")

    @cached_property
    def vgpus_by_gpu(self) -> dict[str, list[Json]]:
        """Return the vGPU devices by GPU, matched by address because labels get lost (harvester.md 4.3)."""
        by_gpu: dict[str, list[Json]] = {}
        for vgpu in self.vgpus.items.values():
            by_gpu.setdefault(parent_of(vgpu), []).append(vgpu)
        return by_gpu

    @property
    def vgpu_names_by_gpu(self) -> dict[str, frozenset[str]]:
        """Return the names of the vGPU devices by GPU."""
        return {gpu: frozenset(vgpu["metadata"]["name"] for vgpu in vgpus) for gpu, vgpus in self.vgpus_by_gpu.items()}

    @cached_property
    def fleet(self) -> record.Fleet:
        counted = self._counted()
        by_node: dict[str, list[record.Gpu]] = {}
        for name, gpu in self.gpus.items.items():
            slots = tuple(self._slot(vgpu, counted) for vgpu in self.vgpus_by_gpu.get(name, []))
            by_node.setdefault(gpu["spec"].get("nodeName", ""), []).append(self._gpu(name, gpu, slots))
        nodes = tuple(self._node(name, node, by_node.get(name, [])) for name, node in self.nodes.items.items())
        fleet = record.Fleet(nodes, self.users.unbound_claims())
        return replace(fleet, not_permitted=self._not_permitted(fleet))

    def _not_permitted(self, fleet: record.Fleet) -> frozenset[str] | None:
        """Return the types that vGPUs have and that KubeVirt's list lacks, or None if the list is unknown."""
        if self.kubevirts is None:
            return None
        if self.permitted is None:
            return frozenset()
        permitted = self.permitted.resources
        types = {slot.profile for _gpu, slot in fleet.slots() if slot.profile}
        return frozenset(name for name in types if self.version.resource(name) not in permitted)

    def _node(self, name: str, node: Json, gpus: list[record.Gpu]) -> record.Node:
        return record.Node(
            name=name,
            ready=is_ready(node),
            schedulable=not (node.get("spec") or {}).get("unschedulable", False),
            labels=(node["metadata"].get("labels") or {}),
            reserved_for_containers=self.version.reserves_nodes and is_reserved(node),
            gpus=tuple(gpus),
            advertised=self.advertised(node),
        )

    def advertised(self, node: Json) -> dict[str, int]:
        """Return the allocatable vGPUs of a node by type name, or by resource name if the type is unknown."""
        counts: dict[str, int] = {}
        for resource, amount in ((node.get("status") or {}).get("allocatable") or {}).items():
            if resource.startswith("nvidia.com/"):
                counts[self.known.by_resource(resource) or resource] = quantity(amount)
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
            instances=_listed_instances(mig),
            unstable=MIG_RETRIED if self._mig_is_retried(name, gpu, boards, slots) else "",
        )

    def _mig_is_retried(self, name: str, gpu: Json, boards: tuple[str, ...], slots: tuple[record.Slot, ...]) -> bool:
        """Return whether Harvester is still trying to put a GPU into MIG mode that offers time-sliced types.

        A later attempt may succeed at any time, and then takes all types away (harvester.md 5.6).
        """
        if not self.version.has_mig or name in self.mig.items or not gpu["spec"].get("enabled"):
            return False
        if self.version.skips_mig and skips_mig(gpu):
            return False
        shown = [parsed.mig for parsed in map(parse_or_none, _types(slots)) if parsed]
        return bool(shown) and not any(shown) and can_do_mig(boards)

    def _in_mig_mode(self, name: str, gpu: Json, boards: tuple[str, ...], slots: tuple[record.Slot, ...]) -> bool:
        """Return whether a GPU is or will be in MIG mode. From 1.7 on, SR-IOV sets the mode (harvester.md 5.6)."""
        shown = [parsed.mig for parsed in map(parse_or_none, _types(slots)) if parsed]
        if name in self.mig.items or any(shown):
            return True
        skipped = self.version.skips_mig and skips_mig(gpu)
        return can_do_mig(boards) and not shown and self.version.has_mig and not skipped

    def _slot(self, vgpu: Json, counted: set[str]) -> record.Slot:
        name, spec, status = vgpu["metadata"]["name"], vgpu["spec"], vgpu.get("status") or {}
        configured = self.configured_type(vgpu)
        asked = spec.get("vGPUTypeName") or configured
        # An enabled vGPU without a valid type still occupies its slot.
        wanted = (asked or UNNAMED) if spec.get("enabled") else None
        offered = tuple(status.get("availableTypes") or ())
        handed_out = self.claimed_type(vgpu)
        hardware = None
        if handed_out and configured:
            hardware = configured if configured != handed_out else None
            configured = handed_out
        elif handed_out and handed_out != wanted:
            # The claim of an earlier vGPU is left: the node would offer a new vGPU under its name (harvester.md 5.5).
            offered = tuple(type_name for type_name in offered if type_name == handed_out)
        return record.Slot(
            name=name,
            address=spec.get("address", ""),
            profile=configured,
            wanted=wanted,
            allocatable=name in counted,
            holders=self.users.holders(name),
            offered=offered,
            hardware=hardware,
            owner=_owner(vgpu) if spec.get("enabled") else None,
            leftover=bool(handed_out and not configured and not wanted),
        )

    def configured_type(self, vgpu: Json) -> str | None:
        """Return the type that the driver has configured on a device.

        From 1.8 on, the driver knows only the number of the type. If the name is missing in the status, the claim of
        the same request still has it.
        """
        status = vgpu.get("status") or {}
        if status.get("vGPUStatus") != r.CONFIGURED:
            return None
        return status.get("configureVGPUTypeName") or self.claimed_type(vgpu)

    def claimed_type(self, vgpu: Json) -> str | None:
        """Return the type under which the node offers this device, if a claim records it.

        From 1.8 on, the claim decides, and may name another type than the status (harvester.md 5.5 and 6.7).
        """
        claim = self.claims.items.get(vgpu["metadata"]["name"]) if self.version.vendor_vfio else None
        resource = claimed_resource(claim)
        if resource is None:
            return None
        status_type = (vgpu.get("status") or {}).get("configureVGPUTypeName") or ""
        if resource == self.version.resource(status_type):
            return str(status_type)
        return self.known.by_resource(resource) or resource

    def _counted(self) -> set[str]:
        """Return the vGPUs that their nodes report as allocatable.

        A node reports only a number for each type. If there are more devices than that, the devices of running VMs are
        certainly among the allocatable ones, and the first of the rest are assumed to be.
        """
        by_resource: dict[tuple[str, str], list[str]] = {}
        for name, vgpu in self.vgpus.items.items():
            type_name = self.configured_type(vgpu)
            if type_name and self._bound(name, type_name):
                node = vgpu["spec"].get("nodeName", "")
                by_resource.setdefault((node, self.version.resource(type_name)), []).append(name)
        counted: set[str] = set()
        for (node, resource), names in by_resource.items():
            amount = allocatable(self.nodes.items.get(node), resource)
            if amount < len(names):
                names.sort(key=lambda name: (not any(user.running for user in self.users.holders(name)), name))
            counted.update(names[:amount])
        return counted

    def _bound(self, name: str, type_name: str) -> bool:
        if not self.version.vendor_vfio:
            return True
        claim = self.claims.items.get(name)
        bound = claim is not None and (claim.get("status") or {}).get("passthroughEnabled")
        return bool(bound) and claimed_resource(claim) == self.version.resource(type_name)


# The reason why a GPU is unstable.
MIG_RETRIED = "Harvester is still trying to put it into MIG mode"


def mig_retried_remedy(version: versions.HarvesterVersion, node: str) -> str:
    """Return what a user can do about a GPU whose MIG setup Harvester retries."""
    log = f"The log of the pcidevices controller on node {node} has the error of nvidia-smi."
    if version.skips_mig:
        return (
            f'{log} Set the annotation {r.SKIP_MIG_ANNOTATION} to "true" to keep the GPU time-sliced'
            " (vgpu.fleet.harvester_mig with mode: time_sliced), or free the GPU so that MIG mode can be enabled."
        )
    return (
        f"{log} Stop the VMs that use the GPU and disable its vGPUs, so that MIG mode can be enabled."
        " Only Harvester 1.9 and later can keep such a GPU time-sliced."
    )


# The requested type of a vGPU that is enabled without a type.
UNNAMED = "(no type)"


def parent_of(vgpu: Json) -> str:
    spec = vgpu.get("spec") or {}
    node, address = spec.get("nodeName"), spec.get("parentGPUDeviceAddress")
    if node and address:
        return r.device_name(node, address)
    return str((vgpu["metadata"].get("labels") or {}).get(r.PARENT_LABEL) or "")


def _owner(vgpu: Json) -> str | None:
    """Return the owner from the owner mark of a vGPU, if it has one."""
    return (vgpu["metadata"].get("annotations") or {}).get(r.OWNER_ANNOTATION) or None


def skips_mig(gpu: Json) -> bool:
    """Return whether a GPU is marked to stay time-sliced."""
    return (gpu["metadata"].get("annotations") or {}).get(r.SKIP_MIG_ANNOTATION) == "true"


def can_do_mig(boards: Iterable[str]) -> bool:
    """Return whether a GPU is certainly of a board with MIG."""
    found = [catalog.find_board(board) for board in boards]
    return bool(found) and all(board and board.mig_capable for board in found)


def claimed_resource(claim: Json | None) -> str | None:
    """Return the resource name in the claim of a vGPU, or None if the claim is being deleted."""
    if claim is None or "deletionTimestamp" in claim["metadata"]:
        return None
    return (claim["metadata"].get("annotations") or {}).get(r.OVERRIDE_ANNOTATION)


def allocatable(node: Json | None, resource: str, *, kind: str = "allocatable") -> int:
    return quantity((((node or {}).get("status") or {}).get(kind) or {}).get(resource, "0"))


def is_ready(node: Json | None) -> bool:
    conditions = ((node or {}).get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def is_reserved(node: Json) -> bool:
    """Return whether the GPUs of a node are labelled as reserved for containers."""
    return (node["metadata"].get("labels") or {}).get(r.BARE_METAL_LABEL) == "true"


def is_made_by_hand(claim: Json) -> bool:
    """Return whether a user created the claim. Harvester marks its own claims for vGPUs."""
    metadata = claim["metadata"]
    owners = {reference.get("kind") for reference in metadata.get("ownerReferences") or []}
    return "VGPUDevice" not in owners and r.OVERRIDE_ANNOTATION not in (metadata.get("annotations") or {})


def _types(slots: tuple[record.Slot, ...]) -> Iterator[str]:
    """Yield one type of each slot that shows a type."""
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


def _listed_instances(mig: Json | None) -> dict[str, int]:
    """Return the instance profiles that a GPU lists, each with the number of its instances."""
    if mig is None:
        return {}
    configuration = read_configuration(mig)
    listed = [size for size in map(read_size, configuration.profiles) if size]
    return {
        size.name: configuration.instances.get(size, 0) for size in dict.fromkeys([*listed, *configuration.instances])
    }


def _mig_instances(mig: Json | None, boards: tuple[str, ...], slots: tuple[record.Slot, ...]) -> dict[str, int]:
    """Return how many vGPUs of each type the GPU instances serve: an instance of 1g.5gb serves one A100-1-5C."""
    if mig is None:
        return {}
    configuration = read_configuration(mig)
    names = {name for slot in slots for name in ((slot.profile or ""), *(slot.offered or ()))}
    shown = {parsed.key: (name, size_of(parsed)) for name in sorted(names) if (parsed := parse_or_none(name))}
    found: dict[str, int] = {}
    if configuration.counted and configuration.status != OUT_OF_SYNC:
        found.update({name: 0 for name, size in shown.values() if size})
    for size, count in configuration.instances.items():
        listed = served_keys(boards[0], size) if len(boards) == 1 else ()
        for key in listed:
            name = shown[key][0] if key in shown else catalog.type_name_of(key)
            found[name] = found.get(name, 0) + count * vgpus_per_instance(key)
        if not listed:
            found.update({name: count for name, its in shown.values() if its == size})
    return found


def read(api: ApiClient, harvester_version: str | None = None) -> Snapshot:
    """Read a snapshot with eight parallel requests, or seven if the version is given.

    One more request is sent if a GPU does not show its board, one more for MIG, and one more if only launcher pods
    show which vGPUs are in use.
    """

    def listed(path: str) -> ObjectList:
        return ObjectList.of(api.get(path))

    def optional(path: str) -> ObjectList:
        try:
            return listed(path)
        except NotFound:
            return ObjectList()

    def readable(path: str) -> ObjectList | None:
        try:
            return listed(path)
        except (Forbidden, NotFound):
            return None

    def told_era() -> versions.HarvesterVersion | None:
        if harvester_version:
            return versions.from_option(harvester_version)
        try:
            found = api.get_or_none(r.SERVER_VERSION)
        except Forbidden:
            return None
        return versions.from_setting(str(found.get("value") or "")) if found else None

    try:
        told, gpus, vgpus, nodes, vms, instances, claims, kubevirts = api.together(
            [
                # First, because an unsupported version is a better reason for a failure than missing GPU devices.
                told_era,
                lambda: listed(r.GPUS),
                lambda: listed(r.VGPUS),
                lambda: listed(r.NODES),
                lambda: optional(r.VMS),
                lambda: optional(r.INSTANCES),
                lambda: listed(r.CLAIMS),
                lambda: readable(r.KUBEVIRTS),
            ]
        )
    except NotFound as error:
        raise AddonMissing(
            "The cluster has no GPU devices in its API.",
            hint=f"Enable the addon {r.PCIDEVICES_ADDON} first: vgpu.fleet.harvester_addon.",
        ) from error
    version = told or versions.from_devices(vgpus.items.values())
    shown: set[str] = set()
    mig = False
    for vgpu in vgpus.items.values():
        type_name = _shown_type(vgpu)
        if type_name:
            shown.add(parent_of(vgpu))
            parsed = parse_or_none(type_name)
            mig = mig or bool(parsed and parsed.mig)
            # A GPU that can do MIG and shows a time-sliced type may have no MIG configuration yet.
            mig = mig or bool(parsed and can_do_mig([parsed.board]))
    # The PCI ID identifies a GPU that shows no type. If SR-IOV is enabled and no type shows, it may be in MIG mode.
    silent = set(gpus.items) - shown
    mig = mig or any(gpus.items[name]["spec"].get("enabled") for name in silent)

    pci_devices, migs, pods = api.together(
        [
            lambda: listed(r.PCI_DEVICES) if silent else ObjectList(),
            lambda: optional(r.MIG_CONFIGURATIONS) if mig and version.has_mig else ObjectList(),
            lambda: read_launcher_pods(api) if _only_pods_can_tell(gpus, nodes, instances) else Pods(),
        ]
    )
    return Snapshot(
        version, gpus, vgpus, nodes, vms, instances, claims, pci_devices, migs, pods, kubevirts, now=api.now
    )


def _only_pods_can_tell(gpus: ObjectList, nodes: ObjectList, instances: ObjectList) -> bool:
    """Return whether a launcher pod may have vGPUs that no running instance shows.

    An instance that has ended may still have its pod. A disconnected node keeps running pods whose instances have been
    replaced elsewhere.
    """
    if any(
        not is_live(instance) and (instance.get("status") or {}).get("activePods") and started_with(instance)
        for instance in instances.items.values()
    ):
        return True
    hosts = {gpu["spec"].get("nodeName") for gpu in gpus.items.values()}
    return any(not is_ready(node) for name, node in nodes.items.items() if name in hosts)


def _shown_type(vgpu: Json) -> str | None:
    status = vgpu.get("status") or {}
    return status.get("configureVGPUTypeName") or next(iter(status.get("availableTypes") or ()), None)
