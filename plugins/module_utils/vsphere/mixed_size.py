# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Places of vGPUs on a GPU that serves several sizes at a time. Pure.

Each size has fixed starts, its placement ids. A vGPU fits if one of its starts leaves its whole size free
(nvidia.md 2.3). Sizes and starts are in GiB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ..fleet import catalog
from ..fleet.profile import parse_or_none

MIB_PER_GIB = 1024
# The driver's limit for vGPUs on one time-sliced GPU.
MAX_VGPUS = 32
# Architectures without mixed sizes.
UNSUPPORTED = ("maxwell", "pascal", "volta", "turing")
EVENLY_SPACED = ("blackwell",)
# Starts of vGPUs with 1 GiB that the driver rejects on GPUs with 48 GiB.
REJECTED_48 = {
    "ampere": frozenset((8, 32)),
    "ada": frozenset(start for start in range(48) if start % 6 in (2, 3)),
    "hopper": frozenset(start for start in range(48) if start % 6 in (2, 3)),
}
# Number of states above which the search for arrangements gives way to a bound by memory.
MAX_STATES = 60_000


@dataclass(frozen=True, order=True)
class SizePlaces:
    """A size and its starts."""

    size: int
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Room:
    """The number of vGPUs of a size that still fit, in the worst and in the best arrangement of the present ones."""

    least: int
    most: int

    @property
    def exact(self) -> bool:
        return self.least == self.most


@lru_cache(maxsize=4096)
def places_of(profile: str, region: int) -> SizePlaces | None:
    """Return the places of a profile on a GPU with this framebuffer, or None if they are unknown."""
    parsed = parse_or_none(profile)
    board = catalog.find_board(parsed.board) if parsed else None
    if parsed is None or board is None or parsed.mig or board.architecture in UNSUPPORTED:
        return None
    limit = catalog.max_instances(profile).count
    size = parsed.mib // MIB_PER_GIB
    if not limit or not 0 < size <= region:
        return None
    if board.architecture in EVENLY_SPACED:
        return SizePlaces(size, _evenly_spaced(region, limit))
    starts = _in_pairs(region, size, limit)
    if size == 1 and region == 48:
        starts = tuple(start for start in starts if start not in REJECTED_48.get(board.architecture, frozenset()))
    return SizePlaces(size, starts)


def _evenly_spaced(region: int, limit: int) -> tuple[int, ...]:
    return tuple(region * number // limit for number in range(limit))


def _in_pairs(region: int, size: int, limit: int) -> tuple[int, ...]:
    """Return two starts per part of the region: at the start of the part and at its end. Parts are a power of two."""
    count = 1 << (limit.bit_length() - 1)
    if count == 1:
        return (0,)
    parts = count // 2
    starts: list[int] = []
    for part in range(parts):
        starts += [region * part // parts, (region * (part + 1) - size * parts) // parts]
    return tuple(sorted(set(starts)))


def room_for(framebuffer_mib: int, present: Sequence[str], wanted: str) -> Room:
    """Return how many more vGPUs of a profile fit on a GPU with these vGPUs.

    If the places of a profile are unknown, only the memory limits the number.
    """
    region = framebuffer_mib // MIB_PER_GIB
    places = places_of(wanted, region)
    taken = [places_of(name, region) for name in present]
    if places is not None and all(taken):
        return room(region, Counter(place for place in taken if place), places)
    used = sum(parsed.mib for parsed in map(parse_or_none, present) if parsed)
    size = parsed.mib if (parsed := parse_or_none(wanted)) else framebuffer_mib
    return Room(0, max(0, (framebuffer_mib - used) // size))


def room(region: int, present: Mapping[SizePlaces, int], wanted: SizePlaces) -> Room:
    """Return how many more vGPUs fit beside the present ones, whose starts are unknown.

    `least` and `most` are proven: no arrangement of the present vGPUs leaves fewer or more places.
    """
    sizes = tuple(sorted(places for places, count in present.items() if count > 0))
    counts = tuple(present[places] for places in sizes)
    total = sum(counts)
    if total >= MAX_VGPUS:
        return Room(0, 0)
    bound = _bound(region, sizes, counts, wanted)
    if region * prod(count + 1 for count in counts) > MAX_STATES:
        return Room(0, min(bound, MAX_VGPUS - total))
    least, most = _extremes(region, sizes, counts, wanted)
    if least is None or most is None:
        # The present vGPUs contradict the rule, so the rule proves nothing about this GPU.
        return Room(0, min(bound, MAX_VGPUS - total))
    return Room(min(least, MAX_VGPUS - total), min(most, MAX_VGPUS - total))


def _bound(region: int, sizes: tuple[SizePlaces, ...], counts: tuple[int, ...], wanted: SizePlaces) -> int:
    taken = sum(places.size * count for places, count in zip(sizes, counts, strict=True))
    return max(0, min((region - taken) // wanted.size, len(wanted.starts)))


@lru_cache(maxsize=8192)
def _extremes(
    region: int, sizes: tuple[SizePlaces, ...], counts: tuple[int, ...], wanted: SizePlaces
) -> tuple[int | None, int | None]:
    """Return the least and the greatest number of free starts, or None if the present vGPUs fit in no arrangement.

    Place the vGPUs from left to right. A state is the end of the last vGPU and the vGPUs that remain.
    """
    known: dict[tuple[int, tuple[int, ...]], tuple[int, int] | None] = {}

    def free_in(begin: int, end: int) -> int:
        return sum(1 for start in wanted.starts if begin <= start and start + wanted.size <= end)

    def visit(begin: int, left: tuple[int, ...]) -> tuple[int, int] | None:
        if not any(left):
            free = free_in(begin, region)
            return free, free
        state = (begin, left)
        if state not in known:
            found: tuple[int, int] | None = None
            for index, count in enumerate(left):
                if not count:
                    continue
                places = sizes[index]
                rest = (*left[:index], count - 1, *left[index + 1 :])
                for start in places.starts:
                    if start < begin or start + places.size > region:
                        continue
                    after = visit(start + places.size, rest)
                    if after is None:
                        continue
                    gap = free_in(begin, start)
                    low, high = after[0] + gap, after[1] + gap
                    found = (low, high) if found is None else (min(found[0], low), max(found[1], high))
            known[state] = found
        return known[state]

    result = visit(0, counts)
    return result if result is not None else (None, None)
