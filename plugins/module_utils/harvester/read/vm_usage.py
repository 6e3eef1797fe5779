# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Determine which VM has, or will take, which vGPU device. Every change that removes something relies on the answer.

No single object in the cluster shows it. The answer is the union of

- the devices that the running instance (VMI) was started with, and those that the VM requests, which differ after an
  edit;
- the devices in Harvester's allocation annotation;
- the devices of launcher pods that no running instance accounts for;
- PCIDeviceClaims that a user created.

Only the annotation can rule a device out, and only if it is reliable: Harvester writes it when an instance has reached
the phase Running and does not clear it when the VM stops, so until then it describes an earlier run. The time of the
write shows which run it describes (see `annotation_age`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...fleet.model import Holder, UnboundRequest
from ...fleet.profile import RESOURCE_PREFIX, Key, parse_or_none
from ...fleet.profile_resolver import ProfileResolver
from .. import paths as r
from .annotation_age import is_of_this_run

Json = dict[str, Any]
# Names of devices, by part of the annotation, then by resource.
Allocation = dict[str, dict[str, list[str]]]

ENDED = ("Succeeded", "Failed")
NOTE_PARTS = ("gpus", "hostdevices")
DEVICE_FIELDS = ("gpus", "hostDevices")


# Reading single objects


def devices_of(vm: Json) -> Json:
    template = ((vm.get("spec") or {}).get("template") or {}).get("spec") or {}
    devices: Json = (template.get("domain") or {}).get("devices") or {}
    return devices


def requested(vm: Json) -> list[tuple[str, str]]:
    """Return (name, resource) of each device that a VM requests, in the field of either Harvester version."""
    return _listed(devices_of(vm))


def started_with(instance: Json) -> list[tuple[str, str]]:
    """Return (name, resource) of each device that an instance was created with."""
    domain = (instance.get("spec") or {}).get("domain") or {}
    return _listed(domain.get("devices") or {})


def _listed(devices: Json) -> list[tuple[str, str]]:
    return [
        (str(device.get("name") or ""), str(device.get("deviceName") or ""))
        for field_name in DEVICE_FIELDS
        for device in devices.get(field_name) or []
        if isinstance(device, dict)
    ]


def read_note(text: str | None) -> Allocation | None:
    """Parse an allocation annotation. Return None if Harvester's controllers cannot read it either.

    The controllers decode it into maps of lists of names, match keys case-insensitively, and read null as empty.
    """
    try:
        details = json.loads(text) if text else {}
    except ValueError:
        return None
    if details is None:
        details = {}
    if not isinstance(details, dict):
        return None
    found: Allocation = {part: {} for part in NOTE_PARTS}
    for key, resources in details.items():
        part = found.get(key.lower())
        if part is None or resources is None:
            continue
        if not isinstance(resources, dict):
            return None
        for resource, devices in resources.items():
            names = [] if devices is None else devices
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                return None
            part.setdefault(resource, []).extend(names)
    return found


def note_text(vm: Json) -> str | None:
    annotations = (vm.get("metadata") or {}).get("annotations") or {}
    text: str | None = annotations.get(r.ALLOCATION_NOTE)
    return text


def allocation(vm: Json) -> dict[str, list[str]]:
    """Return the devices in a VM's allocation annotation, by resource. An invalid one has none (see `broken_notes`)."""
    found: dict[str, list[str]] = {}
    for resources in (read_note(note_text(vm)) or {}).values():
        for resource, devices in resources.items():
            found.setdefault(resource, []).extend(devices)
    return found


def broken_notes(vms: Mapping[str, Json]) -> list[str]:
    """Return the VMs whose annotation cannot be parsed. A single one stops the controllers of all nodes."""
    return [key for key, vm in vms.items() if read_note(note_text(vm)) is None]


def is_live(instance: Json | None) -> bool:
    return instance is not None and (instance.get("status") or {}).get("phase") not in ENDED


def is_migrating(instance: Json) -> bool:
    state = (instance.get("status") or {}).get("migrationState") or {}
    return bool(state) and not (state.get("completed") or state.get("failed"))


def nodes_of(instance: Json) -> list[str]:
    """Return the nodes on which an instance may have devices: its own node, and those of its other launcher pods."""
    status = instance.get("status") or {}
    found = [status.get("nodeName"), *(status.get("activePods") or {}).values()]
    if is_migrating(instance):
        state = status["migrationState"]
        found += [state.get("sourceNode"), state.get("targetNode")]
    return sorted({node for node in found if node})


def quantity(text: object) -> int:
    """Return a Kubernetes quantity as an integer, rounded down, or 0 if the value is not a quantity."""
    from decimal import Decimal, InvalidOperation

    digits = str(text).strip()
    for suffix, factor in _SUFFIXES.items():
        if digits.endswith(suffix):
            digits, scale = digits.removesuffix(suffix), factor
            break
    else:
        scale = Decimal(1)
    try:
        return int(Decimal(digits) * scale)
    except (InvalidOperation, OverflowError, ValueError):
        return 0


def _suffixes() -> dict[str, Any]:
    from decimal import Decimal

    binary = {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)}
    decimal = {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)}
    small = {letter: Decimal(1000) ** -power for power, letter in enumerate("mun", 1)}
    return {**binary, **decimal, **small}


_SUFFIXES = _suffixes()


# Combining the objects


@dataclass(frozen=True)
class Device:
    """A vGPU device: its node, the types under which the node may offer it, and whether these types last.

    The types do not last if another type is requested, which the device gets at the next reboot.
    """

    node: str = ""
    types: frozenset[str] = frozenset()
    lasts: bool = True


@dataclass(frozen=True)
class Pods:
    """Launcher pods, if they were read. `readable` is False if they could not be listed."""

    items: Mapping[str, Json] = field(default_factory=dict)
    readable: bool = True

    def outliving(self, instances: Mapping[str, Json]) -> Iterator[Json]:
        """Yield the pods that run although their instance has ended or is gone."""
        for pod in self.items.values():
            if (pod.get("status") or {}).get("phase") in ENDED:
                continue
            instance = instances.get(vm_of_pod(pod))
            own = instance is not None and _owner(pod).get("uid") == instance["metadata"].get("uid")
            if not (own and is_live(instance)):
                yield pod


def vm_of_pod(pod: Json) -> str:
    """Return the namespace and name of the VM that a launcher pod belongs to."""
    metadata = pod["metadata"]
    name = _owner(pod).get("name") or (metadata.get("labels") or {}).get(r.VM_NAME_LABEL) or metadata["name"]
    return f"{metadata.get('namespace', '')}/{name}"


def pod_resources(pod: Json) -> Counter[str]:
    """Return what the containers of a pod request, by resource."""
    counts: Counter[str] = Counter()
    for container in (pod.get("spec") or {}).get("containers") or []:
        resources = container.get("resources") or {}
        for resource, amount in {**(resources.get("requests") or {}), **(resources.get("limits") or {})}.items():
            if "/" in resource:
                counts[resource] += quantity(amount)
    return counts


def _owner(pod: Json) -> Json:
    owners = pod["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("kind") == r.INSTANCE_KIND), {})


class VmUsage:
    """The devices that each VM holds, or will take when it starts."""

    def __init__(
        self,
        vms: Mapping[str, Json],
        instances: Mapping[str, Json],
        devices: Mapping[str, Device],
        known: ProfileResolver,
        pods: Pods | None = None,
        now: float | None = None,
    ) -> None:
        self._vms = vms
        self._instances = instances
        self._devices = devices
        self._known = known
        self._pods = pods or Pods()
        self._now = now
        self._by_device: dict[str, dict[str, Holder]] = {}
        self._claims: list[UnboundRequest] = []
        self._noted_twice = self._named_by_several_annotations()
        keys = list({**vms, **instances})
        for key in keys:
            if is_live(instances.get(key)):
                self._read_live(key, instances[key])
        for pod in self._pods.outliving(instances):
            self._read_pod(pod)
        stopped = [key for key in keys if not is_live(instances.get(key))]
        for key in stopped:
            self._read_ended(key)
        # Read stopped VMs last: a VM that starts cannot take devices that other VMs have or may have.
        for key in stopped:
            self._read_stopped(key)

    def holders(self, device: str) -> tuple[Holder, ...]:
        return tuple(holder for _key, holder in sorted(self._by_device.get(device, {}).items()))

    def unbound_claims(self) -> tuple[UnboundRequest, ...]:
        return tuple(self._claims)

    def hold(self, device: str, holder: Holder) -> None:
        self._by_device.setdefault(device, {})[f"{holder.kind} {holder.path}"] = holder

    def using(self, *, running: bool | None = None) -> list[str]:
        """Return the paths of the VMs that have or request vGPUs."""
        holders = [holder for name in self._devices for holder in self.holders(name)]
        holders += [claim.holder for claim in self._claims]
        return sorted({holder.path for holder in holders if running is None or holder.running == running})

    def type_of(self, resource: str) -> str | None:
        """Return the vGPU type of a resource, or None for other devices, such as a whole GPU.

        Names that Harvester generates for PCI devices have no hyphens, so they never look like a profile.
        """
        known = self._known.by_resource(resource)
        if known:
            return known
        return resource if resource.startswith(RESOURCE_PREFIX) and parse_or_none(resource) else None

    def _named_by_several_annotations(self) -> set[str]:
        counts: Counter[str] = Counter()
        for key, instance in self._instances.items():
            if _is_running(instance):
                counts.update(set(_flat(allocation(self._vms.get(key, instance)))))
        return {device for device, count in counts.items() if count > 1}

    def _read_live(self, key: str, instance: Json) -> None:
        vm = self._vms.get(key)
        holder = _holder(vm or instance, running=True)
        started = started_with(instance)
        wanted = requested(vm) if vm is not None else started
        noted = self._hold_noted(vm or instance, holder)
        before = self._names(started)
        reliable = self._is_reliable(vm or instance, instance, edited=wanted != started)
        if reliable:
            # Device names in the spec of a VM are requests, unless an edit added them for the next start.
            named = [name for name in self._names(wanted) if name not in before]
            node = (instance.get("status") or {}).get("nodeName")
            others = [other for other in nodes_of(instance) if other != node]
            if is_migrating(instance) and others:
                self._claim(self._counts(started), holder, others)
        else:
            named = [*self._names(wanted), *before]
            self._claim(self._counts(started), holder, nodes_of(instance) or [None])
        for device in named:
            self.hold(device, holder)
        more = self._counts(wanted) - self._counts(started)
        if reliable:
            more -= self._types_of(named)
        # A VM that has no vGPU yet may be started on another node.
        here = (instance.get("status") or {}).get("nodeName") if started or noted else None
        self._claim(more, holder, [here], pending=True)

    def _hold_noted(self, vm: Json, holder: Holder) -> set[str]:
        noted = set(_flat(allocation(vm)))
        for device in noted:
            self.hold(device, holder)
        return noted

    def _read_ended(self, key: str) -> None:
        instance = self._instances.get(key)
        if instance is not None and not self._pods.readable:
            # The pods that the instance still lists could not be read, so they may still have its devices.
            nodes = sorted(set(((instance.get("status") or {}).get("activePods") or {}).values()))
            self._claim(self._counts(started_with(instance)), _holder(instance, running=True), nodes)

    def _read_stopped(self, key: str) -> None:
        vm = self._vms.get(key)
        found = vm or self._instances[key]
        holder = _holder(found, running=False)
        wanted = requested(vm) if vm is not None else started_with(found)
        # A device that changes its type at the next reboot may be gone when the VM starts.
        candidates = {*_flat(allocation(found)), *self._names(wanted)}
        lasting = [name for name in candidates if self._devices.get(name, Device()).lasts]
        usable = [name for name in lasting if not self._may_be_had(name)]
        more = self._counts(wanted) - self._types_of(lasting)
        instead = self._counts(wanted) - self._types_of(usable) - more
        self._claim(more, holder, [None])
        self._claim(instead, holder, [None], protective=True)
        self._hold_noted(found, holder)
        for device in self._names(wanted):
            self.hold(device, holder)

    def _may_be_had(self, name: str) -> bool:
        """Return whether another VM has a device, may have it, or comes first among several that request it."""
        if self._by_device.get(name):
            return True
        device = self._devices.get(name, Device())
        types = set(map(_key, device.types))
        return any(
            claim.in_use and claim.node in (None, device.node) and _key(claim.profile) in types
            for claim in self._claims
        )

    def _is_reliable(self, vm: Json, instance: Json, *, edited: bool) -> bool:
        """Return whether the allocation annotation is certain to name the devices of an instance."""
        if not _is_running(instance) or (len(nodes_of(instance)) > 1 and not is_migrating(instance)):
            return False
        if not is_of_this_run(vm, instance, self._now, edited=edited):
            return False
        node = (instance.get("status") or {}).get("nodeName")
        by_type: dict[Key | str, set[str]] = {}
        for resource, names in allocation(vm).items():
            type_name = self.type_of(resource)
            if type_name is None:
                continue
            for name in names:
                device = self._devices.get(name)
                if device is None or device.node != node or name in self._noted_twice:
                    return False
                if _key(type_name) not in map(_key, device.types):
                    return False
                by_type.setdefault(_key(type_name), set()).add(name)
        counts = Counter({key: len(names) for key, names in by_type.items()})
        return counts == Counter(map(_key, self._counts(started_with(instance)).elements()))

    def _read_pod(self, pod: Json) -> None:
        """Read a launcher pod whose instance has ended or was deleted, as on a node that lost its connection."""
        counts: Counter[str] = Counter()
        for resource, count in pod_resources(pod).items():
            type_name = self.type_of(resource)
            if type_name:
                counts[type_name] += count
        namespace, _slash, name = vm_of_pod(pod).partition("/")
        holder = _holder({"metadata": {"name": name, "namespace": namespace}}, running=True)
        self._claim(counts, holder, [(pod.get("spec") or {}).get("nodeName") or None])

    def _names(self, wanted: Iterable[tuple[str, str]]) -> list[str]:
        return [name for name, _resource in wanted if name in self._devices]

    def _counts(self, wanted: Iterable[tuple[str, str]]) -> Counter[str]:
        types = (self.type_of(resource) for _name, resource in wanted)
        return Counter(type_name for type_name in types if type_name)

    def _types_of(self, names: Collection[str]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for name in set(names):
            counts.update(sorted(self._devices.get(name, Device()).types)[:1])
        return counts

    def _claim(
        self,
        counts: Counter[str],
        holder: Holder,
        nodes: Iterable[str | None],
        *,
        pending: bool = False,
        protective: bool = False,
    ) -> None:
        self._claims += [
            UnboundRequest(profile, count, holder, node, pending, protective)
            for node in nodes
            for profile, count in sorted(counts.items())
            if count > 0
        ]


def _is_running(instance: Json) -> bool:
    return (instance.get("status") or {}).get("phase") == "Running"


def _holder(vm: Json, *, running: bool) -> Holder:
    metadata = vm["metadata"]
    return Holder(
        name=metadata["name"],
        namespace=metadata.get("namespace", ""),
        running=running,
        labels=metadata.get("labels") or {},
    )


def _flat(by_resource: Mapping[str, list[str]]) -> list[str]:
    return [device for devices in by_resource.values() for device in devices]


def _key(type_name: str) -> Key | str:
    parsed = parse_or_none(type_name)
    return parsed.key if parsed else type_name
