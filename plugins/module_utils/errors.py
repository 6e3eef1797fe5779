# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors that a user can cause: a message, a hint and a stable code for rescue blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class FleetError(Exception):
    """The base class of all errors that fail a task."""

    code = "fleet_error"
    # Whether the task changed something before it failed.
    changed = False
    # Whether the request certainly failed. After a timeout or a lost connection it may still succeed.
    certain = True
    # Warnings to show in addition to the failure.
    warnings: Sequence[str] = ()

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.unsettled: list[dict[str, Any]] = []

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """Return the key `error` of a failed task."""
        error: dict[str, Any] = {"code": self.code, "message": self.message, "hint": self.hint}
        return {**error, "unsettled": self.unsettled} if self.unsettled else error

    def not_final(self, notes: Sequence[str], unsettled: list[dict[str, Any]], *, moving: bool) -> None:
        """Mark the error as depending on GPUs that have not settled. With `moving`, drop its hint."""
        self.unsettled = unsettled
        self.hint = " ".join(notes if moving else [*notes, self.hint]).rstrip()


class NothingSelected(FleetError):
    code = "nothing_selected"


class InvalidDemand(FleetError):
    code = "invalid_demand"


def join_names(names: Iterable[str], *, limit: int = 8) -> str:
    """Join names for a message, shortened after `limit`."""
    ordered = sorted(set(names))
    if not ordered:
        return "none"
    rest = len(ordered) - limit
    return ", ".join(ordered[:limit]) + (f" and {rest} more" if rest > 0 else "")


def did_you_mean(name: str, known: Iterable[str], *, limit: int = 5) -> list[str]:
    """Return the known names that resemble the given name most, the closest first."""
    import difflib  # Only errors need this module.

    by_folded: dict[str, str] = {}
    for candidate in sorted(set(known)):
        by_folded.setdefault(candidate.casefold(), candidate)
    matches = difflib.get_close_matches(name.casefold(), list(by_folded), n=limit, cutoff=0.4)
    return [by_folded[match] for match in matches]
