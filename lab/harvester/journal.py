"""What the simulated parts have written themselves, so that they need not ask whether somebody else has.

Every write to the API server has a revision of its own, and revisions have no gaps. As long as each one is found
here, nobody else has written anything.
"""

from __future__ import annotations

from lab.kubernetes.client import Json

# Where nobody asks for long, the rest is asked of the API server.
LONGEST = 50_000


class Journal:
    def __init__(self) -> None:
        self._written: dict[int, str] = {}

    def note(self, path: str, answer: Json) -> None:
        revision = (answer.get("metadata") or {}).get("resourceVersion")
        if len(self._written) >= LONGEST:
            self._written.clear()
        if revision:
            self._written[int(revision)] = path

    def complete(self, since: int, until: int) -> dict[int, str] | None:
        """Return the paths written between two revisions, or None if others wrote as well."""
        span = {revision: path for revision, path in self._written.items() if since < revision <= until}
        self._written = {revision: path for revision, path in self._written.items() if revision > since}
        return span if len(span) == until - since else None
