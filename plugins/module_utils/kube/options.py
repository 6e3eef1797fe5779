# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connection options of the Harvester modules: names, aliases and environment variables of kubernetes.core."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.basic import env_fallback

from ..redaction import KUBECONFIG_TYPE


def _option(variable: str, **spec: Any) -> dict[str, Any]:
    return {"fallback": (env_fallback, [f"K8S_AUTH_{variable}"]), **spec}


def connection_spec() -> dict[str, dict[str, Any]]:
    """Return the connection options. Unset options can come from the environment: see `connection`."""
    return {
        "kubeconfig": {"type": KUBECONFIG_TYPE},
        "context": {"type": "str"},
        "host": {"type": "str"},
        "api_key": {"type": "str", "no_log": True},
        "username": {"type": "str"},
        "password": {"type": "str", "no_log": True},
        "client_cert": {"type": "path", "aliases": ["cert_file"]},
        "client_key": {"type": "path", "aliases": ["key_file"], "no_log": False},
        "ca_cert": {"type": "path", "aliases": ["ssl_ca_cert"]},
        "validate_certs": {"type": "bool", "aliases": ["verify_ssl"]},
        "proxy": _option("PROXY"),
        "no_proxy": _option("NO_PROXY"),
        "proxy_headers": {
            "type": "dict",
            "options": {
                "proxy_basic_auth": _option("PROXY_HEADERS_PROXY_BASIC_AUTH", no_log=True),
                "basic_auth": _option("PROXY_HEADERS_BASIC_AUTH", no_log=True),
                "user_agent": _option("PROXY_HEADERS_USER_AGENT"),
            },
        },
        "persist_config": _option("PERSIST_CONFIG", type="bool"),
        "impersonate_user": _option("IMPERSONATE_USER"),
        "impersonate_groups": _option("IMPERSONATE_GROUPS", type="list", elements="str"),
        "harvester_version": {"type": "str"},
    }


def waiting_spec() -> dict[str, dict[str, Any]]:
    return {
        "wait": {"type": "bool", "default": True},
        "wait_timeout": {"type": "int"},
        **fail_fast_spec(),
    }


def fail_fast_spec() -> dict[str, dict[str, Any]]:
    return {"fail_fast": {"type": "bool", "default": True}}
