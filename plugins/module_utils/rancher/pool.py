# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machine pools before and after a change, and the objects to write. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import FleetError
from ..fleet.profile import large_compute
from ..harvester.version import HarvesterVersion
from . import machine_config as configs
from .machine_config import Disk, Json, MachineConfig
from .rollout import RollingUpdate

ROLES = {"etcd": "etcdRole", "control_plane": "controlPlaneRole", "worker": "workerRole"}
# Rancher's proxy builds names from cluster and pool: it truncates long names, and other characters make them invalid.
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
COUNT_OR_SHARE = re.compile(r"\d+%?")
MIB_PER_GIB = 1024
DEFAULT_DISK_GIB = 40


class InvalidPool(FleetError):
    code = "invalid_pool"


class LastOfItsRole(FleetError):
    code = "last_of_its_role"


@dataclass(frozen=True)
class Pool:
    """One entry of a cluster's machine pools, with its machine config."""

    entry: Mapping[str, Any] = field(hash=False)
    config: MachineConfig = field(default_factory=MachineConfig)

    @property
    def name(self) -> str:
        return str(self.entry.get("name") or "")

    @property
    def quantity(self) -> int:
        found = self.entry.get("quantity")
        return 1 if found is None else int(found)

    @property
    def config_name(self) -> str:
        return str((self.entry.get("machineConfigRef") or {}).get("name") or "")

    @property
    def roles(self) -> list[str]:
        return [role for role, field_name in ROLES.items() if self.entry.get(field_name)]

    @property
    def limits(self) -> RollingUpdate:
        return RollingUpdate.of(self.entry.get("rollingUpdate"), self.quantity)

    @property
    def drops_vgpus(self) -> bool:
        """Return whether a copied schema, of a driver without vGPU support, keeps vGPUs from the machines."""
        schema = self.entry.get("dynamicSchemaSpec")
        if not schema:
            return False
        try:
            known = (json.loads(schema) or {}).get("resourceFields") or {}
        except (ValueError, AttributeError):
            return False
        return "vgpuInfo" not in known

    @property
    def resources(self) -> Counter[str]:
        """Return the vGPUs that each machine really gets."""
        if self.drops_vgpus:
            return Counter()
        return Counter(request.resource for request in self.config.requests)

    def as_dict(self) -> Json:
        limits = self.entry.get("rollingUpdate") or {}
        return {
            "name": self.name,
            "quantity": self.quantity,
            "roles": self.roles,
            "machine_config": self.config_name or None,
            **self.config.as_dict(),
            "labels": dict(sorted((self.entry.get("labels") or {}).items())),
            "taints": [_taint(taint) for taint in self.entry.get("taints") or []],
            "rolling_update": {
                "max_surge": str(limits.get("maxSurge", 1)),
                "max_unavailable": str(limits.get("maxUnavailable", 0)),
            },
        }


@dataclass(frozen=True)
class PoolRequest:
    """The request of a task for a pool; None for options that are not set. `vgpus` are resources, one for each vGPU."""

    quantity: int | None = None
    roles: Sequence[str] | None = None
    vgpus: Counter[str] | None = field(default=None, hash=False)
    cpus: int | None = None
    memory_gib: int | None = None
    reserved_memory_mib: int | None = None
    efi: bool | None = None
    secure_boot: bool | None = None
    image: str | None = None
    disks: Sequence[Mapping[str, Any]] | None = None
    networks: Sequence[str] | None = None
    vm_namespace: str | None = None
    ssh_user: str | None = None
    user_data: str | None = None
    labels: Mapping[str, str] | None = field(default=None, hash=False)
    taints: Sequence[Mapping[str, Any]] | None = None
    rolling_update: Mapping[str, Any] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class Change:
    """The change to write. `config` holds the changed fields of the machine config, with their new values."""

    before: Pool | None
    after: Pool | None
    config: Mapping[str, Any] = field(default_factory=dict, hash=False)
    # Whether the pool gets its own machine config, which the API server names when it is created.
    new_config: bool = False

    @property
    def entry_changed(self) -> bool:
        return (self.before.entry if self.before else None) != (self.after.entry if self.after else None)

    @property
    def changed(self) -> bool:
        return self.entry_changed or bool(self.config)

    @property
    def rolls(self) -> bool:
        """Return whether Rancher will replace the existing machines."""
        if self.before is None or self.after is None:
            return False
        schema = self.before.entry.get("dynamicSchemaSpec") != self.after.entry.get("dynamicSchemaSpec")
        return bool(self.config) or (schema and self.before.resources != self.after.resources)

    @property
    def config_content(self) -> Json:
        """Return the content of a new machine config. The driver reads an empty string as not set."""
        fields = self.after.config.fields if self.after else {}
        return {key: value for key, value in fields.items() if value != ""}

    def with_config(self, name: str) -> Change:
        """Return the change with the name of the new machine config."""
        if self.after is None:
            return self
        return replace(self, after=Pool(_referring_to(self.after.entry, name), self.after.config))


def check(name: str, request: PoolRequest) -> None:
    """Refuse values that are invalid for every cluster."""
    if not NAME.fullmatch(name):
        raise InvalidPool(f"name {name!r} is no name for a pool.", hint="Use lower-case letters, digits and hyphens.")
    for option, value, least in (
        ("quantity", request.quantity, 0),
        ("cpus", request.cpus, 1),
        ("memory_gib", request.memory_gib, 1),
        ("reserved_memory_mib", request.reserved_memory_mib, 0),
    ):
        if value is not None and value < least:
            raise InvalidPool(f"{option} is {value}.", hint=f"Use {least} or more.")
    if request.roles is not None and not request.roles:
        raise InvalidPool("roles is empty.", hint=f"Name at least one of {', '.join(ROLES)}.")
    for disk in request.disks or ():
        if disk["size_gib"] < 1:
            raise InvalidPool(f"A disk has size_gib {disk['size_gib']}.", hint="Use 1 or more.")
        if disk.get("image") and disk.get("storage_class"):
            raise InvalidPool("A disk has both image and storage_class.", hint="An image brings its storage class.")
    if request.networks is not None and not all(request.networks):
        raise InvalidPool("networks has an empty name.", hint="Write them as namespace/name.")
    for option in ("max_surge", "max_unavailable"):
        value = (request.rolling_update or {}).get(option)
        if value is not None and not COUNT_OR_SHARE.fullmatch(str(value)):
            raise InvalidPool(f"rolling_update.{option} is {value!r}.", hint="Use a number or a share such as 25%.")
    _refuse_limits_of_zero(request.rolling_update or {})


def with_firmware(wish: PoolRequest, *, new: bool, version: HarvesterVersion) -> PoolRequest:
    """Return the request with EFI for a new pool whose vGPUs may not fit into the address space of BIOS."""
    if new and wish.efi is None and version.efi_for_large_gpus and large_compute(wish.vgpus or ()):
        return replace(wish, efi=True)
    return wish


def plan(name: str, before: Pool | None, request: PoolRequest, *, shared: bool = False) -> Change:
    """Plan the change. Options that are not set stay as they are; a new pool gets the driver's defaults.

    Rancher replaces the machines of every pool that refers to a changed config. So a pool whose config is `shared`
    gets its own config, and the shared one is left unchanged.
    """
    if before is None:
        return _new(name, request)
    changes = _config_changes(before, request)
    config = MachineConfig({**before.config.fields, **changes})
    entry = _entry(dict(before.entry), request)
    if request.vgpus and before.drops_vgpus:
        del entry["dynamicSchemaSpec"]
    own = shared and bool(changes)
    return Change(before, Pool(_referring_to(entry, "") if own else entry, config), changes, new_config=own)


def _referring_to(entry: Mapping[str, Any], config: str) -> Json:
    return {**entry, "machineConfigRef": {**(entry.get("machineConfigRef") or {}), "name": config}}


def _new(name: str, request: PoolRequest) -> Change:
    lacking = [
        option
        for option, given in (
            ("image or disks", request.image or request.disks),
            ("networks", request.networks),
            ("quantity", request.quantity is not None),
        )
        if not given
    ]
    if lacking:
        raise InvalidPool(f"There is no pool {name} yet, and to make it {', '.join(lacking)} must be given.")
    empty = Pool({})
    fields = {
        "vmNamespace": configs.DEFAULT_NAMESPACE,
        "cpuCount": str(configs.DEFAULT_CPUS),
        "memorySize": str(configs.DEFAULT_MEMORY_GIB),
        "vgpuInfo": "",
        **_config_changes(empty, request),
    }
    entry = {
        "name": name,
        "machineConfigRef": {"kind": "HarvesterConfig", "name": ""},
        **_entry({}, PoolRequest(roles=["worker"])),
    }
    return Change(None, Pool(_entry(entry, request), MachineConfig(fields)), fields, new_config=True)


def remove(before: Pool | None, others: Sequence[Pool]) -> Change:
    if before is not None:
        refuse_to_lose_a_role(before, others)
    return Change(before, None)


def refuse_to_lose_a_role(leaving: Pool, others: Sequence[Pool]) -> None:
    """Refuse to remove the last etcd or control plane machines: the cluster would be lost."""
    staying = [pool for pool in others if pool.quantity]
    if not staying:
        return
    for role in ("etcd", "control_plane"):
        if role in leaving.roles and not any(role in pool.roles for pool in staying):
            raise LastOfItsRole(
                f"Pool {leaving.name} is the last with the role {role}: without it the cluster is lost, and its other"
                " pools are of no use.",
                hint="Add another pool with that role first, or delete the whole cluster.",
            )


def _config_changes(before: Pool, request: PoolRequest) -> Json:
    """Return the fields whose meaning differs. A different notation of the same value is left unchanged."""
    current = before.config
    changes: Json = {}
    for given, has, name in (
        (request.cpus, lambda: current.cpus, "cpuCount"),
        (request.memory_gib, lambda: current.memory_gib, "memorySize"),
        (request.vm_namespace, lambda: current.vm_namespace, "vmNamespace"),
        (request.ssh_user, lambda: current.ssh_user, "sshUser"),
    ):
        if given is not None and given != has():
            changes[name] = str(given)
    if request.reserved_memory_mib is not None and request.reserved_memory_mib != current.reserved_memory_mib:
        # The driver's value for Harvester's default.
        changes["reservedMemorySize"] = str(request.reserved_memory_mib or -1)
    if request.efi is not None and request.efi != current.efi:
        changes["enableEfi"] = request.efi
    if request.secure_boot is not None and request.secure_boot != current.secure_boot:
        changes["enableSecureBoot"] = request.secure_boot
    _refuse_firmware(current, request)
    if request.user_data is not None and request.user_data != current.user_data:
        changes["userData"] = configs.encoded(request.user_data) if request.user_data else ""
    if request.vgpus is not None and _differs(
        lambda: Counter(device.resource for device in current.requests) == request.vgpus
    ):
        resources = [resource for resource, count in sorted(request.vgpus.items()) for _number in range(count)]
        changes["vgpuInfo"] = configs.vgpu_info(resources) if resources else ""
    changes |= _disk_changes(current, request)
    if request.networks is not None and _differs(lambda: current.networks == tuple(request.networks or ())):
        changes["networkInfo"] = configs.network_info(request.networks)
        changes |= {name: "" for name in configs.OLD_NETWORK_FIELDS if current.fields.get(name)}
    return changes


def _refuse_firmware(current: MachineConfig, request: PoolRequest) -> None:
    """Refuse settings that contradict each other, together with those that stay."""
    efi = current.efi if request.efi is None else request.efi
    secure = current.secure_boot if request.secure_boot is None else request.secure_boot
    if secure and not efi and (request.efi is not None or request.secure_boot is not None):
        raise InvalidPool("secure_boot needs efi.", hint="Set efi: true as well, or secure_boot: false.")
    memory = request.memory_gib or current.memory_gib
    if request.reserved_memory_mib is not None and request.reserved_memory_mib >= memory * MIB_PER_GIB:
        raise InvalidPool(
            f"reserved_memory_mib is {request.reserved_memory_mib}, and the machines have {memory} GiB.",
            hint="Use a part of memory_gib, or 0 for Harvester's default.",
        )


def _differs(same: Callable[[], bool]) -> bool:
    """Return whether a field differs. A field that cannot be read counts as different, so that it is replaced."""
    try:
        return not same()
    except configs.UnreadableConfig:
        return True


def _disk_changes(current: MachineConfig, request: PoolRequest) -> Json:
    if request.disks is None and request.image is None:
        return {}
    try:
        has = current.disks
    except configs.UnreadableConfig:
        has = ()
    if request.disks is not None:
        wanted = [_disk(disk, index, request.image) for index, disk in enumerate(request.disks)]
    elif has:
        # Only the image is set: it applies to the boot disk.
        wanted = [Disk(**{**vars(has[0]), "image": request.image, "storage_class": ""}), *has[1:]]
    else:
        wanted = [Disk(DEFAULT_DISK_GIB, image=request.image or "")]
    for disk in wanted:
        if not disk.image and not disk.storage_class:
            raise InvalidPool(
                "A disk has neither image nor storage_class.", hint="Give one of them, or the option image."
            )
    if [_compared(disk) for disk in wanted] == [_compared(disk) for disk in has]:
        return {}
    old = {name: "" for name in configs.OLD_DISK_FIELDS if current.fields.get(name)}
    return {"diskInfo": configs.disk_info(wanted), **old}


def _disk(asked: Mapping[str, Any], index: int, image: str | None) -> Disk:
    own = asked.get("image") or (image if not index and not asked.get("storage_class") else "")
    return Disk(
        size_gib=asked["size_gib"],
        image=own or "",
        storage_class=asked.get("storage_class") or "",
        bus=asked.get("bus") or "",
    )


def _compared(disk: Disk) -> tuple[Any, ...]:
    return disk.size_gib, disk.image, disk.storage_class, disk.bus or "virtio"


def _entry(entry: Json, request: PoolRequest) -> Json:
    if request.quantity is not None and (entry.get("quantity") is None or int(entry["quantity"]) != request.quantity):
        entry["quantity"] = request.quantity
    if request.roles is not None:
        for role, name in ROLES.items():
            if bool(entry.get(name)) != (role in request.roles):
                entry[name] = role in request.roles
    if request.labels is not None:
        # YAML values can be numbers and booleans, label values cannot.
        labels = {str(key): _label(value) for key, value in request.labels.items()}
        if labels != (entry.get("labels") or {}):
            entry["labels"] = labels
    if request.taints is not None:
        has, wanted = (
            [_taint(taint) for taint in entry.get("taints") or []],
            [_taint(taint) for taint in request.taints],
        )
        if _sorted(has) != _sorted(wanted):
            entry["taints"] = [{key: value for key, value in taint.items() if value} for taint in wanted]
    if request.rolling_update is not None:
        entry = _with_limits(entry, request.rolling_update)
        limits = entry.get("rollingUpdate") or {}
        _refuse_limits_of_zero({"max_surge": limits.get("maxSurge"), "max_unavailable": limits.get("maxUnavailable")})
    return entry


def _with_limits(entry: Json, asked: Mapping[str, Any]) -> Json:
    limits = dict(entry.get("rollingUpdate") or {})
    for option, name, default in (("max_surge", "maxSurge", 1), ("max_unavailable", "maxUnavailable", 0)):
        value = asked.get(option)
        if value is not None and str(limits.get(name, default)) != str(value):
            limits[name] = str(value) if str(value).endswith("%") else int(value)
    if limits != (entry.get("rollingUpdate") or {}):
        entry["rollingUpdate"] = limits
    return entry


def _refuse_limits_of_zero(limits: Mapping[str, Any]) -> None:
    """Refuse limits that are both zero: no machine could be replaced."""
    given = [limits.get(option) for option in ("max_surge", "max_unavailable")]
    if all(value is not None and not int(str(value).rstrip("%")) for value in given):
        raise InvalidPool(
            "rolling_update has both max_surge and max_unavailable at 0, so Rancher could not replace any machine.",
            hint="Set one of them to 1 or more. max_unavailable: 1 needs no free vGPUs.",
        )


def _label(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _taint(taint: Mapping[str, Any]) -> Json:
    return {"key": taint.get("key") or "", "value": taint.get("value") or "", "effect": taint.get("effect") or ""}


def _sorted(taints: list[Json]) -> list[Json]:
    return sorted(taints, key=lambda taint: (taint["key"], taint["effect"], taint["value"]))
