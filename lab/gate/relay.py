"""Relay bytes between a client and the API server without terminating TLS."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Relay:
    """Listens at one address. `target` says where the next connection goes; `cut` ends those that are open."""

    def __init__(self, port: int, target: Callable[[], int]) -> None:
        self._port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._ends: set[asyncio.Transport] = set()

    async def open(self) -> None:
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                lambda: _End(self._ends, self._target), "127.0.0.1", self._port, reuse_address=True
            )

    async def close(self) -> None:
        """Refuse new connections and close the open ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def cut(self) -> None:
        for transport in list(self._ends):
            transport.abort()


class _End(asyncio.Protocol):
    """One side of a connection. The client's side opens the other one and waits with reading until it is there."""

    transport: asyncio.Transport

    def __init__(self, ends: set[asyncio.Transport], target: Callable[[], int] | None, other: _End | None = None):
        self._ends = ends
        self._target = target
        self._other = other

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._ends.add(transport)
        if self._target is not None:
            transport.pause_reading()
            self._opening = asyncio.get_running_loop().create_task(self._open(self._target()))

    async def _open(self, port: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, other = await loop.create_connection(lambda: _End(self._ends, None, self), "127.0.0.1", port)
        except OSError:
            self.transport.abort()
            return
        self._other = other
        if self.transport.is_closing():
            other.transport.abort()
        else:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        if self._other is not None:
            self._other.transport.write(data)

    def eof_received(self) -> bool:
        if self._other is not None and self._other.transport.can_write_eof():
            self._other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._ends.discard(self.transport)
        if self._other is not None and not self._other.transport.is_closing():
            if error is None:
                self._other.transport.close()
            else:
                self._other.transport.abort()
