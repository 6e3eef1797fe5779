# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.errors import FleetError
from ..plugin_utils.views.page import plan_page
from ..plugin_utils.views.plan import fleet_plan
from ..plugin_utils.views.shared_file import output_folder, output_path, rewrite

ARGUMENTS = {
    "results": {"type": "raw", "required": True},
    "info": {"type": "dict", "required": True},
    "availability": {"type": "dict"},
    "layout": {"type": "list", "elements": "dict", "default": []},
    "cluster": {"type": "str"},
    "html": {"type": "path"},
}


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action that describes the changes of a dry run as text and as a page. Check mode writes the page too."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(ARGUMENTS)

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, args = self.validate_argument_spec(argument_spec=ARGUMENTS)
        cluster = args["cluster"] or str((task_vars or {}).get("inventory_hostname", ""))
        result["changed"] = False
        try:
            plan = fleet_plan(
                args["results"],
                args["info"],
                layout=args["layout"],
                cluster=cluster,
                availability=args["availability"],
            )
            result.update({key: plan[key] for key in ("summary", "lines", "steps", "stops", "waits", "notes")}, file="")
            if args["html"]:
                now, run = time.time(), this_run()
                page = output_path(args["html"], output_folder(self._templar, task_vars))
                result["file"] = rewrite(page, lambda existing: plan_page(plan, now, run=run, existing=existing))
        except FleetError as error:
            result.update(failed=True, msg=str(error), error=error.as_dict())
        return result


def this_run() -> str:
    """Return an ID that all tasks of one ansible-playbook run share: the process that started the workers."""
    parent = os.getppid()
    try:
        started = os.stat(f"/proc/{parent}").st_ctime
    except OSError:
        started = 0.0
    return f"{parent}-{started}"
