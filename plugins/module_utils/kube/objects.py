# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lists of Kubernetes objects, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class ObjectList:
    """A list from the API, by name (namespace/name for namespaced objects)."""

    items: Mapping[str, Json] = field(default_factory=dict)
    revision: str = "0"

    @classmethod
    def of(cls, answer: Json) -> ObjectList:
        items = {key_of(item): whole(item) for item in answer.get("items") or []}
        return cls(items, str((answer.get("metadata") or {}).get("resourceVersion", "0")))


def whole(item: Json) -> Json:
    """Return an object with a spec and without nulls: Harvester's definitions allow both, and both mean absent."""
    spec = item.get("spec")
    if isinstance(spec, dict) and None not in spec.values():
        return item
    return {**item, "spec": {key: value for key, value in (spec or {}).items() if value is not None}}


def key_of(item: Json) -> str:
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])
