"""Small asynchronous Kubernetes client: raw JSON over fixed paths, no discovery, no typed models."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import aiohttp
import yaml

Json = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class ApiError(Exception):
    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message

    @classmethod
    def from_status(cls, status: int, body: Any) -> ApiError:
        if isinstance(body, dict):
            return cls(body.get("code", status), body.get("reason", ""), body.get("message", ""))
        return cls(status, "", str(body))


class Client:
    def __init__(self, server: str, context: ssl.SSLContext, *, user_agent: str, token: str | None = None) -> None:
        self.server = server.rstrip("/")
        # Called for every accepted write, with its path and the response.
        self.on_write: Callable[[str, Json], None] | None = None
        headers = {"User-Agent": user_agent, "Accept": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._headers = headers
        self._context = context
        self._session: aiohttp.ClientSession | None = None

    @classmethod
    def from_kubeconfig(cls, path: Path | str, *, user_agent: str = "lab") -> Client:
        config = yaml.safe_load(Path(path).read_text())
        context = next(c["context"] for c in config["contexts"] if c["name"] == config["current-context"])
        cluster = next(c["cluster"] for c in config["clusters"] if c["name"] == context["cluster"])
        user = next(u["user"] for u in config["users"] if u["name"] == context["user"])
        base = Path(path).parent
        tls = ssl.create_default_context(cafile=str(base / cluster["certificate-authority"]))
        if "client-certificate" in user:
            tls.load_cert_chain(str(base / user["client-certificate"]), str(base / user["client-key"]))
        return cls(cluster["server"], tls, user_agent=user_agent, token=user.get("token"))

    async def __aenter__(self) -> Client:
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        self._session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=aiohttp.ClientTimeout(total=None, connect=30)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str | None = None,
        timeout: float = 60,
    ) -> Json:
        while True:
            try:
                return await self._send(method, path, params, body, content_type, accept, timeout)
            except ApiError as error:
                # The API server responds with 429 while it fills its caches for a new resource.
                if error.status != 429:
                    raise
                await asyncio.sleep(0.1)

    async def _send(
        self,
        method: str,
        path: str,
        params: dict[str, str] | None,
        body: Any,
        content_type: str,
        accept: str | None,
        timeout: float,
    ) -> Json:
        assert self._session is not None, "use the client in an async with block"
        headers = {"Content-Type": content_type} if body is not None else {}
        if accept:
            headers["Accept"] = accept
        async with self._session.request(
            method,
            self.server + path,
            params=params,
            data=json.dumps(body) if body is not None else None,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=timeout),
        ) as response:
            text = await response.text()
            try:
                answer = json.loads(text) if text else {}
            except ValueError:
                answer = text
            if response.status >= 400:
                raise ApiError.from_status(response.status, answer)
            if not isinstance(answer, dict):
                return {"text": answer}
            if method != "GET" and self.on_write:
                self.on_write(path, answer)
            return answer

    async def get(self, path: str, **options: Any) -> Json:
        return await self.request("GET", path, **options)

    async def get_or_none(self, path: str) -> Json | None:
        try:
            return await self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def create(self, path: str, body: Json) -> Json:
        return await self.request("POST", path, body=body)

    async def create_if_absent(self, path: str, body: Json) -> None:
        try:
            await self.create(path, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    async def replace(self, path: str, body: Json) -> Json:
        return await self.request("PUT", path, body=body)

    async def patch(self, path: str, body: Any, *, content_type: str = MERGE_PATCH) -> Json:
        return await self.request("PATCH", path, body=body, content_type=content_type)

    async def delete(self, path: str, body: Json | None = None) -> Json:
        return await self.request("DELETE", path, body=body)

    async def watch(self, path: str, resource_version: str) -> AsyncIterator[Json]:
        assert self._session is not None, "use the client in an async with block"
        params = {"watch": "1", "resourceVersion": resource_version, "allowWatchBookmarks": "true"}
        async with self._session.get(
            self.server + path,
            params=params,
            timeout=aiohttp.ClientTimeout(total=None, sock_read=None),
            read_bufsize=2**22,
        ) as response:
            if response.status >= 400:
                raise ApiError.from_status(response.status, await response.json(content_type=None))
            pending = b""
            async for chunk in response.content.iter_any():
                pending += chunk
                *lines, pending = pending.split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)
