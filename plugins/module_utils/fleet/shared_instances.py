# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Layouts of GPUs whose MIG instances serve several vGPUs each. Pure.

An instance serves vGPUs of one size, in any series, up to a maximum per size (harvester.md 8.5). A layout therefore has
instances, and for each instance the size that it is for. No platform reports which instance a vGPU is on. The driver
takes the first one that fits, so that vGPUs are assumed to be packed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement, product

from . import catalog
from .mig import InstanceSize, MigGeometry, geometry_of, has_graphics_instances, size_of, vgpus_per_instance
from .profile import Key

# The compute slices of an instance and the framebuffer of its vGPUs in MiB; 0 for an instance that is for no size.
Use = tuple[int, int]


def use_of(key: Key) -> Use:
    return (key[1], key[2])


@dataclass(frozen=True)
class SharedLayouts:
    """All layouts of one board, by number."""

    board: str
    geometry: MigGeometry

    @cached_property
    def per_instance(self) -> Mapping[Use, int]:
        """Return the maximum of vGPUs on one instance by use."""
        found: dict[Use, int] = {}
        board = catalog.find_board(self.board)
        for key in board.by_key if board else ():
            if key[1]:
                most = vgpus_per_instance(key)
                found[use_of(key)] = min(most, found.get(use_of(key), most))
        return found

    @cached_property
    def size_by_compute(self) -> Mapping[int, InstanceSize]:
        return {size.compute: size for size in self.geometry.sizes}

    @cached_property
    def _uses(self) -> tuple[Use, ...]:
        return tuple(sorted({*self.per_instance, *((size.compute, 0) for size in self.geometry.sizes)}))

    @cached_property
    def _layouts(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for cut in self.geometry.every():
            choices = [
                combinations_with_replacement([use for use in self._uses if use[0] == size.compute], count)
                for size, count in cut.items()
            ]
            for chosen in product(*choices):
                counted = Counter(use for uses in chosen for use in uses)
                found.append(tuple(counted[use] for use in self._uses))
        return sorted(found)

    @cached_property
    def _numbers(self) -> Mapping[tuple[int, ...], int]:
        return {layout: number for number, layout in enumerate(self._layouts)}

    def layout(self, number: int) -> Counter[Use]:
        """Return how many instances are for each use."""
        return Counter({use: count for use, count in zip(self._uses, self._layouts[number], strict=True) if count})

    def instances(self, layout: Mapping[Use, int]) -> Counter[InstanceSize]:
        """Return the instances of a layout, the largest first."""
        found: Counter[InstanceSize] = Counter()
        for (compute, _mib), count in layout.items():
            found[self.size_by_compute[compute]] += count
        return Counter({size: found[size] for size in self.geometry.sizes if found[size]})

    def needed(self, vgpus: Mapping[Key, int]) -> Counter[Use]:
        """Return the fewest instances for these vGPUs, by use."""
        totals: Counter[Use] = Counter()
        for key, count in vgpus.items():
            totals[use_of(key)] += count
        return Counter({use: -(-count // self.per_instance[use]) for use, count in totals.items() if count})

    def for_sure(self, present: Mapping[Key, int], total: Mapping[Key, int], has: Mapping[InstanceSize, int]) -> bool:
        """Return whether vGPUs can be added up to a total wherever the present ones are."""
        now: Counter[Use] = Counter()
        for key, count in present.items():
            now[use_of(key)] += count
        taken: Counter[int] = Counter()
        for use, count in (self.needed(total) | now).items():
            taken[use[0]] += count
        return all(count <= has.get(self.size_by_compute[compute], 0) for compute, count in taken.items())

    def numbers(
        self, wanted: Iterable[Key], low: Mapping[Use, int], has: Mapping[InstanceSize, int], *, recut: bool
    ) -> tuple[int, ...]:
        """Return the fullest layouts for some types, beside the instances in use: `low`, by use.

        They have exactly the instances `has`, or with `recut` at least these.
        """
        uses = frozenset(use_of(key) for key in wanted if use_of(key) in self.per_instance)
        which = (uses, frozenset(low.items()), frozenset(has.items()), recut)
        if which not in self._found:
            self._found[which] = tuple(self._fullest(*which))
        return self._found[which]

    @cached_property
    def _found(self) -> dict[Hashable, tuple[int, ...]]:
        return {}

    def _fullest(
        self,
        uses: frozenset[Use],
        low: frozenset[tuple[Use, int]],
        has: frozenset[tuple[InstanceSize, int]],
        recut: bool,
    ) -> Iterator[int]:
        given, used = Counter(dict(has)), Counter(dict(low))
        cuts = [cut for cut in self.geometry.every() if (given <= cut if recut else given == cut)]
        layouts = {layout for cut in cuts for layout in self._assigned(cut, uses, used)}
        gains: list[tuple[int, ...]] = []
        for layout in sorted(layouts, key=lambda layout: (self._gain(layout, uses), layout), reverse=True):
            gain = self._gain(layout, uses)
            if not any(all(mine <= other for mine, other in zip(gain, better, strict=True)) for better in gains):
                gains.append(gain)
                yield self._numbers[layout]

    def _assigned(
        self, cut: Mapping[InstanceSize, int], uses: frozenset[Use], used: Counter[Use]
    ) -> Iterator[tuple[int, ...]]:
        """Yield every way to assign the instances of a cut that are not in use to the wanted uses."""
        choices = []
        for size in self.geometry.sizes:
            free = cut.get(size, 0) - sum(count for use, count in used.items() if use[0] == size.compute)
            if free < 0:
                return
            mine = sorted(use for use in uses if use[0] == size.compute) or [(size.compute, 0)]
            choices.append(combinations_with_replacement(mine, free))
        for chosen in product(*choices):
            counted = used + Counter(use for some in chosen for use in some)
            yield tuple(counted[use] for use in self._uses)

    def _gain(self, layout: tuple[int, ...], uses: frozenset[Use]) -> tuple[int, ...]:
        return tuple(count for use, count in zip(self._uses, layout, strict=True) if use in uses)


@lru_cache(maxsize=64)
def shared_layouts(board: str) -> SharedLayouts | None:
    """Return the layouts of a board with graphics instances. Return None for other boards."""
    geometry = geometry_of(board) if has_graphics_instances(board) else None
    return SharedLayouts(board, geometry) if geometry else None


def known_use(shared: SharedLayouts, key: Key | None) -> bool:
    return key is not None and size_of(key) is not None and use_of(key) in shared.per_instance
