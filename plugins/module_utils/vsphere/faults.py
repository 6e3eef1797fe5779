# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vCenter refuses, in our words.

A fault arrives at once or in a task (vsphere.md 8.1); both end here. Only the names of fault types are used, so this
file needs no SDK. A message names the VM, the host, the profile or the privilege: the fault often does not, so whoever
made the call says what it was about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError, join_names

NameOf = Callable[[Any], str]

# Answers that leave open what became of a request: somebody else's task was in the way, the session or the host was
# gone, or the fault is not known here.
UNCERTAIN = frozenset({"conflict", "session_ended", "host_unavailable", "not_found", "vsphere_fault"})


@dataclass(frozen=True)
class Operation:
    """What a call is about. `doing` ends the sentence that begins with "vCenter refused to"."""

    doing: str
    vm: str = ""
    host: str = ""
    profiles: tuple[str, ...] = ()

    def on(self, host: str) -> Operation:
        return replace(self, host=host)

    @property
    def wanted(self) -> str:
        return join_names(self.profiles) if self.profiles else "its devices"

    @property
    def where(self) -> str:
        return f"host {self.host}" if self.host else "the host"


class VsphereError(FleetError):
    """An answer of vCenter that is not a success. `fault` is the name of its type, such as `NoPermission`."""

    code = "vsphere_fault"

    def __init__(
        self, message: str, *, hint: str = "", fault: str = "", code: str | None = None, retryable: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.fault = fault
        self.retryable = retryable
        if code:
            self.code = code
        self.certain = self.code not in UNCERTAIN

    def as_dict(self) -> dict[str, str]:
        return {**super().as_dict(), "fault": self.fault}


@dataclass(frozen=True)
class FaultInfo:
    """A fault as it was understood: `why` ends a sentence that begins with what was refused."""

    code: str
    why: str
    hint: str = ""
    retryable: bool = False


Reader = Callable[[Any, Operation, NameOf], FaultInfo]


def error_from(fault: Any, subject: Operation, name_of: NameOf | None = None) -> VsphereError:
    """The error for a fault. `name_of` gives the name of an object that a fault refers to."""
    known = _read(fault, subject, name_of or moid_of)
    return VsphereError(
        f"vCenter refused to {subject.doing}: {_sentence(known.why)}",
        hint=known.hint,
        fault=fault_name(fault),
        code=known.code,
        retryable=known.retryable,
    )


def _read(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    for name in fault_names(fault):
        reader = READERS.get(name)
        if reader:
            return reader(fault, subject, name_of)
    about = ", ".join(_about(subject))
    text = text_of(fault) or f"it answered {fault_name(fault)}"
    return FaultInfo("vsphere_fault", _with(text, f"({about})" if about else "", *_about_names(subject)))


# What a fault says
def fault_name(fault: Any) -> str:
    return next(iter(fault_names(fault)), "")


def fault_names(fault: Any) -> Iterable[str]:
    """The names of a fault's type and of its ancestors, the most special first."""
    for kind in type(fault).__mro__:
        name = kind.__name__.rsplit(".", 1)[-1]
        if name not in ("Exception", "BaseException", "object", "DataObject", "Base", "ManagedObject"):
            yield name


def text_of(fault: Any) -> str:
    """The useful words of a fault, which stand in different places (vsphere.md 8.1)."""
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
    """The text, with what is missing in it."""
    if not extra or (names and all(name in text for name in names)):
        return text
    return f"{_clause(text)} {extra}"


def _about(subject: Operation) -> list[str]:
    parts = [f"VM {subject.vm}"] if subject.vm else []
    parts += [f"host {subject.host}"] if subject.host else []
    return [*parts, *subject.profiles]


def _about_names(subject: Operation) -> list[str]:
    return [name for name in (subject.vm, subject.host, *subject.profiles) if name]


def _told(fault: Any) -> str:
    text = text_of(fault)
    return f" ({_clause(text)})" if text else ""


# The faults that have words of their own
def _no_room(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    return FaultInfo(
        "no_room",
        f"no GPU of {subject.where} has room for {subject.wanted}{_told(fault)}",
        hint="See what is free, and why the rest is not: vgpu.fleet.vgpu_availability with platform vsphere.",
    )


def _power_state(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    states = {"poweredOn": "powered on", "poweredOff": "powered off", "suspended": "suspended"}
    existing, requested = (
        states.get(str(getattr(fault, field, "") or ""), "") for field in ("existingState", "requestedState")
    )
    who = f"VM {subject.vm}" if subject.vm else "the VM"
    needed = f" and would have to be {requested}" if requested and requested != existing else ""
    return FaultInfo("invalid_power_state", f"{who} is {existing or 'in the wrong power state'}{needed}{_told(fault)}")


def _hot_plug(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    who = f"VM {subject.vm}" if subject.vm else "the VM"
    return FaultInfo(
        "invalid_power_state",
        f"{subject.wanted} cannot be added or removed while {who} runs{_told(fault)}",
        hint="Power it off first, or allow it with power_cycle.",
    )


def _backing(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    return FaultInfo(
        "profile_not_offered",
        f"no host in reach offers {subject.wanted}{_told(fault)}",
        hint="vgpu.fleet.vsphere_gpu_info lists what each host offers.",
    )


def _hardware_version(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    has, needs = (getattr(fault, field, None) or "?" for field in ("currentVersion", "expectedVersion"))
    who = f"VM {subject.vm}" if subject.vm else "the VM"
    return FaultInfo(
        "hardware_version",
        f"{subject.wanted} needs hardware version {needs}, and {who} has {has}{_told(fault)}",
        hint="Upgrade its hardware, or let prepare do it.",
    )


def _unsupported(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    device = getattr(fault, "device", None) or subject.wanted
    return FaultInfo(
        "device_not_supported",
        _with(f"{subject.where} cannot serve {device}{_told(fault)}", f"({subject.wanted})", *subject.profiles),
        hint="vgpu.fleet.vsphere_gpu_info lists what each host offers.",
    )


def _too_many(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    who = f"VM {subject.vm}" if subject.vm else "the VM"
    return FaultInfo("too_many_devices", f"{who} would have too many devices: {subject.wanted}{_told(fault)}")


def _device_spec(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    index = getattr(fault, "deviceIndex", None)
    which = f"device change {index} is not acceptable" if index is not None else "the devices are not acceptable"
    return FaultInfo("invalid_device", f"{which} for {subject.wanted}{_told(fault)}")


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
    where = f"host {name_of(host)}" if host is not None else subject.where
    unreserved, requested = (getattr(fault, field, None) for field in ("unreserved", "requested"))
    sizes = (
        f": {_mib(requested)} would have to be reserved and {_mib(unreserved)} are not yet"
        if unreserved is not None and requested is not None
        else ""
    )
    return FaultInfo(
        "insufficient_memory",
        f"{where}, or its resource pool, has too little memory{sizes}{_told(fault)}",
        hint="A VM with a vGPU has all its memory reserved: use less of it, or another host or resource pool.",
    )


def _mib(size: int) -> str:
    return f"{int(size) >> 20} MiB"


def _no_host(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    """DRS tells the reason of each host (vsphere.md 6.1): those are what matters."""
    hosts = list(getattr(fault, "host", None) or [])
    errors = list(getattr(fault, "error", None) or [])
    if not errors:
        return FaultInfo("no_compatible_host", f"no host can take {subject.wanted}{_told(fault)}")
    names = [name_of(host) for host in hosts] + ["?"] * (len(errors) - len(hosts))
    found = [(name, _read(error, subject.on(name), name_of)) for name, error in zip(names, errors, strict=False)]
    reasons = [f"{name}: {_clause(reading.why)}" for name, reading in found]
    hints = list(dict.fromkeys(reading.hint for _name, reading in found if reading.hint))
    return FaultInfo(
        "no_compatible_host",
        f"no host can take {subject.wanted}. {'; '.join(reasons)}",
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
        f"the privilege {named} is missing{where}{_told(fault)}"
        if named != "none"
        else f"a privilege is missing{where}{_told(fault)}",
        hint="Give it to the user's role. The privileges each module needs are in the collection's documentation.",
    )


def _conflict(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    who = f"VM {subject.vm}" if subject.vm else subject.where
    return FaultInfo(
        "conflict", f"{who} is being changed by someone else{_told(fault)}", "Run it again.", retryable=True
    )


def _duplicate(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    name = getattr(fault, "name", None) or subject.vm
    return FaultInfo("duplicate_name", f"the name {name} is taken{_told(fault)}")


def _licence(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    return FaultInfo(
        "not_licensed",
        f"the licence of {subject.where} does not cover {subject.wanted}{_told(fault)}",
        hint="vGPUs need vSphere Enterprise Plus, or vSphere Foundation or Cloud Foundation.",
    )


def _gone(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    target = getattr(fault, "obj", None)
    who = name_of(target) if target is not None else subject.vm or subject.where
    return FaultInfo("not_found", f"{who} is not there any more{_told(fault)}")


def _hindered(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    who = f"VM {subject.vm}" if subject.vm else "the VM"
    return FaultInfo("hindered_by_vgpu", f"{who} cannot do that while it has {subject.wanted}{_told(fault)}")


def _host_state(fault: Any, subject: Operation, name_of: NameOf) -> FaultInfo:
    host = getattr(fault, "host", None)
    where = f"host {name_of(host)}" if host is not None else subject.where
    return FaultInfo("host_unavailable", f"{where} is not available{_told(fault)}")


def _argument(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    field = str(getattr(fault, "invalidProperty", None) or "")
    which = f"{field} is not acceptable" if field else "an argument is not acceptable"
    about = ", ".join(_about(subject))
    return FaultInfo("invalid_argument", which + (f" for {about}" if about else "") + _told(fault))


def _session(fault: Any, subject: Operation, _name_of: NameOf) -> FaultInfo:
    return FaultInfo("session_ended", f"the session has ended{_told(fault)}", "Run it again.", retryable=True)


READERS: Mapping[str, Reader] = {
    "InsufficientGraphicsResourcesFault": _no_room,
    "InvalidPowerState": _power_state,
    "DeviceHotPlugNotSupported": _hot_plug,
    "InvalidDeviceBacking": _backing,
    "DeviceUnsupportedForVmVersion": _hardware_version,
    "DeviceUnsupportedForVmPlatform": _unsupported,
    "DeviceNotSupported": _unsupported,
    "DeviceBackingNotSupported": _unsupported,
    "TooManyDevices": _too_many,
    "InvalidDeviceSpec": _device_spec,
    "VmConfigFault": _vm_config,
    "InsufficientMemoryResourcesFault": _memory,
    "InsufficientHostMemoryCapacityFault": _memory,
    "NoCompatibleHost": _no_host,
    "NoPermission": _permission,
    "ConcurrentAccess": _conflict,
    "TaskInProgress": _conflict,
    "DuplicateName": _duplicate,
    "RestrictedVersion": _licence,
    "NotEnoughLicenses": _licence,
    "ManagedObjectNotFound": _gone,
    "SnapshotIncompatibleDeviceInVm": _hindered,
    "VMotionNotSupported": _hindered,
    "FeatureRequirementsNotMet": _hindered,
    "HostNotConnected": _host_state,
    "InvalidHostState": _host_state,
    "InvalidArgument": _argument,
    "NotAuthenticated": _session,
}
