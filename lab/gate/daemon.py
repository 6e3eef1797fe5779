"""The gate's process. Its orders come as lines of JSON on a socket in the run directory."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.errors import LabError
from lab.gate.hold import Hold
from lab.gate.relay import Relay
from lab.gate.verdict import SWITCHES, Judge
from lab.rundir import RunDir

if TYPE_CHECKING:
    from lab.gate.proxy import Proxy


class Gate:
    def __init__(self, run: RunDir) -> None:
        self._run = run
        ports = run.read()["ports"]
        self._api_port = self._next_port = ports["kube-apiserver"]
        self._relay = Relay(ports["api-gate"], lambda: self._next_port)
        self._judge = Judge()
        self._proxy = AsyncExitStack()
        self._handler: Proxy | None = None
        self._hold: Hold | None = None
        self._turn = asyncio.Lock()

    async def serve(self) -> None:
        socket = self._run.gate_socket
        socket.unlink(missing_ok=True)
        await self._relay.open()
        server = await asyncio.start_unix_server(self._listen, socket)
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
        server.close()
        socket.unlink(missing_ok=True)
        await self._relay.close()
        await self._proxy.aclose()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while line := await reader.readline():
                order = json.loads(line)
                try:
                    async with self._turn:
                        answer = await getattr(self, f"_{order.pop('do')}")(**order) or {}
                except LabError as error:
                    answer = {"error": str(error)}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    # Orders
    async def _open(self) -> None:
        await self._relay.open()

    async def _close(self) -> None:
        await self._relay.close()

    async def _cut(self) -> None:
        self._relay.cut()

    async def _switch(self, name: str, on: bool, every: int) -> None:
        self._judge.switch(name, on=on, every=every)
        await self._choose_way()

    async def _expire(self, revision: int) -> None:
        self._judge.compacted = revision
        await self._choose_way()

    async def _hold_after(self, after: int, writes: bool, agent: str) -> None:
        """Count the requests of clients from now on, and hold them after one of these requests."""
        if self._hold:
            self._hold.release()
        self._hold = Hold(after, writes, agent)
        await self._choose_way()

    async def _release(self) -> None:
        if self._hold:
            self._hold.release()

    async def _counted(self) -> dict[str, Any]:
        return {"held": bool(self._hold and self._hold.held), "seen": list(self._hold.seen) if self._hold else []}

    async def _stop_counting(self) -> None:
        await self._release()
        self._hold = None
        await self._choose_way()

    async def _clear(self) -> None:
        await self._release()
        self._hold = None
        for name in SWITCHES:
            self._judge.switch(name, on=False)
        self._judge.compacted = 0
        await self._choose_way()
        await self._relay.open()

    async def _status(self) -> dict[str, Any]:
        return {"on": [*self._judge.every, *(["watch-expired"] if self._judge.compacted else [])]}

    async def _choose_way(self) -> None:
        """Bypass the proxy while no fault is active. Close open connections, so that all take the new route."""
        straight = self._next_port == self._api_port
        if self._judge.idle and not self._hold:
            self._next_port = self._api_port
            if straight:
                return
            self._relay.cut()
            await self._proxy.aclose()
            self._handler = None
            return
        if straight:
            self._next_port = await self._start_proxy()
        if self._handler:
            self._handler.hold = self._hold
        # Clients that are counted are on the way through the proxy already.
        if straight or not self._hold:
            self._relay.cut()

    async def _start_proxy(self) -> int:
        # Only here: the packages are not needed to pass bytes on, and most labs are never disturbed.
        from lab.gate.proxy import Proxy
        from lab.kubernetes import certificates

        self._handler = proxy = Proxy(
            self._judge,
            f"https://127.0.0.1:{self._api_port}",
            certificates.authority(self._run).cert,
            certificates.pair(self._run, "kube-apiserver"),
            certificates.pair(self._run, "front-proxy-client"),
        )
        return await self._proxy.enter_async_context(proxy.serving())


def main() -> None:
    parser = argparse.ArgumentParser(prog="lab.gate")
    parser.add_argument("--run-dir", type=Path, required=True)
    asyncio.run(Gate(RunDir(parser.parse_args().run_dir)).serve())


if __name__ == "__main__":
    main()
