# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secret values in a module's options that Ansible's no_log would hide too broadly or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

# Environment variables of secret options, which are read after Ansible has processed the options.
SECRET_VARIABLES = ("K8S_AUTH_API_KEY", "K8S_AUTH_PASSWORD")
HIDDEN = "********"
USER_SECRETS = ("token", "password", "client-key-data")
# Settings of authentication providers and variables of credential programs have no fixed names.
SECRET_NAME = re.compile(r"token|secret|passw|key|credential", re.IGNORECASE)


class HiddenKubeconfig(dict[str, Any]):
    """A kubeconfig whose printed form hides its content, because Ansible logs module options to the system log."""

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


class KubeconfigType(str):
    """The documented option type `raw`, which hides a mapping and leaves a path unchanged."""

    def __call__(self, value: Any) -> Any:
        return HiddenKubeconfig(value) if isinstance(value, Mapping) else value


KUBECONFIG_TYPE = KubeconfigType("raw")


def secrets(params: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> set[str]:
    """Return the secret values in connection options that are not secret as a whole."""
    found = set(_secrets_of_kubeconfig(params.get("kubeconfig")))
    found.update(value for name in SECRET_VARIABLES if (value := (environment or {}).get(name, "").strip()))
    if proxy := params.get("proxy"):
        found.update(_password(proxy))
    return found


def _secrets_of_kubeconfig(content: Any) -> Iterator[str]:
    """Yield only secret values: hiding a name such as `default` would hide it in every result."""
    for entry in _mappings(content, "users"):
        user = entry.get("user")
        if not isinstance(user, Mapping):
            continue
        for key in USER_SECRETS:
            yield from _texts(user.get(key))
        provider = user.get("auth-provider")
        settings = provider.get("config") if isinstance(provider, Mapping) else None
        for key, value in settings.items() if isinstance(settings, Mapping) else ():
            if SECRET_NAME.search(str(key)):
                yield from _texts(value)
        program = user.get("exec")
        for variable in _mappings(program, "env"):
            if SECRET_NAME.search(str(variable.get("name"))):
                yield from _texts(variable.get("value"))
    for entry in _mappings(content, "clusters"):
        cluster = entry.get("cluster")
        if isinstance(cluster, Mapping) and cluster.get("proxy-url"):
            yield from _password(cluster["proxy-url"])


def _mappings(content: Any, key: str) -> Iterator[Mapping[str, Any]]:
    entries = content.get(key) if isinstance(content, Mapping) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping):
            yield entry


def _texts(value: Any) -> Iterator[str]:
    # YAML parses a token of digits as a number.
    if isinstance(value, (str, int, float)) and not isinstance(value, bool) and str(value).strip():
        yield str(value).strip()


def _password(url: Any) -> Iterator[str]:
    try:
        password = urlsplit(str(url)).password
    except ValueError:
        password = None
    if password:
        yield from {password, unquote(password)}
