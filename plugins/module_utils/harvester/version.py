# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Harvester version of a cluster and what depends on it (harvester.md 1.1 and 1.4)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import FleetError
from ..fleet.profile import resource_name

_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
# The result of YAML reading 1.10 or 1.20 as a number. Neither 1.1 nor 1.2 has vGPUs.
_UNQUOTED = re.compile(r"1\.[12]")


# The first version with vGPUs.
OLDEST = (1, 3, 0)
# The newest version that the collection is tested with (docs/compatibility.md).
NEWEST = (1, 9)
# Stands for the latest patch level of a release line.
LATEST_PATCH = 99


class UnknownVersion(FleetError):
    code = "unknown_version"


class TooOld(FleetError):
    code = "too_old"


@dataclass(frozen=True)
class HarvesterVersion:
    """A version and the behavior that depends on it. The patch level only matters around 1.4.2 and 1.5.1."""

    numbers: tuple[int, int, int]

    @property
    def vendor_vfio(self) -> bool:
        return self.numbers >= (1, 8, 0)

    @property
    def upper_case_resources(self) -> bool:
        return self.numbers < (1, 5, 1)

    @property
    def display_for_each_vgpu(self) -> bool:
        """Return whether every vGPU without options gets a boot display, so that a VM with two of them does not start.

        Harvester up to 1.4.1 ships KubeVirt 1.2, which does this. Since KubeVirt 1.3 only the first vGPU has one.
        """
        return self.numbers < (1, 4, 2)

    @property
    def efi_for_large_gpus(self) -> bool:
        """Return whether EFI gives large GPUs enough address space. The firmware of older releases does not."""
        return self.numbers >= (1, 6, 0)

    @property
    def has_mig(self) -> bool:
        return self.numbers >= (1, 7, 0)

    @property
    def skips_mig(self) -> bool:
        """Return whether an annotation can keep a GPU time-sliced. Versions before 1.9 ignore it."""
        return self.numbers >= (1, 9, 0)

    @property
    def name_follows_status(self) -> bool:
        """Return whether the name of a vGPU's type is written after its status: up to 1.7, and again from 1.9 on."""
        return not self.vendor_vfio or self.numbers >= (1, 9, 0)

    @property
    def reserves_nodes(self) -> bool:
        """Return whether a label reserves the GPUs of a node for containers. Versions before 1.9 ignore it."""
        return self.numbers >= (1, 9, 0)

    @property
    def keeps_stale_annotations(self) -> bool:
        """Return whether a stopped VM keeps its allocation annotation when devices are removed from it: up to 1.8."""
        return self.numbers < (1, 9, 0)

    @property
    def vfio_framework(self) -> str:
        return "vendor_vfio" if self.vendor_vfio else "mdev"

    def resource(self, type_name: str) -> str:
        return resource_name(type_name, upper_case=self.upper_case_resources)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return a warning for a version that the collection is not tested with. Older versions are refused."""
        if self.numbers[:2] <= NEWEST:
            return ()
        return (
            f"Harvester {self} is outside the versions that this collection is tested with, 1.3 to 1.9. See"
            " docs/compatibility.md.",
        )

    @property
    def full(self) -> str:
        """Return the version with its patch level, if known."""
        return str(self) if self.numbers[2] == LATEST_PATCH else ".".join(map(str, self.numbers))

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers[:2]))


def parse(text: str) -> HarvesterVersion | None:
    """Parse a version such as v1.8.0, 1.7 or v1.8-5bb68f7d-head. Return None if the text is not a version."""
    match = _VERSION.match(text.strip())
    if match is None:
        return None
    patch = match[3]
    # A release line without a patch level means its latest patch: 1.5 behaves as 1.5.1.
    return HarvesterVersion((int(match[1]), int(match[2]), int(patch) if patch is not None else LATEST_PATCH))


def from_setting(text: str) -> HarvesterVersion | None:
    """Return the version that the server's setting names. Return None if the setting is not a version."""
    version = parse(text)
    if version and version.numbers < OLDEST:
        raise TooOld(f"Harvester {version} has no vGPUs.", hint="Upgrade to Harvester 1.3 or later.")
    return version


def from_option(text: str) -> HarvesterVersion:
    """Return the version that the option harvester_version names."""
    if _UNQUOTED.fullmatch(text.strip()):
        raise TooOld(
            f"harvester_version {text} has no vGPUs.",
            hint=f'If you mean {text}0, quote it as "{text}0": YAML reads a number without quotes as {text}.',
        )
    version = from_setting(text)
    if version is None:
        raise UnknownVersion(
            f"harvester_version {text!r} is not a version.", hint="Write it as 1.7 or v1.8.1, or leave it out."
        )
    return version


def from_devices(vgpus: Iterable[dict[str, Any]]) -> HarvesterVersion:
    """Infer the version from the status of vGPU devices. Return 1.8 if they do not show it."""
    for vgpu in vgpus:
        status = vgpu.get("status") or {}
        values = list((status.get("availableTypes") or {}).values())
        if any(value.startswith("nvidia-") for value in values) or "-" in (status.get("uuid") or ""):
            return HarvesterVersion((1, 7, 0))
        if values or status.get("uuid"):
            return HarvesterVersion((1, 8, 0))
    return HarvesterVersion((1, 8, 0))
