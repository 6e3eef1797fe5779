# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubernetes label selectors: `pool=gpu,tier!=test,zone in (a, b),managed,!retired`. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import FleetError

_KEY = r"[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_EQUALITY = re.compile(rf"(?P<key>{_KEY})\s*(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})")
_SET = re.compile(rf"(?P<key>{_KEY})\s+(?P<sign>in|notin)\s+\((?P<values>[^()]*)\)")
_EXISTENCE = re.compile(rf"(?P<sign>!?)\s*(?P<key>{_KEY})")
_COMMA = re.compile(r",(?![^(]*\))")


class InvalidSelector(FleetError):
    code = "invalid_selector"


@dataclass(frozen=True)
class Requirement:
    """A condition on a label: it has one of these values or none of them. Without values: it exists or does not."""

    key: str
    values: frozenset[str] | None
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.values is None:
            return (self.key in labels) != self.negated
        return (self.key in labels and labels[self.key] in self.values) != self.negated


@dataclass(frozen=True)
class Selector:
    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_selector(text: str) -> Selector:
    return Selector(tuple(_requirement(part.strip(), text) for part in _COMMA.split(text)))


def _requirement(part: str, text: str) -> Requirement:
    if found := _EQUALITY.fullmatch(part):
        return Requirement(found["key"], frozenset((found["value"],)), found["sign"] == "!=")
    if found := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Requirement(found["key"], values, found["sign"] == "notin")
    if found := _EXISTENCE.fullmatch(part):
        return Requirement(found["key"], None, bool(found["sign"]))
    raise InvalidSelector(
        f"{text!r} is not a label selector.", hint="Write it as key=value, key!=value, key in (a, b), key or !key."
    )
