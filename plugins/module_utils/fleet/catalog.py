# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Boards and profiles that are known without a live system. If the two disagree, the live system takes precedence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from .catalog_table import TABLE
from .profile import Key, board_key, parse, parse_or_none, resource_name, vsphere_name

# Limits of the driver, whatever the sizes (nvidia.md 2.2).
MAX_TIME_SLICED = 32
MAX_PER_GPU = 48
MAX_PER_INSTANCE = 12


@dataclass(frozen=True)
class BoardProfile:
    """One profile of a board. `derived` means that the maximum was computed, not read from a source."""

    name: str
    short: str
    mib: int
    series: str
    slices: int
    attribute: str
    max_per_gpu: int
    derived: bool
    # As of driver 510. Later drivers allow more, so False is only a warning, and None means unknown.
    multi_vgpu: bool | None

    @property
    def mig(self) -> bool:
        return self.slices > 0


@dataclass(frozen=True)
class Board:
    name: str
    product: str
    architecture: str
    framebuffer_mib: int
    brand: str
    pci_ids: tuple[str, ...]
    gpus: int
    sriov: bool
    vfs: int | None
    vfs_at_least: int
    multi_known: bool
    # MIG-backed vGPUs exist only on instances with graphics, each of which serves several vGPUs of one size.
    gfx: bool
    words: tuple[str, ...]

    @property
    def type_prefix(self) -> str:
        return f"{self.brand} {self.name}-"

    @property
    def vsphere_prefix(self) -> str:
        return vsphere_name(self.type_prefix)

    @cached_property
    def profiles(self) -> tuple[BoardProfile, ...]:
        return tuple(self._profile(word) for word in self.words)

    @cached_property
    def by_key(self) -> Mapping[Key, BoardProfile]:
        return {parse(profile.name).key: profile for profile in self.profiles}

    @property
    def mig_capable(self) -> bool:
        return any("-" in word for word in self.words)

    def _profile(self, word: str) -> BoardProfile:
        suffix, marked = word.split(":")
        count = marked.rstrip("~?")
        parsed = parse(self.type_prefix + suffix)
        full_size = parsed.mib == self.framebuffer_mib and parsed.series in "QC" and not parsed.mig
        return BoardProfile(
            name=parsed.name,
            short=parsed.short,
            mib=parsed.mib,
            series=parsed.series,
            slices=parsed.slices,
            attribute=parsed.attribute,
            max_per_gpu=int(count),
            derived="~" in marked,
            multi_vgpu=full_size if self.multi_known and "?" not in marked else None,
        )


@dataclass(frozen=True)
class Limit:
    """The maximum number of vGPUs of a profile on a GPU, and its source.

    The source is `live`, `catalog`, `derived` (the catalog computed it), `estimated` (from the framebuffer of a board
    that the catalog lacks) or `unknown`.
    """

    count: int | None
    source: str

    @property
    def exact(self) -> bool:
        return self.source in ("live", "catalog")


@lru_cache(maxsize=1)
def boards() -> Mapping[str, Board]:
    """Return all boards by name."""
    found: dict[str, Board] = {}
    heading = ""
    words: list[str] = []
    for line in [*TABLE.strip().splitlines(), ""]:
        if line.startswith(" "):
            words.extend(line.split())
            continue
        if heading:
            board = _board(heading, tuple(words))
            found[board.name] = board
        heading, words = line, []
    return found


def _board(heading: str, words: tuple[str, ...]) -> Board:
    name, product, architecture, gib, brand, ids, notes = heading.split(" | ")
    facts = {fact: value for fact, _sign, value in (note.partition("=") for note in notes.split())}
    return Board(
        name=name,
        product=product,
        architecture=architecture,
        framebuffer_mib=int(gib) * 1024,
        brand=brand,
        pci_ids=tuple(id_ for id_ in ids.split() if id_ != "-"),
        gpus=int(facts.get("gpus", 1)),
        sriov="sriov" in facts,
        vfs=int(facts["vfs"]) if "vfs" in facts else None,
        vfs_at_least=int(facts.get("vfs>", facts.get("vfs", 0))),
        multi_known="multi" in facts,
        gfx="gfx" in facts,
        words=words,
    )


@lru_cache(maxsize=1)
def _by_board_key() -> Mapping[str, Board]:
    return {board_key(name): board for name, board in boards().items()}


def find_board(name: str) -> Board | None:
    """Return a board by its name, in any platform's spelling."""
    return _by_board_key().get(board_key(name))


def boards_with_pci_id(device_id: str) -> tuple[Board, ...]:
    """Return the boards with a PCI device id, such as `25b6` or `0x25B6`. A2 and A16 share an id."""
    wanted = device_id.casefold().removeprefix("0x")
    return tuple(board for board in boards().values() if wanted in board.pci_ids)


@lru_cache(maxsize=8192)
def find_profile(type_name: str) -> BoardProfile | None:
    """Return a profile of the table by any of its spellings."""
    parsed = parse_or_none(type_name)
    board = find_board(parsed.board) if parsed else None
    return board.by_key.get(parsed.key) if parsed and board else None


def type_name_of(key: Key) -> str:
    """Return the type name of a profile of the table by its key."""
    return _by_board_key()[key[0]].by_key[key].name


def type_names(board: str | None = None) -> Iterator[str]:
    """Yield the type names of one board, or of all boards."""
    chosen = boards().values() if board is None else filter(None, [find_board(board)])
    for entry in chosen:
        for word in entry.words:
            yield entry.type_prefix + word.split(":")[0]


def max_instances(
    type_name: str, *, live: Mapping[str, int] | None = None, framebuffer_mib: int | None = None
) -> Limit:
    """Return the maximum of vGPUs of a profile on one GPU: from the live system, else the table, else by division."""
    if live and type_name in live:
        return Limit(live[type_name], "live")
    known = find_profile(type_name)
    if known is not None:
        return Limit(known.max_per_gpu, "derived" if known.derived else "catalog")
    parsed = parse_or_none(type_name)
    if parsed is not None and not parsed.mig and framebuffer_mib:
        return Limit(min(framebuffer_mib // parsed.mib, MAX_TIME_SLICED), "estimated")
    return Limit(None, "unknown")


def spellings(type_name: str, *, upper_case: bool = False) -> dict[str, str]:
    """Return all spellings of a profile, for results. A name that the table does not contain keeps its form."""
    known = find_profile(type_name)
    full = known.name if known else type_name
    parsed = parse_or_none(full)
    return {
        "type": full,
        "short": parsed.short if parsed else full,
        "resource": resource_name(full, upper_case=upper_case),
        "vsphere": vsphere_name(full),
    }
