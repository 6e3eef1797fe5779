# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Labels that show who created an object of a Harvester cluster, and for whom. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import join_names

MANAGED_BY = "app.kubernetes.io/managed-by"
OWNER = "vgpu.fleet/owner"
MANAGER = "vgpu.fleet"
DEFAULT_OWNER = "vgpu.fleet"


def mark(owner: str) -> dict[str, str]:
    """Return the labels of an object that this collection creates for an owner."""
    return {MANAGED_BY: MANAGER, OWNER: owner}


def is_owned(labels: Mapping[str, str] | None, owner: str) -> bool:
    return mark(owner).items() <= dict(labels or {}).items()


def not_owned(
    objects: Iterable[Mapping[str, Any]], owner: str = DEFAULT_OWNER, kind: str = "Object"
) -> list[dict[str, Any]]:
    """Return the objects without the mark of this owner, each with a sentence about its owner as far as labels show."""
    found = []
    for item in objects:
        metadata = item["metadata"]
        labels = dict(metadata.get("labels") or {})
        if not is_owned(labels, owner):
            name, namespace = metadata["name"], metadata.get("namespace")
            path = f"{namespace}/{name}" if namespace else name
            text = f"{kind} {path} {_whose(labels, owner)}."
            found.append({"name": name, "path": path, "labels": labels, "text": text})
    return found


def _whose(labels: Mapping[str, str], owner: str) -> str:
    if labels.get(MANAGED_BY) == MANAGER and labels.get(OWNER):
        return f"belongs to owner {labels[OWNER]}, not to {owner}"
    shown = join_names(f"{name}={value}" for name, value in labels.items())
    return f"does not carry the mark of owner {owner}; its labels: {shown}"
