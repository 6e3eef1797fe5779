# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Options that are mappings with possible secrets, hidden as a whole.

`no_log` on a mapping makes Ansible search everything that a module returns for each single value of the mapping. A host
name or a number among the values then masks names, ids and paths in the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

# The text that Ansible itself writes in place of a secret.
HIDDEN = "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER"


def conceal(module: AnsibleModule, option: str, suboption: str) -> None:
    """Replace a mapping in the module's parameters, and stop searching results for its values.

    Declare the mapping with `no_log` anyway: this keeps it out of the log and of errors about the options. Call this
    function after reading the parameters and before returning anything. Nothing may copy the mapping into a result.
    """
    given = module.params.get(option)
    value = given.get(suboption) if given else None
    if not isinstance(value, Mapping):
        # Ansible searches for a text only as a whole, which does not mask anything else.
        return
    module.params[option] = {**given, suboption: HIDDEN}
    others = set(_secrets(module.argument_spec, module.params)) - {HIDDEN}
    module.no_log_values = (module.no_log_values - set(_values(value))) | others


def _secrets(spec: Mapping[str, Any], params: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of all secret options."""
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
    """Yield every value of a structure in the form that Ansible searches for."""
    if isinstance(value, Mapping):
        for entry in value.values():
            yield from _values(entry)
    elif isinstance(value, (list, tuple, set)):
        for entry in value:
            yield from _values(entry)
    elif value is not None and not isinstance(value, bool) and str(value):
        yield str(value)
