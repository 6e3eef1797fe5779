# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventory paths, built from names and parents in any order. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from ...faults import moid_of
from ...names import stored_name

Known = Mapping[str, Mapping[str, Any]]


def path_of(moid: str, known: Known) -> str:
    """Return an inventory path such as `/dc1/vm/team/web`. `known` maps ids to the name and parent of each object."""
    names = [stored_name(str(known[ancestor]["name"])) for ancestor in _upward(moid, known)]
    return "/" + "/".join(reversed(names))


def ancestor(moid: str, known: Known, among: Container[str]) -> str:
    """Return the id of the object or its nearest ancestor in `among`, or an empty string."""
    return next((ancestor for ancestor in _upward(moid, known) if ancestor in among), "")


def _upward(moid: str, known: Known) -> Iterator[str]:
    while moid in known:
        values = known[moid]
        # A VM in a vApp has no parent folder, but the vApp has one.
        parent = values.get("parentFolder") or values.get("parent") or values.get("parentVApp")
        if parent is None:
            # The root folder, which paths omit, or an object whose parent the user may not read.
            return
        yield moid
        moid = moid_of(parent)
