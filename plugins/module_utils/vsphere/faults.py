# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Translation of vCenter faults into errors with a code, a message and a hint.

A fault is the response to a call or the error of a task (vsphere.md 8.1). This file uses only the names of fault types
and needs no SDK. Messages name the VM, the host, the profile or the privilege. Faults often lack these names, so the
caller passes an Operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import FleetError, join_names
from .unparsed import UnparsedFault

NameOf = Callable[[Any], str]

# Codes of calls that the server does not offer, and of responses that pyVmomi cannot parse.
NOT_SUPPORTED = "not_supported"
PERMISSION_HINT = "Give it to the user's role. The privileges each module needs are in the collection's documentation."
UNREADABLE = "unreadable_answer"

# Codes after which the state of the request is unknown: another task was in progress, the session or the host was
# lost, or the fault is not in the tables below.
UNCERTAIN = frozenset({"conflict", "session_ended", "host_unavailable", "not_found", "vsphere_fault", UNREADABLE})


@dataclass(frozen=True)
class Operation:
    """The purpose of a call. `doing` completes the sentence "vCenter refused to ...".

    `waiting` is true while a task waits for the effect of a call that vCenter has accepted.
    """

    doing: str
    vm: str = ""
    host: str = ""
    profiles: tuple[str, ...] = ()
    waiting: bool = False

    def on(self, host: str) -> Operation:
        return replace(self, host=host)

    @property
    def devices(self) -> str:
        return join_names(self.profiles) if self.profiles else "its devices"

    @property
    def the_host(self) -> str:
        return f"host {self.host}" if self.host else "the host"

    @property
    def the_vm(self) -> str:
        return f"VM {self.vm}" if self.vm else "the VM"


class VsphereError(FleetError):
    """A refusal by vCenter. `fault` is the name of the fault's type, such as `NoPermission`."""

    code = "vsphere_fault"

    def __init__(
        self, message: str, *, hint: str = "", fault: str = "", code: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.fault = fault
        # Whether pyVmomi could not parse the response, so that it may contain more than the message.
        self.unreadable = False
        self.retryable = retryable
        if code:
            self.code = code
        self.certain = self.code not in UNCERTAIN

    def as_dict(self) -> dict[str, str]:
        return {**super().as_dict(), "fault": self.fault}


@dataclass(frozen=True)
class FaultInfo:
    """The translation of a fault. `why` completes a sentence that begins with the operation."""

    code: str
    why: str
    hint: str = ""
    retryable: bool = False


Translator = Callable[[Any, Operation, NameOf], FaultInfo]


def error_from(fault: Any, subject: Operation, name_of: NameOf | None = None) -> VsphereError:
    """Return the error for a fault. `name_of` returns the name of an object that the fault refers to."""
    info = _translate(fault, subject, name_of or moid_of)
    what = f"vCenter refused to {subject.doing}"
    if subject.waiting:
        # vCenter has accepted the call. Only its effect cannot be read.
        what = f"It is not known whether vCenter managed to {subject.doing}, because the wait for it ended early"
    error = VsphereError(
        f"{what}: {_sentence(info.why)}",
        hint=info.hint,
        fault=fault_name(fault),
        code=info.code,
        retryable=info.retryable,
    )
    error.certain = error.certain and not subject.waiting
    return error


def _translate(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    for name in fault_names(fault):
        if name in FAULT_TRANSLATORS:
            return FAULT_TRANSLATORS[name](fault, subject, name_of)
        if name in FAULT_TEMPLATES:
            info = FAULT_TEMPLATES[name]
            return replace(info, why=info.why.format(**_fields(fault, subject, name_of)))
    about = ", ".join(_about(subject))
    text = text_of(fault)
    if not text:
        text = f"it answered {fault_name(fault)}"
    elif isinstance(fault, UnparsedFault):
        text = f"{fault_name(fault)}: {text}"
    return FaultInfo("vsphere_fault", _with(text, f"({about})" if about else "", *_about_names(subject)))


def _fields(fault: Any, subject: Operation, name_of: NameOf) -> dict[str, str]:
    """Return the fields of FAULT_TEMPLATES, from the operation and the fault."""
    host, target = getattr(fault, "host", None), getattr(fault, "obj", None)
    device = str(getattr(fault, "device", None) or subject.devices)
    return {
        "vm": subject.the_vm,
        "devices": subject.devices,
        "host": f"host {name_of(host)}" if host is not None else subject.the_host,
        "vm_or_host": subject.the_vm if subject.vm else subject.the_host,
        "object": name_of(target) if target is not None else subject.vm or subject.the_host,
        "name": str(getattr(fault, "name", None) or subject.vm),
        "datastore": str(getattr(fault, "datastore", None) or "?"),
        "device": _with(device, f"({subject.devices})", *(subject.profiles or (device,))),
        "current": str(getattr(fault, "currentVersion", None) or "?"),
        "expected": str(getattr(fault, "expectedVersion", None) or "?"),
        "text": _text_in_brackets(fault),
    }


# The content of a fault
def fault_name(fault: Any) -> str:
    return next(iter(fault_names(fault)), "")


def fault_names(fault: Any) -> Iterable[str]:
    """Yield the names of the fault's type and of its base types, the most specific first."""
    for kind in type(fault).__mro__:
        name = kind.__name__.rsplit(".", 1)[-1]
        if name not in ("Exception", "BaseException", "object", "DataObject", "Base", "ManagedObject", "UnparsedFault"):
            yield name


def text_of(fault: Any) -> str:
    """Return the texts of a fault, which are in different fields (vsphere.md 8.1)."""
    texts: list[str] = []
    while fault is not None:
        messages = [getattr(entry, "message", None) for entry in getattr(fault, "faultMessage", None) or []]
        texts.extend(text for text in messages if text)
        own = getattr(fault, "localizedMessage", None) or getattr(fault, "msg", None)
        if own and not own.startswith("*types.") and own not in texts:
            texts.append(own)
        fault = getattr(fault, "faultCause", None)
    return " ".join(_sentence(text) for text in dict.fromkeys(texts))


def moid_of(reference: Any) -> str:
    return str(getattr(reference, "_moId", reference))


def _sentence(text: str) -> str:
    text = text.strip()
    return text if not text or text[-1] in ".!?" else f"{text}."


def _clause(text: str) -> str:
    return text.strip().rstrip(".")


def _with(text: str, extra: str, *names: str) -> str:
    """Append `extra` unless the text already contains all names."""
    if not extra or (names and all(name in text for name in names)):
        return text
    return f"{_clause(text)} {extra}"


def _about(subject: Operation) -> list[str]:
    parts = [f"VM {subject.vm}"] if subject.vm else []
    parts += [f"host {subject.host}"] if subject.host else []
    return [*parts, *subject.profiles]


def _about_names(subject: Operation) -> list[str]:
    return [name for name in (subject.vm, subject.host, *subject.profiles) if name]


def _text_in_brackets(fault: Any) -> str:
    text = text_of(fault)
    return f" ({_clause(text)})" if text else ""


# Faults that a template cannot translate
def _power_state(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    states = {"poweredOn": "powered on", "poweredOff": "powered off", "suspended": "suspended"}
    existing, requested = (
        states.get(str(getattr(fault, field, "") or ""), "") for field in ("existingState", "requestedState")
    )
    needed = f" and would have to be {requested}" if requested and requested != existing else ""
    return FaultInfo(
        "invalid_power_state",
        f"{subject.the_vm} is {existing or 'in the wrong power state'}{needed}{_text_in_brackets(fault)}",
    )


def _device_spec(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    index = getattr(fault, "deviceIndex", None)
    which = f"device change {index} is not acceptable" if index is not None else "the devices are not acceptable"
    return FaultInfo("invalid_device", f"{which} for {subject.devices}{_text_in_brackets(fault)}")


def _vm_config(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    reason = str(getattr(fault, "reason", None) or "")
    text = text_of(fault)
    why = reason if reason and reason not in text else (text or "its configuration does not allow it")
    hint = ""
    folded = why.casefold()
    if "memory" in folded and "reserv" in folded:
        hint = "A VM with a vGPU needs all its memory reserved: prepare does it."
    elif "mmio" in folded or "devicepoweron" in folded:
        hint = "Large framebuffers need EFI and enough 64-bit MMIO: prepare computes it."
    elif "plugin" in folded:
        hint = "Look at the NVIDIA driver of the host, and whether its version goes with the profile."
    return FaultInfo("vm_config", _with(why, f"({', '.join(_about(subject))})", *_about_names(subject)), hint=hint)


def _memory(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    host = getattr(fault, "host", None)
    where = f"host {name_of(host)}" if host is not None else subject.the_host
    unreserved, requested = (getattr(fault, field, None) for field in ("unreserved", "requested"))
    sizes = (
        f": {_mib(requested)} would have to be reserved and {_mib(unreserved)} are not yet"
        if unreserved is not None and requested is not None
        else ""
    )
    return FaultInfo(
        "insufficient_memory",
        f"{where}, or its resource pool, has too little memory{sizes}{_text_in_brackets(fault)}",
        hint="A VM with a vGPU has all its memory reserved: use less of it, or another host or resource pool.",
    )


def _mib(size: int) -> str:
    return f"{int(size) >> 20} MiB"


def _no_host(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    """List the reason for each host, as returned by DRS (vsphere.md 6.1)."""
    hosts = list(getattr(fault, "host", None) or [])
    errors = list(getattr(fault, "error", None) or [])
    if not errors:
        return FaultInfo("no_compatible_host", f"no host can take {subject.devices}{_text_in_brackets(fault)}")
    names = [name_of(host) for host in hosts] + ["?"] * (len(errors) - len(hosts))
    found = [(name, _translate(error, subject.on(name), name_of)) for name, error in zip(names, errors, strict=False)]
    reasons = [f"{name}: {_clause(info.why)}" for name, info in found]
    hints = list(dict.fromkeys(info.hint for _name, info in found if info.hint))
    return FaultInfo(
        "no_compatible_host",
        f"no host can take {subject.devices}. {'; '.join(reasons)}",
        hint=" ".join(hints),
        retryable=False,
    )


def _permission(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    privileges = [str(getattr(fault, "privilegeId", None) or "")]
    missing = getattr(fault, "missingPrivileges", None) or []
    privileges += [str(name) for entry in missing for name in getattr(entry, "privilegeIds", None) or []]
    named = join_names(name for name in privileges if name)
    target = getattr(fault, "object", None)
    where = f" on {name_of(target)}" if target is not None else "".join(f" on {part}" for part in _about(subject)[:1])
    return FaultInfo(
        "forbidden",
        f"the privilege {named} is missing{where}{_text_in_brackets(fault)}"
        if named != "none"
        else f"a privilege is missing{where}{_text_in_brackets(fault)}",
        hint=PERMISSION_HINT,
    )


def _argument(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    field = str(getattr(fault, "invalidProperty", None) or "")
    which = f"{field} is not acceptable" if field else "an argument is not acceptable"
    about = ", ".join(_about(subject))
    return FaultInfo("invalid_argument", which + (f" for {about}" if about else "") + _text_in_brackets(fault))


def _not_offered(fault: Any, _subject: Operation, _name_of: NameOf) -> FaultInfo:
    method = getattr(fault, "method", None)
    # pyVmomi returns a description of the method if it knows the name.
    name = str(getattr(method, "info", method) or "").rsplit(".", 1)[-1]
    return FaultInfo(
        NOT_SUPPORTED,
        f"this server does not offer {name or 'this operation'}{_text_in_brackets(fault)}",
        hint="Connect to vCenter instead of an ESXi host, and check that its version is supported.",
    )


FAULT_TRANSLATORS: Mapping[str, Translator] = {
    "InvalidPowerState": _power_state,
    "InvalidDeviceSpec": _device_spec,
    "VmConfigFault": _vm_config,
    "InsufficientMemoryResourcesFault": _memory,
    "InsufficientHostMemoryCapacityFault": _memory,
    "NoCompatibleHost": _no_host,
    "NoPermission": _permission,
    "InvalidArgument": _argument,
    "MethodNotFound": _not_offered,
}

LIST_OFFERS = "vgpu.fleet.vsphere_gpu_info lists what each host offers."
_UNSUPPORTED = FaultInfo("device_not_supported", "{host} cannot serve {device}{text}", LIST_OFFERS)
_CONFLICT = FaultInfo("conflict", "{vm_or_host} is being changed by another task{text}", "Run the task again.", True)
_LICENSE = FaultInfo(
    "not_licensed",
    "the license of {host} does not cover {devices}{text}",
    "vGPUs require vSphere Enterprise Plus, vSphere Foundation or Cloud Foundation.",
)
_NOT_SUPPORTED = FaultInfo(
    NOT_SUPPORTED,
    "it is not supported for {vm_or_host}{text}",
    "Some operations need vCenter instead of an ESXi host, or a newer version.",
)
_HINDERED = FaultInfo("hindered_by_vgpu", "{vm} cannot do that while it has {devices}{text}")
_HOST_UNAVAILABLE = FaultInfo("host_unavailable", "{host} is not available{text}")

# Code, template and hint by type of fault. `_fields` returns the fields of the templates.
FAULT_TEMPLATES: Mapping[str, FaultInfo] = {
    "InsufficientGraphicsResourcesFault": FaultInfo(
        "no_room",
        "no GPU of {host} has room for {devices}{text}",
        "See what is free, and why the rest is not: vgpu.fleet.vgpu_availability with platform vsphere.",
    ),
    "DeviceHotPlugNotSupported": FaultInfo(
        "invalid_power_state",
        "{devices} cannot be added or removed while {vm} runs{text}",
        "Power off the VM first, or permit it with power_cycle.",
    ),
    "InvalidDeviceBacking": FaultInfo("profile_not_offered", "no host in reach offers {devices}{text}", LIST_OFFERS),
    "DeviceUnsupportedForVmVersion": FaultInfo(
        "hardware_version",
        "{devices} needs hardware version {expected}, and {vm} has {current}{text}",
        "Upgrade the hardware version of the VM, or set prepare to true.",
    ),
    "DeviceUnsupportedForVmPlatform": _UNSUPPORTED,
    "DeviceNotSupported": _UNSUPPORTED,
    "DeviceBackingNotSupported": _UNSUPPORTED,
    "TooManyDevices": FaultInfo("too_many_devices", "{vm} would have too many devices: {devices}{text}"),
    "ConcurrentAccess": _CONFLICT,
    "TaskInProgress": _CONFLICT,
    "NoDiskSpace": FaultInfo(
        "no_disk_space",
        "datastore {datastore} has too little free space for {vm}{text}",
        "Free space there, or give another datastore.",
    ),
    "DuplicateName": FaultInfo("duplicate_name", "the name {name} is taken{text}"),
    "NotSupported": _NOT_SUPPORTED,
    "NotImplemented": _NOT_SUPPORTED,
    "RestrictedVersion": _LICENSE,
    "NotEnoughLicenses": _LICENSE,
    "ManagedObjectNotFound": FaultInfo("not_found", "{object} does not exist any more{text}"),
    "SnapshotIncompatibleDeviceInVm": _HINDERED,
    "VMotionNotSupported": _HINDERED,
    "FeatureRequirementsNotMet": _HINDERED,
    "HostNotConnected": _HOST_UNAVAILABLE,
    "InvalidHostState": _HOST_UNAVAILABLE,
    "NotAuthenticated": FaultInfo("session_ended", "the session has ended{text}", "Run the task again.", True),
}
