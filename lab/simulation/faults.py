"""Effects of the faults, after problems of real installations. lab.faults has their names."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import yaml

from lab import hints
from lab.errors import LabError
from lab.faults import EVERY, SLOW_SECONDS, Options, checked
from lab.harvester import resources as r
from lab.harvester.controllers.addons import PLACEHOLDER
from lab.kubernetes.gate_orders import order
from lab.scenarios.scenario import DRIVER_TOOLKIT

if TYPE_CHECKING:
    from lab.simulation.daemon import Harvester

Switch = Callable[["Harvester", bool, Options], Awaitable[None]]


def nodes(harvester: Harvester, node: str | None) -> list[str]:
    if node is None or node == "*":
        return list(harvester.processes)
    if node not in harvester.processes:
        raise LabError(f"There is no node {node!r}.", hint=f"Available nodes: {', '.join(harvester.processes)}.")
    return [node]


async def switch(harvester: Harvester, name: str, on: bool, options: Options) -> None:
    known = checked(name, on, options)
    await _SWITCHES[name](harvester, on, options)
    if not known.once:
        _note(harvester.faults_on, name, on, nodes(harvester, options.node) if "node" in known.takes else [])


def _note(noted: dict[str, list[str]], name: str, on: bool, where: list[str]) -> None:
    left = [node for node in noted.get(name, []) if node not in where]
    if on:
        noted[name] = sorted([*left, *where])
    elif left:
        noted[name] = left
    else:
        noted.pop(name, None)


# The driver
async def _driver_missing(harvester: Harvester, on: bool, options: Options) -> None:
    for name in nodes(harvester, options.node):
        (harvester.drivers.broken.add if on else harvester.drivers.broken.discard)(name)
        harvester.kubelets[name].look_again()


async def _driver_fails(harvester: Harvester, on: bool, options: Options) -> None:
    for name in nodes(harvester, options.node):
        harvester.drivers.build_again(name, fails=on)


async def _placeholder(harvester: Harvester, on: bool, options: Options) -> None:
    addon = harvester.cluster[r.ADDON].get(DRIVER_TOOLKIT, r.HARVESTER_NAMESPACE)
    if addon is None:
        raise LabError(f"There is no addon {DRIVER_TOOLKIT}.")
    values = harvester.addons.values(DRIVER_TOOLKIT)
    file = "NVIDIA-Linux-x86_64-vgpu-kvm.run"
    values["driverLocation"] = f"{PLACEHOLDER}/{file}" if on else harvester.cluster.scenario.driver_location
    content = yaml.safe_dump(values, sort_keys=False)
    await harvester.cluster[r.ADDON].patch(addon, {"spec": {"valuesContent": content}})


# Devices
async def _vf_without_types(harvester: Harvester, on: bool, options: Options) -> None:
    for name in nodes(harvester, options.node):
        host = harvester.cluster.hosts[name]
        cards = [gpu for gpu in host.gpus if gpu.sriov_capable]
        host.unreadable = {cards[0].vf_addresses()[-1]} if on and cards else set()


async def _mig_setup(harvester: Harvester, on: bool, options: Options) -> None:
    """MIG mode cannot be enabled, for instance because the GPU is in use. Off: the next attempt succeeds."""
    for name in nodes(harvester, options.node):
        harvester.cluster.hosts[name].mig_setup_fails = on


async def _plugin_drift(harvester: Harvester, on: bool, options: Options) -> None:
    drifted = [
        plugin.drift(on=on, counts_too_many=harvester.cluster.version.mdev)
        for name in nodes(harvester, options.node)
        for plugin in harvester.processes[name].plugins.values()
    ]
    if on and not any(drifted):
        raise LabError("No node has an allocatable vGPU yet.", hint="Enable a vGPU first.")


async def _permitted_list(harvester: Harvester, on: bool, options: Options) -> None:
    await harvester.permitted_list(broken=on)


# Nodes and processes
async def _kubelet_restart(harvester: Harvester, on: bool, options: Options) -> None:
    for name in nodes(harvester, options.node):
        if on:
            harvester.kubelets[name].devices.restart()
        else:
            harvester.processes[name].kill()
            harvester.processes[name].start()


async def _node_not_ready(harvester: Harvester, on: bool, options: Options) -> None:
    for name in nodes(harvester, options.node):
        await harvester.lose_node(name) if on else await harvester.find_node(name)


async def _node_gone(harvester: Harvester, on: bool, options: Options) -> None:
    for name in nodes(harvester, options.node):
        if on:
            await harvester.lose_node(name)
            await harvester.cluster.admin.delete(r.NODE.path(name))
        else:
            await harvester.find_node(name)


async def _process_down(harvester: Harvester, on: bool, options: Options) -> None:
    for name in nodes(harvester, options.node):
        if on:
            harvester.processes[name].kill()
        else:
            harvester.processes[name].start()


# Webhook and addons
async def _webhook_down(harvester: Harvester, on: bool, options: Options) -> None:
    await harvester.set_webhook_down(on)


async def _webhook_slow(harvester: Harvester, on: bool, options: Options) -> None:
    harvester.webhook.delay = (options.seconds or SLOW_SECONDS) if on else 0.0


async def _addon_fails(harvester: Harvester, on: bool, options: Options) -> None:
    (harvester.addons.fails.add if on else harvester.addons.fails.discard)(DRIVER_TOOLKIT)


async def _addon_in_progress(harvester: Harvester, on: bool, options: Options) -> None:
    await harvester.addons.hang(DRIVER_TOOLKIT, on=on)


# The API server
def _at_the_gate(name: str) -> Switch:
    async def switch_there(harvester: Harvester, on: bool, options: Options) -> None:
        await asyncio.to_thread(order, harvester.run, "switch", name=name, on=on, every=options.every or EVERY)

    return switch_there


async def _disconnect(harvester: Harvester, on: bool, options: Options) -> None:
    await asyncio.to_thread(order, harvester.run, "cut")


async def _watch_expired(harvester: Harvester, on: bool, options: Options) -> None:
    revision = 0
    if on:
        # Somebody always writes on a real cluster; so whatever revision a client has by now is an old one.
        name = {"metadata": {"annotations": {"lab.vgpu.fleet/compacted": str(harvester.clock.now)}}}
        path = f"/api/v1/namespaces/{r.HARVESTER_NAMESPACE}"
        await harvester.cluster.admin.patch(path, {"metadata": {"annotations": {"lab.vgpu.fleet/compacted": None}}})
        written = await harvester.cluster.admin.patch(path, name)
        revision = int(written["metadata"]["resourceVersion"])
    await asyncio.to_thread(order, harvester.run, "expire", revision=revision)


async def _from_outside(harvester: Harvester, on: bool, options: Options) -> None:
    raise LabError(
        "The simulation cannot restart the API server that it depends on.",
        hint=f"Use lab.lifecycle.control, or {hints.call('fault apiserver-restart', harvester.run)}",
    )


_SWITCHES: dict[str, Switch] = {
    "driver-missing": _driver_missing,
    "driver-fails": _driver_fails,
    "httpendpoint": _placeholder,
    "vf-without-types": _vf_without_types,
    "mig-setup": _mig_setup,
    "plugin-drift": _plugin_drift,
    "permitted-list": _permitted_list,
    "kubelet-restart": _kubelet_restart,
    "node-not-ready": _node_not_ready,
    "node-gone": _node_gone,
    "process-down": _process_down,
    "webhook-down": _webhook_down,
    "webhook-slow": _webhook_slow,
    "addon-fails": _addon_fails,
    "addon-in-progress": _addon_in_progress,
    **{
        name: _at_the_gate(name)
        for name in ("api-conflict", "api-throttled", "api-unavailable", "api-answer-lost", "token-expired")
    },
    "api-disconnect": _disconnect,
    "watch-expired": _watch_expired,
    "apiserver-restart": _from_outside,
}
