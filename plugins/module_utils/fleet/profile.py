# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A vGPU profile, parsed from and formatted in every spelling that a platform uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..errors import FleetError

RESOURCE_PREFIX = "nvidia.com/"
# From this size on, the framebuffer of a vGPU for computing may not fit into the address space that BIOS assigns.
LARGE_MIB = 16 * 1024

_BRAND = re.compile(r"^(?:nvidia|grid|tesla|quadro) ", re.IGNORECASE)
_NAME = re.compile(
    r"(?P<board>.+?)-(?:(?P<slices>[0-9])-)?(?P<gib>[0-9]{1,5})(?P<series>[ABCQ])(?P<attribute>NOME|MEALL|ME|GFX|4)?",
    re.IGNORECASE,
)
# Go's definition of white space at the ends, and of a run of blanks inside (harvester.md 3.1: both differ from
# Python's).
GO_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
GO_SPACE += "\u2028\u2029\u202f\u205f\u3000"
_BLANKS = re.compile(r"[\t\n\f\r ]+")

Key = tuple[str, int, int, str, str]


class InvalidProfile(FleetError):
    code = "invalid_profile"


@dataclass(frozen=True)
class Profile:
    """The parts of a profile name. `name` keeps its original spelling."""

    name: str
    board: str
    mib: int
    series: str
    slices: int = 0
    attribute: str = ""

    @property
    def mig(self) -> bool:
        """Return whether a MIG instance backs the profile instead of a time slice."""
        return self.slices > 0

    @property
    def suffix(self) -> str:
        """Return the part after the board, such as `2Q` or `1-5CME`."""
        slices = f"{self.slices}-" if self.slices else ""
        return f"{slices}{self.mib // 1024}{self.series}{self.attribute}"

    @property
    def short(self) -> str:
        return f"{self.board}-{self.suffix}"

    @cached_property
    def key(self) -> Key:
        """Return a key that is equal for all spellings of the same profile."""
        return (board_key(self.board), self.slices, self.mib, self.series, self.attribute)


def board_key(board: str) -> str:
    """Return the name of a board, normalized across spellings."""
    return " ".join(board.replace("_", " ").casefold().split())


@lru_cache(maxsize=8192)
def parse(text: str) -> Profile:
    """Parse a profile in any spelling.

    The board in a resource name is ambiguous: a blank, a slash and a dot look alike. `ProfileResolver` finds the actual
    profile.
    """
    name = text.strip(GO_SPACE)
    words = " ".join(name.removeprefix(RESOURCE_PREFIX).replace("_", " ").split())
    found = _NAME.fullmatch(_BRAND.sub("", words))
    if found is None:
        raise InvalidProfile(
            f"{text!r} is not the name of a vGPU profile.",
            hint="It ends in a size and a series letter (A, B, C or Q), as in NVIDIA A2-2Q, A100-3-20C or grid_t4-1a.",
        )
    gib = int(found["gib"])
    return Profile(
        name=name,
        board=found["board"],
        mib=gib * 1024 if gib else 512,
        series=found["series"].upper(),
        slices=int(found["slices"] or 0),
        attribute=(found["attribute"] or "").upper(),
    )


def parse_or_none(text: str | None) -> Profile | None:
    """Parse a name that a system reports. Return None if it is not a profile."""
    if not text:
        return None
    try:
        return parse(text)
    except InvalidProfile:
        return None


def large_compute(profiles: Iterable[str]) -> list[str]:
    """Return the profiles of series C with a large framebuffer, whose VMs should boot with EFI (harvester.md 12.9)."""
    parsed = {profile: parse_or_none(profile) for profile in profiles}
    return sorted(name for name, found in parsed.items() if found and found.series == "C" and found.mib >= LARGE_MIB)


def resource_name(type_name: str, *, upper_case: bool = False) -> str:
    """Return the Kubernetes resource that Harvester advertises for a type. Before 1.5.1 it upper-cased the name."""
    name = type_name.strip(GO_SPACE).replace("/", "_").replace(".", "_")
    name = _BLANKS.sub("_", name)
    return RESOURCE_PREFIX + (name.upper() if upper_case else name)


def vsphere_name(type_name: str) -> str:
    """Return the name under which vSphere lists a type."""
    return _BLANKS.sub("_", type_name.strip(GO_SPACE)).lower()
