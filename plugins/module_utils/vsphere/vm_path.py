# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Inventory paths, put together from names and parents in whatever order vCenter listed them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import moid_of

Known = Mapping[str, Mapping[str, Any]]


def path_of(moid: str, known: Known) -> str:
    """Such as `/dc1/vm/team/web`. `known` holds name and parent of everything above, by id."""
    return "/" + "/".join(reversed(list(_upward(moid, known))))


def _upward(moid: str, known: Known) -> Iterator[str]:
    values = known.get(moid)
    while values is not None:
        # A VM in a vApp has no folder of its own, but its vApp has.
        parent = values.get("parentFolder") or values.get("parent") or values.get("parentVApp")
        if parent is None:
            # The root folder, which is no part of paths, or one above what the user may see.
            return
        yield str(values["name"])
        values = known.get(moid_of(parent))
