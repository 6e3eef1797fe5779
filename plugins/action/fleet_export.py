# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase

from ..module_utils.errors import FleetError
from ..module_utils.fleet.model import HARVESTER, VSPHERE
from ..plugin_utils.views.document import document
from ..plugin_utils.views.metrics import Samples, capacity_samples, drift_samples, exposition
from ..plugin_utils.views.page import map_page
from ..plugin_utils.views.record import fleet_record
from ..plugin_utils.views.shared_file import output_folder, output_path, rewrite

ARGUMENTS = {
    "cluster": {"type": "str"},
    "platform": {"type": "str", "choices": [HARVESTER, VSPHERE]},
    "info": {"type": "dict"},
    "availability": {"type": "dict"},
    "findings": {"type": "list", "elements": "dict"},
    "metrics": {"type": "path"},
    "json": {"type": "path"},
    "html": {"type": "path"},
}

PATHS = ("metrics", "json", "html")


class ActionModule(ActionBase):  # type: ignore[misc]
    """The action that writes the data of a cluster to files on the controller. The task never reports a change."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(ARGUMENTS)

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validated, args = self.validate_argument_spec(
            argument_spec=ARGUMENTS,
            required_one_of=[("info", "findings"), ("metrics", "json", "html")],
            required_by={"json": ("info",), "html": ("info",), "findings": ("platform",)},
        )
        folder = output_folder(self._templar, task_vars)
        args = {name: output_path(value, folder) if name in PATHS and value else value for name, value in args.items()}
        cluster = args["cluster"] or str((task_vars or {}).get("inventory_hostname", ""))
        result["changed"] = False
        try:
            result["files"] = self._write(args, cluster, time.time())
        except FleetError as error:
            result.update(failed=True, msg=str(error), error=error.as_dict())
        return result

    def _write(self, args: Mapping[str, Any], cluster: str, now: float) -> list[str]:
        files: list[str] = []
        record = fleet_record(args["info"], args["availability"], cluster=cluster) if args["info"] else None
        platform = record["platform"] if record else args["platform"]
        dry_run = bool(self._task.check_mode)
        if args["metrics"]:
            samples: Samples = capacity_samples(record, now) if record else {}
            if args["findings"] is not None:
                samples.update(drift_samples(args["findings"], now, cluster=cluster, platform=platform))
            files.append(
                rewrite(
                    args["metrics"],
                    lambda existing: exposition(samples, existing, cluster=cluster, platform=platform),
                    dry_run=dry_run,
                )
            )
        if args["json"] and record:
            files.append(rewrite(args["json"], lambda existing: document(record, now, existing), dry_run=dry_run))
        if args["html"] and record:
            files.append(rewrite(args["html"], lambda existing: map_page(record, now, existing), dry_run=dry_run))
        return files
