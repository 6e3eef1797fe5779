# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""VM settings that passthrough devices require (vsphere.md 4). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ....errors import FleetError
from ....fleet import catalog
from ....fleet.profile import Profile, board_key, parse_or_none
from .devices import PciRequest
from .model import VmState

EFI = "efi"
# ESXi 7.0 introduced assignable hardware with this hardware version.
HARDWARE_VERSION = 17
# vSphere 8.0 introduced device groups with this hardware version.
GROUP_HARDWARE_VERSION = 20
ASSIGNABLE_SINCE = (7, 0)
USE_MMIO = "pciPassthru.use64bitMMIO"
MMIO_SIZE = "pciPassthru.64bitMMIOSizeGB"
LARGE_MIB = 16 * 1024
NVIDIA = 0x10DE
# Boards that start with the default MMIO region, regardless of the profile (Broadcom's article 323402).
SMALL_BOARDS = ("t4",)
# VMs with this much memory need the MMIO space of the whole board, also for a small vGPU (vsphere.md 4.4).
LARGE_VM_MIB = 32 * 1024
# NVIDIA lists boards from this size on. Smaller boards fit into the default region of a VM.
LEAST_BOARD_GIB = 64
# The least region for vGPUs of series C, regardless of board and memory.
COMPUTE_GIB = 64
COMPUTE = "C"
# Boards for which NVIDIA demands more than twice their framebuffer.
BOARD_MMIO_GIB = {"v100": 64, "v100x": 64, "v100l": 64}


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

    @property
    def extra_config(self) -> dict[str, str]:
        """Return the requirements that are extraConfig, which Cluster API calls customVMXKeys."""
        return {USE_MMIO: "TRUE", MMIO_SIZE: str(self.mmio_gib)} if self.mmio_gib else {}


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
    memory_mib: int = 0,
    api_version: tuple[int, ...] = ASSIGNABLE_SINCE,
    grouped: bool = False,
) -> Requirements:
    """Return the requirements of these devices for a VM with this much memory. Profiles may have any spelling.

    `grouped`: the VM has a device group.
    """
    profiles = list(vgpus)
    if not profiles and not pci_devices and not grouped:
        return Requirements()
    hardware = GROUP_HARDWARE_VERSION if grouped else HARDWARE_VERSION
    parsed = [profile for profile in map(parse_or_none, profiles) if profile]
    sizes = [*_framebuffers(parsed), *map(_whole_board, pci_devices)]
    return Requirements(
        memory_locked=True,
        hardware_version=hardware if api_version >= ASSIGNABLE_SINCE else 0,
        mmio_gib=max(
            mmio_gib(sizes) if any(size >= LARGE_MIB for size in sizes) else 0,
            _mmio_of_boards(parsed) if memory_mib >= LARGE_VM_MIB else 0,
            COMPUTE_GIB if any(_needs_compute_region(profile) for profile in parsed) else 0,
        ),
    )


def mmio_gib(framebuffers_mib: Iterable[int]) -> int:
    """Round the sum of the framebuffers up to a power of two and double it (Broadcom's article 323402)."""
    total = -(-sum(framebuffers_mib) // 1024)
    return 2 << (total - 1).bit_length() if total else 0


def board_mmio_gib(profile: Profile) -> int:
    """Return the MMIO space that NVIDIA demands for the board of a vGPU in a large VM, or 0.

    Boards that NVIDIA's table does not list follow the rule of the listed ones: twice the framebuffer, rounded up.
    """
    board = catalog.find_board(profile.board)
    framebuffer = board.framebuffer_mib if board else profile.mib
    size = BOARD_MMIO_GIB.get(board_key(profile.board)) or mmio_gib([framebuffer])
    return size if size >= LEAST_BOARD_GIB else 0


def _mmio_of_boards(profiles: Sequence[Profile]) -> int:
    """Return the MMIO space of all vGPUs, each of which can be on a GPU of its own, as a power of two."""
    total = sum(map(board_mmio_gib, profiles))
    return 1 << (total - 1).bit_length() if total else 0


def _needs_compute_region(profile: Profile) -> bool:
    return profile.series == COMPUTE and board_key(profile.board) not in SMALL_BOARDS


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
        f"{what} {machine.name} has {machine.firmware.upper()} firmware, and its devices require EFI, because they need"
        f" {needs.mmio_gib} GB of MMIO space.",
        hint="Use a template that was installed with EFI, a smaller board, or a vGPU of series Q with less than 16 GB"
        " in a VM with less than 32 GB of memory. The firmware of an installed system is not changed, since it"
        " would not boot any more.",
    )


def mmio_settings(extra_config: Mapping[str, str]) -> tuple[bool, int]:
    """Return whether 64-bit MMIO is enabled, and the size of its region in GB. Ignore the case of keys and values."""
    folded = {key.casefold(): value for key, value in extra_config.items()}
    enabled = folded.get(USE_MMIO.casefold(), "").strip().casefold() == "true"
    size = folded.get(MMIO_SIZE.casefold(), "").strip()
    return enabled, int(size) if size.isdecimal() else 0


def _framebuffers(profiles: Sequence[Profile]) -> list[int]:
    return [profile.mib for profile in profiles if board_key(profile.board) not in SMALL_BOARDS]


def _whole_board(request: PciRequest) -> int:
    """Return the framebuffer of a GPU, or 0 for devices that are not a GPU or not in the catalog."""
    vendor, device = request.ids
    boards = catalog.boards_with_pci_id(f"{device:04x}") if vendor == NVIDIA else ()
    large = [board.framebuffer_mib for board in boards if board_key(board.name) not in SMALL_BOARDS]
    return max(large, default=0)
