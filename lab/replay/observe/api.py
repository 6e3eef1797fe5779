"""Send requests to the API server as recorded: raw paths, raw bodies, raw responses."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Json = dict[str, Any]

# The recordings were made with urllib: the API server names the field manager after the user agent.
USER_AGENT = "Python-urllib/3.11"
TIMEOUT = 60.0


@dataclass(frozen=True)
class Answer:
    status: int
    text: str
    warnings: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return 200 <= self.status < 300

    @property
    def object(self) -> Json | None:
        try:
            content = json.loads(self.text)
        except ValueError:
            return None
        return content if isinstance(content, dict) else None

    @property
    def reason(self) -> str | None:
        return (self.object or {}).get("reason")

    @property
    def message(self) -> str:
        content = self.object
        return self.text if content is None else str(content.get("message", ""))


class Api:
    def __init__(self, host: str, port: int, tls: ssl.SSLContext, token: str | None = None, prefix: str = "") -> None:
        self._host, self._port, self._tls = host, port, tls
        self._token = token
        # Rancher serves a cluster's API below a path of its own.
        self._prefix = prefix
        self._connection: http.client.HTTPSConnection | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path, context_name: str | None = None, *, server: str | None = None) -> Api:
        """`server` is another address of the same API server."""
        config = yaml.safe_load(path.read_text())
        cluster, user = sections(config, context_name)
        tls = ssl.create_default_context(cadata=_text(cluster, "certificate-authority", path.parent))
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        if certificate := _text(user, "client-certificate", path.parent):
            with tempfile.NamedTemporaryFile("w", suffix=".pem") as both:
                both.write(certificate + "\n" + (_text(user, "client-key", path.parent) or ""))
                both.flush()
                tls.load_cert_chain(both.name)
        address = urlsplit(server or cluster["server"])
        return cls(address.hostname or "", address.port or 443, tls, user.get("token"), address.path.rstrip("/"))

    def connect(self, timeout: float | None = TIMEOUT) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=timeout)

    def target(self, path: str) -> str:
        """What a request line names for a path of the API."""
        return self._prefix + path

    def headers(self, content_type: str | None = None) -> dict[str, str]:
        headers = {"User-Agent": USER_AGENT, "Accept": "application/json"}
        if content_type:
            headers["Content-Type"] = content_type
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def request(self, method: str, path: str, body: Any = None, content_type: str | None = None) -> Answer:
        payload = None
        if body is not None:
            payload = (body if isinstance(body, str) else json.dumps(body)).encode()
            content_type = content_type or "application/json"
        for attempt in (1, 2):
            fresh = self._connection is None
            connection = self._connection = self._connection or self.connect()
            try:
                connection.request(method, self.target(path), body=payload, headers=self.headers(content_type))
                response = connection.getresponse()
                return Answer(
                    response.status, response.read().decode(), tuple(response.headers.get_all("Warning") or ())
                )
            except (OSError, http.client.HTTPException):
                connection.close()
                self._connection = None
                # A kept connection may have been closed by the other side; a new one that fails is a real error.
                if fresh or attempt == 2:
                    raise
        raise AssertionError("unreachable")

    def get(self, path: str) -> Json | None:
        answer = self.request("GET", path)
        return answer.object if answer.accepted else None

    def close(self) -> None:
        if self._connection:
            self._connection.close()
            self._connection = None


def sections(config: Json, context_name: str | None = None) -> tuple[Json, Json]:
    """Return the cluster and the user of a context in a kubeconfig, by default of the current context."""
    wanted = context_name or config["current-context"]
    context = next(entry["context"] for entry in config["contexts"] if entry["name"] == wanted)
    cluster = next(entry["cluster"] for entry in config["clusters"] if entry["name"] == context["cluster"])
    user = next(entry["user"] for entry in config["users"] if entry["name"] == context["user"])
    return cluster, user


def _text(section: Json, key: str, base: Path) -> str | None:
    if f"{key}-data" in section:
        return base64.b64decode(section[f"{key}-data"]).decode()
    return (base / section[key]).read_text() if key in section else None
