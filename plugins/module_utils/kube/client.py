# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Client for the Kubernetes API: raw JSON on fixed paths, with typed errors."""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from ..errors import FleetError
from .connection import BadConnection, ConnectionConfig, MissingLibrary

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
# A few parallel writes are sufficient: the controllers behind the API handle five requests a second.
CONNECTIONS = 8
RETRIES = 5
DENIAL = "denied the request"
# The server states that it did not process the request, so any request may be sent again.
NOT_DONE = (429, 503)
# The server or a proxy in front of it fails, perhaps only for a moment. Writes are not sent again: it is unknown
# whether they were carried out, and a webhook's refusal is a 500 as well (harvester.md 10.1).
IN_TROUBLE = (500, 502, 504)


class ApiError(FleetError):
    """An error response of the API server."""

    code = "api_error"
    # Whether the connection of an earlier attempt ended without an answer, so that attempt may have been carried out.
    repeated = False

    def __init__(self, message: str, *, status: int, reason: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.reason = reason


class NotFound(ApiError):
    code = "not_found"


class Conflict(ApiError):
    code = "conflict"


class AdmissionDenied(ApiError):
    """A refusal by an admission webhook. The status is HTTP 500, and a retry does not help (harvester.md 10.1)."""

    code = "denied"

    @property
    def text(self) -> str:
        """Return the webhook's own message, without the API server's prefix."""
        return self.message.split(": ", 1)[-1].rstrip(".")


class Forbidden(ApiError):
    code = "forbidden"


class Unauthorized(ApiError):
    code = "unauthorized"


class NotKubernetes(BadConnection):
    """The server that answers is not a Kubernetes API server."""

    code = "not_kubernetes"


class ConnectionBroken(BadConnection):
    """The server was reached, and the connection ended before the answer."""


class ApiClient:
    def __init__(self, access: ConnectionConfig, *, fail_fast: bool = True) -> None:
        try:
            import urllib3
        except ImportError as error:
            raise MissingLibrary("urllib3", "The connection to an API server") from error
        if str(getattr(urllib3, "__version__", "")).startswith("1."):
            # Version 1 cannot verify the certificate of a server that is given by its IP address.
            raise MissingLibrary("urllib3>=2.0.2", "The connection to an API server")
        self._access = access
        # Whether waits end as soon as a cause is certain.
        self.fail_fast = fail_fast
        self._transport_errors = urllib3.exceptions.HTTPError
        self._breaks = urllib3.exceptions.ProtocolError
        self._turns = threading.BoundedSemaphore(CONNECTIONS)
        self._reached = False
        # Seconds by which the server's clock is ahead of the local one.
        self._ahead = 0.0
        settings: dict[str, Any] = {
            "maxsize": CONNECTIONS,
            "headers": _headers(access),
            "retries": False,
        }
        if access.host.startswith("https://"):
            settings["ssl_context"] = access.tls()
            if access.server_name:
                settings["server_hostname"] = access.server_name
            if not access.verify:
                settings["assert_hostname"] = False
                settings["cert_reqs"] = "CERT_NONE"
                urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        if access.proxy and not _bypasses_proxy(access):
            self._pool: Any = _proxied(access, access.proxy, settings)
        else:
            self._pool = urllib3.PoolManager(**settings)
        self._base = access.host.rstrip("/")

    @property
    def host(self) -> str:
        return self._base

    def get(self, path: str, **query: str) -> Json:
        return self._request("GET", path, query=query)

    def get_or_none(self, path: str) -> Json | None:
        try:
            return self.get(path)
        except NotFound:
            return None

    def patch(self, path: str, body: Any, *, dry_run: bool = False, content_type: str = MERGE_PATCH) -> Json:
        query = {"dryRun": "All"} if dry_run else {}
        return self._request("PATCH", path, query=query, body=body, content_type=content_type)

    def put(self, path: str, body: Any) -> Json:
        return self._request("PUT", path, body=body)

    def act(self, path: str) -> None:
        """Post to a subresource, such as KubeVirt's restart. Its answer is plain text or empty."""
        self._answer("PUT", path, {}, {}, "application/json", accept="*/*", repeatable=False)

    def post(self, path: str, body: Any, *, dry_run: bool = False) -> Json:
        return self._request("POST", path, query={"dryRun": "All"} if dry_run else {}, body=body)

    def delete(self, path: str, *, uid: str = "", dry_run: bool = False) -> Json:
        """Delete an object. With `uid`, a new object that somebody else made under the same name stays."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}} if uid else None
        return self._request("DELETE", path, query={"dryRun": "All"} if dry_run else {}, body=body)

    def together(self, calls: list[Callable[[], Any]]) -> list[Any]:
        """Run calls in parallel. Raise the first error once all calls have ended."""
        if len(calls) == 1:
            return [calls[0]()]
        with ThreadPoolExecutor(max_workers=CONNECTIONS) as pool:
            futures = [pool.submit(call) for call in calls]
        return [future.result() for future in futures]

    def watch(
        self, path: str, revision: str, seconds: float, *, opened: Callable[[], None] | None = None
    ) -> Iterator[Json]:
        """Yield the events since a revision, for at most `seconds`. Call `opened` once the server accepts the watch."""
        query = {
            "watch": "1",
            "resourceVersion": revision,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(max(1, int(seconds))),
        }
        answer = self._send("GET", path, query, None, "", stream=True, timeout=seconds + 10)
        try:
            if answer.status >= 400:
                raise _error(answer.status, answer.data, "watch", path)
            if answer.status >= 300:
                raise _not_kubernetes(answer, self._base)
            if opened:
                opened()
            pending = b""
            for chunk in answer.stream(amt=None if getattr(answer, "chunked", True) else 65536, decode_content=True):
                pending += chunk
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    if line.strip():
                        yield _parsed(line, answer, self._base)
        finally:
            answer.close()

    def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Json:
        answer = self._answer(method, path, query or {}, body, content_type, repeatable=method != "POST")
        return _parsed(answer.data, answer, self._base) if answer.data else {}

    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str,
        *,
        repeatable: bool,
        accept: str | None = None,
    ) -> Any:
        """Return a successful answer. A request is `repeatable` if sending it twice does no harm."""
        unanswered = False
        for attempt in range(RETRIES + 1):
            try:
                with self._turns:
                    answer = self._send(
                        method, path, query, body, content_type, accept=accept, stream=False, timeout=60
                    )
            except BadConnection as error:
                # A server that has answered before may be restarting.
                there = self._reached or isinstance(error, ConnectionBroken)
                if not there or not repeatable or attempt == RETRIES:
                    raise
                unanswered = True
                time.sleep(_backoff(attempt))
                continue
            if 300 <= answer.status < 400:
                raise _not_kubernetes(answer, self._base)
            self._reached = True
            self._note_time(answer)
            if answer.status < 400:
                return answer
            again = (*NOT_DONE, *IN_TROUBLE) if method == "GET" else NOT_DONE
            if answer.status in again and attempt < RETRIES:
                time.sleep(_pause(answer, attempt))
                continue
            failure = _error(answer.status, answer.data, _verb(method, path), path)
            if isinstance(failure, ApiError):
                failure.repeated = unanswered
            raise failure
        raise AssertionError("unreachable")

    @property
    def now(self) -> float:
        """Return the server's time, based on its last answer with a date: the local clock may be wrong."""
        return time.time() + self._ahead

    def _note_time(self, answer: Any) -> None:
        # Answers of HTTP/1.0 servers and of some proxies have no date.
        date = str(getattr(answer, "headers", {}).get("Date") or "")
        with suppress(TypeError, ValueError):
            self._ahead = parsedate_to_datetime(date).timestamp() - time.time()

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str,
        *,
        stream: bool,
        timeout: float,
        accept: str | None = None,
    ) -> Any:
        url = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = self._pool.headers.copy()
        if accept:
            headers["Accept"] = accept
        if body is not None:
            headers["Content-Type"] = content_type
        try:
            return self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                preload_content=not stream,
                timeout=timeout,
            )
        except self._transport_errors as error:
            kind = ConnectionBroken if isinstance(error, self._breaks) else BadConnection
            raise kind(
                f"The API server at {self._base} cannot be reached: {_cause(error)}.",
                hint="Check host, proxy and certificates.",
            ) from error
        except (ValueError, TypeError) as error:
            # An invalid header, URL or host name. The text of the error could contain credentials.
            raise BadConnection(
                f"The request to {self._base} cannot be sent: a connection setting is not valid "
                f"({type(error).__name__}).",
                hint="Check host, proxy, proxy_headers and the credentials for characters that do not belong there.",
            ) from error


def _proxied(access: ConnectionConfig, proxy: str, settings: dict[str, Any]) -> Any:
    import urllib3

    shown = proxy.rsplit("@", 1)[-1]
    try:
        url = urllib3.util.parse_url(proxy)
        if (url.scheme or "").startswith("socks"):
            return _socks_proxied(proxy, settings)
        given: dict[str, Any] = dict(access.proxy_headers)
        if url.auth and not given.get("proxy_basic_auth"):
            # urllib3 does not send the user and password of a proxy's URL by itself.
            given["proxy_basic_auth"] = unquote(url.auth)
        return urllib3.ProxyManager(proxy, proxy_headers=urllib3.make_headers(**given), **settings)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise BadConnection(
            f"The proxy {shown!r} cannot be used: it is not the URL of an HTTP or SOCKS proxy.",
            hint="Write it as http://name:3128 or socks5h://name:1080.",
        ) from error


def _socks_proxied(proxy: str, settings: dict[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            # The import warns about the missing package, which the error below reports.
            warnings.simplefilter("ignore")
            from urllib3.contrib.socks import SOCKSProxyManager
    except ImportError as error:
        raise MissingLibrary("PySocks", "A SOCKS proxy") from error
    return SOCKSProxyManager(proxy, **settings)


def _parsed(data: bytes, answer: Any, base: str) -> Json:
    try:
        content = json.loads(data)
    except ValueError as error:
        raise _not_kubernetes(answer, base) from error
    if not isinstance(content, dict):
        raise _not_kubernetes(answer, base)
    return _without_nulls(content) if b"null" in data else content


def _without_nulls(value: Any) -> Any:
    """Return a value without the nulls inside: to Kubernetes, a field that is null and one that is absent are equal."""
    if isinstance(value, dict):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value if inner is not None]
    return value


def _not_kubernetes(answer: Any, base: str) -> NotKubernetes:
    """Return the error for an answer that is not a JSON object, such as a redirect or an HTML page."""
    kind = str(answer.headers.get("Content-Type") or "no content type").split(";", maxsplit=1)[0]
    # Omit the query, which may identify a session.
    place = str(answer.headers.get("Location") or "").split("?", maxsplit=1)[0]
    what = f"it redirects to {place}" if place else f"it sent {kind} instead of JSON"
    return NotKubernetes(
        f"{base} does not answer like a Kubernetes API server: {what} (HTTP {answer.status}).",
        hint="Check host and port. A login page or a proxy may be in between; behind Rancher the URL ends in "
        "/k8s/clusters/<id>.",
    )


def _cause(error: BaseException) -> str:
    cause: BaseException = getattr(error, "reason", None) or error
    return str(cause).rsplit("): ", 1)[-1].rstrip(".")


def _headers(access: ConnectionConfig) -> Any:
    # Older versions of urllib3 do not export the class at the top level.
    from urllib3._collections import HTTPHeaderDict

    headers = HTTPHeaderDict({"Accept": "application/json", "User-Agent": "vgpu.fleet", **access.headers()})
    for group in access.impersonate_groups:
        # One header for each group: a comma would become part of a single group name.
        headers.add("Impersonate-Group", group)
    return headers


def _pause(answer: Any, attempt: int) -> float:
    try:
        return min(float(answer.headers.get("Retry-After", "")), 10.0)
    except ValueError:
        return _backoff(attempt)


def _backoff(attempt: int) -> float:
    return min(0.2 * 2.0**attempt, 5.0)


def _bypasses_proxy(access: ConnectionConfig) -> bool:
    # The type definitions lack it, as the documentation of Python does.
    from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]

    server = urlsplit(access.host)
    host = f"{server.hostname or ''}:{server.port}" if server.port else server.hostname or ""
    return bool(proxy_bypass_environment(host, {"no": access.no_proxy or ""}))


def _verb(method: str, path: str) -> str:
    return {"GET": "read", "PATCH": "patch", "PUT": "update", "POST": "create", "DELETE": "delete"}.get(method, method)


def _error(status: int, data: bytes, verb: str, path: str) -> FleetError:
    try:
        answer = json.loads(data)
    except ValueError:
        answer = {}
    if not isinstance(answer, dict):
        answer = {}
    message = str(answer.get("message") or data[:200].decode(errors="replace") or "no message").strip()
    reason = str(answer.get("reason") or "")
    what = path.split("?", maxsplit=1)[0]
    if status == 401:
        return Unauthorized(
            "The API server does not accept the credentials.",
            status=status,
            reason=reason,
            hint="The token or certificate is wrong or has expired.",
        )
    if status == 403 and DENIAL not in message:
        return Forbidden(
            f"Not allowed to {verb} {what}: {message}.",
            status=status,
            reason=reason,
            hint="The ClusterRole that the modules need is in docs/permissions.md.",
        )
    if DENIAL in message:
        return AdmissionDenied(
            f"The cluster refused to {verb} {what}: {denial_text(message)}", status=status, reason=reason
        )
    kind = {404: NotFound, 409: Conflict}.get(status, ApiError)
    return kind(f"Could not {verb} {what}: {message} (HTTP {status}).", status=status, reason=reason)


def denial_text(message: str) -> str:
    return message.split(DENIAL, 1)[-1].lstrip(": ").strip()
