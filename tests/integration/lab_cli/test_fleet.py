"""Many nodes from one line: each is there with all of its functions, and then nothing more is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.lifecycle import up
from lab.rundir import RunDir
from tests.integration.api import NODES, PCI_DEVICES, SRIOV_GPUS, VGPUS
from tests.integration.labs import Lab

TYPES_OF_AN_L40S = 23


@pytest.fixture
def fleet(run_dir: Path) -> Iterator[Lab]:
    """The lab of this suite as a fleet of three nodes, and as it was afterwards."""
    run = RunDir(run_dir)
    before = run.read()["settings"]
    run.update(settings=before | {"scenario": "fleet", "nodes": 3})
    up.reset(run)
    yield Lab(run)
    run.update(settings=before)
    up.reset(run)


def per_node(lab: Lab, collection: str) -> Counter[str]:
    return Counter(thing["metadata"]["labels"]["nodename"] for thing in lab.items(collection))


def test_every_node_of_a_fleet_has_its_cards_and_functions_and_is_left_alone(fleet: Lab) -> None:
    nodes = ["gpu-1", "gpu-2", "gpu-3"]
    assert sorted(node["metadata"]["name"] for node in fleet.items(NODES)) == nodes
    assert per_node(fleet, SRIOV_GPUS) == dict.fromkeys(nodes, 2)
    assert per_node(fleet, PCI_DEVICES) == dict.fromkeys(nodes, 2 + 64)
    assert per_node(fleet, VGPUS) == dict.fromkeys(nodes, 64)
    vgpus = fleet.items(VGPUS)
    assert {len(vgpu["status"]["availableTypes"]) for vgpu in vgpus} == {TYPES_OF_AN_L40S}
    assert {(vgpu["spec"]["enabled"], vgpu["metadata"]["generation"]) for vgpu in vgpus} == {(False, 1)}
    gpus = fleet.items(SRIOV_GPUS)
    assert {(gpu["spec"]["enabled"], len(gpu["status"]["vfAddresses"])) for gpu in gpus} == {(True, 32)}

    since = fleet.point()
    fleet.advance(90)
    assert fleet.changes(since, SRIOV_GPUS, VGPUS, PCI_DEVICES) == []
