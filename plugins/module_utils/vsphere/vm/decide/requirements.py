# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VM settings that passthrough devices require (vsphere.md 4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import board_key, parse_or_none
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.devices import PciRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.vm.decide.model import VmState

EFI = "efi"
# ESXi 7.0 introduced assignable hardware with this hardware version.
HARDWARE_VERSION = 17
ASSIGNABLE_SINCE = (7, 0)
USE_MMIO = "pciPassthru.use64bitMMIO"
MMIO_SIZE = "pciPassthru.64bitMMIOSizeGB"
LARGE_MIB = 16 * 1024
NVIDIA = 0x10DE
# Boards that start with the default MMIO region, regardless of the profile (Broadcom's article 323402).
SMALL_BOARDS = ("t4",)


class NeedsEfi(FleetError):
    code = "needs_efi"


@dataclass(frozen=True)
class Requirements:
    """The requirements of a set of devices for their VM."""

    memory_locked: bool = False
    hardware_version: int = 0
    mmio_gib: int = 0

    @property
    def efi(self) -> bool:
        return self.mmio_gib > 0


@dataclass(frozen=True)
class SettingsChange:
    """Settings to write. Never reduces a value."""

    lock_memory: bool = False
    upgrade_to: int = 0
    extra_config: Mapping[str, str] = field(default_factory=dict, hash=False)
    before: Mapping[str, Any] = field(default_factory=dict, hash=False)
    after: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def changed(self) -> bool:
        return bool(self.lock_memory or self.upgrade_to or self.extra_config)

    @property
    def words(self) -> list[str]:
        """Describe the settings for messages."""
        words = {
            "memory_reservation_locked": "the memory reservation is locked",
            "hardware_version": f"the hardware version becomes vmx-{self.upgrade_to}",
            "mmio_size_gb": f"the MMIO region becomes {self.extra_config.get(MMIO_SIZE)} GB",
            "mmio_64bit": "64-bit MMIO is switched on",
        }
        return [words[name] for name in self.after]


def needs_of(
    vgpus: Iterable[str],
    pci_devices: Sequence[PciRequest] = (),
    *,
    api_version: tuple[int, ...] = ASSIGNABLE_SINCE,
) -> Requirements:
    profiles = list(vgpus)
    if not profiles and not pci_devices:
        return Requirements()
    sizes = [*_framebuffers(profiles), *map(_whole_board, pci_devices)]
    return Requirements(
        memory_locked=True,
        hardware_version=HARDWARE_VERSION if api_version >= ASSIGNABLE_SINCE else 0,
        mmio_gib=mmio_gib(sizes) if any(size >= LARGE_MIB for size in sizes) else 0,
    )


def mmio_gib(framebuffers_mib: Iterable[int]) -> int:
    """Round the sum of the framebuffers up to a power of two and double it (Broadcom's article 323402)."""
    total = -(-sum(framebuffers_mib) // 1024)
    return 2 << (total - 1).bit_length() if total else 0


def prepare(machine: VmState, needs: Requirements) -> SettingsChange:
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    lock = needs.memory_locked and not machine.memory_locked
    if lock:
        before["memory_reservation_locked"], after["memory_reservation_locked"] = False, True
    upgrade = needs.hardware_version if machine.hardware_version < needs.hardware_version else 0
    if upgrade:
        before["hardware_version"] = f"vmx-{machine.hardware_version}"
        after["hardware_version"] = f"vmx-{upgrade}"
    options: dict[str, str] = {}
    if needs.mmio_gib:
        enabled, size = mmio_settings(machine.extra_config)
        if not enabled:
            options[USE_MMIO] = "TRUE"
            before["mmio_64bit"], after["mmio_64bit"] = False, True
        if size < needs.mmio_gib:
            options[MMIO_SIZE] = str(needs.mmio_gib)
            before["mmio_size_gb"], after["mmio_size_gb"] = size or None, needs.mmio_gib
    return SettingsChange(lock, upgrade, options, before, after)


def refuse_without_efi(machine: VmState, needs: Requirements, *, creating: bool) -> None:
    """Reject devices that require EFI. Do not change the firmware, since an installed guest would no longer boot."""
    if not needs.efi or machine.firmware == EFI:
        return
    what = "Template" if creating else "VM"
    raise NeedsEfi(
        f"{what} {machine.name} has {machine.firmware.upper()} firmware, and devices with {LARGE_MIB // 1024} GB or"
        " more only start with EFI.",
        hint="Use a template that was installed with EFI, or a smaller profile. The firmware of an installed system is"
        " not changed, since it would not boot any more.",
    )


def mmio_settings(extra_config: Mapping[str, str]) -> tuple[bool, int]:
    """Return whether 64-bit MMIO is enabled, and the size of its region in GB. Ignore the case of keys and values."""
    folded = {key.casefold(): value for key, value in extra_config.items()}
    enabled = folded.get(USE_MMIO.casefold(), "").strip().casefold() == "true"
    size = folded.get(MMIO_SIZE.casefold(), "").strip()
    return enabled, int(size) if size.isdecimal() else 0


def _framebuffers(profiles: Sequence[str]) -> list[int]:
    parsed = [profile for profile in map(parse_or_none, profiles) if profile]
    return [profile.mib for profile in parsed if board_key(profile.board) not in SMALL_BOARDS]


def _whole_board(request: PciRequest) -> int:
    """Return the framebuffer of a GPU, or 0 for devices that are not a GPU or not in the catalog."""
    vendor, device = request.ids
    boards = catalog.boards_with_pci_id(f"{device:04x}") if vendor == NVIDIA else ()
    large = [board.framebuffer_mib for board in boards if board_key(board.name) not in SMALL_BOARDS]
    return max(large, default=0)
