"""Serve the controls of the lab on a socket in the run directory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

from lab.errors import LabError
from lab.faults import Options
from lab.gpu.mig import recorded_card
from lab.simulation import faults
from lab.simulation.faults import nodes

if TYPE_CHECKING:
    from lab.simulation.daemon import Harvester


class ControlServer:
    def __init__(self, harvester: Harvester, socket: Path, generation: int) -> None:
        self._harvester = harvester
        self._socket = socket
        self._generation = generation
        self.failed: str | None = None
        self.over = asyncio.Event()
        # The settings with which everything begins anew, if that is why it is over.
        self.successor: dict[str, Any] | None = None
        application = web.Application(middlewares=[_errors_as_json])
        application.router.add_get("/status", self._status)
        application.router.add_get("/hardware/{node}", self._hardware)
        application.router.add_post("/hardware/{node}", self._set_hardware)
        application.router.add_post("/settle", self._settle)
        application.router.add_post("/advance", self._advance)
        application.router.add_post("/reboot", self._reboot)
        application.router.add_post("/process", self._process)
        application.router.add_post("/fault", self._fault)
        application.router.add_post("/speed", self._speed)
        application.router.add_post("/restart", self._restart)
        self._runner = web.AppRunner(application)

    async def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        await self._runner.setup()
        await web.UnixSite(self._runner, str(self._socket)).start()

    async def stop(self) -> None:
        await self._runner.cleanup()
        self._socket.unlink(missing_ok=True)

    async def _status(self, request: web.Request) -> web.Response:
        harvester = self._harvester
        return web.json_response(
            {
                "ready": harvester.ready,
                "generation": self._generation,
                "failed": self.failed,
                "now": harvester.clock.now,
                "speed": harvester.clock.speed,
                "harvester": harvester.cluster.version.name,
                "scenario": harvester.cluster.scenario.name,
                "processes": {name: process.running for name, process in harvester.processes.items()},
                "scanning": [name for name, process in harvester.processes.items() if process.scanning],
                "webhook_down": harvester.webhook_down,
                "faults": harvester.faults_on,
            }
        )

    async def _hardware(self, request: web.Request) -> web.Response:
        node = request.match_info["node"]
        (name,) = nodes(self._harvester, node)
        cards = {
            gpu.address: {
                "board": gpu.board.name,
                "mig_mode": gpu.mig_mode,
                "mig_instances": [
                    {"id": instance.id, "profile": instance.profile.name, "profile_id": instance.profile.id}
                    for instance in (gpu.mig.instances if gpu.mig else [])
                ],
                "vfs": {vf.address: vf.type.id if vf.type else None for vf in gpu.vfs},
            }
            for gpu in self._harvester.cluster.hosts[name].gpus
        }
        return web.json_response(cards)

    async def _set_hardware(self, request: web.Request) -> web.Response:
        """Only what the recordings did to their host: a card that can do MIG from now on, or no longer."""
        (name,) = nodes(self._harvester, request.match_info["node"])
        body = await request.json()
        for gpu in self._harvester.cluster.hosts[name].gpus:
            if gpu.address == body["address"]:
                gpu.mig = recorded_card() if body["mig_capable"] else None
                gpu.mig_mode = False
        return self._now()

    async def _settle(self, request: web.Request) -> web.Response:
        await self._harvester.settle()
        return self._now()

    async def _advance(self, request: web.Request) -> web.Response:
        seconds = float((await request.json())["seconds"])
        if seconds < 0:
            raise LabError("The lab clock cannot be moved backwards.")
        await self._harvester.settle()
        await self._harvester.clock.advance(seconds)
        return self._now()

    async def _reboot(self, request: web.Request) -> web.Response:
        (node,) = nodes(self._harvester, (await request.json())["node"])
        self._harvester.reboot(node)
        return self._now()

    async def _process(self, request: web.Request) -> web.Response:
        body = await request.json()
        for node in nodes(self._harvester, body["node"]):
            process = self._harvester.processes[node]
            if body["action"] == "kill":
                process.kill()
            else:
                process.start()
        return self._now()

    async def _fault(self, request: web.Request) -> web.Response:
        body = await request.json()
        options = Options(**{key: body.get(key) for key in ("node", "every", "seconds")})
        await faults.switch(self._harvester, body["name"], body.get("on", True), options)
        return self._now()

    async def _speed(self, request: web.Request) -> web.Response:
        self._harvester.clock.set_speed(float((await request.json())["speed"]))
        return self._now()

    async def _restart(self, request: web.Request) -> web.Response:
        self.successor = {**await request.json(), "generation": self._generation + 1}
        self.over.set()
        return web.json_response({"generation": self.successor["generation"]})

    def _now(self) -> web.Response:
        clock = self._harvester.clock
        return web.json_response({"now": clock.now, "next": clock.next_due})


@web.middleware
async def _errors_as_json(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        answer: web.StreamResponse = await handler(request)
        return answer
    except LabError as error:
        return web.json_response({"error": str(error)}, status=400)
