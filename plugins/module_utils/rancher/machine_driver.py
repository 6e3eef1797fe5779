# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rancher's machine driver for Harvester: its version, and whether its machines can have several vGPUs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import FleetError
from ..harvester.version import HarvesterVersion

NODE_DRIVER = "/apis/management.cattle.io/v3/nodedrivers/harvester"
# The newest release that is known to write vGPUs to gpus[]. No release is known to write them to hostDevices[].
NEWEST_KNOWN = (1, 0, 6)

_IN_URL = re.compile(r"/(v\d[^/]*)/docker-machine-driver-harvester[^/]*$")
_RELEASE = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-rc\.?\d+)?")


class SeveralVgpus(FleetError):
    """The machines of a pool cannot have several vGPUs, or nothing shows that they can."""

    code = "cannot_boot"


class UnknownDriver(SeveralVgpus):
    code = "unknown_machine_driver"


@dataclass(frozen=True)
class MachineDriver:
    """The machine driver of a Rancher. Without a version, `problem` says why it is unknown."""

    version: str = ""
    problem: str = ""

    @classmethod
    def of(cls, node_driver: Mapping[str, Any] | None) -> MachineDriver:
        """Read the version from the URL of the NodeDriver object."""
        if node_driver is None:
            return cls(problem="Rancher has no NodeDriver harvester")
        url = str((node_driver.get("spec") or {}).get("url") or "")
        found = _IN_URL.search(url)
        return cls(found[1]) if found else cls(problem=f"the URL of NodeDriver harvester names no version ({url!r})")

    @property
    def writes_gpus(self) -> bool | None:
        """Return whether the driver writes vGPUs to gpus[], or None if unknown."""
        release = _RELEASE.fullmatch(self.version)
        if release and tuple(map(int, release.groups())) <= NEWEST_KNOWN:
            return True
        return None


def refuse_several_vgpus(
    pool: str, count: int, harvester: HarvesterVersion, driver: MachineDriver, *, allow_unknown: bool
) -> None:
    """Refuse machines with several vGPUs where they cannot be created or do not boot.

    The driver passes on neither a tag nor display options, so KubeVirt decides about boot displays: up to 1.2 each
    vGPU gets one, from 1.3 on (Harvester 1.4.2) only the first. From Harvester 1.8 on the admission webhook turns
    gpus[] into hostDevices[] and fails for more than one entry.
    """
    if count < 2:
        return
    if harvester.display_for_each_vgpu:
        raise SeveralVgpus(
            f"Machines of pool {pool} cannot have {count} vGPUs on Harvester {harvester.full}: its KubeVirt gives each"
            " of them a boot display, and a VM with two boot displays does not start.",
            hint="Use one larger vGPU, or upgrade Harvester to 1.4.2 or newer.",
        )
    if not harvester.vendor_vfio:
        return
    if driver.writes_gpus:
        raise SeveralVgpus(
            f"Machines of pool {pool} cannot have {count} vGPUs on Harvester {harvester}: Rancher's machine driver"
            f" {driver.version} writes them to gpus[], and Harvester rejects VMs with several entries there from 1.8"
            " on. Rancher would create machines over and over.",
            hint="Use one larger vGPU per machine, or a machine driver that writes hostDevices[].",
        )
    if allow_unknown:
        return
    newer = f"version {driver.version} is newer than the ones this collection knows"
    raise UnknownDriver(
        f"Whether machines of pool {pool} can have {count} vGPUs on Harvester {harvester} depends on Rancher's machine"
        f" driver, and it is unknown what this one writes: {newer if driver.version else driver.problem}.",
        hint="If you know that it writes vGPUs to hostDevices[], set allow_multiple_vgpus: true.",
    )
