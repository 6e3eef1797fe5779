# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Harvester's two eras, and which one a cluster is of (harvester.md 1.1 and 1.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import resource_name

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")


# The first with vGPUs.
OLDEST = (1, 3, 0)


class UnknownVersion(FleetError):
    code = "unknown_version"


class TooOld(FleetError):
    code = "too_old"


@dataclass(frozen=True)
class HarvesterVersion:
    """What a version does in its own way. The patch level only matters around 1.4.2 and 1.5.1."""

    version: tuple[int, int, int]

    @property
    def vendor_vfio(self) -> bool:
        return self.version >= (1, 8, 0)

    @property
    def upper_case_resources(self) -> bool:
        return self.version < (1, 5, 1)

    @property
    def display_for_each_vgpu(self) -> bool:
        """Up to 1.4.1, which ships KubeVirt 1.2, every vGPU without options gets a boot display, and two keep a VM from
        starting. From KubeVirt 1.3 on only the first one gets it."""
        return self.version < (1, 4, 2)

    @property
    def has_mig(self) -> bool:
        return self.version >= (1, 7, 0)

    @property
    def skips_mig(self) -> bool:
        """From 1.9 on an annotation keeps a GPU time-sliced; before that it is ignored."""
        return self.version >= (1, 9, 0)

    @property
    def keeps_stale_notes(self) -> bool:
        """Up to 1.8 a stopped VM keeps its allocation note when devices are taken out of it."""
        return self.version < (1, 9, 0)

    @property
    def name(self) -> str:
        return "vendor_vfio" if self.vendor_vfio else "mdev"

    def resource(self, type_name: str) -> str:
        return resource_name(type_name, upper_case=self.upper_case_resources)

    def __str__(self) -> str:
        return ".".join(map(str, self.version[:2]))


def parse(text: str) -> HarvesterVersion | None:
    """From a version such as v1.8.0, 1.7, or v1.8-5bb68f7d-head."""
    found = _VERSION.match(text.strip())
    if found is None:
        return None
    patch = found[3]
    # A release line without a patch level is taken for its latest: 1.5 means the behaviour from 1.5.1 on.
    return HarvesterVersion((int(found[1]), int(found[2]), int(patch) if patch is not None else 99))


def told(text: str) -> HarvesterVersion | None:
    """By the server's own word."""
    era = parse(text)
    if era and era.version < OLDEST:
        raise TooOld(f"Harvester {era} has no vGPUs.", hint="The first version that has them is 1.3.")
    return era


def chosen(text: str) -> HarvesterVersion:
    era = told(text)
    if era is None:
        raise UnknownVersion(
            f"harvester_version {text!r} is not a version.", hint="Write it as 1.7 or v1.8.1, or leave it out."
        )
    return era


def seen(vgpus: Iterable[dict[str, Any]]) -> HarvesterVersion:
    """By what the devices look like; else the present era."""
    for vgpu in vgpus:
        status = vgpu.get("status") or {}
        values = list((status.get("availableTypes") or {}).values())
        if any(value.startswith("nvidia-") for value in values) or "-" in (status.get("uuid") or ""):
            return HarvesterVersion((1, 7, 0))
        if values or status.get("uuid"):
            return HarvesterVersion((1, 8, 0))
    return HarvesterVersion((1, 8, 0))
