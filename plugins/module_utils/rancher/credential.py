# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Cloud credentials for Harvester: their Rancher token and its expiry. Pure.

A credential contains a kubeconfig, and the kubeconfig a token of Rancher. From Rancher 2.8 to 2.11 such a token expires
after 30 days by default (setting kubeconfig-default-token-ttl-minutes). Rancher can then neither create nor delete
machines. From 2.12 on Rancher sets the time to live of these tokens to zero, and leaves the expiry in the object.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from . import ownership

Json = dict[str, Any]

KUBECONFIG = "harvestercredentialConfig-kubeconfigContent"
TOKEN_PREFIX = "kubeconfig-"
DEFAULT_DAYS = 10
# In these states the token has to be renewed.
RENEWED = ("expired", "expiring")


def credentials(
    secrets: Iterable[Mapping[str, Any]],
    *,
    now: datetime,
    tokens: Sequence[Mapping[str, Any]] | str | None = None,
    days: int = DEFAULT_DAYS,
    owner: str = "",
) -> list[Json]:
    """Return one record for each credential. Without a list of `tokens`, their expiry is unknown."""
    known: dict[str, Mapping[str, Any]] | None = None
    # Up to ansible-core 2.18 a template that yields None is an empty string.
    if tokens is not None and not isinstance(tokens, str):
        known = {str(token["metadata"]["name"]): token for token in tokens}
    return [
        _record(secret, known, now=now, days=days, owner=owner)
        for secret in secrets
        if KUBECONFIG in (secret.get("data") or {})
    ]


def _record(
    secret: Mapping[str, Any], tokens: Mapping[str, Mapping[str, Any]] | None, *, now: datetime, days: int, owner: str
) -> Json:
    metadata = secret["metadata"]
    name, token = f"{metadata['namespace']}/{metadata['name']}", _token_name(secret)
    state, expires = _state(token, tokens, now, days)
    return {
        "name": name,
        "token": token or None,
        "state": state,
        "expires": expires,
        "renew": state in RENEWED and ownership.is_ours(secret, owner),
        "text": _text(name, state, expires, has_token=bool(token)),
    }


def _token_name(secret: Mapping[str, Any]) -> str:
    """Return the name of the token in the kubeconfig: the part before the colon, and the name of the Token object."""
    import yaml

    try:
        content = yaml.safe_load(base64.b64decode(secret["data"][KUBECONFIG]))
    except (binascii.Error, UnicodeDecodeError, ValueError, yaml.YAMLError):
        return ""
    users = content.get("users") if isinstance(content, Mapping) else None
    for user in users if isinstance(users, list) else ():
        token = str(((user or {}).get("user") or {}).get("token") or "")
        name, colon, _secret = token.partition(":")
        if colon and name.startswith(TOKEN_PREFIX):
            return name
    return ""


def _state(
    name: str, tokens: Mapping[str, Mapping[str, Any]] | None, now: datetime, days: int
) -> tuple[str, str | None]:
    if not name or tokens is None:
        return "unknown", None
    token = tokens.get(name)
    if token is None:
        # Rancher deletes tokens some time after they have expired.
        return "expired", None
    text = str(token.get("expiresAt") or "")
    ttl = int(token.get("ttl") or 0)
    if not ttl or not text:
        return "endless", None
    try:
        expires = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return "unknown", None
    if expires.tzinfo is None:
        expires = expires.replace(tzinfo=timezone.utc)
    if expires <= now:
        return "expired", text
    # A token that lives shorter than this would be renewed by every run.
    ahead = min(timedelta(days=days), timedelta(milliseconds=ttl) / 3)
    return ("expiring" if expires <= now + ahead else "valid"), text


def _text(name: str, state: str, expires: str | None, *, has_token: bool) -> str:
    if state == "expired":
        when = f" since {expires}" if expires else ", and Rancher has deleted it"
        return (
            f"The token in cloud credential {name} has expired{when}: Rancher can neither create nor delete machines"
            " with it."
        )
    if state == "expiring":
        return f"The token in cloud credential {name} expires at {expires}. After that Rancher cannot change machines."
    if state == "unknown":
        why = "the tokens of Rancher cannot be read" if has_token else "it holds no kubeconfig token of Rancher"
        return f"It is unknown when cloud credential {name} expires: {why}."
    return f"Cloud credential {name} is valid{f' until {expires}' if expires else ' without end'}."


def findings(records: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Return the findings of a drift check: credentials that have expired or expire soon."""
    return [
        {"kind": f"credential_{record['state']}", "device": record["name"], "text": record["text"], "repair": ""}
        for record in records
        if record["state"] in RENEWED
    ]
