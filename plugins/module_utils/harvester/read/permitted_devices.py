# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""KubeVirt's list of permitted host devices (harvester.md 9.5). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from ...fleet.model import Fleet
from ...kube.objects import Json
from ..version import HarvesterVersion

# The lists of KubeVirt's configuration, with the field that selects the hardware of an entry.
MEDIATED = ("mediatedDevices", "mdevNameSelector")
PCI = ("pciHostDevices", "pciVendorSelector")
LISTS = (MEDIATED, PCI)
REPAIR_HINT = "Repair the list: vgpu.fleet.harvester_repair with permitted_devices: true."


@dataclass(frozen=True)
class PermittedDevices:
    """The resources that VMs may request. KubeVirt creates no pod for a VM that requests another one.

    `entries` holds the list of each entry, its resource and its selector, in order and with duplicates.
    """

    entries: tuple[tuple[str, str, str], ...] = ()

    @classmethod
    def of(cls, kubevirt: Json | None) -> PermittedDevices | None:
        """Return the list of a KubeVirt object, or None if it has none: KubeVirt then permits every device."""
        configuration = ((kubevirt or {}).get("spec") or {}).get("configuration") or {}
        permitted = configuration.get("permittedHostDevices")
        if permitted is None:
            return None
        return cls(
            tuple(
                (key, str(entry.get("resourceName") or ""), str(entry.get(selector) or ""))
                for key, selector in LISTS
                for entry in permitted.get(key) or []
            )
        )

    @cached_property
    def resources(self) -> frozenset[str]:
        return frozenset(resource for _list, resource, _selector in self.entries)

    @property
    def duplicates(self) -> dict[str, int]:
        """Return how often each resource with repeated entries is listed."""
        counts = Counter(self.entries)
        return {resource: count for (_list, resource, _selector), count in sorted(counts.items()) if count > 1}


def entries_of(fleet: Fleet, version: HarvesterVersion, pci_devices: Mapping[str, Json]) -> Iterator[tuple[str, Json]]:
    """Yield the list and the entry of each existing vGPU, as its controller writes it."""
    for _gpu, slot in fleet.slots():
        if not slot.profile:
            continue
        resource = version.resource(slot.profile)
        if not version.vendor_vfio:
            key, selector = MEDIATED
            yield key, {selector: slot.profile, "resourceName": resource, "externalResourceProvider": True}
            continue
        status = (pci_devices.get(slot.name) or {}).get("status") or {}
        if status.get("vendorId") and status.get("deviceId"):
            key, selector = PCI
            value = f"{status['vendorId']}:{status['deviceId']}"
            yield key, {selector: value, "resourceName": resource, "externalResourceProvider": True}


def restored(kubevirt: Json, entries: Iterator[tuple[str, Json]], lost: Collection[str]) -> Json:
    """Return the patch that adds the entries of lost resources to the lists of a KubeVirt object."""
    permitted = ((kubevirt.get("spec") or {}).get("configuration") or {}).get("permittedHostDevices") or {}
    lists: dict[str, list[Json]] = {}
    for key, entry in entries:
        found = lists.get(key, permitted.get(key) or [])
        if entry["resourceName"] in lost and entry not in found:
            lists[key] = [*found, entry]
    metadata = {"resourceVersion": kubevirt["metadata"].get("resourceVersion")}
    return {"metadata": metadata, "spec": {"configuration": {"permittedHostDevices": lists}}} if lists else {}
