# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a user can cause: one sentence of what is wrong, one of what would help, and a code to rescue on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class FleetError(Exception):
    """The root of everything the collection refuses or cannot do."""

    code = "fleet_error"
    # Whether something had been changed before it went wrong.
    changed = False
    # Whether what was asked for has failed for certain. After a timeout or a lost connection it may still succeed.
    certain = True

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.unsettled: list[dict[str, Any]] = []

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        return {**told, "unsettled": self.unsettled} if self.unsettled else told

    def not_final(self, notes: Sequence[str], unsettled: list[dict[str, Any]], *, moving: bool) -> None:
        """Say of a refusal that it rests on GPUs that have not settled. With `moving` its advice is worth nothing."""
        self.unsettled = unsettled
        self.hint = " ".join(notes if moving else [*notes, self.hint]).rstrip()


def join_names(names: Iterable[str], *, limit: int = 8) -> str:
    """Names for a message, cut where nobody would read on."""
    ordered = sorted(set(names))
    if not ordered:
        return "none"
    rest = len(ordered) - limit
    return ", ".join(ordered[:limit]) + (f" and {rest} more" if rest > 0 else "")


def did_you_mean(name: str, known: Iterable[str], *, limit: int = 5) -> list[str]:
    """The known names that look most like the given one, the closest first."""
    import difflib  # only errors need it

    by_folded: dict[str, str] = {}
    for candidate in sorted(set(known)):
        by_folded.setdefault(candidate.casefold(), candidate)
    matches = difflib.get_close_matches(name.casefold(), list(by_folded), n=limit, cutoff=0.4)
    return [by_folded[match] for match in matches]
