"""Operations of the provider on vCenter: clone, devices, power and deletion of VMs. Blocking."""

from __future__ import annotations

import ssl
from typing import Any

from pyVim.connect import Disconnect, SmartConnect
from pyVim.task import WaitForTask
from pyVmomi import vim, vmodl

from lab.kubernetes.client import Json

FIRST_KEY = -200


class OperationFailed(Exception):
    """A vCenter task that failed, and what the provider was doing: a reason of its condition in v1beta1."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class VCenter:
    def __init__(self, server: str, user: str, password: str) -> None:
        host, _colon, port = server.partition(":")
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        try:
            self._instance = SmartConnect(
                host=host, port=int(port or 443), user=user, pwd=password, sslContext=unverified
            )
        except (OSError, vim.fault.VimFault, vmodl.MethodFault) as error:
            raise OperationFailed("VCenterUnreachable", _text(error)) from error
        self._content = self._instance.RetrieveContent()

    def close(self) -> None:
        Disconnect(self._instance)

    # Looking up
    def _all(self, kind: Any) -> list[Any]:
        view = self._content.viewManager.CreateContainerView(self._content.rootFolder, [kind], True)
        try:
            return list(view.view)
        finally:
            view.Destroy()

    def _named(self, kind: Any, name: str, what: str) -> Any:
        """Return the object by name or inventory path, or the only one if there is no name."""
        short = name.rstrip("/").rpartition("/")[2]
        found = [one for one in self._all(kind) if not name or one.name == short]
        if len(found) != 1:
            said = "not found" if not found else "resolves to multiple instances, please specify"
            raise OperationFailed("CloningFailed", f"{what} '{name or 'default'}' {said}")
        return found[0]

    def find(self, name: str) -> Any | None:
        return next((vm for vm in self._all(vim.VirtualMachine) if vm.name == name), None)

    def pci_devices(self, vm: Any) -> list[Any]:
        kind = vim.vm.device.VirtualPCIPassthrough
        return [device for device in vm.config.hardware.device if isinstance(device, kind)]

    # Making
    def create(self, name: str, spec: Json) -> Any:
        """Clone the VM with its settings. Its memory is locked if it has devices."""
        source = self._named(vim.VirtualMachine, spec["template"], "vm")
        pool = self._pool(spec.get("resourcePool") or "")
        place = vim.vm.RelocateSpec(pool=pool)
        if spec.get("datastore"):
            place.datastore = self._named(vim.Datastore, spec["datastore"], "datastore")
        config = vim.vm.ConfigSpec(annotation=f"Virtual machine cloned from {source.name}")
        if spec.get("numCPUs"):
            config.numCPUs = spec["numCPUs"]
        if spec.get("memoryMiB"):
            config.memoryMB = spec["memoryMiB"]
        config.extraConfig = [
            vim.option.OptionValue(key=key, value=value) for key, value in (spec.get("customVMXKeys") or {}).items()
        ]
        if spec.get("pciDevices"):
            config.memoryReservationLockedToMax = True
        folder = self._folder(spec.get("folder") or "", source)
        clone = vim.vm.CloneSpec(location=place, config=config, powerOn=False, template=False)
        return _finished("CloningFailed", source.CloneVM_Task, folder, name, clone)

    def _pool(self, name: str) -> Any:
        if name.endswith("Resources") and "/" in name:
            owner = name.split("/")[-2]
            return self._named(vim.ComputeResource, owner, "resource pool").resourcePool
        return self._named(vim.ResourcePool, name, "resource pool")

    def _folder(self, name: str, source: Any) -> Any:
        if name:
            return self._named(vim.Folder, name, "folder")
        home = source.parent
        while not isinstance(home, vim.Datacenter):
            home = home.parent
        return home.vmFolder

    def add_devices(self, vm: Any, spec: Json) -> None:
        """Add the devices after the clone, as the provider does: first the hardware version, then the devices."""
        wanted = str(spec.get("hardwareVersion") or "")
        if wanted and wanted > vm.config.version:
            _finished("TaskFailure", vm.UpgradeVM_Task, wanted)
        missing = _missing(self.pci_devices(vm), spec.get("pciDevices") or [])
        if missing:
            changes = [
                vim.vm.device.VirtualDeviceSpec(
                    operation="add",
                    device=vim.vm.device.VirtualPCIPassthrough(key=FIRST_KEY - index, backing=_backing(device)),
                )
                for index, device in enumerate(missing)
            ]
            _finished("TaskFailure", vm.ReconfigVM_Task, vim.vm.ConfigSpec(deviceChange=changes))

    def lacks_devices(self, vm: Any, spec: Json) -> bool:
        return bool(_missing(self.pci_devices(vm), spec.get("pciDevices") or []))

    def power_on(self, vm: Any) -> None:
        compute = vm.resourcePool.owner
        drs = getattr(getattr(compute, "configuration", None), "drsConfig", None)
        if not drs or not drs.enabled:
            _finished("PoweringOnFailed", vm.PowerOnVM_Task)
            return
        home = vm.parent
        while not isinstance(home, vim.Datacenter):
            home = home.parent
        result = _finished("PoweringOnFailed", home.PowerOnMultiVM_Task, [vm])
        for refused in result.notAttempted or []:
            raise OperationFailed("PoweringOnFailed", refused.localizedMessage or type(refused.fault).__name__)
        for attempt in result.attempted or []:
            if attempt.task:
                _finished("PoweringOnFailed", lambda task=attempt.task: task)

    def destroy(self, vm: Any) -> None:
        if vm.runtime.powerState == "poweredOn":
            _finished("TaskFailure", vm.PowerOffVM_Task)
        _finished("TaskFailure", vm.Destroy_Task)


def _missing(there: list[Any], wanted: list[Json]) -> list[Json]:
    """Return the devices that the VM lacks. Labels do not count: the provider ignores them when it compares."""
    left = [_key(device.backing) for device in there]
    missing = []
    for device in wanted:
        key = device.get("vGPUProfile") or (device["vendorId"], device["deviceId"])
        if key in left:
            left.remove(key)
        else:
            missing.append(device)
    return missing


def _key(backing: Any) -> Any:
    kind = vim.vm.device.VirtualPCIPassthrough
    if isinstance(backing, kind.VmiopBackingInfo):
        return backing.vgpu
    allowed = (getattr(backing, "allowedDevice", None) or [None])[0]
    return (allowed.vendorId & 0xFFFF, allowed.deviceId & 0xFFFF) if allowed else None


def _backing(device: Json) -> Any:
    kind = vim.vm.device.VirtualPCIPassthrough
    if device.get("vGPUProfile"):
        return kind.VmiopBackingInfo(vgpu=device["vGPUProfile"])
    allowed = kind.AllowedDevice(vendorId=device["vendorId"], deviceId=device["deviceId"])
    return kind.DynamicBackingInfo(
        deviceName="", allowedDevice=[allowed], customLabel=device.get("customLabel") or None
    )


def _finished(reason: str, method: Any, *arguments: Any) -> Any:
    try:
        task = method(*arguments)
        WaitForTask(task)
        return task.info.result
    except (vim.fault.VimFault, vmodl.MethodFault) as error:
        raise OperationFailed(reason, _text(error)) from error


def _text(error: BaseException) -> str:
    return str(getattr(error, "msg", "") or error or type(error).__name__)
