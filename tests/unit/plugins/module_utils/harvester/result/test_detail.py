"""Results of large clusters fit into job events unless every device is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, Holder, Node, Slot
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result import records, summaries
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.version import HarvesterVersion
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record

Q4 = "NVIDIA A2-4Q"
OFFERED = tuple(f"NVIDIA A2-{size}{kind}" for size in (1, 2, 4, 8, 16) for kind in "ABCQ")
LABELS = {f"feature.node.kubernetes.io/cpu-{number}": "true" for number in range(40)}


def gpu(node: str, number: int, *, on: bool) -> Gpu:
    name = f"{node}-0000{number:x}8000"
    vm = Holder("worker", "default", running=True)
    slots = tuple(
        Slot(f"{name}-{slot}", f"0000:{number:x}8:00.{slot}", Q4, Q4, allocatable=True, holders=(vm,) if slot else ())
        if slot < 4
        else Slot(f"{name}-{slot}", f"0000:{number:x}8:00.{slot}", offered=OFFERED)
        for slot in range(16)
    )
    return Gpu(name, node, "harvester", f"0000:{number:x}8:00.0", boards=("A2",), slots=slots if on else (), sharing=on)


def fleet(*, on: bool = True) -> Fleet:
    """16 nodes with 4 GPUs of 16 virtual functions: 1,024 devices."""
    names = [f"gpu-{number:02}" for number in range(16)]
    return Fleet(
        tuple(
            Node(name, gpus=tuple(gpu(name, number, on=on) for number in range(4)), labels=LABELS, advertised={Q4: 16})
            for name in names
        )
    )


def size(result: Any) -> int:
    return len(json.dumps(result))


def test_a_summary_of_1024_devices_has_at_most_20_kb() -> None:
    found = fleet()
    vgpus = records.vgpu_records(found)
    summary = {
        "nodes": [summaries.node_summary(node) for node in found.ordered_nodes],
        "claims": [],
        "profiles": records.profile_records(vgpus, HarvesterVersion((1, 8, 0))),
    }
    assert sum(len(gpu.slots) for gpu in found.gpus) == 1024
    assert size(found.as_dict()) > 400_000
    assert size(summary) <= 19_000
    assert summary["profiles"][0]["total"] == 256
    assert summary["profiles"][0]["in_use"] == 192


def test_a_summary_of_gpus_has_at_most_20_kb_and_the_same_counts() -> None:
    found = fleet()
    names = [gpu.name for gpu in found.gpus]
    short = summaries.gpu_summaries(found, names)
    assert size(short) <= 19_000
    assert [gpu["name"] for gpu in short] == names
    assert short[0]["vgpus"] == {Q4: 4}
    assert (short[0]["in_use"], short[0]["empty"], short[0]["node"]) == (3, 12, "gpu-00")


def test_a_gpu_without_sriov_has_no_devices() -> None:
    assert [gpu["empty"] for gpu in summaries.gpu_summaries(fleet(on=False), ["gpu-00-000008000"])] == [0]


def test_a_summary_is_not_taken_for_a_fleet_without_vgpus() -> None:
    found = fleet()
    summary = {
        "nodes": [summaries.node_summary(node) for node in found.ordered_nodes],
        "claims": [],
        "findings": [],
        "harvester": {"version": "1.8"},
    }
    with pytest.raises(FleetError, match=r"counts its vGPUs instead of listing them\. Read the GPUs with detail: full"):
        fleet_record(summary, cluster="edge")
    with pytest.raises(FleetError, match="Read it with detail: full"):
        Fleet.from_dict(summary)
