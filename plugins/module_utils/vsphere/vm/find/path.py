# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventory paths, put together from names and parents in whatever order vCenter listed them. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import moid_of
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.names import stored_name

Known = Mapping[str, Mapping[str, Any]]


def path_of(moid: str, known: Known) -> str:
    """Such as `/dc1/vm/team/web`. `known` holds name and parent of everything above, by id."""
    names = [stored_name(str(known[one]["name"])) for one in _upward(moid, known)]
    return "/" + "/".join(reversed(names))


def ancestor(moid: str, known: Known, among: Container[str]) -> str:
    """The id of the object itself or the next one above it that is among these; nothing if there is none."""
    return next((one for one in _upward(moid, known) if one in among), "")


def _upward(moid: str, known: Known) -> Iterator[str]:
    while moid in known:
        values = known[moid]
        # A VM in a vApp has no folder of its own, but its vApp has.
        parent = values.get("parentFolder") or values.get("parent") or values.get("parentVApp")
        if parent is None:
            # The root folder, which is no part of paths, or one above what the user may see.
            return
        yield moid
        moid = moid_of(parent)
