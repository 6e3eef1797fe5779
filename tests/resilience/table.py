"""The results of a run as Markdown, for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.resilience.cells import MOMENTS, NAMED, OK

Json = dict[str, Any]

SIGNS = {OK: "✓", NAMED: "n"}
NOT_RUN, WRONG = "·", "✗"


def sign(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return NOT_RUN
    return SIGNS.get(str(cell.get("first")), WRONG) if cell["good"] else WRONG


def cells_table(cells: Iterable[Json], faults: Sequence[str], jobs: Sequence[str]) -> str:
    """Return a table of faults and jobs, with one sign for each moment."""
    found = {(one["fault"], one["job"], one["moment"]): one for one in cells}
    used_jobs = [job for job in jobs if any(key[1] == job and key[0] for key in found)]
    lines = [f"| Fault | {' | '.join(used_jobs)} |", f"|---|{'---|' * len(used_jobs)}"]
    for fault in faults:
        row = [" ".join(sign(found.get((fault, job, moment))) for moment in MOMENTS) for job in used_jobs]
        if any(set(one) - {NOT_RUN, " "} for one in row):
            lines.append(f"| `{fault}` | {' | '.join(row)} |")
    return "\n".join(lines)


def kills_table(kills: Iterable[Json], jobs: Sequence[str]) -> str:
    lines = ["| Task | Requests | Killed after | As promised |", "|---|---|---|---|"]
    listed = list(kills)
    for job in jobs:
        own = [one for one in listed if one["job"] == job]
        if own:
            good = sum(one["good"] for one in own)
            which = "each of them" if len(own) >= own[0]["of"] else f"{len(own)} of them"
            lines.append(f"| {job} | {own[0]['of']} | {which} | {good} of {len(own)} |")
    return "\n".join(lines)


def meetings_table(meetings: Iterable[Json]) -> str:
    lines = ["| Two at once | Ends | As promised |", "|---|---|---|"]
    lines += [f"| {one['name']} | {one['said']} | {'yes' if one['good'] else 'no'} |" for one in meetings]
    return "\n".join(lines)


def summary(content: Json) -> str:
    cells = [one for one in content["cells"] if one["fault"]]
    kills, meetings = content["kills"], content.get("meetings", [])
    promised = [one for one in cells if one["good"]]
    return "\n".join(
        [
            "| Measured | Number | As promised |",
            "|---|---|---|",
            f"| faults | {len({one['fault'] for one in cells})} | |",
            f"| tasks | {len({one['job'] for one in cells})} | |",
            f"| cells of the matrix | {len(cells)} | {len(promised)} |",
            f"| of these, the first run succeeded | {_first(promised, OK)} | |",
            f"| of these, the first run failed and named the cause | {_first(promised, NAMED)} | |",
            f"| kills | {len(kills)} | {sum(one['good'] for one in kills)} |",
            f"| meetings of two users | {len(meetings)} | {sum(one['good'] for one in meetings)} |",
        ]
    )


def _first(cells: Iterable[Json], end: str) -> int:
    return sum(one.get("first") == end for one in cells)


def render(content: Json, faults: Sequence[str], jobs: Sequence[str]) -> str:
    parts = [f"Measured at commit {content['commit']}.", summary(content)]
    parts += [cells_table(content["cells"], faults, jobs), kills_table(content["kills"], jobs)]
    if content.get("meetings"):
        parts.append(meetings_table(content["meetings"]))
    return "\n\n".join(parts) + "\n"
