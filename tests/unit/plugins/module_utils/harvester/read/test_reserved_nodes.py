"""Nodes that a label reserves for containers, from Harvester 1.9 on."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import Availability
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import NothingSelected
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.availability import NodeCapacity
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.result.findings import findings
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import selected

from tests.unit.plugins.module_utils.harvester.objects import Q4, gpu, node, snapshot, vgpu


def reserved(name: str = "n2") -> dict[str, Any]:
    made = node(name)
    made["metadata"]["labels"] = {r.BARE_METAL_LABEL: "true"}
    return made


@pytest.mark.parametrize(("version", "counts"), [("1.8", True), ("1.9", False)])
def test_the_label_means_something_from_1_9_on(version: str, counts: bool) -> None:
    taken = snapshot(version, vgpus=[vgpu()], nodes=[node(), reserved()])
    (_first, second) = taken.fleet.ordered_nodes
    assert second.usable == counts
    assert second.as_dict()["reserved_for_containers"] != counts
    availability = Availability(taken.fleet, frozenset({"n1", "n2"}))
    assert availability.node_records()[1]["reason"] == ("" if counts else "reserved for containers")
    told = NodeCapacity(availability).describe("NVIDIA L40S-1Q")
    assert ("The GPUs of n2 are reserved for containers" in told) != counts
    with pytest.raises(NothingSelected) as refused:
        selected(taken.fleet, ("n2",), None)
    assert ("reserved for containers" in str(refused.value)) != counts


@pytest.mark.parametrize(("version", "kinds"), [("1.8", []), ("1.9", ["reserved_node"])])
def test_gpus_that_harvester_is_about_to_remove_are_a_finding(version: str, kinds: list[str]) -> None:
    taken = snapshot(version, gpus=[gpu("n2")], vgpus=[vgpu(node="n2")], nodes=[reserved()])
    assert [one.kind for one in findings(taken, taken.fleet)] == kinds
    if kinds:
        room = NodeCapacity(Availability(taken.fleet, frozenset({"n2"})))
        assert list(room.changes([Q4], lambda _room: True, [])) == []
