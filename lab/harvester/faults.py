"""Faults that are switched on and off while the lab runs, each after something real installations have met."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import yaml

from lab.errors import LabError
from lab.harvester import resources as r
from lab.harvester.addons import PLACEHOLDER
from lab.scenario import DRIVER_TOOLKIT

if TYPE_CHECKING:
    from lab.harvester.daemon import Harvester


@dataclass(frozen=True)
class Fault:
    name: str
    help: str
    switch: Callable[[Harvester, bool, str | None], Awaitable[None]]
    per_node: bool = False


def nodes(harvester: Harvester, node: str | None) -> list[str]:
    if node is None or node == "*":
        return list(harvester.processes)
    if node not in harvester.processes:
        raise LabError(f"There is no node {node!r}.", hint=f"There are {', '.join(harvester.processes)}.")
    return [node]


async def _driver_missing(harvester: Harvester, on: bool, node: str | None) -> None:
    for name in nodes(harvester, node):
        (harvester.drivers.broken.add if on else harvester.drivers.broken.discard)(name)
        harvester.kubelets[name].look_again()


async def _placeholder(harvester: Harvester, on: bool, node: str | None) -> None:
    addon = harvester.cluster[r.ADDON].get(DRIVER_TOOLKIT, r.HARVESTER_NAMESPACE)
    if addon is None:
        raise LabError(f"There is no addon {DRIVER_TOOLKIT}.")
    values = harvester.addons.values(DRIVER_TOOLKIT)
    file = "NVIDIA-Linux-x86_64-vgpu-kvm.run"
    values["driverLocation"] = f"{PLACEHOLDER}/{file}" if on else harvester.cluster.scenario.driver_location
    content = yaml.safe_dump(values, sort_keys=False)
    await harvester.cluster[r.ADDON].patch(addon, {"spec": {"valuesContent": content}})


async def _webhook_down(harvester: Harvester, on: bool, node: str | None) -> None:
    await harvester.set_webhook_down(on)


async def _process_down(harvester: Harvester, on: bool, node: str | None) -> None:
    for name in nodes(harvester, node):
        if on:
            harvester.processes[name].kill()
        else:
            harvester.processes[name].start()


async def _addon_fails(harvester: Harvester, on: bool, node: str | None) -> None:
    (harvester.addons.fails.add if on else harvester.addons.fails.discard)(DRIVER_TOOLKIT)


FAULTS = {
    fault.name: fault
    for fault in (
        Fault(
            "driver-missing",
            "the driver does not build: its pod crashes, enabled GPUs get no functions (harvester#10707)",
            _driver_missing,
            per_node=True,
        ),
        Fault("httpendpoint", "the placeholder is still in driverLocation (harvester#5438)", _placeholder),
        Fault("webhook-down", "the pcidevices webhook does not answer, so no rule applies", _webhook_down),
        Fault("process-down", "the pcidevices process of a node, or of all, is gone", _process_down, per_node=True),
        Fault("addon-fails", "the next deployment of nvidia-driver-toolkit ends in OperationFailed", _addon_fails),
    )
}


async def switch(harvester: Harvester, name: str, on: bool, node: str | None) -> None:
    if name not in FAULTS:
        raise LabError(f"There is no fault {name!r}.", hint=f"There are {', '.join((*FAULTS, 'apiserver-restart'))}.")
    if node is not None and not FAULTS[name].per_node:
        raise LabError(f"The fault {name} has no node.", hint="It is one of the whole cluster.")
    await FAULTS[name].switch(harvester, on, node)
