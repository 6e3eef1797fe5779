# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""KubeVirt's list of permitted host devices (harvester.md 9.5). Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from ansible_collections.vgpu.fleet.plugins.module_utils.kube.objects import Json

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
