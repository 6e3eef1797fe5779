"""A thousand devices cost as many requests as ten: everything is listed, nothing is asked for one by one."""

from __future__ import annotations

import json
import threading

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.apply import apply_steps
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.cluster import Cluster
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide import layout as vgpu_layout

from tests.unit.plugins.module_utils.harvester.server import Server

PROFILE, RESOURCE = "NVIDIA L40S-1Q", "nvidia.com/NVIDIA_L40S-1Q"
FUNCTIONS = 32
MOST_REQUESTS = 8


class Fleet:
    """Nodes with two L40S each, all functions of which are L40S-1Q, or empty; what is written comes about at once."""

    def __init__(self, nodes: int, *, made: bool) -> None:
        self.lists = {path: {} for path in (r.GPUS, r.VGPUS, r.NODES, r.VMS, r.INSTANCES, r.CLAIMS, r.KUBEVIRTS)}
        self.events = []
        self._lock = threading.Lock()
        for number in range(nodes):
            self._add_node(f"n{number:02}", made)
        self.server = Server(self._answer)

    def _add_node(self, node: str, made: bool) -> None:
        count = 2 * FUNCTIONS if made else 0
        self.lists[r.NODES][node] = self._node(node, count)
        for bus in ("17", "ae"):
            card = f"0000:{bus}:00.0"
            addresses = [f"0000:{bus}:{4 + place:02x}.0" for place in range(FUNCTIONS)]
            names = [r.device_name(node, address) for address in addresses]
            self.lists[r.GPUS][r.device_name(node, card)] = {
                "metadata": {"name": r.device_name(node, card), "labels": {"nodename": node}},
                "spec": {"address": card, "nodeName": node, "enabled": True},
                "status": {"vfAddresses": addresses, "vGPUDevices": names},
            }
            for name, address in zip(names, addresses, strict=True):
                self.lists[r.VGPUS][name] = self._vgpu(name, node, address, card, made, 1)
                if made:
                    self.lists[r.CLAIMS][name] = self._claim(name)

    @staticmethod
    def _node(node: str, count: int, revision: int = 1):
        return {
            "metadata": {"name": node, "resourceVersion": str(revision)},
            "status": {
                "allocatable": {RESOURCE: str(count)},
                "capacity": {RESOURCE: str(count)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }

    @staticmethod
    def _vgpu(name: str, node: str, address: str, card: str, made: bool, revision: int):
        done = {"vGPUStatus": r.CONFIGURED, "uuid": "1147", "configureVGPUTypeName": PROFILE}
        return {
            "metadata": {"name": name, "labels": {"nodename": node}, "resourceVersion": str(revision)},
            "spec": {
                "address": address,
                "nodeName": node,
                "parentGPUDeviceAddress": card,
                "enabled": made,
                "vGPUTypeName": PROFILE if made else "",
            },
            "status": done if made else {"availableTypes": {PROFILE: "1147"}},
        }

    @staticmethod
    def _claim(name: str, revision: int = 1):
        annotations = {r.OVERRIDE_ANNOTATION: RESOURCE}
        return {
            "metadata": {"name": name, "annotations": annotations, "resourceVersion": str(revision)},
            "status": {"passthroughEnabled": True},
        }

    def _answer(self, asked):
        path = asked.path.split("?")[0]
        if asked.method == "PATCH":
            with self._lock:
                return 200, self._make(path.rsplit("/", 1)[-1])
        if "watch=1" in asked.path:
            return 200, [event for kind, event in self.events if kind == path]
        if path == r.SERVER_VERSION:
            return 200, {"value": "v1.8.0"}
        return 200, {"metadata": {"resourceVersion": "1"}, "items": list(self.lists[path].values())}

    def _make(self, name: str):
        before = self.lists[r.VGPUS][name]
        revision, node, spec = len(self.events) + 10, before["spec"]["nodeName"], before["spec"]
        made = self._vgpu(name, node, spec["address"], spec["parentGPUDeviceAddress"], True, revision)
        self.lists[r.VGPUS][name] = made
        count = int(self.lists[r.NODES][node]["status"]["allocatable"][RESOURCE]) + 1
        self.lists[r.NODES][node] = self._node(node, count, revision)
        for path, thing in (
            (r.VGPUS, made),
            (r.CLAIMS, self._claim(name, revision)),
            (r.NODES, self.lists[r.NODES][node]),
        ):
            self.events.append((path, {"type": "MODIFIED", "object": json.loads(json.dumps(thing))}))
        return made

    def ask(self):
        options = dict.fromkeys(("devices", "name", "state", "layout", "nodes", "gpus"))
        policy = dict.fromkeys(("exclusive", "reprofile", "enable_sriov", "enable_mig"), False)
        asked = {"profile": PROFILE, "count": FUNCTIONS, "per": "gpu", "placement": "consolidate"}
        params = {**options, **policy, **asked}
        request = vgpu_layout.request_from(params)
        # How often a wait looks for causes depends on the time, not on the number of devices.
        cluster = Cluster.connect({"host": self.server.url, "api_key": "any", "fail_fast": False})
        plan = request.plan_for(cluster.fleet_for_planning, cluster.snapshot)
        return apply_steps(cluster, plan.steps, plan.conditions, plan.after, check_mode=False, wait=True, seconds=60)


@pytest.mark.parametrize("nodes", [1, 16])
def test_all_in_place(nodes: int) -> None:
    fleet = Fleet(nodes, made=True)
    applied = fleet.ask()
    fleet.server.stop()
    assert not applied.steps
    assert len(fleet.server.asked) <= MOST_REQUESTS
    assert {asked.method for asked in fleet.server.asked} == {"GET"}


def test_a_thousand_that_change_take_a_patch_each_and_no_more_reads_than_a_few() -> None:
    reads = []
    for nodes in (1, 16):
        fleet = Fleet(nodes, made=False)
        applied = fleet.ask()
        fleet.server.stop()
        patches = [asked.path for asked in fleet.server.asked if asked.method == "PATCH"]
        total = nodes * 2 * FUNCTIONS
        assert len(applied.steps) == len(patches) == len(set(patches)) == total
        lists = [asked.path for asked in fleet.server.asked if asked.method == "GET" and "watch=1" not in asked.path]
        reads.append(len(lists))
        assert not any("/vgpudevices/" in path for path in lists)
    assert reads[0] == reads[1] <= MOST_REQUESTS
