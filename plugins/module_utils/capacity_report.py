# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What vgpu_availability found, as a table for people and as a few numbers for programs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]

ROW = "{:<22} {:<24} {:>6} {:>7} {:>8} {:>6}"
_SERIES = re.compile(r"(?P<size>.*\d)(?P<series>[A-Z]+)$")


def capacity_report(available: Mapping[str, Any], platform: str = "harvester", profiles: Iterable[str] = ()) -> Json:
    asked = {profile.lower() for profile in profiles}
    shown = [one for one in available["profiles"] if _is_shown(one, platform, asked)]
    lines = [ROW.format("PROFILE", "NODE", "THERE", "IN USE", "CLAIMED", "FREE")]
    for one in shown:
        lines += _rows(one)
    if not shown:
        lines.append("no vGPUs")
    return {
        "lines": [*lines, *_room(available["profiles"], platform), *_notes(available)],
        "summary": {
            "platform": platform,
            "fits": available["fits"],
            "profiles": {one["spellings"]["short"]: _counts(one) for one in shown},
        },
    }


def _is_shown(one: Mapping[str, Any], platform: str, asked: set[str]) -> bool:
    """Without a choice, what is there. On vSphere that is what is in use: anything can be had while there is room."""
    if asked:
        return bool(asked & {spelling.lower() for spelling in one["spellings"].values()})
    return bool(one["configured"] or one["claimed"] or (platform == "harvester" and one["allocatable"]))


def _rows(one: Mapping[str, Any]) -> Iterator[str]:
    nodes = [node for node in one["nodes"] if node["allocatable"] or node["configured"] or node["claimed"]]
    for node in nodes:
        yield _row(one["profile"], node["node"], node)
    # VMs that are bound to no node are counted in the sum alone.
    if len(nodes) != 1 or nodes[0]["claimed"] != one["claimed"]:
        yield _row(one["profile"], "all", one)


def _row(profile: str, node: str, counts: Mapping[str, Any]) -> str:
    return ROW.format(profile, node, counts["allocatable"], counts["in_use"], counts["claimed"], counts["free"])


def _room(profiles: Iterable[Mapping[str, Any]], platform: str) -> Iterator[str]:
    """Profiles of one size and number are told together: they differ in what they are licensed for."""
    together: dict[tuple[int, str], list[str]] = {}
    for one in profiles:
        count = one["creatable"] if platform == "harvester" else one["free"]
        found = _SERIES.fullmatch(one["spellings"]["short"])
        size, series = (found["size"], found["series"]) if found else (one["spellings"]["short"], "")
        if count:
            together.setdefault((count, size), []).append(series)
    if together:
        said = ", ".join(f"{count} x {size}{'/'.join(series)}" for (count, size), series in together.items())
        yield f"Room is left for any one of: {said}"


def _notes(available: Mapping[str, Any]) -> Iterator[str]:
    for node in available["nodes"]:
        if not node["usable"]:
            yield f"{node['name']} does not count: {node['reason']}"
    for one in available["demand"]:
        missing = (
            f"{one['missing']} of {one['machines'] + one['surge']} machines do not fit: {' '.join(one['reasons'])}"
        )
        yield f"{one['name']}: {'fits' if one['fits'] else missing}"


def _counts(one: Mapping[str, Any]) -> dict[str, int]:
    kept = {"there": "allocatable", "in_use": "in_use", "claimed": "claimed", "free": "free", "creatable": "creatable"}
    return {name: one[key] for name, key in kept.items()}
