# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Mappings that may hold secrets, hidden as a whole.

`no_log` on a mapping makes Ansible search everything that a module returns for each single value of the mapping. A host
name or a number among them then masks names, ids and paths in the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

# What Ansible itself writes in place of a secret.
HIDDEN = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"


def conceal(module: AnsibleModule, option: str, suboption: str) -> None:
    """Replace a mapping among the module's parameters, and no longer search results for its values.

    Declare it with `no_log` all the same: that keeps it out of the log and of errors about the options. Call this once
    the parameters have been read and before anything is returned. Nothing may copy the mapping into a result.
    """
    given = module.params.get(option)
    value = given.get(suboption) if given else None
    if not isinstance(value, Mapping):
        # A text is only searched for as a whole, which does not mask anything else.
        return
    module.params[option] = {**given, suboption: HIDDEN}
    others = set(_secrets(module.argument_spec, module.params)) - {HIDDEN}
    module.no_log_values = (module.no_log_values - set(_values(value))) | others


def _secrets(spec: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[str]:
    """The values of all options that are secret."""
    for name, option in spec.items():
        value = params.get(name)
        if option.get("no_log"):
            yield from _values(value)
        elif option.get("options"):
            entries = value if isinstance(value, list) else [value]
            for entry in entries:
                if isinstance(entry, Mapping):
                    yield from _secrets(option["options"], entry)


def _values(value: Any) -> Iterator[str]:
    """Every value in a structure, as Ansible searches for it."""
    if isinstance(value, Mapping):
        for entry in value.values():
            yield from _values(entry)
    elif isinstance(value, (list, tuple, set)):
        for entry in value:
            yield from _values(entry)
    elif value is not None and not isinstance(value, bool) and str(value):
        yield str(value)
