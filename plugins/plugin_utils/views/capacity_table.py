# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The capacity of a cluster as a table for people and as numbers for programs. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Json = dict[str, Any]
Result = Mapping[str, Any]

AUTO, FULL, SUMMARY = "auto", "full", "summary"
DETAILS = (AUTO, FULL, SUMMARY)
# Tables with more nodes or GPUs than this are summarized unless all rows are requested.
MANY_NODES = 8
MANY_GPUS = 16

HEADINGS = ("PROFILE", "NODE", "TOTAL", "IN USE", "CLAIMED", "FREE")
BAR_WIDTH = 24
# Plain ASCII, because the table is shown in terminals, job logs and mails of any encoding.
FILLS = {"in_use": "#", "claimed": "+", "free": "=", "drifted": "!", "unusable": "x"}
EMPTY = "."
LEGEND = {
    "in_use": "in use",
    "claimed": "claimed",
    "free": "free vGPU",
    "drifted": "drifted",
    "unusable": "unusable",
}

_SERIES = re.compile(r"(?P<size>.*\d)(?P<series>[A-Z]+)$")


def capacity_report(
    available: Result,
    platform: str = "harvester",
    profiles: Iterable[str] = (),
    record: Result | None = None,
    details: str = AUTO,
    hosts: Iterable[Result] = (),
) -> Json:
    """Return the table and the numbers for a result of vgpu_availability.

    With `record`, the fleet record of the same cluster, each GPU has a line with a bar. `hosts` are the hosts of
    vsphere_gpu_info; hosts with running vGPUs have a line that states whether they can be emptied.
    """
    asked = {profile.lower() for profile in profiles}
    shown = [record for record in available["profiles"] if _is_shown(record, platform, asked)]
    lines = [
        *_profile_table(shown, details),
        *(_gpu_table(record, details) if record else ()),
        *_room(available["profiles"], platform),
        *_notes(available),
        *_evacuation(hosts),
    ]
    return {
        "lines": lines,
        "summary": {
            "platform": platform,
            "fits": available["fits"],
            "profiles": {profile["spellings"]["short"]: _counts(profile) for profile in shown},
        },
    }


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts gpu-2 before gpu-10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> list[str]:
    """Return the lines of a table with columns as wide as their widest cell. `numbers` are right-aligned columns."""
    cells = [tuple(headings), *(tuple(map(str, row)) for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    right = set(numbers)
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _is_shown(profile: Result, platform: str, asked: set[str]) -> bool:
    """Return whether a profile has a row: if profiles were requested, these, otherwise the existing ones.

    On vSphere these are the profiles in use, because any other can be created while there is capacity.
    """
    if asked:
        return bool(asked & {spelling.lower() for spelling in profile["spellings"].values()})
    return bool(profile["configured"] or profile["claimed"] or (platform == "harvester" and profile["allocatable"]))


# Profiles


def _profile_table(shown: Sequence[Result], details: str) -> list[str]:
    if not shown:
        return ["There are no vGPUs."]
    nodes = {node["node"] for profile in shown for node in _nodes(profile)}
    summarized = details == SUMMARY or (details == AUTO and len(nodes) > MANY_NODES)
    rows = [row for profile in shown for row in (_summary_rows(profile) if summarized else _rows(profile))]
    return table(HEADINGS, rows, numbers=range(2, len(HEADINGS)))


def _nodes(profile: Result) -> list[Result]:
    counted = [node for node in profile["nodes"] if node["allocatable"] or node["configured"] or node["claimed"]]
    return sorted(counted, key=lambda node: natural(node["node"]))


def _rows(profile: Result) -> Iterator[Sequence[str]]:
    nodes = _nodes(profile)
    for node in nodes:
        yield _row(profile, node["node"], node)
    # VMs that are not bound to a node are counted in the sum only.
    if len(nodes) != 1 or nodes[0]["claimed"] != profile["claimed"]:
        yield _row(profile, "all", profile)


def _summary_rows(profile: Result) -> Iterator[Sequence[str]]:
    nodes = _nodes(profile)
    yield _row(profile, nodes[0]["node"] if len(nodes) == 1 else f"{len(nodes)} nodes", profile)


def _row(profile: Result, node: str, counts: Result) -> Sequence[str]:
    numbers = (counts["allocatable"], counts["in_use"], counts["claimed"], counts["free"])
    return (profile["spellings"]["short"], node, *map(str, numbers))


# GPUs


def _gpu_table(record: Result, details: str) -> Iterator[str]:
    nodes = sorted(record["nodes"], key=lambda node: natural(node["name"]))
    gpus = [(node, gpu) for node in nodes for gpu in node["gpus"]]
    if not gpus:
        return
    summarized = details == SUMMARY or (details == AUTO and len(gpus) > MANY_GPUS)
    rows = list(_boards(gpus) if summarized else (_gpu(node, gpu) for node, gpu in gpus))
    headings = ("BOARD", "GPUS") if summarized else ("NODE", "GPU", "BOARD")
    yield ""
    yield from table((*headings, "MEMORY", "USED GIB", "VGPUS"), rows, numbers=[len(headings) + 1])
    used = {state for _node, gpu in gpus for state in FILLS if gpu[state]}
    if used:
        yield "  ".join([*(f"{FILLS[state]} {LEGEND[state]}" for state in FILLS if state in used), f"{EMPTY} empty"])
    waiting = [text for request in record["requests"] if (text := _request(request))]
    yield from waiting[:MANY_GPUS]
    if len(waiting) > MANY_GPUS:
        yield f"and {len(waiting) - MANY_GPUS} more requests"


def _gpu(node: Result, gpu: Result) -> Sequence[str]:
    sizes = _sizes([gpu])
    return (
        node["name"],
        gpu["address"],
        gpu["board"],
        _bar(sizes, gpu["framebuffer_mib"]),
        _used(sizes, gpu["framebuffer_mib"]),
        _vgpus(gpu),
    )


def _boards(gpus: Iterable[tuple[Result, Result]]) -> Iterator[Sequence[str]]:
    by_board: dict[str, list[Result]] = {}
    for _node, gpu in gpus:
        by_board.setdefault(gpu["board"], []).append(gpu)
    for board, alike in sorted(by_board.items()):
        sizes, memory = _sizes(alike), sum(gpu["framebuffer_mib"] or 0 for gpu in alike)
        counts = Counter(vgpu["short"] for gpu in alike for vgpu in gpu["vgpus"])
        said = ", ".join(f"{count} x {short}" for short, count in sorted(counts.items()))
        yield board, str(len(alike)), _bar(sizes, memory), _used(sizes, memory), said or "none"


def _sizes(gpus: Iterable[Result]) -> Counter[str]:
    """Return the framebuffer in MiB by the state of the vGPUs that occupy it."""
    found: Counter[str] = Counter()
    for gpu in gpus:
        for vgpu in gpu["vgpus"]:
            found[vgpu["state"]] += vgpu["framebuffer_mib"] or 0
    return found


def _bar(sizes: Mapping[str, int], memory: int | None) -> str:
    """Return a bar to scale. The ends are rounded, not the parts, so the parts of a full GPU fill the bar exactly."""
    if not memory:
        return "[" + "?" * BAR_WIDTH + "]"
    drawn, end = "", 0
    for state, fill in FILLS.items():
        end += sizes.get(state, 0)
        drawn += fill * (min(round(end * BAR_WIDTH / memory), BAR_WIDTH) - len(drawn))
    return f"[{drawn.ljust(BAR_WIDTH, EMPTY)}]"


def _used(sizes: Mapping[str, int], memory: int | None) -> str:
    return f"{_gib(sum(sizes.values()))} of {_gib(memory) if memory else '?'}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.1f}".removesuffix(".0")


def _vgpus(gpu: Result) -> str:
    """Return the number of vGPUs of each profile and the VMs that have them."""
    if gpu["unavailable_reason"]:
        return str(gpu["unavailable_reason"])
    if not gpu["vgpu_enabled"]:
        return "not enabled"
    by_profile: dict[str, list[Result]] = {}
    for vgpu in gpu["vgpus"]:
        by_profile.setdefault(vgpu["short"], []).append(vgpu)
    said = [f"{len(alike)} x {short}{_holders(alike)}" for short, alike in sorted(by_profile.items())]
    return ", ".join(said) or "none"


def _holders(vgpus: Iterable[Result], limit: int = 3) -> str:
    paths = sorted({holder["path"] for vgpu in vgpus for holder in vgpu["holders"]}, key=natural)
    if not paths:
        return ""
    more = f", {len(paths) - limit} more" if len(paths) > limit else ""
    return f" ({', '.join(paths[:limit])}{more})"


def _request(request: Result) -> str:
    """Return a line about an unbound request of a VM."""
    where = f" on {request['node']}" if request["node"] else ""
    verb = "uses" if request["state"] == "in_use" else "claims"
    when = " and gets them at its next restart" if request["restart_pending"] else ""
    return f"{request['holder']['path']} {verb} {request['count']} x {request['short']}{where}{when}."


# Remarks


def _room(profiles: Iterable[Result], platform: str) -> Iterator[str]:
    """Yield the creatable profiles. Profiles of one size and number share an entry: they differ in the license."""
    together: dict[tuple[int, str], list[str]] = {}
    for profile in profiles:
        count = profile["creatable"] if platform == "harvester" else profile["free"]
        found = _SERIES.fullmatch(profile["spellings"]["short"])
        size, series = (found["size"], found["series"]) if found else (profile["spellings"]["short"], "")
        if count:
            together.setdefault((count, size), []).append(series)
    if together:
        said = ", ".join(f"{count} x {size}{'/'.join(series)}" for (count, size), series in together.items())
        yield f"Room for any one of: {said}"


def _notes(available: Result) -> Iterator[str]:
    for node in sorted(available["nodes"], key=lambda node: natural(node["name"])):
        if not node["usable"]:
            yield f"{node['name']} does not count: {node['reason']}"
    for demand in available["demand"]:
        machines, reasons = demand["machines"] + demand["surge"], " ".join(demand["reasons"])
        missing = f"{demand['missing']} of {machines} machines do not fit: {reasons}"
        yield f"{demand['name']}: {'fits' if demand['fits'] else missing}"


def _evacuation(hosts: Iterable[Result]) -> Iterator[str]:
    for host in sorted(hosts, key=lambda host: natural(host["name"])):
        found = host.get("evacuation")
        if not found or not found["vms"]:
            continue
        answer = "yes" if found["automatic"] else "yes, by hand" if found["possible"] else "no"
        yield f"{host['name']} can be emptied: {answer}{'. ' if found['reasons'] else ''}{' '.join(found['reasons'])}"


def _counts(profile: Result) -> dict[str, int]:
    kept = {"total": "allocatable", "in_use": "in_use", "claimed": "claimed", "free": "free", "creatable": "creatable"}
    return {name: profile[key] for name, key in kept.items()}
