"""Journal of the simulated components' own writes, which saves requests to detect writes of other clients.

Every write to the API server has its own revision, and revisions have no gaps. As long as the journal contains every
revision, no other client has written anything.
"""

from __future__ import annotations

from lab.kubernetes.client import Json

# Limit of entries between two queries; older revisions are read from the API server.
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
        """Return the paths written between two revisions, or None if other clients wrote as well."""
        span = {revision: path for revision, path in self._written.items() if since < revision <= until}
        self._written = {revision: path for revision, path in self._written.items() if revision > since}
        return span if len(span) == until - since else None
