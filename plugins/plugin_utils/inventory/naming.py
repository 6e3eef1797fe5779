# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names of inventory hosts. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Record = dict[str, Any]

# Blanks and braces are not allowed: names are used in patterns, and older versions of Ansible template them.
_UNSAFE = re.compile(r"[^\w.:-]")
# Names with a special meaning in Ansible. Plays for localhost run on the controller.
RESERVED = frozenset(("all", "ungrouped", "localhost", "127.0.0.1", "::1"))


def safe(text: str) -> str:
    return _UNSAFE.sub("_", text)


def is_reserved(name: str) -> bool:
    return name.casefold() in RESERVED


def default_names(records: Iterable[Record], suffix: str = "") -> dict[str, str]:
    """Return the name of each record by its id.

    Names that several records share, or that are reserved, get the record's key appended, so that a name never moves to
    another machine.
    """
    listed = list(records)
    counts = Counter(safe(record["name"]).casefold() for record in listed)
    end = f".{safe(suffix)}" if suffix else ""
    names: dict[str, str] = {}
    for record in listed:
        name = safe(record["name"])
        if counts[name.casefold()] > 1 or is_reserved(name) or not name.strip("_"):
            name = f"{name}_{safe(record['key'])}"
        names[record["id"]] = name + end
    return names


def twice(names: Mapping[str, str]) -> tuple[str, list[str]] | None:
    """Return the first name that several ids share, with these ids, or None."""
    by_name: dict[str, list[str]] = {}
    for identity, name in names.items():
        by_name.setdefault(name, []).append(identity)
    return next(((name, ids) for name, ids in sorted(by_name.items()) if len(ids) > 1), None)
