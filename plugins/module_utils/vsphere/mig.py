# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many MIG instances fit on a GPU whose instances are cut when VMs start. Pure.

The rule reproduces the tables of NVIDIA's MIG guide: an instance starts at a multiple of its memory slices, and its
compute slices end within the board's. Where the present ones lie is not told, so they are taken to lie well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ansible_collections.vgpu.fleet.plugins.module_utils import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.profile import Profile, parse_or_none


def instances(boards: Sequence[str], offered: Iterable[str], present: Iterable[str]) -> dict[str, int]:
    """The most instances of each profile, the present ones included."""
    board = catalog.find_board(boards[0]) if len(boards) == 1 else None
    if board is None:
        return {}
    compute = max((profile.slices for profile in board.profiles), default=0)
    if not compute:
        return {}
    # Boards with seven compute slices have eight memory slices.
    memory = 8 if compute == 7 else compute
    have = [profile for profile in map(parse_or_none, present) if profile]
    counted = Counter(profile.key for profile in have)
    found: dict[str, int] = {}
    for name in offered:
        parsed = parse_or_none(name)
        if parsed and parsed.mig:
            room = _Places(compute, memory, board.framebuffer_mib)
            room.take_all(have)
            more = 0
            while room.take(parsed):
                more += 1
            listed = board.by_key.get(parsed.key)
            most = counted[parsed.key] + more
            found[name] = min(most, listed.max_per_gpu) if listed else most
    return found


class _Places:
    def __init__(self, compute: int, memory: int, framebuffer_mib: int) -> None:
        self._compute = compute
        self._free = [True] * memory
        self._slice_mib = framebuffer_mib // memory
        self._media = True

    def take_all(self, profiles: Sequence[Profile]) -> None:
        for profile in sorted(profiles, key=lambda one: (-one.mib, -one.slices)):
            self.take(profile)

    def take(self, profile: Profile) -> bool:
        media = profile.attribute == "ME"
        if media and not self._media:
            return False
        size = -(-profile.mib // self._slice_mib)
        for start in range(0, len(self._free) - size + 1, size):
            if start + profile.slices <= self._compute and all(self._free[start : start + size]):
                self._free[start : start + size] = [False] * size
                self._media = self._media and not media
                return True
        return False
