# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Connection for modules of kubernetes.core that does not pass any secret as an argument.

When such a module cannot reach its API server, the action plugin of kubernetes.core returns the task's arguments
unchanged. Variables in `environment` do not help: from -vvv on, Ansible prints them with the command that it runs.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import FleetError
from ..redaction import secrets
from . import connection as accesses, kubeconfig
from .connection import BadConnection, ConnectionConfig

FOLDER = "vgpu-fleet-session-"
FILE = "kubeconfig"

# Options without secrets that a kubeconfig cannot contain or that override it.
PASSED_ON = (
    "ca_cert",
    "validate_certs",
    "proxy",
    "no_proxy",
    "persist_config",
    "impersonate_user",
    "impersonate_groups",
)


class NotASession(FleetError):
    code = "not_a_session"


@dataclass(frozen=True)
class Session:
    """The options for kubernetes.core, and the content of the kubeconfig that they name. None means no file."""

    options: Mapping[str, Any]
    content: Mapping[str, Any] | None = None


def prepare(given: Mapping[str, Any], access: ConnectionConfig, environment: Mapping[str, str]) -> Session:
    """Prepare the session for a connection. `access` is the connection that the options lead to."""
    given = {option: value for option, value in given.items() if value is not None}
    headers = given.get("proxy_headers") or {}
    if any(headers.get(name) for name in ("proxy_basic_auth", "basic_auth")):
        raise BadConnection(
            "proxy_headers with a password cannot be passed to the modules of kubernetes.core without showing it.",
            hint="Set K8S_AUTH_PROXY_HEADERS_PROXY_BASIC_AUTH or K8S_AUTH_PROXY_HEADERS_BASIC_AUTH in the environment "
            "that Ansible runs in.",
        )
    if not _has_secrets(given):
        return Session({**given, **_overrides(given, access, environment)} if accesses.is_complete(given) else given)
    shown = {option: given[option] for option in PASSED_ON if option in given}
    options = {option: value for option, value in shown.items() if not secrets({option: value})}
    content = _content(accesses.completed(given, environment), access)
    overrides = _overrides(options, access, environment, content["current-context"])
    return Session({**options, **overrides}, content)


def _has_secrets(given: Mapping[str, Any]) -> bool:
    mapping = isinstance(given.get("kubeconfig"), Mapping)
    return mapping or bool(given.get("api_key") or given.get("password") or secrets(given))


def _content(given: Mapping[str, Any], access: ConnectionConfig) -> Mapping[str, Any]:
    source = given.get("kubeconfig")
    if isinstance(source, Mapping) and accesses.runs_a_program(source, given.get("context")):
        # The program may have to renew the credentials, so keep it in the kubeconfig.
        return {**source, "current-context": given.get("context") or source.get("current-context")}
    return kubeconfig.document(access)


def _overrides(
    options: Mapping[str, Any], access: ConnectionConfig, environment: Mapping[str, str], context: str | None = None
) -> dict[str, Any]:
    """Return the options that keep kubernetes.core from using environment variables of another cluster.

    An empty api_key does not hide the token of the kubeconfig: the client reads the token again for each request.
    """
    certificate = access.client_cert or access.client_cert_data
    values: dict[str, Any] = {"host": access.host, "api_key": "", "username": "", "password": ""}
    if not certificate:
        values |= {"client_cert": "", "client_key": ""}
    if context:
        values["context"] = context
    values["validate_certs"] = access.verify
    if access.ca_cert:
        values["ca_cert"] = access.ca_cert
    names = {**accesses.IDENTITY, **accesses.VERIFICATION}
    return {
        option: values[option]
        for variable, option in names.items()
        if environment.get(variable) and option in values and options.get(option) in (None, "")
    }


def write(content: Mapping[str, Any]) -> Path:
    """Write the kubeconfig. Folder and file are accessible only to the user that runs the module."""
    path = Path(tempfile.mkdtemp(prefix=FOLDER)) / FILE
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file)
    return path


def remove(path: Path) -> None:
    """Remove a kubeconfig that `write` has created, if it still exists. Refuse any other file."""
    if path.name != FILE or not path.parent.name.startswith(FOLDER):
        raise NotASession(
            f"{path} is not a kubeconfig that kubernetes_session has written, so it stays.",
            hint="Give the path that the module returned.",
        )
    shutil.rmtree(path.parent, ignore_errors=True)
