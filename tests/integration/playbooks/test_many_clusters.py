"""Several Harvesters at once, by an inventory with one host for each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.lifecycle import up
from tests.integration.labs import Lab
from tests.integration.playbooks.runs import Runs
from tests.integration.warm_interpreter import Warm

# Small ones: VMs are stored and not run.
SMALL: dict[str, Any] = {"speed": 50.0, "without": ["kubevirt", "vsphere"]}


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Lab]]:
    versions = {"edge-1": "1.7", "edge-2": "1.8", "edge-3": "1.4", "edge-4": "1.9"}
    labs: dict[str, Lab] = {}
    try:
        for name, version in versions.items():
            labs[name] = Lab(up.start(tmp_path_factory.mktemp(name), harvester_version=version, **SMALL))
        yield labs
    finally:
        for lab in labs.values():
            up.stop(lab.run)


def reached(edges: dict[str, Lab]) -> dict[str, dict[str, Any]]:
    return {name: {"harvester_kubeconfig": str(lab.run.kubeconfig("admin"))} for name, lab in edges.items()}


def test_each_cluster_gets_its_own_layout_and_its_own_report(edges: dict[str, Lab], tmp_path: Path, warm: Warm) -> None:
    hosts = reached(edges)
    hosts["edge-2"]["harvester_gpu_node_layout"] = [{"profile": "A2-8Q", "count": 2}]
    hosts["edge-4"]["harvester_gpu_node_nodes"] = ["gpu-a"]
    common = {"harvester_gpu_node_layout": [{"profile": "A2-4Q", "count": 2, "per": "node"}]}
    inventory = {"harvesters": {"hosts": hosts, "vars": common}}
    runs = Runs(tmp_path, {}, warm)
    chosen = {"vgpu_fleet_hosts": "harvesters"}

    made = runs.playbook("harvester_gpu_cluster", chosen, inventory=inventory, options="--forks 10")
    assert made.status == "successful", made.shown
    counts = made.artifacts["vgpu_capacity"]
    assert {name: {key: one["total"] for key, one in counts[name]["profiles"].items()} for name in edges} == {
        "edge-1": {"A2-4Q": 4},
        "edge-2": {"A2-8Q": 2},
        "edge-3": {"A2-4Q": 4},
        "edge-4": {"A2-4Q": 2},
    }
    assert edges["edge-1"].amounts("gpu-a") == {"nvidia.com/NVIDIA_A2-4Q": 2}
    again = runs.playbook("harvester_gpu_cluster", chosen, inventory=inventory, options="--forks 10")
    assert (again.status, again.changed) == ("successful", 0)

    # Another layout on some of them, and the way back on all.
    change = {
        "vgpu_fleet_hosts": "edge-1:edge-3",
        "vgpu_fleet_serial": 1,
        "vgpu_reprofile_nodes": ["gpu-a"],
        "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 1}],
    }
    changed = runs.playbook("reprofile", change, inventory=inventory)
    assert changed.status == "successful", changed.shown
    assert len(changed.results("playbook_on_play_start")) == 2
    drifted = runs.playbook("drift", chosen, inventory=inventory)
    found = {name: {one["kind"] for one in some} for name, some in drifted.artifacts["vgpu_drift"].items()}
    # On edge-4 nothing was declared for the node that has nothing.
    assert {name for name, kinds in found.items() if "layout_differs" in kinds} == {"edge-1", "edge-3"}
    # What reprofile has made is not what was declared.
    back = {**chosen, "vgpu_teardown_confirm": True, "vgpu_teardown_scope": "everything"}
    gone = runs.playbook("teardown", back, inventory=inventory)
    assert gone.status == "successful", gone.shown
    assert [sum(lab.amounts("gpu-a").values()) for lab in edges.values()] == [0, 0, 0, 0]


def test_a_cluster_that_fails_does_not_keep_the_others_from_working(
    edges: dict[str, Lab], tmp_path: Path, warm: Warm
) -> None:
    hosts = reached(edges)
    hosts["edge-1"]["harvester_kubeconfig"] = str(edges["edge-1"].run.kubeconfig("expired"))
    runs = Runs(tmp_path, {}, warm)
    looked = runs.playbook("capacity", {"vgpu_fleet_hosts": "all"}, inventory={"all": {"hosts": hosts}})
    assert looked.status == "failed"
    assert sorted(looked.artifacts["vgpu_capacity"]) == ["edge-2", "edge-3", "edge-4"]
