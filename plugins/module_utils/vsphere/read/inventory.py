# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventory of the GPU hosts and their VMs, read with two calls plus one call per kind of GPU host.

The first call traverses folders and clusters to all hosts. The second call reads the PCI ids of the GPU hosts and
their VMs; other VMs are not read. Apart from object references, the result contains no vSphere types.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from ...errors import NothingSelected, did_you_mean, join_names
from ..faults import Operation, moid_of
from ..session import Properties, Session
from . import device_groups
from .device_groups import GroupOffer
from .response import collect, is_whole_device, renders_on_hardware

SHARED_DIRECT = "sharedDirect"
SHARED = "shared"
DIRECT = "direct"
# Values of the options, and their vSphere spelling.
TYPES = {"shared_direct": SHARED_DIRECT, "shared": SHARED}
VGPU_MODES = {"same_size": "sameSize", "mixed_size": "mixedSize"}
MIG_MODE = "multiInstanceGpu"
SPELT = {
    **{value: name for name, value in {**TYPES, **VGPU_MODES}.items()},
    DIRECT: "direct",
    MIG_MODE: "mig",
    "none": None,
}

NVIDIA = 0x10DE

HOST_PATHS = [
    "name",
    "parent",
    "vm",
    "runtime.connectionState",
    "runtime.inMaintenanceMode",
    "config.product.version",
    "config.graphicsInfo",
    "config.graphicsConfig",
    "config.sharedPassthruGpuTypes",
]
GPU_HOST_PATHS = ["hardware.pciDevice", "configManager.graphicsManager", "configManager.serviceSystem"]
DRS_OPTIONS = "configurationEx.drsConfig.option"
# The DRS option that lets DRS move VMs with vGPUs off a host that enters maintenance mode (vsphere.md 7.2).
EVACUATION_OPTION = "VgpuMMAutomationTimeoutSecs"
VM_PATHS = ["name", "runtime.powerState", "runtime.host", "config.template", "config.hardware.device"]

DEVICE_GROUPS = "config.deviceGroups"
PASSTHROUGH = "config.pciPassthruInfo"


@dataclass(frozen=True)
class DirectPathFacts:
    """The use of a GPU and the data of its driver, since 9.1. The API does not document the units of memory."""

    mode: str = ""
    modes: tuple[str, ...] = ()
    used_memory: int | None = None
    available_memory: int | None = None
    interconnect: str = ""
    driver: str = ""
    driver_version: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "mode": self.mode or None,
            "configurable_modes": list(self.modes),
            "used_memory": self.used_memory,
            "available_memory": self.available_memory,
            "interconnect": self.interconnect or None,
            "driver": self.driver or None,
            "driver_version": self.driver_version or None,
        }


@dataclass(frozen=True)
class GpuFacts:
    """A GPU as reported by its host. `vms` are the ids of the VMs on the GPU."""

    address: str
    name: str = ""
    graphics_type: str = SHARED_DIRECT
    vgpu_mode: str | None = None
    memory_kib: int = 0
    vms: tuple[str, ...] = ()
    # PCI device id in the high 16 bits and vendor id in the low 16 bits, as in the vSphere API.
    device: int | None = None
    direct_path: DirectPathFacts | None = None


@dataclass(frozen=True)
class ConfiguredGraphics:
    """The configured graphics of a GPU, effective at the latest after a restart of Xorg or of the host."""

    graphics_type: str
    vgpu_mode: str | None = None


@dataclass(frozen=True)
class ProfileFacts:
    """A vGPU profile as described by a host of version 7.0.3 or later.

    `stun_times` are pairs of bandwidth in Mbps and estimated stun time in seconds, from 8.0.2 on.
    """

    name: str
    device: int
    mig: bool
    stun_times: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class HostFacts:
    moid: str
    name: str
    cluster: str = ""
    datacenter: str = ""
    # The id of the cluster or of the host's own compute resource, and the inventory path of the datacenter, since
    # names are not unique.
    resource: str = ""
    datacenter_path: str = ""
    drs: bool = False
    # The value of the DRS option for the evacuation of VMs with vGPUs, or an empty string.
    drs_evacuation: str = ""
    version: str = ""
    connected: bool = True
    maintenance: bool = False
    gpus: tuple[GpuFacts, ...] = ()
    default_type: str = SHARED
    policy: str = "performance"
    configured: Mapping[str, ConfiguredGraphics] = field(default_factory=dict, hash=False)
    # Names and details of the profiles that the host offers. Details are empty before 7.0.3.
    profiles: tuple[str, ...] = ()
    details: tuple[ProfileFacts, ...] = ()
    # Framebuffer in MiB by `GpuFacts.device`.
    framebuffers: Mapping[int, int] = field(default_factory=dict, hash=False)
    # The vendor device groups that the host offers, since 8.0.
    device_groups: tuple[GroupOffer, ...] = ()
    reference: Any = field(default=None, compare=False, repr=False)
    browser: Any = field(default=None, compare=False, repr=False)
    graphics_manager: Any = field(default=None, compare=False, repr=False)
    service_system: Any = field(default=None, compare=False, repr=False)
    vms: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    @property
    def cluster_id(self) -> str:
        """Return an id that distinguishes clusters of the same name."""
        return self.resource or f"{self.datacenter_path or self.datacenter}/{self.cluster}"

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.version.split(".") if part.isdigit())


@dataclass(frozen=True)
class VmFacts:
    """A VM of a GPU host. `vgpus` are pairs of device key and profile, `bindings` the known GPU addresses by key."""

    moid: str
    name: str
    host: str
    power: str = "poweredOff"
    template: bool = False
    vgpus: tuple[tuple[int, str], ...] = ()
    bindings: Mapping[int, str] = field(default_factory=dict, hash=False)
    # Whether the VM renders on a GPU of the host through vSphere's own virtual graphics (vSGA).
    vsga: bool = False
    # Whether the VM has a whole PCI device of its host.
    passthrough: bool = False
    # The names of its vendor device groups.
    device_groups: tuple[str, ...] = ()
    reference: Any = field(default=None, compare=False, repr=False)

    @property
    def running(self) -> bool:
        return self.power == "poweredOn"


@dataclass(frozen=True)
class Inventory:
    hosts: tuple[HostFacts, ...] = ()
    vms: tuple[VmFacts, ...] = ()
    api_version: str = ""

    @property
    def gpu_hosts(self) -> tuple[HostFacts, ...]:
        return tuple(host for host in self.hosts if host.gpus)

    def host(self, name: str) -> HostFacts:
        return next(host for host in self.hosts if host.name == name)


def read(
    session: Session,
    *,
    datacenter: str | None = None,
    cluster: str | None = None,
    esxi_hosts: Sequence[str] | None = None,
) -> Inventory:
    """Read the inventory of all hosts, or of a datacenter, a cluster, or hosts by name or shell pattern."""
    hosts = selected(read_hosts(session), datacenter=datacenter, cluster=cluster, esxi_hosts=esxi_hosts)
    return complete(session, hosts)


def read_hosts(session: Session) -> list[HostFacts]:
    """Read all hosts in one call."""
    vim = session.vim
    query = session.vmodl.query.PropertyCollector

    def way(name: str, kind: Any, path: str, *further: str) -> Any:
        selections = [query.SelectionSpec(name=other) for other in further]
        return query.TraversalSpec(name=name, type=kind, path=path, skip=False, selectSet=selections)

    ways = [
        way("folders", vim.Folder, "childEntity", "folders", "datacenters", "resources"),
        way("datacenters", vim.Datacenter, "hostFolder", "folders"),
        way("resources", vim.ComputeResource, "host"),
    ]
    resource_paths = ["name", "parent", "environmentBrowser"]
    wanted = {
        vim.HostSystem: HOST_PATHS,
        vim.ComputeResource: resource_paths,
        vim.ClusterComputeResource: [*resource_paths, "configurationEx.drsConfig.enabled", DRS_OPTIONS],
        vim.Datacenter: ["name", "parent"],
        vim.Folder: ["name", "parent"],
    }
    answer = session.collect(
        Operation("read the hosts"),
        query.FilterSpec(
            objectSet=[query.ObjectSpec(obj=session.content.rootFolder, skip=True, selectSet=ways)],
            propSet=[query.PropertySpec(type=kind, pathSet=paths) for kind, paths in wanted.items()],
        ),
    )
    by_id = {moid_of(reference): found for reference, found in answer}
    datacenters = {moid_of(reference) for reference, _found in answer if isinstance(reference, vim.Datacenter)}
    hosts = [
        _host(reference, found, by_id, datacenters, modes=session.has("8.0.3"))
        for reference, found in answer
        if isinstance(reference, vim.HostSystem)
    ]
    return sorted(hosts, key=lambda host: host.name)


def _host(
    reference: Any, found: Properties, by_id: Mapping[str, Properties], datacenters: Collection[str], *, modes: bool
) -> HostFacts:
    parent = moid_of(found.get("parent"))
    resource = by_id.get(parent, {})
    datacenter, datacenter_path = _datacenter(parent, by_id, datacenters)
    config = found.get("config.graphicsConfig")
    return HostFacts(
        moid=moid_of(reference),
        name=found.get("name") or moid_of(reference),
        cluster=resource.get("name", ""),
        datacenter=datacenter,
        resource=parent if resource else "",
        datacenter_path=datacenter_path,
        drs=bool(resource.get("configurationEx.drsConfig.enabled")),
        drs_evacuation=next(
            (str(option.value) for option in resource.get(DRS_OPTIONS) or [] if option.key == EVACUATION_OPTION), ""
        ),
        version=found.get("config.product.version") or "",
        connected=found.get("runtime.connectionState") == "connected",
        maintenance=bool(found.get("runtime.inMaintenanceMode")),
        gpus=gpus_of(found.get("config.graphicsInfo"), modes=modes),
        default_type=config.hostDefaultGraphicsType if config else SHARED,
        policy=config.sharedPassthruAssignmentPolicy if config else "performance",
        configured={
            entry.deviceId: ConfiguredGraphics(entry.graphicsType, entry.vgpuMode if modes else None)
            for entry in (config.deviceType if config else None) or []
        },
        profiles=tuple(found.get("config.sharedPassthruGpuTypes") or []),
        reference=reference,
        browser=resource.get("environmentBrowser"),
        vms=tuple(found.get("vm") or []),
    )


def gpus_of(graphics_info: Any, *, modes: bool) -> tuple[GpuFacts, ...]:
    """Return the NVIDIA GPUs of a host. `modes`: the API supports vGPU modes."""
    return tuple(
        GpuFacts(
            address=entry.pciId,
            name=entry.deviceName or "",
            graphics_type=entry.graphicsType,
            vgpu_mode=(entry.vgpuMode or "none") if modes else None,
            memory_kib=entry.memorySizeInKB or 0,
            vms=tuple(moid_of(vm) for vm in entry.vm or []),
        )
        for entry in graphics_info or []
        # Hosts also list the graphics of their service processor.
        if "nvidia" in f"{entry.vendorName} {entry.deviceName}".casefold()
    )


def _datacenter(moid: str, by_id: Mapping[str, Properties], datacenters: Collection[str]) -> tuple[str, str]:
    """Return the name and inventory path of a cluster's datacenter. Paths omit the root folder, which is not read."""
    while moid in by_id and moid not in datacenters:
        moid = moid_of(by_id[moid].get("parent"))
    names: list[str] = []
    while moid in by_id:
        names.insert(0, str(by_id[moid].get("name", "")))
        moid = moid_of(by_id[moid].get("parent"))
    return (names[-1], "/" + "/".join(names)) if names else ("", "")


def selected(
    hosts: Sequence[HostFacts],
    *,
    datacenter: str | None = None,
    cluster: str | None = None,
    esxi_hosts: Sequence[str] | None = None,
) -> list[HostFacts]:
    """Return the selected hosts. A name or pattern without a match is an error that lists the known names.

    `esxi_hosts` of None selects all hosts; an empty list selects none.
    """
    chosen = list(hosts)
    if datacenter:
        chosen = _in_datacenter(chosen, datacenter)
    if cluster:
        chosen = _in_cluster(chosen, cluster)
    if esxi_hosts is not None:
        names: set[str] = set()
        for pattern in esxi_hosts:
            matching = {host.name for host in chosen if host.name == pattern or fnmatchcase(host.name, pattern)}
            if not matching:
                where = "host"
                where += f" of cluster {cluster}" if cluster else ""
                where += f" in datacenter {datacenter}" if datacenter else ""
                raise _nothing(where, pattern, {host.name for host in chosen})
            names |= matching
        chosen = [host for host in chosen if host.name in names]
    return chosen


def _in_datacenter(hosts: Sequence[HostFacts], wanted: str) -> list[HostFacts]:
    """Return the hosts of a datacenter, given by name or by inventory path such as /europe/dc1."""
    path = f"/{wanted.strip('/')}"
    chosen = [host for host in hosts if wanted == host.datacenter or path == host.datacenter_path]
    paths = {host.datacenter_path or host.datacenter for host in chosen}
    if not chosen:
        known = {host.datacenter_path or host.datacenter for host in hosts}
        raise _nothing("datacenter with hosts", wanted, {path.removeprefix("/") for path in known if path})
    if len(paths) > 1 and path not in paths:
        raise NothingSelected(
            f"There are several datacenters {wanted}: {join_names(paths)}.", hint="Give the path of one of them."
        )
    return [host for host in chosen if path == host.datacenter_path] if path in paths else chosen


def _in_cluster(hosts: Sequence[HostFacts], wanted: str) -> list[HostFacts]:
    chosen = [host for host in hosts if host.cluster == wanted]
    if not chosen:
        raise _nothing("cluster", wanted, {host.cluster for host in hosts if host.cluster})
    if len({host.cluster_id for host in chosen}) > 1:
        where = join_names(host.datacenter_path or host.datacenter for host in chosen)
        raise NothingSelected(
            f"There are several clusters {wanted}, in {where}.",
            hint="Name the datacenter, or the hosts with esxi_hosts.",
        )
    return chosen


def _nothing(what: str, name: str, known: Iterable[str]) -> NothingSelected:
    known = sorted(known)
    alike = did_you_mean(name, known)
    meant = f"Did you mean {' or '.join(alike[:2])}? " if alike else ""
    return NothingSelected(f"There is no {what} {name!r}.", hint=f"{meant}There are: {join_names(known, limit=20)}.")


def complete(session: Session, hosts: Sequence[HostFacts]) -> Inventory:
    """Add the PCI ids, profile details and VMs of GPU hosts to the hosts."""
    gpu_hosts = [host for host in hosts if host.gpus]
    if not gpu_hosts:
        return Inventory(tuple(hosts), api_version=session.content.about.apiVersion)
    vms = [vm for host in gpu_hosts for vm in host.vms]
    addresses = {gpu.address for host in gpu_hosts for gpu in host.gpus}
    filters = [session.objects_filter([host.reference for host in gpu_hosts], _gpu_host_paths(session))]
    if vms:
        grouped = [DEVICE_GROUPS] if session.has(device_groups.SINCE) else []
        filters.append(session.objects_filter(vms, [*VM_PATHS, *grouped]))
    answer = collect(session, Operation("read the GPU hosts and their VMs"), filters, addresses)
    by_id = {moid_of(reference): found for reference, found in answer}
    bindings: dict[str, dict[int, str]] = {}
    for host in gpu_hosts:
        for binding in by_id.get(host.moid, {}).get("config.assignableHardwareBinding") or []:
            if binding.pciId and binding.deviceKey is not None:
                bindings.setdefault(moid_of(binding.vm), {})[binding.deviceKey] = binding.pciId
    vgpu = session.vim.vm.device.VirtualPCIPassthrough.VmiopBackingInfo
    found_vms = [
        replace(
            _vm(reference, found, vgpu, bindings.get(moid_of(reference), {})),
            device_groups=tuple(sorted(device_groups.names_by_key(session, found.get(DEVICE_GROUPS)).values())),
        )
        for reference, found in answer
        if isinstance(reference, session.vim.VirtualMachine)
    ]
    details = _ProfileDetails(session)
    whole = [details.of(_with_hardware(host, by_id.get(host.moid, {}))) if host.gpus else host for host in hosts]
    return Inventory(tuple(whole), tuple(found_vms), session.content.about.apiVersion)


def _gpu_host_paths(session: Session) -> list[str]:
    # Since 9.1 the binding names the GPU of each device of a VM, and devices have their use (vsphere.md 1.7).
    return [*GPU_HOST_PATHS, "config.assignableHardwareBinding", PASSTHROUGH] if session.has("9.1") else GPU_HOST_PATHS


def _with_hardware(host: HostFacts, found: Properties) -> HostFacts:
    devices = {
        # The ids are signed shorts (vsphere.md 1.6).
        entry.id: (entry.deviceId & 0xFFFF) << 16 | entry.vendorId & 0xFFFF
        for entry in found.get("hardware.pciDevice") or []
    }
    states = _direct_path(found) if PASSTHROUGH in found else {}
    return replace(
        host,
        gpus=tuple(
            replace(gpu, device=devices.get(gpu.address), direct_path=states.get(gpu.address)) for gpu in host.gpus
        ),
        graphics_manager=found.get("configManager.graphicsManager"),
        service_system=found.get("configManager.serviceSystem"),
    )


def _direct_path(found: Properties) -> dict[str, DirectPathFacts]:
    """Return the use of the devices and the data of their drivers by address, from 9.1 on."""
    infos = {entry.id: entry.directPathInfo for entry in found.get("hardware.pciDevice") or []}
    states = {entry.id: entry.directPathState for entry in found.get(PASSTHROUGH) or []}
    return {
        address: DirectPathFacts(
            mode=str(state.mode or "") if state else "",
            modes=tuple(state.configurableModes or ()) if state else (),
            used_memory=state.usedMemory if state else None,
            available_memory=info.availableMemory if info else None,
            interconnect=str(info.interconnectType or "") if info else "",
            driver=str(info.driverName or "") if info else "",
            driver_version=str(info.driverVersion or "") if info else "",
        )
        for address in {*infos, *states}
        if (state := states.get(address)) or infos.get(address)
        for info in [infos.get(address)]
    }


def _vm(reference: Any, found: Properties, vgpu: Any, bindings: Mapping[int, str]) -> VmFacts:
    devices = found.get("config.hardware.device") or []
    return VmFacts(
        moid=moid_of(reference),
        name=found.get("name") or moid_of(reference),
        host=moid_of(found.get("runtime.host")),
        power=str(found.get("runtime.powerState") or "poweredOff"),
        template=bool(found.get("config.template")),
        vgpus=tuple((device.key, device.backing.vgpu) for device in devices if isinstance(device.backing, vgpu)),
        bindings=bindings,
        vsga=any(renders_on_hardware(device) for device in devices),
        passthrough=any(is_whole_device(device) for device in devices),
        reference=reference,
    )


# The details of profiles, the framebuffers in MiB by `GpuFacts.device`, and the device groups.
HostDetails = tuple[tuple[ProfileFacts, ...], dict[int, int], tuple[GroupOffer, ...]]


class _ProfileDetails:
    """Profile details, queried once for all hosts of the same version, GPUs and profiles.

    The details depend on the driver, which such hosts share. Device groups depend on how the devices of a host are
    connected, so each host of a kind with device groups is queried.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[Any, HostDetails] = {}

    def of(self, host: HostFacts) -> HostFacts:
        asked = host.profiles or self._session.has(device_groups.SINCE)
        if not self._session.has("7.0.3") or not asked or host.browser is None or not host.connected:
            return host
        alike = (host.version, host.profiles, frozenset((gpu.address, gpu.device) for gpu in host.gpus))
        if alike not in self._known or self._known[alike][2]:
            self._known[alike] = self._ask(host)
        details, framebuffers, groups = self._known[alike]
        return replace(host, details=details, framebuffers=framebuffers, device_groups=groups)

    def _ask(self, host: HostFacts) -> HostDetails:
        subject = Operation(f"tell what host {host.name} offers", host=host.name)
        target = self._session.call(subject, host.browser.QueryConfigTarget, host=host.reference)
        groups = device_groups.offers_of(self._session, target)
        details = tuple(
            ProfileFacts(
                entry.profileName,
                entry.deviceVendorId,
                entry.profileSharing == "mig",
                _stun_times(entry) if self._session.has("8.0.2") else (),
            )
            for entry in (target.vgpuProfileInfo if target else None) or []
        )
        devices = (target.vgpuDeviceInfo if target else None) or []
        framebuffers = {entry.deviceVendorId: entry.maxFbSizeInGib * 1024 for entry in devices}
        return details, framebuffers, tuple(groups[name] for name in sorted(groups))


def _stun_times(entry: Any) -> tuple[tuple[int, int], ...]:
    return tuple((int(estimate.migrationBW), int(estimate.stunTime)) for estimate in entry.stunTimeEstimates or [])


# Graphics settings of hosts that are configured and not effective yet
def pending_text(host: HostFacts, *, restarted: bool = False) -> str | None:
    """Describe the action that makes the pending settings of a host effective, or return None."""
    waiting = pending(host)
    if not waiting:
        return None
    used = sorted(gpu.address for gpu in host.gpus if gpu.address in waiting and gpu.vms)
    which = f"The graphics of GPU {join_names(waiting)} of host {host.name} are configured and not in force"
    if used:
        return f"{which}: once the VMs on {join_names(used)} are off, it takes a reboot of the host."
    return f"{which}: it takes a reboot of the host{'' if restarted else ', or a restart of Xorg (restart_pending)'}."


def configured(host: HostFacts, gpu: GpuFacts) -> ConfiguredGraphics:
    """Return the configured graphics of a GPU: the host default if unlisted, and direct if in passthrough mode."""
    if gpu.graphics_type == DIRECT:
        return ConfiguredGraphics(DIRECT)
    listed = host.configured.get(gpu.address)
    return listed or ConfiguredGraphics(
        host.default_type, gpu.vgpu_mode if gpu.vgpu_mode in VGPU_MODES.values() else None
    )


def pending(host: HostFacts) -> set[str]:
    """Return the GPUs whose configured settings are not effective yet."""
    return {gpu.address for gpu in host.gpus if not in_force(gpu, configured(host, gpu))}


def in_force(gpu: GpuFacts, wanted: ConfiguredGraphics) -> bool:
    if gpu.graphics_type != wanted.graphics_type:
        return False
    # A GPU that serves no vGPUs has no effective mode, and MIG mode is not set through vSphere.
    if gpu.vgpu_mode not in VGPU_MODES.values() or wanted.vgpu_mode is None:
        return True
    return gpu.vgpu_mode == wanted.vgpu_mode
