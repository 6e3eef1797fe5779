# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Request of a VM task, parsed from the module options. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..names import real_name
from ..read.device_groups import GroupOffer
from .decide.devices import PciRequest
from .decide.mark import OwnerClaim
from .decide.place import Place
from .decide.plan import DesiredVm
from .decide.rules import InvalidRequest, wanted_device_groups, wanted_pci_devices, wanted_vgpus
from .find.finder import VmSelector

AUTO = "auto"


@dataclass(frozen=True)
class Network:
    """A network card of a new VM. The guest gets its addresses through cloud-init."""

    name: str
    mac: str = ""
    ip: tuple[str, ...] = ()
    gateway: str = ""
    dns: tuple[str, ...] = ()
    dhcp4: bool = False

    @property
    def addressed(self) -> bool:
        return bool(self.ip or self.gateway or self.dns or self.dhcp4)


@dataclass(frozen=True)
class CloneOptions:
    """The options for creating a VM."""

    template: str = ""
    linked_clone: bool = False
    cluster: str = ""
    resource_pool: str = ""
    esxi_host: str = ""
    datastore: str = ""
    datastore_cluster: str = ""
    storage_policy: str = ""
    disk_gb: int | None = None
    networks: tuple[Network, ...] | None = None
    user_data: str = ""
    meta_data: Any = None
    keep_failed: bool = False


@dataclass(frozen=True)
class VmRequest:
    identity: VmSelector
    state: str
    vgpus: Sequence[Mapping[str, Any]] | None
    pci_devices: Sequence[PciRequest] | None
    creation: CloneOptions
    device_groups: Mapping[str, int] | None = None
    place: Place = field(default_factory=Place)
    claim: OwnerClaim = field(default_factory=OwnerClaim)
    settings: Mapping[str, Any] = field(default_factory=dict)
    placement: str = AUTO
    power_off_timeout: int = 300
    power_off_force: bool = False
    wait_timeout: int = 600

    def wish(self, profiles: Sequence[str], offers: Mapping[str, GroupOffer] | None = None) -> DesiredVm:
        """Return the desired VM, with requested profiles resolved to the names in `profiles`.

        `offers` are the device groups that the hosts offer, by name.
        """
        return DesiredVm(
            state=self.state,
            vgpus=wanted_vgpus(self.vgpus, profiles),
            pci_devices=self.pci_devices,
            device_groups=self.device_groups,
            group_offers=offers or {},
            **self.settings,
        )

    @property
    def auto(self) -> bool:
        return self.placement == AUTO


def request_of(params: Mapping[str, Any]) -> VmRequest:
    settings = ("exclusive", "prepare", "power_cycle", "discard_suspended", "cpus", "memory_mb", "annotation")
    for option in ("cpus", "memory_mb", "disk_gb"):
        if params[option] is not None and params[option] < 1:
            raise InvalidRequest(f"{option} is {params[option]}.", hint="Use 1 or more, or leave it out.")
    if not (params["owner"] or "").strip():
        raise InvalidRequest("owner is empty.", hint="Give a name for whoever the VM belongs to, or leave it out.")
    creation = _creation(params)
    identity = VmSelector(
        name=real_name(params["name"] or ""),
        **{name: params[name] or "" for name in ("folder", "datacenter", "uuid", "moid")},
    )
    place = Place(identity.datacenter, identity.folder, creation.cluster, creation.resource_pool, creation.esxi_host)
    return VmRequest(
        identity=identity,
        state=params["state"],
        vgpus=params["vgpus"],
        pci_devices=wanted_pci_devices(params["pci_devices"]),
        creation=creation,
        device_groups=wanted_device_groups(params["device_groups"]),
        place=place,
        claim=OwnerClaim(params["owner"].strip(), params["adopt"], certain=identity.certain, placed=place.given),
        settings={name: params[name] for name in settings},
        placement=params["placement"],
        power_off_timeout=params["power_off_timeout"],
        power_off_force=params["power_off_force"],
        wait_timeout=params["wait_timeout"],
    )


def _creation(params: Mapping[str, Any]) -> CloneOptions:
    named = ("cluster", "resource_pool", "esxi_host", "datastore", "datastore_cluster")
    cloud_init = params["cloud_init"] or {}
    networks = params["networks"]
    return CloneOptions(
        **{name: params[name] or "" for name in ("template", "storage_policy")},
        **{name: real_name(params[name] or "") for name in named},
        linked_clone=params["linked_clone"],
        disk_gb=params["disk_gb"],
        networks=None if networks is None else tuple(map(_network, networks)),
        user_data=cloud_init.get("user_data") or "",
        meta_data=cloud_init.get("meta_data"),
        keep_failed=params["keep_failed"],
    )


def _network(option: Mapping[str, Any]) -> Network:
    return Network(
        name=real_name(option["name"]),
        mac=(option["mac"] or "").lower(),
        ip=tuple(option["ip"] or ()),
        gateway=option["gateway"] or "",
        dns=tuple(option["dns"] or ()),
        dhcp4=bool(option["dhcp4"]),
    )
