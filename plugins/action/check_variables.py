# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.errors import FleetError
from ..plugin_utils.variable_names import check_names, names_of

COLLECTION = Path(__file__).resolve().parents[2]
ARGUMENTS = {"ignore": {"type": "list", "elements": "str", "default": []}}


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action that refuses variables of the collection with a misspelt name."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(ARGUMENTS)

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        result["changed"] = False
        role = self._task._role
        try:
            warnings = check_names(
                task_vars or {},
                names_of(COLLECTION),
                role=Path(role._role_path).name if role else None,
                ignored=args["ignore"],
            )
        except FleetError as error:
            result.update(failed=True, msg=str(error), error=error.as_dict())
        else:
            if warnings:
                result["warnings"] = warnings
        return result
