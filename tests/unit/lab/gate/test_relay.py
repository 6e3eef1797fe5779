"""Bytes that pass the gate untouched, and connections that end there."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lab.gate.relay import Relay
from lab.kubernetes.controlplane import free_ports

MEBIBYTE = 2**20


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.close()


def with_relay(scene: Callable[[Relay, int], Awaitable[None]]) -> None:
    async def play() -> None:
        port, gate = free_ports(2)
        server = await asyncio.start_server(_echo, "127.0.0.1", port)
        relay = Relay(gate, lambda: port)
        await relay.open()
        try:
            await scene(relay, gate)
        finally:
            await relay.close()
            server.close()

    asyncio.run(asyncio.wait_for(play(), 30))


def test_everything_comes_back_as_it_was_sent():
    async def scene(relay: Relay, gate: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate)
        sent = bytes(range(256)) * (4 * MEBIBYTE // 256)
        writer.write(sent)
        writer.write_eof()
        assert await reader.read(-1) == sent

    with_relay(scene)


def test_cut_ends_what_is_open_and_nothing_else():
    async def scene(relay: Relay, gate: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gate)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        relay.cut()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        reader, writer = await asyncio.open_connection("127.0.0.1", gate)
        writer.write(b"two")
        assert await reader.readexactly(3) == b"two"

    with_relay(scene)


def test_a_closed_gate_refuses_and_an_opened_one_does_not():
    async def scene(relay: Relay, gate: int) -> None:
        await relay.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", gate)
        await relay.open()
        _, writer = await asyncio.open_connection("127.0.0.1", gate)
        writer.close()

    with_relay(scene)
