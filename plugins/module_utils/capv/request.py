# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The request for a cluster: options of the module as values, checked. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import FleetError
from .ownership import LABEL_VALUE

Json = dict[str, Any]

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
# Names of machines and templates are longer, and have to stay below the 63 characters of a label.
MOST_CLUSTER, MOST_POOL = 40, 20
CONTROL_PLANE = "control-plane"
HARDWARE_VERSION = re.compile(r"vmx-[1-9][0-9]?")
TEMPLATE_FIELDS = ("template",)


class InvalidCluster(FleetError):
    code = "invalid_request"


@dataclass(frozen=True)
class Device:
    """A device of a machine: a vGPU by its name in vCenter, or a PCI device by its ids."""

    vgpu_profile: str = ""
    vendor_id: int = 0
    device_id: int = 0
    custom_label: str = ""

    def as_capv(self) -> Json:
        label = {"customLabel": self.custom_label} if self.custom_label else {}
        if self.vgpu_profile:
            return {"vGPUProfile": self.vgpu_profile, **label}
        return {"deviceId": self.device_id, "vendorId": self.vendor_id, **label}


@dataclass(frozen=True)
class MachineGroup:
    """Equal machines: the control plane, or a pool of workers."""

    name: str
    replicas: int = 1
    surge: int = 1
    machine: Mapping[str, Any] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    vmx_keys: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, Any], ...] | None = None
    kubeadm: Mapping[str, Any] = field(default_factory=dict)
    absent: bool = False

    @property
    def is_control_plane(self) -> bool:
        return self.name == CONTROL_PLANE


@dataclass(frozen=True)
class KubeVip:
    image: str
    interface: str = ""


@dataclass(frozen=True)
class Addon:
    name: str
    manifest: str = field(repr=False)


@dataclass(frozen=True)
class ClusterRequest:
    name: str
    namespace: str = "default"
    owner: str = "vgpu.fleet"
    kubernetes_version: str = ""
    server: str = ""
    thumbprint: str = ""
    host: str = ""
    port: int = 6443
    username: str = ""
    password: str = field(default="", repr=False)
    identity: Mapping[str, str] | None = None
    pod_cidrs: tuple[str, ...] = ()
    service_cidrs: tuple[str, ...] = ()
    ssh_user: str = "capv"
    ssh_keys: tuple[str, ...] = ()
    kube_vip: KubeVip | None = None
    control_plane: MachineGroup = MachineGroup(CONTROL_PLANE)
    pools: tuple[MachineGroup, ...] = ()
    addons: tuple[Addon, ...] = ()

    @property
    def groups(self) -> tuple[MachineGroup, ...]:
        """Return the control plane and the pools that are to exist."""
        return (self.control_plane, *(pool for pool in self.pools if not pool.absent))


def request_from(params: Mapping[str, Any]) -> ClusterRequest:
    """Return the checked request of a task. Raise InvalidCluster with the name of a wrong option."""
    _check_name("name", params["name"], MOST_CLUSTER)
    if not LABEL_VALUE.fullmatch(params["owner"]):
        raise InvalidCluster(
            f"owner {params['owner']!r} cannot be the value of a label.",
            hint="Use up to 63 letters, digits, hyphens, underscores and dots.",
        )
    if params["state"] == "absent":
        return ClusterRequest(params["name"], params["namespace"], params["owner"])
    endpoint, vcenter = params["control_plane_endpoint"] or {}, params["vcenter"] or {}
    missing = [
        name
        for name, value in (
            ("kubernetes_version", params["kubernetes_version"]),
            ("control_plane_endpoint.host", endpoint.get("host")),
            ("vcenter.server", vcenter.get("server")),
            ("control_plane", params["control_plane"]),
        )
        if not value
    ]
    if missing:
        raise InvalidCluster(f"These options are missing: {', '.join(missing)}.", hint="Set them for a cluster.")
    if not re.fullmatch(r"v?\d+\.\d+\.\d+([-+].+)?", params["kubernetes_version"]):
        raise InvalidCluster(
            f"kubernetes_version {params['kubernetes_version']!r} is not a version.", hint="Write it like v1.34.1."
        )
    identity = _identity(vcenter)
    pools = tuple(_group(f"pools[{index}]", pool["name"], pool) for index, pool in enumerate(params["pools"] or []))
    names = [pool.name for pool in pools]
    if len(set(names)) != len(names):
        raise InvalidCluster("Several of pools have the same name.", hint="Give each pool a name of its own.")
    vip = params["kube_vip"]
    version = params["kubernetes_version"]
    return ClusterRequest(
        name=params["name"],
        namespace=params["namespace"],
        owner=params["owner"],
        kubernetes_version=version if version.startswith("v") else f"v{version}",
        server=vcenter["server"],
        thumbprint=vcenter.get("thumbprint") or "",
        host=endpoint["host"],
        port=endpoint.get("port") or 6443,
        username=vcenter.get("username") or "",
        password=vcenter.get("password") or "",
        identity=identity,
        pod_cidrs=tuple(params["pod_cidrs"] or ()),
        service_cidrs=tuple(params["service_cidrs"] or ()),
        ssh_user=params["ssh_user"] or "capv",
        ssh_keys=tuple(params["ssh_authorized_keys"] or ()),
        kube_vip=KubeVip(vip["image"], vip.get("interface") or "") if vip else None,
        control_plane=_group("control_plane", CONTROL_PLANE, params["control_plane"]),
        pools=pools,
        addons=_addons(params["addons"] or []),
    )


def _check_name(option: str, name: str, most: int) -> None:
    if not NAME.fullmatch(name) or len(name) > most:
        raise InvalidCluster(
            f"{option} {name!r} is not valid.",
            hint=f"Use up to {most} lower-case letters, digits and hyphens; begin and end with a letter or digit.",
        )


def _identity(vcenter: Mapping[str, Any]) -> Mapping[str, str] | None:
    named, login = vcenter.get("identity"), (vcenter.get("username"), vcenter.get("password"))
    if named and any(login):
        raise InvalidCluster(
            "vcenter has both an identity and a username or password.",
            hint="Name an existing Secret or VSphereClusterIdentity, or give the credentials.",
        )
    if not named and not all(login):
        raise InvalidCluster(
            "vcenter has no credentials for the provider.", hint="Set username and password, or identity."
        )
    return dict(named) if named else None


def _group(option: str, name: str, given: Mapping[str, Any]) -> MachineGroup:
    is_control_plane = name == CONTROL_PLANE and option == "control_plane"
    if not is_control_plane:
        _check_name(f"{option}.name", name, MOST_POOL)
        if name == CONTROL_PLANE:
            raise InvalidCluster(f"{option}.name is {name}, which is the control plane.", hint="Choose another name.")
    if given.get("state") == "absent":
        return MachineGroup(name, absent=True)
    replicas, surge = given.get("replicas"), given.get("surge")
    replicas, surge = 1 if replicas is None else replicas, 1 if surge is None else surge
    machine = dict(given.get("machine") or {})
    _check_numbers(option, replicas, surge, control_plane=is_control_plane)
    _check_machine(option, machine)
    taints = given.get("taints")
    return MachineGroup(
        name=name,
        replicas=replicas,
        surge=surge,
        machine=machine,
        devices=tuple(_devices(option, given)),
        vmx_keys={key: str(value) for key, value in (given.get("vmx_keys") or {}).items()},
        labels={key: str(value) for key, value in (given.get("labels") or {}).items()},
        taints=None if taints is None else tuple(_without_none(taint) for taint in taints),
        kubeadm=dict(given.get("kubeadm") or {}),
    )


def _check_numbers(option: str, replicas: int, surge: int, *, control_plane: bool) -> None:
    if control_plane and (replicas < 1 or replicas % 2 == 0):
        raise InvalidCluster(
            f"{option}.replicas is {replicas}.", hint="A stacked etcd needs an odd number of machines, such as 1 or 3."
        )
    if control_plane and surge not in (0, 1):
        raise InvalidCluster(
            f"{option}.surge is {surge}.", hint="The control plane is replaced with a surge of 0 or 1."
        )
    if control_plane and surge == 0 and replicas < 3:
        raise InvalidCluster(
            f"{option}.surge is 0 with {replicas} machine.", hint="Without a surge the control plane needs 3 machines."
        )
    if replicas < 0 or surge < 0:
        raise InvalidCluster(f"{option} has a negative number.", hint="Correct replicas and surge.")


def _check_machine(option: str, machine: Mapping[str, Any]) -> None:
    if not machine.get("template"):
        raise InvalidCluster(f"{option}.machine has no template.", hint="Name the VM template to clone.")
    if not ((machine.get("network") or {}).get("devices")):
        raise InvalidCluster(
            f"{option}.machine has no network.devices.",
            hint="Give each network device a networkName and an address, such as dhcp4: true.",
        )
    for name, instead in (("pciDevices", "vgpus or pci_devices"), ("providerID", "nothing")):
        if name in machine:
            raise InvalidCluster(f"{option}.machine has the field {name}.", hint=f"Use {instead} instead.")
    version = machine.get("hardwareVersion")
    if version and not HARDWARE_VERSION.fullmatch(str(version)):
        raise InvalidCluster(
            f"{option}.machine.hardwareVersion {version!r} is not valid.", hint="Write it like vmx-19."
        )


def _devices(option: str, given: Mapping[str, Any]) -> list[Device]:
    devices = []
    for vgpu in given.get("vgpus") or []:
        if not vgpu.get("profile"):
            raise InvalidCluster(f"{option}.vgpus has an entry without a profile.", hint="Name the vGPU profile.")
        devices += [Device(vgpu_profile=vgpu["profile"])] * _count(f"{option}.vgpus", vgpu)
    for device in given.get("pci_devices") or []:
        ids = [hexadecimal(f"{option}.pci_devices", name, device.get(name)) for name in ("vendor_id", "device_id")]
        found = Device(vendor_id=ids[0], device_id=ids[1], custom_label=device.get("custom_label") or "")
        devices += [found] * _count(f"{option}.pci_devices", device)
    return devices


def _count(option: str, given: Mapping[str, Any]) -> int:
    count = given.get("count")
    count = 1 if count is None else int(count)
    if count < 1:
        raise InvalidCluster(f"{option} has the count {count}.", hint="Leave the entry out, or set a count from 1 on.")
    return count


def hexadecimal(option: str, name: str, value: Any) -> int:
    text = str(value or "").lower().removeprefix("0x")
    if not re.fullmatch(r"[0-9a-f]{1,4}", text):
        raise InvalidCluster(
            f"{option} has the {name} {value!r}.",
            hint="Quote a hexadecimal number of up to four digits, such as '10de'.",
        )
    return int(text, 16)


def _addons(given: Sequence[Mapping[str, Any]]) -> tuple[Addon, ...]:
    for index, addon in enumerate(given):
        _check_name(f"addons[{index}].name", addon["name"], MOST_POOL)
    names = [addon["name"] for addon in given]
    if len(set(names)) != len(names):
        raise InvalidCluster("Several of addons have the same name.", hint="Give each addon a name of its own.")
    return tuple(Addon(addon["name"], addon["manifest"]) for addon in given)


def _without_none(given: Mapping[str, Any]) -> Json:
    return {key: value for key, value in given.items() if value is not None}
