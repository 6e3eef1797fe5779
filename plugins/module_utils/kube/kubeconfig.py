# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubeconfig documents for a known connection."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connection import ConnectionConfig

Json = dict[str, Any]

# The name of the cluster, user and context in a generated kubeconfig.
NAME = "vgpu-fleet"


def document(access: ConnectionConfig) -> Json:
    """Return a kubeconfig that contains one connection only."""
    cluster = {
        "server": access.host,
        "certificate-authority": access.ca_cert if access.verify else None,
        "certificate-authority-data": _encoded(access.ca_data) if access.verify and not access.ca_cert else None,
        "insecure-skip-tls-verify": None if access.verify else True,
        "tls-server-name": access.server_name,
        "proxy-url": access.proxy,
    }
    user = {
        "token": access.token,
        "username": access.basic[0] if access.basic and not access.token else None,
        "password": access.basic[1] if access.basic and not access.token else None,
        "client-certificate": access.client_cert,
        "client-key": access.client_key,
        "client-certificate-data": None if access.client_cert else _encoded(access.client_cert_data),
        "client-key-data": None if access.client_key else _encoded(access.client_key_data),
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "clusters": [{"name": NAME, "cluster": _given(cluster)}],
        "users": [{"name": NAME, "user": _given(user)}],
    }


def _encoded(data: bytes | None) -> str | None:
    return base64.b64encode(data).decode() if data else None


def _given(fields: Mapping[str, Any]) -> Json:
    return {key: value for key, value in fields.items() if value is not None}
