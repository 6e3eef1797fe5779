"""The process that simulates Harvester: everything between the API server and the hardware."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from lab.clock import Clock, background
from lab.errors import LabError
from lab.harvester import definitions, images, resources as r, versions, wipe
from lab.harvester.admission import rules
from lab.harvester.admission.webhook import WebhookServer
from lab.harvester.cluster import CORE_RESOURCES, Cluster
from lab.harvester.controllers.addons import CONTROLLER_POD_LABELS, Addons
from lab.harvester.controllers.allocation_annotation import AllocationNotes
from lab.harvester.controllers.drivers import Drivers
from lab.harvester.controllers.node_cleanup import NodeCleanup
from lab.harvester.controllers.volumes import Volumes
from lab.harvester.hardware import Host
from lab.harvester.node.kubelet import Kubelet
from lab.harvester.node.virt_handler import Guests
from lab.harvester.pcidevices.process import START_UP, NodeProcess
from lab.kubernetes import certificates, custom_resources
from lab.kubernetes.client import ApiError, Client, Json
from lab.kubernetes.resource import Resource
from lab.rundir import RunDir
from lab.scenarios import scenario as scenarios
from lab.scenarios.scenario import Scenario
from lab.simulation.control_server import ControlServer

if TYPE_CHECKING:
    from lab.rancher.server.rancher import Rancher

log = logging.getLogger(__name__)

# The start of a scenario is stepped through: simulated seconds each, at least so many real ones, so often at most.
SEED_STEP = 0.5
SEED_PAUSE = 0.02
SEED_STEPS = 4000
API_PAUSE = 0.05


class Harvester:
    def __init__(
        self, run: RunDir, scenario: Scenario, version: versions.Version, clients: dict[str, Client], *, webhook: bool
    ) -> None:
        self.run = run
        self._core_webhook = webhook
        self.clock = Clock(speed=0)
        self.cluster = Cluster(
            clock=self.clock,
            version=version,
            scenario=scenario,
            admin=clients["harvester"],
            pcidevices=clients["pcidevices"],
            hosts={
                node.name: Host(
                    node, takes_any_type=scenario.fake_driver, keeps_types=scenario.fake_driver and version.mdev
                )
                for node in scenario.nodes
            },
        )
        for client in clients.values():
            client.on_write = self.cluster.journal.note
        self.addons = Addons(self.cluster, self._switch_processes)
        self.drivers = Drivers(self.cluster, self.addons, self._look_at_pods)
        self.kubelets = {
            node.name: Kubelet(self.cluster, node, self._pod_trouble, self._pod_ended) for node in scenario.nodes
        }
        self.processes = {
            name: NodeProcess(self.cluster, host, self.kubelets[name].devices, self._processes_changed)
            for name, host in self.cluster.hosts.items()
        }
        self.volumes = Volumes(self.cluster)
        self.guests = Guests(self.cluster, clients["virt-handler"])
        self.notes = AllocationNotes(
            self.cluster, self.kubelets, self.guests, lambda node: node in self.processes and self.processes[node].alive
        )
        serving = certificates.server(run, "webhook")
        self.webhook = WebhookServer(self.cluster, serving.cert, serving.key, certificates.authority(run).cert)
        self.webhook_down = False
        # By name, with the nodes it is on at.
        self.faults_on: dict[str, list[str]] = {}
        self._permitted: Json | None = None
        self.cleanup = NodeCleanup(self.cluster, lambda: any(process.alive for process in self.processes.values()))
        self.ready = False
        # Beside Harvester, and only where it was asked for.
        self.rancher: Rancher | None = None
        self._registered = False
        self.cluster.driver_ready = self.drivers.not_ready

    # Start
    async def start(self, speed: float) -> None:
        self._clock_task = asyncio.get_running_loop().create_task(self.clock.run())
        await custom_resources.install(self.cluster.admin, definitions.core_definitions())
        self.cluster.watch(*CORE_RESOURCES)
        await asyncio.gather(*(kubelet.register() for kubelet in self.kubelets.values()))
        await self._write_settings()
        if self._core_webhook:
            await self.webhook.start_core()
        await self.cluster.watched()
        for kubelet in self.kubelets.values():
            kubelet.run()
        await self.addons.seed()
        await images.seed(self.cluster)
        await self._seeded()
        self.addons.run()
        self.guests.run()
        self.notes.run()
        self.cleanup.run()
        self.volumes.run()
        self.drivers.seeding = False
        self.addons.on_driver_rollout = self.drivers.values_changed
        if self.rancher is not None:
            await self.rancher.start()
        self._beats = [asyncio.get_running_loop().create_task(k.beat()) for k in self.kubelets.values()]
        self.clock.set_speed(speed)
        self.ready = True

    async def _write_settings(self) -> None:
        body = {
            "apiVersion": r.SETTING.api_version,
            "kind": "Setting",
            "metadata": {"name": "server-version"},
            "value": self.cluster.version.server_version,
        }
        await self.cluster.admin.create_if_absent(r.SETTING.collection, body)

    async def _seeded(self) -> None:
        """Run the clock until the scenario's start is reached, however long that takes in simulated time."""
        self.clock.side_by_side = True
        for _ in range(SEED_STEPS):
            began = time.monotonic()
            await self.clock.advance(SEED_STEP)
            if self._start_reached():
                break
            # The driver's pods are the business of real components, which take real time.
            await asyncio.sleep(max(0.0, SEED_PAUSE - (time.monotonic() - began)))
        else:
            log.error("the start of the scenario was not reached")
        await self.cluster.sync()
        self.clock.side_by_side = False

    def _start_reached(self) -> bool:
        if not self.cluster.scenario.addons[scenarios.PCIDEVICES]:
            return True
        for name, host in self.cluster.hosts.items():
            if not self.processes[name].alive:
                return False
            wanted = sum(len(gpu.vfs) for gpu in host.gpus)
            there = self.cluster[r.VGPU].labelled(r.NODENAME_LABEL, name)
            if len(there) < wanted or not all(self._offers_types(host, vgpu) for vgpu in there):
                return False
            if any(gpu.sriov_capable for gpu in host.gpus):
                node = self.cluster[r.NODE].get(name) or {"metadata": {}}
                if r.DRIVER_NEEDED_LABEL not in (node["metadata"].get("labels") or {}):
                    return False
                if self._expects_driver() and self.drivers.not_ready(name):
                    return False
            for gpu in host.gpus:
                card = self.cluster[r.SRIOV_GPU].get(r.device_name(name, gpu.address))
                if gpu.sriov_capable and (card is None or "status" not in card):
                    return False
        return True

    @staticmethod
    def _offers_types(host: Host, vgpu: Json) -> bool:
        function = host.find_vf(vgpu["spec"]["address"])
        # A card in MIG mode has nothing to offer before it has instances.
        return bool((vgpu.get("status") or {}).get("availableTypes")) or (function is not None and function[0].mig_mode)

    def _expects_driver(self) -> bool:
        scenario = self.cluster.scenario
        return scenario.addons[scenarios.DRIVER_TOOLKIT] and "HTTPENDPOINT" not in scenario.driver_location

    # The pcidevices processes
    async def _switch_processes(self, on: bool) -> None:
        if on and not self._registered:
            self._registered = True
            await custom_resources.install(self.cluster.admin, definitions.device_definitions(self.cluster.version))
            self.cluster.watch(*self.cluster.device_resources, client=self.cluster.pcidevices)
            await self.cluster.watched()
            for resource in self.cluster.device_resources:
                self.cluster[resource].listen(self._dispatcher(resource))
            self.cluster[r.VM].listen(self._vm_noticed)
            await self.webhook.register_pcidevices()
        for process in self.processes.values():
            if on:
                process.start(after=START_UP if self.ready else 0.0)
            else:
                process.kill()

    def _dispatcher(self, resource: Resource):  # type: ignore[no-untyped-def]
        def on_change(old: Json | None, new: Json | None) -> None:
            if new is not None:
                owner = NodeProcess.owner(resource, new)
                if owner in self.processes:
                    self.processes[owner].notice(resource, new)
            elif resource is r.SRIOV_GPU and self.cluster.version.mig:
                # The MIG handler does not expect a deleted object (harvester.md 4.4).
                self.panic()

        return on_change

    def panic(self) -> None:
        """A fault in shared code takes the processes of all nodes down; their kubelets start them again."""
        for process in self.processes.values():
            if process.running:
                process.kill()
                if self.cluster.scenario.restarts_processes:
                    process.start_after_crash()

    def _vm_noticed(self, old: Json | None, new: Json | None) -> None:
        if new is not None and rules.has_broken_note(new):
            self.panic()

    def _processes_changed(self) -> None:
        if any(rules.has_broken_note(vm) for vm in self.cluster[r.VM].all()):
            self.panic()
        background(self.clock, self._follow_processes())
        for kubelet in self.kubelets.values():
            if self.ready:
                kubelet.look_again()
        if self.ready:
            self.notes.look_again()
            self.cleanup.look_again()

    async def _follow_processes(self) -> None:
        if self.webhook_down or not any(process.alive for process in self.processes.values()):
            await self.webhook.close()
        elif self._registered:
            await self.webhook.open()

    def _pod_trouble(self, pod: Json) -> tuple[str, str] | None:
        if CONTROLLER_POD_LABELS.items() <= (pod["metadata"].get("labels") or {}).items():
            process = self.processes[pod["spec"]["nodeName"]]
            if process.alive:
                return None
            return ("NotReady", "starting") if process.running else ("CrashLoopBackOff", "the process has ended")
        return self.drivers.trouble(pod)

    def _pod_ended(self, pod: Json) -> None:
        """End the process of a pcidevices controller with its pod. The next pod of the DaemonSet starts another."""
        if not CONTROLLER_POD_LABELS.items() <= (pod["metadata"].get("labels") or {}).items():
            return
        process = self.processes[pod["spec"]["nodeName"]]
        if process.running:
            process.kill()
            process.start()

    def _look_at_pods(self, node: str) -> None:
        self.kubelets[node].look_again()

    # What the outside may do
    async def settle(self) -> None:
        await self.cluster.sync()
        if self.rancher is not None:
            await self.rancher.sync()
        await self.clock.idle()

    async def set_webhook_down(self, down: bool) -> None:
        self.webhook_down = down
        await self._follow_processes()

    async def lose_node(self, node: str) -> None:
        await self.kubelets[node].fall_silent()
        self.processes[node].kill()

    async def find_node(self, node: str) -> None:
        if self.cluster[r.NODE].get(node) is None:
            # It was taken away and put back: the driver has forgotten everything.
            self.cluster.hosts[node].reboot()
        await self.kubelets[node].come_back()
        self.processes[node].start()

    async def permitted_list(self, *, broken: bool) -> None:
        """Keep only the last entry, twice, and lose every new one, as the controllers do (harvester#10008)."""
        kubevirt = self.cluster[r.KUBEVIRT].get("kubevirt", r.HARVESTER_NAMESPACE)
        if kubevirt is None:
            return
        permitted = kubevirt["spec"].get("configuration", {}).get("permittedHostDevices") or {}
        key = "mediatedDevices" if self.cluster.version.mdev else "pciHostDevices"
        if broken:
            entries = permitted.get(key) or []
            if not entries:
                raise LabError("KubeVirt has no permitted devices yet.", hint="Enable a vGPU first.")
            self._permitted = permitted
            self.cluster.loses_permits = True
            left = entries[-1:] if len(entries) > 1 else []
            permitted = permitted | {key: [*left, *left]}
        elif self._permitted is not None:
            permitted, self._permitted = self._permitted, None
            permitted = permitted | {key: [*permitted[key], *self.cluster.lost_permits]}
            self.cluster.loses_permits, self.cluster.lost_permits = False, []
        body = {"spec": {"configuration": {"permittedHostDevices": permitted}}}
        await self.cluster[r.KUBEVIRT].patch(kubevirt, body)

    def reboot(self, node: str) -> None:
        background(self.clock, self.guests.lose(node))
        self.processes[node].kill()
        self.cluster.hosts[node].reboot()
        self.processes[node].start()


async def serve(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Run until stopped or until a restart is requested. Return the settings of the restart."""
    run = RunDir(arguments.run_dir)
    scenario = scenarios.load(arguments.scenario, arguments.nodes)
    version = versions.named(arguments.harvester_version)
    agents = {"harvester": "harvester", "pcidevices": "pcidevices", "virt-handler": "virt-handler"}
    async with AsyncExitStack() as stack:
        clients = {
            name: await stack.enter_async_context(Client.from_kubeconfig(run.kubeconfig(name), user_agent=agent))
            for name, agent in agents.items()
        }
        harvester = Harvester(
            run, scenario, version, clients, webhook="core-webhook" not in arguments.without.split(",")
        )
        if "rancher" in arguments.extra.split(","):
            harvester.rancher = await _rancher(run, harvester, stack)
        control = ControlServer(harvester, run.control_socket, arguments.generation)
        await control.start()
        try:
            await _until_api_answers(clients["harvester"])
            await harvester.start(arguments.speed)
        # Whatever it is, who waits for the start is told.
        except Exception as error:
            log.exception("could not start")
            control.failed = str(error) or repr(error)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, control.over.set)
        await control.over.wait()
        if harvester.rancher is not None:
            await harvester.rancher.stop()
        await control.stop()
        await harvester.webhook.stop()
        return control.successor


async def _until_api_answers(client: Client) -> None:
    """The lab starts this process beside the API server, since both need a while."""
    while True:
        try:
            await client.get("/readyz")
            return
        except (ApiError, OSError, TimeoutError, aiohttp.ClientError):
            await asyncio.sleep(API_PAUSE)


def _run(arguments: argparse.Namespace) -> None:
    """Restarts happen in this process, since loading it takes as long as all the rest; nothing else survives them."""
    while (successor := asyncio.run(serve(arguments))) is not None:
        vars(arguments).update(successor)
        begin = scenarios.load(arguments.scenario, arguments.nodes)
        wipe.everything(RunDir(arguments.run_dir), definitions=not begin.addons[scenarios.PCIDEVICES])
        if "rancher" in arguments.extra.split(","):
            from lab.rancher.server import rancher

            rancher.forget(RunDir(arguments.run_dir))


async def _rancher(run: RunDir, harvester: Harvester, stack: AsyncExitStack) -> Rancher:
    from lab.rancher.server import rancher

    own = Client.from_kubeconfig(rancher.folder(run).kubeconfig("harvester"), user_agent="rancher")
    client = await stack.enter_async_context(own)
    return rancher.Rancher(run, harvester.clock, harvester.cluster, client)


def main() -> None:
    parser = argparse.ArgumentParser(prog="lab.harvester")
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--scenario", required=True)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--harvester-version", required=True)
    parser.add_argument("--speed", type=float, required=True)
    parser.add_argument("--without", default="")
    parser.add_argument("--with", dest="extra", default="")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)
    parser.set_defaults(generation=0)
    _run(parser.parse_args())


if __name__ == "__main__":
    main()
