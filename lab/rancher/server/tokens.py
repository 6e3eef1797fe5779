"""Rancher's tokens in kubeconfigs, and their expiry (rancher#44912, rancher#50266). Pure."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import yaml

from lab.kubernetes.client import Json

KUBECONFIG_PREFIX = "kubeconfig-"
CREDENTIAL_KUBECONFIG = "harvestercredentialConfig-kubeconfigContent"
TTL_SETTING, VERSION_SETTING = "kubeconfig-default-token-ttl-minutes", "server-version"
# Rancher's default of 30 days. From 2.12 on Rancher removes the expiry of tokens in Harvester credentials.
DEFAULT_TTL_MINUTES = "43200"
DEFAULT_VERSION = "v2.11.3"
ENDLESS_SINCE = (2, 12)


def body(name: str, user: str, minutes: int, now: datetime) -> Json:
    """Return a Token object, which never expires without a time to live."""
    expires = (now + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ") if minutes else ""
    return {
        "apiVersion": "management.cattle.io/v3",
        "kind": "Token",
        "metadata": {"name": name, "labels": {"authn.management.cattle.io/kind": "kubeconfig"}},
        "authProvider": "local",
        "description": "Kubeconfig token",
        "enabled": True,
        "expired": False,
        "expiresAt": expires,
        "isDerived": True,
        "ttl": minutes * 60_000,
        "userId": user,
    }


def is_expired(token: Json, now: datetime) -> bool:
    """Return whether a token has expired. A token without a time to live is always valid."""
    if not token.get("ttl") or not token.get("expiresAt"):
        return False
    return datetime.fromisoformat(token["expiresAt"]) <= now


def name_in(secret: Json) -> str:
    """Return the name of the token in the kubeconfig of a cloud credential, or an empty string."""
    encoded = (secret.get("data") or {}).get(CREDENTIAL_KUBECONFIG)
    content = yaml.safe_load(base64.b64decode(encoded)) if encoded else None
    for user in (content or {}).get("users") or []:
        name, _colon, _secret = str((user.get("user") or {}).get("token") or "").partition(":")
        if name.startswith(KUBECONFIG_PREFIX):
            return name
    return ""


def never_expire(version: str) -> bool:
    """Return whether tokens of Harvester credentials never expire in this release of Rancher."""
    major, minor = version.lstrip("v").split(".")[:2]
    return (int(major), int(minor)) >= ENDLESS_SINCE


def utc_now() -> datetime:
    return datetime.now(UTC)
