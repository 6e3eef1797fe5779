"""A vCenter in memory: a stub of pyVmomi that answers from a dictionary and refuses every write."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.session import Session
from pyVmomi import vim, vmodl

Properties = dict[str, Any]
A40 = 0x2235 << 16 | 0x10DE
PROFILES = ["nvidia_a40-4q", "nvidia_a40-8q", "nvidia_a40-8c", "nvidia_a40-16q"]
# Methods that look, among those that modules call. All others count as writes.
READS = {
    "CheckClone_Task",
    "CheckPowerOn_Task",
    "CheckVmConfig_Task",
    "CreateFilter",
    "DestroyPropertyFilter",
    "FindAllByUuid",
    "FindByInventoryPath",
    "HasPrivilegeOnEntities",
    "Login",
    "Logout",
    "QueryConfigOption",
    "QueryConfigOptionEx",
    "QueryConfigTarget",
    "QueryDirectPathProfileCapacity",
    "QueryOptions",
    "RetrievePropertiesEx",
    "RetrieveServiceContent",
    "WaitForUpdatesEx",
}
PASSTHROUGH = vim.vm.device.VirtualPCIPassthrough


@dataclass
class VCenter:
    """Objects with their properties by path. `stub` is the connection that pyVmomi takes."""

    api_version: str = "8.0.3.0"
    objects: dict[str, tuple[Any, Properties]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    # Fields of pyVmomi's adapters that the session uses.
    cookie: str = "session"
    versionId: str = "urn:vim25/8.0.3.0"  # noqa: N815
    path: str = "/sdk"

    def add(self, kind: Any, moid: str, **properties: Any) -> Any:
        reference = kind(moid, self)
        self.objects[moid] = (reference, {name.replace("__", "."): value for name, value in properties.items()})
        return reference

    def session(self) -> Session:
        made = Session(vim.ServiceInstance("ServiceInstance", self), lambda _content: vim.UserSession(key="k"))
        made.user_session = SimpleNamespace(key="k", userName="fuzz")
        return made

    # What pyVmomi calls.
    def InvokeMethod(self, mo: Any, info: Any, args: Any, outerStub: Any = None) -> Any:  # noqa: N802, N803
        name = info.wsdlName
        if name not in READS:
            self.writes.append(name)
            raise vim.fault.NoPermission(object=mo, privilegeId="System.Fuzz", msg="Permission was denied.")
        return getattr(self, f"_{name}", lambda *_args: None)(mo, *args)

    def InvokeAccessor(self, mo: Any, info: Any) -> Any:  # noqa: N802
        return self.objects.get(mo._moId, (mo, {}))[1].get(info.name)

    def DropConnections(self) -> None:  # noqa: N802
        pass

    def _RetrieveServiceContent(self, _mo: Any) -> Any:  # noqa: N802
        return SimpleNamespace(
            about=SimpleNamespace(apiVersion=self.api_version, version=self.api_version),
            rootFolder=vim.Folder("group-d1", self),
            propertyCollector=vmodl.query.PropertyCollector("propertyCollector", self),
            searchIndex=vim.SearchIndex("SearchIndex", self),
            sessionManager=vim.SessionManager("SessionManager", self),
            authorizationManager=vim.AuthorizationManager("AuthorizationManager", self),
            setting=vim.option.OptionManager("VpxSettings", self),
            vmProvisioningChecker=None,
            vmCompatibilityChecker=None,
        )

    def _HasPrivilegeOnEntities(self, _mo: Any, entities: Any, _session: str, privileges: Any) -> Any:  # noqa: N802
        held = [SimpleNamespace(privId=one, isGranted=True) for one in privileges]
        return [SimpleNamespace(entity=entity, privAvailability=held) for entity in entities]

    def _FindByInventoryPath(self, _mo: Any, path: str) -> Any:  # noqa: N802
        name = path.rpartition("/")[2]
        return next((one for one, found in self.objects.values() if found.get("name") == name), None)

    def _FindAllByUuid(self, _mo: Any, _datacenter: Any, uuid: str, *_more: Any) -> Any:  # noqa: N802
        return [one for one, found in self.objects.values() if uuid and found.get("config.uuid") == uuid]

    def _QueryConfigTarget(self, _mo: Any, *_args: Any) -> Any:  # noqa: N802
        profiles = [
            vim.vm.VgpuProfileInfo(
                profileName=name, deviceVendorId=A40, fbSizeInGib=8, profileSharing="timesliced", stunTimeEstimates=[]
            )
            for name in PROFILES
        ]
        devices = [vim.vm.VgpuDeviceInfo(deviceName="A40", deviceVendorId=A40, maxFbSizeInGib=48)]
        return vim.vm.ConfigTarget(vgpuProfileInfo=profiles, vgpuDeviceInfo=devices)

    def _RetrievePropertiesEx(self, _mo: Any, filters: Any, _options: Any) -> Any:  # noqa: N802
        found = []
        for one in filters:
            wanted = {entry.type: list(entry.pathSet) for entry in one.propSet}
            for reference in self._reached(one):
                kinds = [kind for kind in wanted if isinstance(reference, kind)]
                known = self.objects.get(reference._moId)
                if not kinds or known is None:
                    continue
                paths = {path for kind in kinds for path in wanted[kind]}
                changes = [
                    SimpleNamespace(name=name, val=value)
                    for name, value in known[1].items()
                    if name in paths and value is not None
                ]
                found.append(SimpleNamespace(obj=reference, propSet=changes, missingSet=[]))
        return SimpleNamespace(token=None, objects=found) if found else None

    def _reached(self, one: Any) -> list[Any]:
        """Return the objects of a filter. A traversal that begins at a VM or a host reaches no VM but that one."""
        starts = [spec.obj for spec in one.objectSet]
        if not any(spec.selectSet for spec in one.objectSet):
            return starts
        begins = {start._moId for start in starts}
        below_root = "group-d1" in begins
        return [
            reference
            for moid, (reference, _found) in self.objects.items()
            if moid in begins or below_root or not isinstance(reference, vim.VirtualMachine)
        ]


def graphics(address: str, *vms: Any) -> Any:
    return vim.host.GraphicsInfo(
        deviceName="NVIDIA A40",
        vendorName="NVIDIA Corporation",
        pciId=address,
        graphicsType="sharedDirect",
        memorySizeInKB=48 << 20,
        vm=list(vms),
        vgpuMode="sameSize",
    )


def vgpu(key: int, profile: str) -> Any:
    return PASSTHROUGH(
        key=key,
        deviceInfo=vim.Description(label=f"PCI device {key}", summary=profile),
        backing=PASSTHROUGH.VmiopBackingInfo(vgpu=profile),
    )


def whole_device(key: int) -> Any:
    allowed = PASSTHROUGH.AllowedDevice(vendorId=0x10DE, deviceId=0x2235)
    backing = PASSTHROUGH.DynamicBackingInfo(deviceName="", allowedDevice=[allowed], customLabel="")
    return PASSTHROUGH(key=key, backing=backing)


def machine(vcenter: VCenter, moid: str, name: str, *devices: Any, power: str, template: bool = False) -> Any:
    card = vim.vm.device.VirtualVmxnet3(
        key=4000,
        macAddress="00:50:56:00:00:01",
        backing=vim.vm.device.VirtualEthernetCard.NetworkBackingInfo(deviceName="VM Network"),
    )
    disk = vim.vm.device.VirtualDisk(
        key=2000, capacityInKB=40 << 20, backing=vim.vm.device.VirtualDisk.FlatVer2BackingInfo(fileName="[ds] a.vmdk")
    )
    hardware = vim.vm.VirtualHardware(numCPU=4, memoryMB=8192, device=[disk, card, *devices])
    return vcenter.add(
        vim.VirtualMachine,
        moid,
        name=name,
        parent=vim.Folder("group-v3", vcenter),
        resourcePool=vim.ResourcePool("resgroup-8", vcenter),
        runtime__powerState=power,
        runtime__connectionState="connected",
        runtime__host=vim.HostSystem("host-1", vcenter),
        config__uuid=f"42000000-0000-0000-0000-00000000000{moid[-1]}",
        config__instanceUuid=f"50000000-0000-0000-0000-00000000000{moid[-1]}",
        config__template=template,
        config__version="vmx-20",
        config__firmware="efi",
        config__annotation="",
        config__changeVersion="7",
        config__hardware=hardware,
        config__hardware__device=hardware.device,
        config__memoryReservationLockedToMax=bool(devices),
        config__cpuHotAddEnabled=False,
        config__memoryHotAddEnabled=False,
        config__extraConfig=[vim.option.OptionValue(key="pciPassthru.use64bitMMIO", value="TRUE")],
        guest__toolsRunningStatus="guestToolsRunning",
    )


def vcenter() -> VCenter:
    """Return a cluster of two hosts with A40, a VM that runs with a vGPU, one that is off, and a template."""
    made = VCenter()
    root = made.add(vim.Folder, "group-d1", name="Datacenters")
    datacenter = made.add(vim.Datacenter, "datacenter-1", name="dc1", parent=root)
    hosts = made.add(vim.Folder, "group-h2", name="host", parent=datacenter)
    made.add(vim.Folder, "group-v3", name="vm", parent=datacenter)
    cluster = made.add(
        vim.ClusterComputeResource,
        "domain-c7",
        name="gpu",
        parent=hosts,
        environmentBrowser=vim.EnvironmentBrowser("envbrowser-7", made),
        configurationEx__drsConfig__enabled=True,
        configurationEx__drsConfig__option=[],
    )
    pool = made.add(vim.ResourcePool, "resgroup-8", name="Resources", parent=cluster, owner=cluster)
    made.add(vim.ResourcePool, "resgroup-9", name="ml", parent=pool, owner=cluster)
    made.add(vim.Datastore, "datastore-1", name="ds", summary__freeSpace=1 << 40, summary__accessible=True)
    made.add(vim.Network, "network-1", name="VM Network")
    trainer = machine(made, "vm-1", "trainer", vgpu(13000, "nvidia_a40-8q"), power="poweredOn")
    idle = machine(made, "vm-2", "idle", whole_device(13001), power="poweredOff")
    template = machine(made, "vm-3", "template", power="poweredOff", template=True)
    for number, vms in ((1, [trainer, idle, template]), (2, [])):
        address = "0000:3b:00.0"
        made.add(
            vim.HostSystem,
            f"host-{number}",
            name=f"esx{number}",
            parent=cluster,
            vm=vms,
            runtime__connectionState="connected",
            runtime__inMaintenanceMode=False,
            config__product__version="8.0.3",
            config__graphicsInfo=[graphics(address, *vms[:1])],
            config__graphicsConfig=vim.host.GraphicsConfig(
                hostDefaultGraphicsType="sharedDirect",
                sharedPassthruAssignmentPolicy="performance",
                deviceType=[
                    vim.host.GraphicsConfig.DeviceType(
                        deviceId=address, graphicsType="sharedDirect", vgpuMode="sameSize"
                    )
                ],
            ),
            config__sharedPassthruGpuTypes=list(PROFILES),
            config__pciPassthruInfo=[
                vim.host.PciPassthruInfo(
                    id=address,
                    dependentDevice=address,
                    passthruEnabled=False,
                    passthruCapable=True,
                    passthruActive=False,
                )
            ],
            hardware__pciDevice=[
                vim.host.PciDevice(id=address, vendorId=0x10DE, deviceId=0x2235, vendorName="NVIDIA", deviceName="A40")
            ],
            configManager__graphicsManager=vim.host.GraphicsManager(f"graphics-{number}", made),
            configManager__serviceSystem=vim.host.ServiceSystem(f"services-{number}", made),
            configManager__pciPassthruSystem=vim.host.PciPassthruSystem(f"passthru-{number}", made),
            capability__deviceRebindWithoutRebootSupported=True,
        )
    return made


def copied(source: VCenter) -> VCenter:
    """Return a vCenter whose properties can be changed without changing those of the source."""
    made = VCenter(api_version=source.api_version)
    for moid, (reference, found) in source.objects.items():
        made.objects[moid] = (type(reference)(moid, made), {name: _copy(value, made) for name, value in found.items()})
    return made


def _copy(value: Any, stub: VCenter) -> Any:
    if isinstance(value, vim.ManagedObject):
        return type(value)(value._moId, stub)
    if isinstance(value, vmodl.DynamicData):
        made = type(value)()
        for info in value._GetPropertyList():
            inner = getattr(value, info.name)
            if inner is not None:
                made.__dict__[info.name] = _copy(inner, stub)
        return made
    if isinstance(value, list):
        return type(value)(_copy(one, stub) for one in value)
    return copy.copy(value)
