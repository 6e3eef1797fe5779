# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MIG: the possible layouts of a GPU, and the vGPU type that each GPU instance serves. Pure.

A GPU has compute slices and memory slices. An instance begins at a multiple of its memory slices, and its compute
slices end within the board's. This reproduces the placements of NVIDIA's MIG guide for A30, A100 and H100.

On most boards an instance serves one vGPU of one type. On boards with graphics instances (RTX PRO Blackwell) only
instances with `+gfx` serve vGPUs, and each serves several vGPUs of one size (harvester.md 8.5).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..errors import FleetError
from . import catalog
from .profile import Key, Profile, parse_or_none

_NAME = re.compile(
    r"(?:MIG )?(?P<compute>[1-9])g\.(?P<gib>[0-9]{1,5})gb(?P<attribute>(?:[+-][a-z0-9]+(?:\.[a-z0-9]+)*)*)",
    re.IGNORECASE,
)
# The end of a type's name, and the end of the name of its instance.
MEDIA = "ME"
WITH_MEDIA = "+me"
ALL_MEDIA = "+me.all"
WITHOUT_MEDIA = "-me"
GRAPHICS = "+gfx"
# Two names stand for the same slices if their memory differs by less than this factor: an eighth of a GB200 is called
# 24 or 23 GB, depending on the driver. Instances with other numbers of memory slices differ by a factor of two.
_SAME_MEMORY = 4 / 3


class InvalidInstance(FleetError):
    code = "invalid_instance"


@dataclass(frozen=True)
class InstanceSize:
    """The parts of an instance profile's name: 1g.5gb+me has one compute slice, 5 GiB and the attribute +me."""

    compute: int
    gib: int
    attribute: str = ""

    @property
    def name(self) -> str:
        return f"{self.compute}g.{self.gib}gb{self.attribute}"

    @property
    def media(self) -> bool:
        """Return whether the instance has media engines that only one instance can have."""
        return self.attribute in (WITH_MEDIA, ALL_MEDIA)

    @property
    def graphics(self) -> bool:
        return self.attribute == GRAPHICS

    @property
    def order(self) -> tuple[int, int, bool, str]:
        """Return the sort key of the order of creation: the largest first."""
        return (-self.gib, -self.compute, not self.media, self.attribute)


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
    return InstanceSize(int(found["compute"]), int(found["gib"]), found["attribute"].casefold())


def size_of(profile: Profile | Key) -> InstanceSize | None:
    """Return the size of the instance that a vGPU type needs. Return None if the type has no instance of its own."""
    return _size_of(profile.key if isinstance(profile, Profile) else profile)


@lru_cache(maxsize=4096)
def _size_of(key: Key) -> InstanceSize | None:
    board, slices, mib, series, attribute = key
    if not slices:
        return None
    listed = catalog.find_board(board)
    if listed is not None and listed.gfx:
        # The largest type of an instance has all its memory.
        whole = max((profile.mib for profile in listed.profiles if profile.slices == slices), default=0)
        return InstanceSize(slices, whole // 1024, GRAPHICS) if key in listed.by_key else None
    if series != "C" or attribute not in ("", MEDIA):
        return None
    return InstanceSize(slices, mib // 1024, WITH_MEDIA if attribute == MEDIA else "")


@lru_cache(maxsize=4096)
def vgpus_per_instance(key: Key) -> int:
    """Return how many vGPUs of a type one instance serves at most."""
    listed, size = catalog.find_board(key[0]), _size_of(key)
    geometry = geometry_of(key[0])
    if listed is None or size is None or geometry is None or not listed.gfx:
        return 1
    return max(1, min(listed.by_key[key].max_per_gpu // geometry.most(size), catalog.MAX_PER_INSTANCE))


def match(size: InstanceSize, among: Iterable[InstanceSize]) -> InstanceSize | None:
    """Return the size with the same slices, by its exact name or else by its number of slices."""
    sizes = list(among)
    if size in sizes:
        return size
    alike = [
        other
        for other in sizes
        if (other.compute, other.attribute) == (size.compute, size.attribute)
        and max(other.gib, size.gib) < _SAME_MEMORY * min(other.gib, size.gib)
    ]
    return min(alike, key=lambda other: abs(other.gib - size.gib), default=None)


def read_wanted(text: str) -> InstanceRequest:
    """Parse an instance profile in any spelling: `MIG 1g.5gb`, `1g.5gb`, or a vGPU type it serves, `A100-1-5C`."""
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
        hint="Write it as 1g.5gb or MIG 1g.5gb, with +me for media engines or +gfx for graphics, or as the vGPU type:"
        " A100-1-5C.",
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

    def every(self) -> list[Counter[InstanceSize]]:
        """Return all layouts, including those that leave room."""
        return [self._counts(vector) for vector in self._ordered]

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
        if any(count and size.attribute == ALL_MEDIA for size, count in counts.items()) and not all(
            _beside_all_media(size) for size, count in counts.items() if count
        ):
            return f"one instance has all media engines, so that the others have to be of a kind with {WITHOUT_MEDIA}"
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
                present = [size for size, count in zip(self.sizes, cut, strict=True) if count]
                for number, size in enumerate(self.sizes):
                    if start in self.starts(size) and not _conflict(size, present):
                        more = (*cut[:number], cut[number] + 1, *cut[number + 1 :])
                        states[start + self.memory_of(size)].add(more)
        return frozenset(states[self.memory])


def _beside_all_media(size: InstanceSize) -> bool:
    return size.attribute in (ALL_MEDIA, WITHOUT_MEDIA)


def _conflict(size: InstanceSize, present: Iterable[InstanceSize]) -> bool:
    """Return whether the media engines of an instance are taken. Instances with -me need none."""
    for other in present:
        if size.media and other.media:
            return True
        if ALL_MEDIA in (size.attribute, other.attribute) and not (
            _beside_all_media(size) and _beside_all_media(other)
        ):
            return True
    return False


def geometry_from(names: Iterable[str]) -> MigGeometry | None:
    """Return the geometry for the names of the instance profiles that a GPU lists."""
    return _geometry(frozenset(size for size in map(read_size, names) if size))


@lru_cache(maxsize=256)
def geometry_of(board: str) -> MigGeometry | None:
    """Return the geometry of the instances that serve vGPUs, from the catalog. Return None for boards without MIG."""
    listed = catalog.find_board(board)
    if listed is None:
        return None
    sizes = [_size_of(key) for key, profile in listed.by_key.items() if profile.mig]
    return None if None in sizes else _geometry(frozenset(size for size in sizes if size))


@lru_cache(maxsize=256)
def _geometry(sizes: frozenset[InstanceSize]) -> MigGeometry | None:
    if not sizes:
        return None
    return MigGeometry(tuple(sorted(sizes, key=lambda size: size.order)))


def has_graphics_instances(board: str) -> bool:
    """Return whether the instances of a board serve several vGPUs each, and only those with +gfx."""
    listed = catalog.find_board(board)
    return listed is not None and listed.gfx


@lru_cache(maxsize=1024)
def served_keys(board: str, size: InstanceSize) -> tuple[Key, ...]:
    """Return the vGPU types that an instance serves on a board, the largest first."""
    listed, geometry = catalog.find_board(board), geometry_of(board)
    known = match(size, geometry.sizes) if geometry else None
    if listed is None or known is None:
        return ()
    return tuple(sorted((key for key in listed.by_key if _size_of(key) == known), key=lambda key: (-key[2], key[3:])))


def served_types(board: str, size: InstanceSize) -> dict[str, int]:
    """Return the names of the vGPU types that an instance serves, each with its maximum per instance."""
    listed = catalog.find_board(board)
    if listed is None:
        return {}
    return {listed.by_key[key].name: vgpus_per_instance(key) for key in served_keys(board, size)}


def served_type(board: str, size: InstanceSize) -> str | None:
    """Return the vGPU type that has a whole instance of this size on a board, of series C if there is one."""
    listed = catalog.find_board(board)
    keys = served_keys(board, size)
    whole = [key for key in keys if key[2] == keys[0][2]]
    key = next((key for key in whole if key[3] == "C"), whole[0] if whole else None)
    return listed.by_key[key].name if listed and key else None


def serves_nothing(board: str | None, size: InstanceSize, listed: Iterable[InstanceSize]) -> bool:
    """Return whether no vGPU can be on an instance of this size.

    On a board that the catalog lacks, instances with graphics show the rule: no other instances serve vGPUs then.
    """
    if board and geometry_of(board):
        return not served_keys(board, size)
    return not size.graphics and any(other.graphics for other in listed)


def format_instances(counts: Counts) -> str:
    """Format a layout for a message, the largest instances first."""
    parts = [
        f"{count} x {size.name}"
        for size, count in sorted(
            counts.items(), key=lambda item: (-item[0].gib, -item[0].compute, item[0].media, item[0].attribute)
        )
        if count
    ]
    return ", ".join(parts) or "no instances"
