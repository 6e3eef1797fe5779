# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""HTML pages that several clusters share. Each page embeds its data, so that another cluster can be added. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

from ...module_utils.errors import FleetError
from .document import document
from .map import fleet_map, plan_map

Json = dict[str, Any]

# Base64 contains no character that could end the element.
_DATA = re.compile(r'<script type="application/octet-stream" id="fleet-data">([A-Za-z0-9+/=]*)</script>')


class NotOurPage(FleetError):
    code = "not_our_page"


def map_page(record: Mapping[str, Any], at: float, existing: str = "") -> str:
    """Return the map with a record and the time of its reading. Keep the other clusters of the existing page."""
    kept = _read(existing)
    made = document(record, at, json.dumps(kept) if kept.get("clusters") else "")
    data = json.loads(made)
    return _with_data(fleet_map(data["clusters"], generated=_when(at)), data)


def plan_page(plan: Mapping[str, Any], at: float, *, run: str, existing: str = "") -> str:
    """Return the page of a plan. Keep plans of the same run for other clusters, and drop plans of other runs."""
    kept = _read(existing)
    plans: list[Json] = kept["plans"] if kept.get("run") == run else []
    name = plan["before"]["cluster"]
    others = [other for other in plans if other["before"]["cluster"] != name]
    plans = sorted([*others, dict(plan)], key=lambda other: str(other["before"]["cluster"]))
    return _with_data(plan_map(plans, generated=_when(at)), {"run": run, "plans": plans})


def _when(at: float) -> str:
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def _with_data(page: str, data: Mapping[str, Any]) -> str:
    packed = base64.b64encode(zlib.compress(json.dumps(data).encode())).decode()
    element = f'<script type="application/octet-stream" id="fleet-data">{packed}</script>\n</body>'
    head, _end, tail = page.rpartition("</body>")
    return f"{head}{element}{tail}"


def _read(existing: str) -> Json:
    if not existing.strip():
        return {}
    found = _DATA.search(existing)
    try:
        data = json.loads(zlib.decompress(base64.b64decode(found[1], validate=True))) if found else None
    except (ValueError, zlib.error, binascii.Error):
        data = None
    if not isinstance(data, dict):
        raise NotOurPage("The file has content that vgpu.fleet did not write.", hint="Choose another file.")
    return data
