# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connection options of a module that serves both platforms.

Some options have one name and two environment variables. Which variable applies depends on the platform.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible.module_utils.parsing.convert_bool import boolean

from .fleet.model import HARVESTER, VSPHERE
from .kube.options import connection_spec as harvester_spec
from .vsphere.options import connection_spec as vsphere_spec

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

PLATFORMS = {HARVESTER: harvester_spec, VSPHERE: vsphere_spec}


def connection_spec() -> dict[str, dict[str, Any]]:
    """Return the options of both platforms. Options of the same name have all aliases and differ in nothing else."""
    specs = [spec() for spec in PLATFORMS.values()]
    merged: dict[str, dict[str, Any]] = {}
    for spec in specs:
        for name, option in spec.items():
            if name in merged:
                aliases = [*merged[name].get("aliases", []), *option.get("aliases", [])]
                merged[name] = {
                    "type": option["type"],
                    "no_log": option.get("no_log", False),
                    **({"aliases": aliases} if aliases else {}),
                }
            else:
                merged[name] = option
    return merged


def connection_options(module: AnsibleModule, platform: str) -> Mapping[str, Any]:
    """Return the module's options, completed from the platform's environment variables and defaults."""
    params = dict(module.params)
    for name, option in PLATFORMS[platform]().items():
        if params[name] is None:
            params[name] = _fallback(option)
            if option.get("no_log") and params[name]:
                module.no_log_values.add(params[name])
    return params


def _fallback(option: Mapping[str, Any]) -> Any:
    for variable in option.get("fallback", (None, []))[1]:
        if variable in os.environ:
            value = os.environ[variable]
            return boolean(value) if option.get("type") == "bool" else value
    return option.get("default")
