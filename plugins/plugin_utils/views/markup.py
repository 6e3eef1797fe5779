# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts, numbers and small elements of the pages. Pure.

All names come from clusters and are untrusted. They pass through `text` on their way into a page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .record import STATES

Json = Mapping[str, Any]

STATE_WORDS = {
    "in_use": "in use",
    "claimed": "claimed",
    "free": "free",
    "drifted": "drifted",
    "unusable": "unusable",
}
RESTARTS = {
    "vm": "Restart of the VM pending",
    "node": "Reboot of the node pending",
    "host": "Restart of the host pending",
}
TIMES = "\u00d7"
# Characters that are invalid in a document, and characters that change the text direction.
_UNFIT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_SERIES = re.compile(r"(?P<size>.*\d)(?P<series>[A-Z]+)$")


def text(value: object) -> str:
    """Return any value as text that is safe between tags and in attributes."""
    return html.escape(_UNFIT.sub("\ufffd", str(value)), quote=True)


def attribute_list(values: Iterable[str]) -> str:
    """Return several values as one attribute, one per line. A line break inside a value becomes a space."""
    return "&#10;".join(text(value.replace("\n", " ")) for value in values)


def span(kind: str, words: str) -> str:
    return f'<span class="{kind}">{text(words)}</span>' if words else ""


def none(words: str) -> str:
    """Return a placeholder for an empty section."""
    return f'<p class="none">{words}</p>'


def notes(findings: Sequence[Json]) -> str:
    """List findings, each with the object to restart."""
    if not findings:
        return ""
    items = "".join(f"<li>{_restart(finding['restart'])}{text(finding['text'])}</li>" for finding in findings)
    return f'<ul class="notes" aria-label="Findings">{items}</ul>'


def _restart(what: str) -> str:
    return f"<b>{RESTARTS[what]}.</b> " if what in RESTARTS else ""


def plural(noun: str, number: int) -> str:
    return noun if number == 1 else f"{noun}s"


def counted(number: int, noun: str) -> str:
    return f"{number} {plural(noun, number)}"


def state_counts(counts: Json) -> list[str]:
    """Return the number of vGPUs of a GPU or node in each state, without zeros."""
    return [f"{counts[state]} {STATE_WORDS[state]}" for state in STATES if counts[state]]


def gib(mib: int | None) -> str:
    return f"{number(mib / 1024)} GiB" if mib is not None else "unknown size"


def gib_of(used: int, whole: int | None) -> str:
    return f"{number(used / 1024)} of {gib(whole)}"


def number(value: float) -> str:
    return f"{value:,.1f}".rstrip("0").rstrip(".")


def percent(part: float) -> str:
    return f"{part * 100:.4f}".rstrip("0").rstrip(".") + "%"


def fitting(available: Iterable[Json], key: str) -> list[str]:
    """Return the profiles that fit, by size: two of `A2-4A/C/Q`. Profiles that differ only in series share an entry."""
    together: dict[tuple[int, str], list[str]] = {}
    for profile in available:
        found = _SERIES.fullmatch(profile["short"])
        size, series = (found["size"], found["series"]) if found else (profile["short"], "")
        if profile[key]:
            together.setdefault((profile[key], size), []).append(series)
    return [
        f"{count} {TIMES} {size}{'/'.join(sorted(filter(None, series)))}" for (count, size), series in together.items()
    ]
