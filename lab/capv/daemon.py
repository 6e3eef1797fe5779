"""The process that simulates Cluster API and its provider for vSphere."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal

from lab.capv import definitions
from lab.capv.clusters import Clusters
from lab.capv.guests import Guests
from lab.capv.management import folder
from lab.capv.provider import Provider
from lab.capv.resources import VERSIONS, Resources
from lab.clock import Clock
from lab.kubernetes import custom_resources
from lab.kubernetes.client import Client
from lab.rancher.world import World
from lab.rundir import RunDir


async def serve(arguments: argparse.Namespace) -> None:
    own = folder(RunDir(arguments.run_dir))
    clock, resources = Clock(speed=0), Resources(arguments.version)
    async with Client.from_kubeconfig(own.kubeconfig("harvester"), user_agent="cluster-api") as client:
        await custom_resources.install(client, definitions.definitions(arguments.version))
        world = World(clock, client)
        ticking = asyncio.get_running_loop().create_task(clock.run())
        world.watch(*resources.watched)
        await world.watched()
        provider = Provider(world, resources)
        guests = Guests(own, world, real=arguments.guests)
        clusters = Clusters(world, resources, provider, guests)
        guests.on_change = clusters.look_again
        clusters.run()
        clock.set_speed(arguments.speed)
        over = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, over.set)
        (own.path / "ready").touch()
        await over.wait()
        await guests.close()
        await asyncio.to_thread(provider.close)
        world.stop()
        ticking.cancel()


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--version", choices=VERSIONS, default=VERSIONS[0])
    parser.add_argument("--guests", action="store_true")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
