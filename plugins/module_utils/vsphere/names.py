# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Conversion between real names and stored names, in which vCenter escapes percent, slash and backslash. Pure."""

from __future__ import annotations

import re

STORED = {"%": "%25", "/": "%2f", "\\": "%5c"}
REAL = {sequence: character for character, sequence in STORED.items()}
SEQUENCE = re.compile("|".join(REAL), re.IGNORECASE)


def real_name(name: str) -> str:
    """Return the name as users see it. In names from users, vCenter also decodes escape sequences."""
    return SEQUENCE.sub(lambda found: REAL[found.group().lower()], name)


def stored_name(name: str) -> str:
    """Return the name as it appears in inventory paths."""
    return "".join(STORED.get(character, character) for character in name)


def sent_name(name: str) -> str:
    """Return a real name for a request. The server escapes names, but does not escape existing escape sequences."""
    return stored_name(name) if SEQUENCE.search(name) else name


def path_parts(path: str) -> list[str]:
    """Return the elements of an inventory path as stored names."""
    return [stored_name(real_name(part)) for part in path.split("/") if part]


def is_same_path(one: str, other: str) -> bool:
    """Return whether two inventory paths are the same, each with real or stored names."""
    return real_name(one) == real_name(other)
