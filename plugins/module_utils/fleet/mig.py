# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MIG: the possible layouts of a GPU, and the vGPU type that each GPU instance serves. Pure.

A GPU has compute slices and memory slices. An instance begins at a multiple of its memory slices, and its compute
slices end within the board's. This reproduces the placements of NVIDIA's MIG guide for A30, A100 and H100.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet import catalog
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import Key, Profile, board_key, parse_or_none

_NAME = re.compile(r"(?:MIG )?(?P<compute>[1-9])g\.(?P<gib>[0-9]+)gb(?P<media>\+me)?", re.IGNORECASE)
MEDIA = "ME"


class InvalidInstance(FleetError):
    code = "invalid_instance"


@dataclass(frozen=True)
class InstanceSize:
    """The parts of an instance profile's name: 1g.5gb+me has one compute slice, 5 GiB and the media engines."""

    compute: int
    gib: int
    media: bool = False

    @property
    def name(self) -> str:
        return f"{self.compute}g.{self.gib}gb" + ("+me" if self.media else "")

    @property
    def suffix(self) -> str:
        """Return the last part of the vGPU type that the instance serves: 1g.5gb serves A100-1-5C."""
        return f"{self.compute}-{self.gib}C" + (MEDIA if self.media else "")


@dataclass(frozen=True)
class InstanceRequest:
    """An instance profile as a user requested it. `board` is known if the user named a vGPU type."""

    size: InstanceSize
    board: str | None = None


def read_size(text: str) -> InstanceSize | None:
    """Parse the name of an instance profile, such as `MIG 1g.5gb`. Return None for anything else."""
    found = _NAME.fullmatch(" ".join(text.split()))
    if found is None:
        return None
    return InstanceSize(int(found["compute"]), int(found["gib"]), bool(found["media"]))


def size_of(profile: Profile | Key) -> InstanceSize | None:
    """Return the size of the instance that a vGPU type needs. Return None if the type has no instance of its own."""
    key = profile.key if isinstance(profile, Profile) else profile
    _board, slices, mib, series, attribute = key
    if not slices or series != "C" or attribute not in ("", MEDIA):
        return None
    return InstanceSize(slices, mib // 1024, attribute == MEDIA)


def read_wanted(text: str) -> InstanceRequest:
    """Parse an instance profile in any spelling: `MIG 1g.5gb`, `1g.5gb`, or the vGPU type it serves, `A100-1-5C`."""
    size = read_size(text)
    if size is not None:
        return InstanceRequest(size)
    parsed = parse_or_none(text)
    served = size_of(parsed) if parsed else None
    if parsed is not None and served is not None:
        return InstanceRequest(served, parsed.board)
    if parsed is not None and not parsed.mig:
        raise InvalidInstance(
            f"{text!r} is a time-sliced profile, which no MIG instance serves.",
            hint="Name a MIG instance such as 1g.5gb, or a vGPU type with slices such as A100-1-5C.",
        )
    raise InvalidInstance(
        f"{text!r} is not the name of a MIG instance.",
        hint="Write it as 1g.5gb or MIG 1g.5gb, with +me for media engines, or as the vGPU type: A100-1-5C.",
    )


Counts = Mapping[InstanceSize, int]


@dataclass(frozen=True)
class MigGeometry:
    """The instance sizes of one board in the order of creation: the largest first."""

    sizes: tuple[InstanceSize, ...]

    @cached_property
    def compute(self) -> int:
        return max(size.compute for size in self.sizes)

    @cached_property
    def memory(self) -> int:
        # Boards with seven compute slices have eight memory slices.
        return 8 if self.compute == 7 else self.compute

    @cached_property
    def _whole_gib(self) -> int:
        return max(size.gib for size in self.sizes)

    def memory_of(self, size: InstanceSize) -> int:
        """Return the memory slices of a size. Names round the size: an eighth of 94 GiB is called 12."""
        return max(1, round(size.gib * self.memory / self._whole_gib))

    def starts(self, size: InstanceSize) -> range:
        """Return the memory slices at which an instance of this size may begin."""
        step = self.memory_of(size)
        return range(0, min(self.memory - step, self.compute - size.compute) + 1, step)

    def fits(self, counts: Counts) -> bool:
        """Return whether a GPU can have exactly these instances in some placement."""
        if any(count and size not in self._place for size, count in counts.items()):
            return False
        return self._vector(counts) in self._feasible

    def most(self, size: InstanceSize, beside: Counts | None = None) -> int:
        """Return how many instances of a size fit on a GPU beside the given ones."""
        counts = Counter(beside or {})
        found = 0
        while True:
            counts[size] += 1
            if not self.fits(counts):
                return found
            found += 1

    def maximal(self, wanted: Collection[InstanceSize], kept: Counts | None = None) -> list[Counter[InstanceSize]]:
        """Return the fullest layouts that keep `kept` and add wanted sizes only."""
        return [self.cut(number) for number in self.fullest(wanted, kept)]

    def fullest(self, wanted: Collection[InstanceSize], kept: Counts | None = None) -> tuple[int, ...]:
        """Return the numbers of the fullest layouts."""
        which = (self._vector(kept or {}), tuple(size in wanted for size in self.sizes))
        if which not in self._fullest:
            self._fullest[which] = tuple(self._search_fullest(*which))
        return self._fullest[which]

    def _search_fullest(self, low: tuple[int, ...], free: tuple[bool, ...]) -> Iterator[int]:
        found: list[tuple[int, ...]] = []
        for vector in reversed(self._ordered):
            if all(a >= b if more else a == b for a, b, more in zip(vector, low, free, strict=True)) and not any(
                all(a <= b for a, b in zip(vector, other, strict=True)) for other in found
            ):
                found.append(vector)
                yield self._numbers[vector]

    @cached_property
    def _fullest(self) -> dict[tuple[tuple[int, ...], tuple[bool, ...]], tuple[int, ...]]:
        return {}

    def cut(self, number: int) -> Counter[InstanceSize]:
        """Return a layout by its number among all layouts."""
        return self._counts(self._ordered[number])

    def why_not(self, counts: Counts) -> str:
        """Return the rule that a layout breaks."""
        unknown = [size.name for size, count in counts.items() if count and size not in self._place]
        if unknown:
            return f"it has no instances of {', '.join(sorted(unknown))}"
        total = sum(counts.values())
        if total > self.compute:
            return f"it takes at most {self.compute} instances, and these are {total}"
        media = sum(count for size, count in counts.items() if size.media)
        if media > 1:
            return f"only one instance can have the media engines, and {media} ask for them"
        compute = sum(size.compute * count for size, count in counts.items())
        if compute > self.compute:
            return f"it has {self.compute} compute slices, and these need {compute}"
        memory = sum(self.memory_of(size) * count for size, count in counts.items())
        if memory > self.memory:
            return f"it has {self.memory} memory slices, and these need {memory}"
        return "there are slices enough, but no way to place these instances side by side"

    @cached_property
    def _place(self) -> dict[InstanceSize, int]:
        return {size: number for number, size in enumerate(self.sizes)}

    def _vector(self, counts: Counts) -> tuple[int, ...]:
        return tuple(counts.get(size, 0) for size in self.sizes)

    def _counts(self, vector: tuple[int, ...]) -> Counter[InstanceSize]:
        return Counter({size: count for size, count in zip(self.sizes, vector, strict=True) if count})

    @cached_property
    def _ordered(self) -> list[tuple[int, ...]]:
        return sorted(self._feasible)

    @cached_property
    def _numbers(self) -> dict[tuple[int, ...], int]:
        return {vector: number for number, vector in enumerate(self._ordered)}

    @cached_property
    def _feasible(self) -> frozenset[tuple[int, ...]]:
        """Return every possible layout, found by placing instances from the first memory slice to the last."""
        states: list[set[tuple[int, ...]]] = [set() for _slice in range(self.memory + 1)]
        states[0].add((0,) * len(self.sizes))
        for start in range(self.memory):
            for cut in states[start]:
                states[start + 1].add(cut)
                media = any(count for size, count in zip(self.sizes, cut, strict=True) if size.media)
                for number, size in enumerate(self.sizes):
                    if start in self.starts(size) and not (size.media and media):
                        more = (*cut[:number], cut[number] + 1, *cut[number + 1 :])
                        states[start + self.memory_of(size)].add(more)
        return frozenset(states[self.memory])


def geometry_from(names: Iterable[str]) -> MigGeometry | None:
    """Return the geometry for the names of the instance profiles that a GPU lists."""
    return _geometry(frozenset(size for size in map(read_size, names) if size))


@lru_cache(maxsize=256)
def geometry_of(board: str) -> MigGeometry | None:
    """Return the geometry from the catalog. Return None for boards without MIG or with several vGPUs per instance."""
    listed = catalog.find_board(board)
    if listed is None:
        return None
    sizes = [size_of(parsed) for parsed in (parse_or_none(one.name) for one in listed.profiles if one.mig) if parsed]
    return None if None in sizes else _geometry(frozenset(size for size in sizes if size))


@lru_cache(maxsize=256)
def _geometry(sizes: frozenset[InstanceSize]) -> MigGeometry | None:
    if not sizes:
        return None
    return MigGeometry(tuple(sorted(sizes, key=lambda size: (-size.gib, -size.compute, not size.media))))


def served_type(board: str, size: InstanceSize) -> str | None:
    """Return the name of the vGPU type that an instance of this size serves on a board."""
    listed = catalog.find_board(board)
    key = (board_key(board), size.compute, size.gib * 1024, "C", MEDIA if size.media else "")
    known = listed.by_key.get(key) if listed else None
    return known.name if known else None


def format_instances(counts: Counts) -> str:
    """Format a layout for a message, the largest instances first."""
    parts = [
        f"{count} x {size.name}"
        for size, count in sorted(counts.items(), key=lambda item: (-item[0].gib, -item[0].compute, item[0].media))
        if count
    ]
    return ", ".join(parts) or "no instances"
