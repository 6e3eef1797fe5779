"""Bind names that differ from run to run to those of the lab when they are first seen."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
PLACEHOLDER = re.compile(r"<(uuid-\d+|[a-z][a-z ]*[A-Za-z ]*)>")


@dataclass
class Bindings:
    uuids: dict[str, str] = field(default_factory=dict)
    generations: dict[tuple[str, str], int] = field(default_factory=dict)
    # Resources of a node, by name, that earlier scenarios had left behind in a way that cannot be arranged again.
    inherited: dict[str, dict[str, tuple[str | None, str | None]]] = field(default_factory=dict)

    def trial(self) -> Bindings:
        return Bindings(dict(self.uuids), dict(self.generations), self.inherited)

    def adopt(self, other: Bindings) -> None:
        self.uuids = other.uuids
        self.generations = other.generations

    def same_text(self, recorded: str, ours: str) -> bool:
        """Return whether the texts are equal, with each placeholder bound to one UUID."""
        placeholders = list(PLACEHOLDER.finditer(recorded))
        if not placeholders:
            return recorded == ours
        pattern, end = "", 0
        for placeholder in placeholders:
            pattern += re.escape(recorded[end : placeholder.start()])
            pattern += f"({UUID})" if placeholder.group(1).startswith("uuid-") else "(.*)"
            end = placeholder.end()
        match = re.fullmatch(pattern + re.escape(recorded[end:]), ours, re.DOTALL)
        if not match:
            return False
        return all(
            self._bind(placeholder.group(1), actual)
            for placeholder, actual in zip(placeholders, match.groups(), strict=True)
            if placeholder.group(1).startswith("uuid-")
        )

    def _bind(self, placeholder: str, actual: str) -> bool:
        if placeholder in self.uuids:
            return self.uuids[placeholder] == actual
        if actual in self.uuids.values():
            return False
        self.uuids[placeholder] = actual
        return True

    def same_generation(self, what: str, uid: str, recorded: int, ours: int) -> bool:
        """Compare generations relative to the first one seen of the object."""
        distance = self.generations.setdefault((what, uid), ours - recorded)
        return ours - recorded == distance
