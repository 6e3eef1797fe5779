"""Handle requests one by one while a fault is active that needs it."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from lab.gate.hold import Hold
from lab.gate.verdict import Judge
from lab.kubernetes.certificates import KeyPair

HOP_BY_HOP = {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "host", "content-length"}
IDENTITY = "x-remote-"


class Proxy:
    """The API server's double. Who shows a certificate here is introduced to the real one by the front proxy's."""

    def __init__(self, judge: Judge, upstream: str, ca: Path, serving: KeyPair, front_proxy: KeyPair) -> None:
        self._judge = judge
        self.hold: Hold | None = None
        self._upstream = upstream
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(ca))
        self._tls.load_cert_chain(str(serving.cert), str(serving.key))
        self._tls.verify_mode = ssl.CERT_OPTIONAL
        self._as_client = ssl.create_default_context(cafile=str(ca))
        self._as_front_proxy = ssl.create_default_context(cafile=str(ca))
        self._as_front_proxy.load_cert_chain(str(front_proxy.cert), str(front_proxy.key))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Serve on a free port and return the port."""
        application = web.Application(client_max_size=2**26)
        application.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        async with AsyncExitStack() as stack:
            self._sessions = {
                tls: await stack.enter_async_context(
                    aiohttp.ClientSession(
                        connector=aiohttp.TCPConnector(ssl=tls, limit=0),
                        timeout=aiohttp.ClientTimeout(total=None),
                        auto_decompress=False,
                    )
                )
                for tls in (self._as_client, self._as_front_proxy)
            }
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls).start()
            yield runner.addresses[0][1]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        hold = self.hold
        if hold:
            await hold.arrived(request.headers.get("User-Agent", ""))
        verdict = self._judge.verdict(request.method, request.path, request.query)
        if verdict.refusal is not None:
            await request.read()
            await self._answered(hold, request)
            return web.Response(
                status=verdict.refusal.status, body=verdict.refusal.body, headers=dict(verdict.refusal.headers)
            )
        if verdict.expired is not None:
            return web.Response(text=verdict.expired, content_type="application/json")
        return await self._pass_on(request, hold, lost=verdict.lost)

    async def _answered(self, hold: Hold | None, request: web.Request) -> None:
        if hold:
            await hold.answered(request.method, request.path, request.query, request.headers.get("User-Agent", ""))

    async def _pass_on(self, request: web.Request, hold: Hold | None, *, lost: bool) -> web.StreamResponse:
        headers, tls = self._introduced(request)
        async with self._sessions[tls].request(
            request.method, self._upstream + request.raw_path, headers=headers, data=await request.read() or None
        ) as answer:
            await self._answered(hold, request)
            if lost:
                await answer.read()
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            kept = [(name, value) for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP]
            response = web.StreamResponse(status=answer.status, headers=CIMultiDict(kept))
            await response.prepare(request)
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
            await response.write_eof()
            return response

    def _introduced(self, request: web.Request) -> tuple[CIMultiDict[str], ssl.SSLContext]:
        headers = CIMultiDict(
            (name, value)
            for name, value in request.headers.items()
            if name.lower() not in HOP_BY_HOP and not name.lower().startswith(IDENTITY)
        )
        certificate = request.get_extra_info("peercert")
        if not certificate:
            return headers, self._as_client
        for ((key, value),) in certificate["subject"]:
            if key == "commonName":
                headers.add("X-Remote-User", value)
            elif key == "organizationName":
                headers.add("X-Remote-Group", value)
        return headers, self._as_front_proxy
