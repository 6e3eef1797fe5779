# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Names of variables that no role and no playbook reads, with the names that were probably meant.

Ansible accepts any variable. The argument specification of a role checks values, so a misspelt name would have no
effect and no message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from ..module_utils.errors import FleetError, did_you_mean
from .in_process import PROGRESS_VARIABLE, VARIABLE
from .views.shared_file import OUTPUT_VARIABLE

# Variables of playbooks that belong to no role.
PLAYBOOK_PREFIXES = (
    "vgpu_export_",
    "vgpu_fleet_",
    "vgpu_plan_",
    "vgpu_survey_",
    "vgpu_teardown_",
    "vsphere_gpu_cluster_",
)
# Variables that action plugins read.
PLUGIN_VARIABLES = (OUTPUT_VARIABLE, PROGRESS_VARIABLE, VARIABLE)
# Users may well have variables of their own with similar names, so a similar name is only worth a warning.
CONNECTION_VARIABLES = (
    "guest_kubeconfig",
    *(f"harvester_{option}" for option in ("api_key", "ca_cert", "context", "host", "kubeconfig")),
    *(f"vcenter_{option}" for option in ("hostname", "password", "port", "username", "validate_certs")),
)
# The largest number of wrong, missing or additional characters that still counts as a misspelt name.
MOST_TYPOS = 2
# The folders of a role that name its variables.
PARTS = ("tasks", "vars", "defaults", "meta")
WORD = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")


class UnknownVariable(FleetError):
    code = "unknown_variable"


@dataclass(frozen=True)
class Names:
    """The variables of the collection.

    `used` also contains facts that roles set. `documented` contains what a user can set, for suggestions.
    """

    prefixes: tuple[str, ...]
    used: frozenset[str]
    documented: frozenset[str]


@cache
def names_of(collection: Path) -> Names:
    """Read the variables of all roles and playbooks of the installed collection."""
    roles = sorted(path.name for path in (collection / "roles").iterdir() if path.is_dir())
    texts = [
        path.read_text(encoding="utf-8")
        for folder in ("playbooks", "playbooks/tasks", *(f"roles/{role}/{part}" for role in roles for part in PARTS))
        for path in sorted((collection / folder).glob("*.yml"))
    ]
    used = frozenset(word for text in texts for word in WORD.findall(text)).union(PLUGIN_VARIABLES)
    prefixes = (*(f"{role}_" for role in roles), *PLAYBOOK_PREFIXES)
    documented = {option for role in roles for option in _options(collection / "roles" / role)}
    documented.update(word for word in used if word.startswith(PLAYBOOK_PREFIXES))
    return Names(prefixes, used, frozenset(documented))


def _options(role: Path) -> Iterable[str]:
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text(encoding="utf-8"))
    return [option for entry in spec["argument_specs"].values() for option in entry.get("options", {})]


def check_names(
    variables: Iterable[str], names: Names, *, role: str | None = None, ignored: Collection[str] = ()
) -> list[str]:
    """Raise UnknownVariable for variables that have no effect, and return warnings about similar names.

    With `role`, check only the variables of that role.
    """
    prefixes = (f"{role}_",) if role else names.prefixes
    documented = {name for name in names.documented if name.startswith(prefixes)}
    unknown: dict[str, str] = {}
    warnings = []
    for name in sorted(set(variables) - names.used - set(ignored)):
        # Roles begin the names of their own variables with two underscores.
        if name.startswith(("ansible_", "__")):
            continue
        if name.startswith(prefixes):
            unknown[name] = next(iter(did_you_mean(name, documented, limit=1)), "")
        elif meant := closest(name, documented):
            unknown[name] = meant
        elif not role and (meant := closest(name, CONNECTION_VARIABLES)):
            warnings.append(f"The variable {name} has no effect in this collection. Did you mean {meant}?")
    if unknown:
        raise UnknownVariable(
            " ".join(_described(name, meant) for name, meant in unknown.items()) + " Nothing was changed.",
            hint="List variables that serve another purpose in vgpu_fleet_ignored_variables.",
        )
    return warnings


def _described(name: str, meant: str) -> str:
    return f"The variable {name} is unknown." + (f" Did you mean {meant}?" if meant else "")


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that differs by at most MOST_TYPOS characters, or an empty text."""
    found = [(count, other) for other in known if (count := typos(name, other)) <= MOST_TYPOS]
    return min(found)[1] if found else ""


def typos(first: str, second: str) -> int:
    """Count the characters to change, insert or remove, up to MOST_TYPOS + 1."""
    if abs(len(first) - len(second)) > MOST_TYPOS:
        return MOST_TYPOS + 1
    row = list(range(len(second) + 1))
    for position, character in enumerate(first, start=1):
        previous, row = row, [position]
        for column, other in enumerate(second, start=1):
            row.append(min(row[-1] + 1, previous[column] + 1, previous[column - 1] + (character != other)))
        if min(row) > MOST_TYPOS:
            return MOST_TYPOS + 1
    return min(row[-1], MOST_TYPOS + 1)
