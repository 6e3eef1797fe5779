"""Collect the credentials of a connection, none of which may appear in a recording."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from lab.replay.observe.api import sections

SECRET_KEYS = ("token", "password", "client-key-data", "client-certificate-data", "certificate-authority-data")


def secrets_of(kubeconfig: Path, context: str | None = None) -> set[str]:
    cluster, user = sections(yaml.safe_load(kubeconfig.read_text()), context)
    secrets = {str(section[key]) for section in (cluster, user) for key in SECRET_KEYS if section.get(key)}
    secrets |= {decoded for text in secrets if (decoded := _decoded(text))}
    server = urlsplit(str(cluster.get("server", "")))
    # Loopback is nobody's address.
    if server.hostname and server.hostname not in ("localhost", "127.0.0.1"):
        secrets.add(server.hostname)
    return secrets


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
