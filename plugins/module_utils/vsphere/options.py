# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connection options of the vSphere modules, with the names, aliases and environment variables of vmware.vmware."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.module_utils.basic import env_fallback


def _option(variable: str, **spec: Any) -> dict[str, Any]:
    return {"fallback": (env_fallback, [f"VMWARE_{variable}"]), **spec}


def connection_spec() -> dict[str, dict[str, Any]]:
    return {
        "hostname": _option("HOST", type="str"),
        "username": _option("USER", type="str", aliases=["user", "admin"]),
        "password": _option("PASSWORD", type="str", aliases=["pass", "pwd"], no_log=True),
        "port": _option("PORT", type="int", default=443),
        "validate_certs": _option("VALIDATE_CERTS", type="bool", default=True),
        "proxy_host": _option("PROXY_HOST", type="str"),
        "proxy_port": _option("PROXY_PORT", type="int"),
    }


def hosts_spec() -> dict[str, dict[str, Any]]:
    return {
        "datacenter": {"type": "str"},
        "cluster": {"type": "str"},
        "esxi_hosts": {"type": "list", "elements": "str"},
    }


def hosts_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that select hosts, as keyword arguments for the functions that read hosts."""
    return {name: params[name] for name in hosts_spec()}
