# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fleet records of one or more clusters as a JSON document, described by docs/fleet.schema.json. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ...module_utils.errors import FleetError

FORMAT = "vgpu.fleet/v1"

Record = Mapping[str, Any]


class NotOurDocument(FleetError):
    code = "not_our_document"


def document(record: Record, at: float, existing: str = "") -> str:
    """Return the document with a record and the time of its reading. Keep the records of other clusters."""
    others = [other for other in _records(existing) if _key(other) != _key(record)]
    read_at = datetime.fromtimestamp(int(at), tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    clusters = sorted([*others, {**record, "read_at": read_at}], key=_key)
    return json.dumps({"format": FORMAT, "clusters": clusters}, indent=2) + "\n"


def _key(record: Record) -> tuple[str, str]:
    return record["cluster"], record["platform"]


def _records(existing: str) -> list[Record]:
    if not existing.strip():
        return []
    try:
        found = json.loads(existing)
    except ValueError:
        found = None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise NotOurDocument("The file has content that vgpu.fleet did not write.", hint="Choose another file.")
    records: list[Record] = found["clusters"]
    return records
