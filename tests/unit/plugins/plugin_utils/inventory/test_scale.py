"""A thousand running machines cost as many requests as one, and each is told with its device."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.plugin_utils.inventory import harvester_machines

from tests.unit.plugins.module_utils.harvester import objects
from tests.unit.plugins.module_utils.harvester.objects import Q4
from tests.unit.plugins.module_utils.harvester.server import Asked, Server

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
PER_NODE = 4
MOST_REQUESTS = 8


def lists(machines: int) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {
        path: [] for path in (r.GPUS, r.VGPUS, r.NODES, r.VMS, r.INSTANCES, r.CLAIMS, r.KUBEVIRTS)
    }
    for number in range(machines):
        node, function = f"n{number // PER_NODE:03}", 4 + number % PER_NODE
        if function == PER_NODE:
            found[r.GPUS].append(objects.gpu(node))
            found[r.NODES].append(objects.node(node, q4=PER_NODE))
        vgpu = objects.vgpu(function, node=node, asked=Q4, configured=Q4)
        note = json.dumps({"hostdevices": {RESOURCE: [vgpu["metadata"]["name"]]}})
        vm = objects.vm(f"vm-{number}", devices=[("vgpu-0", RESOURCE)], note=note)
        found[r.VGPUS].append(vgpu)
        found[r.CLAIMS].append(objects.claim(function, node=node))
        found[r.VMS].append(vm)
        found[r.INSTANCES].append(objects.started(vm, on=node))
    return found


@pytest.mark.parametrize("machines", [1, 1000])
def test_requests_do_not_grow_with_machines(machines: int) -> None:
    there = lists(machines)

    def answer(asked: Asked) -> tuple[int, Any]:
        if asked.path == r.SERVER_VERSION:
            return 200, {"value": "v1.8.0"}
        return 200, {"metadata": {"resourceVersion": "1"}, "items": there[asked.path]}

    server = Server(answer)
    found = harvester_machines.read({"host": server.url, "api_key": "any"})
    server.stop()
    assert len(found) == machines
    assert all(record["variables"]["gpus"] for record in found)
    assert len(server.asked) <= MOST_REQUESTS
