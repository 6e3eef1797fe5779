# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names as people write them, and as vCenter stores them: percent, slash and backslash are escaped there. Pure."""

from __future__ import annotations

import re

STORED = {"%": "%25", "/": "%2f", "\\": "%5c"}
REAL = {sequence: character for character, sequence in STORED.items()}
SEQUENCE = re.compile("|".join(REAL), re.IGNORECASE)


def real_name(name: str) -> str:
    """The name a person sees. vCenter reads an escape sequence in a given name as the character it stands for."""
    return SEQUENCE.sub(lambda found: REAL[found.group().lower()], name)


def stored_name(name: str) -> str:
    """The form that inventory paths are made of."""
    return "".join(STORED.get(character, character) for character in name)


def sent_name(name: str) -> str:
    """A real name for a request: the server escapes it, but leaves alone what already looks like an escape sequence."""
    return stored_name(name) if SEQUENCE.search(name) else name


def path_parts(path: str) -> list[str]:
    """The elements of an inventory path, in the form that vCenter stores."""
    return [stored_name(real_name(part)) for part in path.split("/") if part]


def is_same_path(one: str, other: str) -> bool:
    """Whether two inventory paths are the same, each with real or with stored names."""
    return real_name(one) == real_name(other)
