"""What a task says about the layout that it leaves."""

from __future__ import annotations

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.layout import VgpuRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand

from tests.unit.plugins.module_utils.fleets import fleet, gpu
from tests.unit.plugins.module_utils.harvester.objects import snapshot


def warnings(record: Fleet, count: int) -> list[str]:
    return VgpuRequest(demands=(Demand("A2-4Q", count),)).plan_for(record, snapshot()).warnings


def test_vgpus_that_have_to_stay_are_named_with_the_reason() -> None:
    record = fleet(gpu("n1:a", "4Q"), gpu("n2:a", "4Q 4Q"), gpu("n3:a", "4Q"), down=["n2", "n3"])
    assert warnings(record, 0) == [
        "There are more vGPUs than requested. n2:a-00 (NVIDIA A2-4Q), n2:a-01 (NVIDIA A2-4Q) cannot be disabled:"
        " node n2 is not ready. Run the task again when this has changed.",
        "There are more vGPUs than requested. n3:a-00 (NVIDIA A2-4Q) cannot be disabled: node n3 is not ready."
        " Run the task again when this has changed.",
    ]
    assert warnings(record, 3) == []
