"""Nodes whose GPUs a label reserves for containers: from 1.9 on, and not before."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.integration.api import DAEMON_SETS, NODES, PCI_DEVICES, SRIOV_GPUS
from tests.integration.lab_harvester.beginnings import GPU_A, GPU_B, one_card_split
from tests.integration.labs import Lab

LABEL = "harvesterhci.io/gpu-baremetal-workloads"
DRIVER_NEEDED = "sriovgpu.harvesterhci.io/driver-needed"


def marked(value: str | None) -> dict[str, object]:
    return {"metadata": {"labels": {LABEL: value}}}


@pytest.mark.parametrize(("version", "removed"), [("1.8", False), ("1.9", True)])
def test_a_reserved_node_loses_its_gpus_and_keeps_its_pci_devices(
    labs: Callable[[str], Lab], version: str, removed: bool
) -> None:
    lab = labs("vfio").begin(version=version, arranged=one_card_split)
    # An enabled GPU is in the way, from 1.9 on.
    answer = lab.api.patch(f"{NODES}/gpu-a", marked("true"))
    assert (answer.status == 500) == removed
    if removed:
        assert f"node gpu-a has enabled SRIOV GPU devices {GPU_A}" in answer.body["message"]
    lab.write(f"{NODES}/gpu-b", marked("true"))
    lab.advance(120)
    assert (GPU_B not in {one["metadata"]["name"] for one in lab.items(SRIOV_GPUS)}) == removed
    assert GPU_B in {one["metadata"]["name"] for one in lab.items(PCI_DEVICES)}
    assert (DRIVER_NEEDED not in lab.read(f"{NODES}/gpu-b")["metadata"]["labels"]) == removed
    assert (LABEL in json.dumps(lab.read(f"{DAEMON_SETS}/nvidia-driver-runtime")["spec"])) == removed
    lab.write(f"{NODES}/gpu-b", marked(None))
    lab.until(lambda: GPU_B in {one["metadata"]["name"] for one in lab.items(SRIOV_GPUS)}, within=120)
