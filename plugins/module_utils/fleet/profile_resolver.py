# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The known type names, and the lookup of the type name for a spelling. Unknown names are never guessed."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import FleetError, did_you_mean, join_names
from . import catalog
from .profile import GO_SPACE, RESOURCE_PREFIX, Key, parse, parse_or_none, resource_name, vsphere_name


class UnknownProfile(FleetError):
    code = "unknown_profile"


class AmbiguousProfile(FleetError):
    code = "ambiguous_profile"


class ProfileResolver:
    """A lookup in which live type names precede the catalog's: a system accepts only its own name for a profile."""

    def __init__(self, live: Iterable[str] = ()) -> None:
        self._live = dict.fromkeys(name for name in live if name.strip(GO_SPACE))
        self._by_spelling: dict[str, list[str]] = {}
        self._by_key: dict[Key, list[str]] = {}
        for name in self._live:
            upper = resource_name(name, upper_case=True)
            for spelling in dict.fromkeys((name, resource_name(name), upper, vsphere_name(name))):
                self._by_spelling.setdefault(spelling, []).append(name)
            parsed = parse_or_none(name)
            if parsed is not None:
                self._by_key.setdefault(parsed.key, []).append(name)

    def by_resource(self, resource: str) -> str | None:
        """Return the only type that advertises this resource, or None. Resource names are never parsed into types."""
        found = self._by_spelling.get(resource, [])
        if not found:
            known = catalog.find_profile(resource)
            spelt = (resource_name(known.name), resource_name(known.name, upper_case=True)) if known else ()
            found = [known.name] if known and resource in spelt else []
        return found[0] if len(found) == 1 else None

    def resolve(self, spelling: str) -> str:
        """Return the only known type name that matches a spelling."""
        wanted = spelling.strip(GO_SPACE)
        found = self._meant(wanted)
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousProfile(
                f"{spelling!r} may mean any of: {join_names(found)}.", hint="Write one of these names in full."
            )
        parse(wanted)
        alike = did_you_mean(wanted.removeprefix(RESOURCE_PREFIX).replace("_", " "), self._live or catalog.type_names())
        raise UnknownProfile(
            f"There is no vGPU profile {spelling!r}.",
            hint=f"The nearest known ones: {', '.join(alike)}." if alike else "",
        )

    def _meant(self, wanted: str) -> list[str]:
        """Return the matches of the strictest comparison that finds any."""
        if wanted in self._live:
            return [wanted]
        if wanted in self._by_spelling:
            return self._by_spelling[wanted]
        parsed = parse_or_none(wanted)
        if parsed is None:
            return []
        if parsed.key in self._by_key:
            return self._by_key[parsed.key]
        known = catalog.find_profile(wanted)
        return [known.name] if known else self._by_last_word(wanted)

    def _by_last_word(self, wanted: str) -> list[str]:
        """Return the types with this last word. The files of vgpu-device-manager contain only the last word."""
        for names in (self._live, catalog.type_names()):
            found = [name for name in names if name.split(" ")[-1].casefold() == wanted.casefold()]
            if found:
                return found
        return []
