# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Wait conditions. Each condition reports what is missing until it is met."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..errors import join_names
from ..kube.client import Json
from . import paths as r
from .read.permitted_devices import PermittedDevices
from .read.snapshot import allocatable, claimed_resource
from .version import HarvesterVersion


class ObjectLookup(Protocol):
    """The current objects of a cluster."""

    def get(self, path: str, name: str) -> Json | None:
        """Return the object of that name in a list, or None if it does not exist."""


class Condition(Protocol):
    @property
    def device(self) -> str:
        """Return the name of the GPU or vGPU."""

    @property
    def node(self) -> str:
        """Return the name of the device's node."""

    @property
    def about(self) -> frozenset[str]:
        """Return the names of the objects that the condition reads. The name of a GPU includes its vGPUs."""

    def missing(self, seen: ObjectLookup) -> str:
        """Return what is missing. Return an empty text if the condition is met."""


@dataclass(frozen=True)
class VgpuConfigured:
    """A vGPU has the requested type, and its node offers it as that type."""

    device: str
    node: str
    type_name: str
    version: HarvesterVersion

    @property
    def about(self) -> frozenset[str]:
        return frozenset((self.device,))

    def missing(self, seen: ObjectLookup) -> str:
        vgpu = seen.get(r.VGPUS, self.device)
        if vgpu is None:
            return "there is no such vGPU device"
        status = vgpu.get("status") or {}
        if status.get("vGPUStatus") != r.CONFIGURED:
            return f"it is not configured as {self.type_name}"
        # Up to 1.7 the type's name follows seconds after the status (harvester.md 6.3).
        configured = status.get("configureVGPUTypeName")
        # From 1.8 on, name and status are written together. If the name got lost, the claim below still has it.
        lost = self.version.vendor_vfio and not configured
        if configured != self.type_name and not lost:
            return f"it is configured as {configured or 'nothing'} and not as {self.type_name}"
        if not self.version.vendor_vfio:
            return ""
        claim = seen.get(r.CLAIMS, self.device)
        resource = claimed_resource(claim)
        if resource is None:
            return "it has no claim, so the node cannot hand it out"
        if resource != self.version.resource(self.type_name):
            return f"its claim advertises {resource}"
        if not ((claim or {}).get("status") or {}).get("passthroughEnabled"):
            return "its claim is not bound yet"
        return ""


@dataclass(frozen=True)
class VgpuRemoved:
    """A vGPU is removed, and so is its claim, which the next vGPU would inherit (harvester.md 6.6)."""

    device: str
    node: str
    version: HarvesterVersion

    @property
    def about(self) -> frozenset[str]:
        return frozenset((self.device,))

    def missing(self, seen: ObjectLookup) -> str:
        vgpu = seen.get(r.VGPUS, self.device)
        status = (vgpu or {}).get("status") or {}
        if status.get("vGPUStatus") or status.get("uuid"):
            return f"it is still configured as {status.get('configureVGPUTypeName') or 'something'}"
        if self.version.vendor_vfio and seen.get(r.CLAIMS, self.device) is not None:
            return "its claim is still there"
        return ""


@dataclass(frozen=True)
class VgpuTypeAvailable:
    """An empty vGPU device offers a type, and no claim of an earlier vGPU is left."""

    device: str
    node: str
    type_name: str
    version: HarvesterVersion

    @property
    def about(self) -> frozenset[str]:
        return frozenset((self.device,))

    def missing(self, seen: ObjectLookup) -> str:
        vgpu = seen.get(r.VGPUS, self.device)
        if vgpu is None:
            return "there is no such vGPU device"
        status = vgpu.get("status") or {}
        if status.get("vGPUStatus") or status.get("uuid"):
            return f"it is still configured as {status.get('configureVGPUTypeName') or 'something'}"
        claim = seen.get(r.CLAIMS, self.device) if self.version.vendor_vfio else None
        # A claim that was left behind with the same type serves the new vGPU. Any other would be mistaken for its own.
        if claim is not None and claimed_resource(claim) != self.version.resource(self.type_name):
            return "the claim of an earlier vGPU is still there"
        if self.type_name not in (status.get("availableTypes") or {}):
            return f"it does not offer {self.type_name}"
        return ""


@dataclass(frozen=True)
class SriovEnabled:
    """SR-IOV is enabled: the virtual functions exist, and each reports its available types."""

    device: str
    node: str

    @property
    def about(self) -> frozenset[str]:
        return frozenset((self.device,))

    def missing(self, seen: ObjectLookup) -> str:
        gpu = seen.get(r.GPUS, self.device)
        names = ((gpu or {}).get("status") or {}).get("vGPUDevices") or []
        if not names or not ((gpu or {}).get("status") or {}).get("vfAddresses"):
            return "it has no virtual functions"
        vgpus = [seen.get(r.VGPUS, name) for name in names]
        missing = [name for name, vgpu in zip(names, vgpus, strict=True) if vgpu is None]
        if missing:
            return f"{len(missing)} of {len(names)} vGPU devices are missing: {join_names(missing, limit=3)}"
        if seen.get(r.MIG_CONFIGURATIONS, self.device) is not None:
            # In MIG mode, the devices offer no types before instances are created.
            return ""
        statuses = [(vgpu or {}).get("status") or {} for vgpu in vgpus]
        if any(status.get("vGPUStatus") for status in statuses):
            # Next to existing vGPUs, the remaining devices may have no types left to offer.
            return ""
        silent = [name for name, status in zip(names, statuses, strict=True) if not status.get("availableTypes")]
        return (
            f"{len(silent)} of {len(names)} vGPU devices offer no types: {join_names(silent, limit=3)}"
            if silent
            else ""
        )


@dataclass(frozen=True)
class SriovDisabled:
    """SR-IOV is disabled, and no vGPU device is left."""

    device: str
    node: str
    functions: frozenset[str] = frozenset()

    @property
    def about(self) -> frozenset[str]:
        return frozenset((self.device,))

    def missing(self, seen: ObjectLookup) -> str:
        gpu = seen.get(r.GPUS, self.device)
        if ((gpu or {}).get("status") or {}).get("vfAddresses"):
            return "it still has virtual functions"
        if seen.get(r.MIG_CONFIGURATIONS, self.device) is not None:
            return "its MIG configuration is still there"
        left = [name for name in self.functions if seen.get(r.VGPUS, name) is not None]
        return f"{len(left)} of its vGPU devices are still there: {join_names(left, limit=3)}" if left else ""


@dataclass(frozen=True)
class NodeAllocatable:
    """A node offers at least `count` vGPUs of a type."""

    node: str
    resource: str
    count: int

    @property
    def device(self) -> str:
        return self.resource

    @property
    def about(self) -> frozenset[str]:
        return frozenset((self.node,))

    def missing(self, seen: ObjectLookup) -> str:
        counted = allocatable(seen.get(r.NODES, self.node), self.resource)
        return f"the node counts {counted} of {self.count} as allocatable" if counted < self.count else ""

    def device_plugin_stale(self, seen: ObjectLookup) -> bool:
        """Return whether the device plugin reports healthy devices as unhealthy (harvester.md 9.2)."""
        node = seen.get(r.NODES, self.node)
        counted = allocatable(node, self.resource)
        return 0 < counted < self.count <= allocatable(node, self.resource, kind="capacity")


@dataclass(frozen=True)
class VgpuTypePermitted:
    """KubeVirt permits VMs to request vGPUs of a type. `node` is one of the nodes that have such vGPUs."""

    node: str
    resource: str

    @property
    def device(self) -> str:
        return self.resource

    @property
    def about(self) -> frozenset[str]:
        return frozenset((r.KUBEVIRT,))

    def missing(self, seen: ObjectLookup) -> str:
        permitted = PermittedDevices.of(seen.get(r.KUBEVIRTS, r.KUBEVIRT))
        return "" if permitted is None or self.resource in permitted.resources else "KubeVirt does not permit it"
