# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

# Programs read the output of these callbacks; plain lines would break it.
STRUCTURED_OUTPUT = ("json", "jsonl")


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action that prints plain lines. Ansible's callbacks print messages as JSON or YAML, which breaks tables."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("lines", "title"))

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        spec = {"lines": {"type": "list", "elements": "str", "required": True}, "title": {"type": "str", "default": ""}}
        _validated, args = self.validate_argument_spec(argument_spec=spec)
        title = [args["title"]] if args["title"] else []
        lines = [line.rstrip() for text in [*title, *args["lines"]] for line in text.split("\n")]
        result["changed"] = False
        if self._task.no_log:
            return result
        if is_structured_output():
            result["lines"] = lines
        else:
            # Print all lines at once, so that lines of other hosts do not get in between.
            Display().display("\n".join(lines))
        return result


def is_structured_output() -> bool:
    """Return whether a program reads standard output. ansible-runner wraps the callback that the user chose."""
    chosen = os.environ.get("ORIGINAL_STDOUT_CALLBACK") or constants.DEFAULT_STDOUT_CALLBACK
    return str(chosen).rpartition(".")[2] in STRUCTURED_OUTPUT
