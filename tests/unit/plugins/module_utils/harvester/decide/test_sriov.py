from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.sriov import plan_sriov

from tests.unit.plugins.module_utils.harvester.objects import Q4, gpu, node, snapshot, vgpu, vm

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"


def planned(*, enabled, nodes=("*",), disable_vgpus=False, **things):
    return plan_sriov(snapshot(**things).fleet, nodes=nodes, gpus=None, enabled=enabled, disable_vgpus=disable_vgpus)


def test_only_gpus_that_are_off_are_switched_on():
    fleet = snapshot(gpus=[gpu("n1"), gpu("n2", enabled=False)], nodes=[node("n1"), node("n2")]).fleet
    plan = plan_sriov(fleet, nodes=None, gpus=["n*"], enabled=True)
    assert [(step.action, step.gpu) for step in plan.steps] == [("enable_sriov", "n2-000008000")]
    assert plan.gpus == ("n1-000008000", "n2-000008000")
    assert all(one.sharing for one in plan.after.gpus)


def test_unused_vgpus_go_first_if_they_may():
    plan = planned(enabled=False, disable_vgpus=True, vgpus=[vgpu(5, asked=Q4, configured=Q4), vgpu(4)])
    assert [(step.action, step.slot) for step in plan.steps] == [("disable", "n1-000008005"), ("disable_sriov", None)]
    (only,) = plan.after.gpus
    assert not only.sharing
    assert only.slots == ()


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"enabled": False, "vgpus": [vgpu(asked=Q4, configured=Q4)]}, "vgpus_enabled"),
        ({"enabled": False, "vgpus": [vgpu(asked=Q4)]}, "vgpus_enabled"),
        (
            {
                "enabled": False,
                "disable_vgpus": True,
                "vgpus": [vgpu(asked=Q4, configured=Q4)],
                "vms": [vm("v", devices=[("n1-000008004", RESOURCE)])],
            },
            "device_in_use",
        ),
        (
            {
                "enabled": True,
                "gpus": [gpu(enabled=False)],
                "claims": [{"metadata": {"name": "n1-000008000"}, "spec": {}}],
            },
            "gpu_blocked",
        ),
    ],
)
def test_refusals(options, code):
    with pytest.raises(FleetError) as caught:
        planned(**options)
    assert caught.value.code == code


def test_no_match_is_an_error_that_lists_what_exists():
    with pytest.raises(FleetError, match="There are: n1") as caught:
        plan_sriov(snapshot().fleet, nodes=["n2"], gpus=None, enabled=True)
    assert caught.value.code == "nothing_selected"


def test_the_vgpus_left_for_a_stopped_vm_have_to_be_on_one_node():
    """A VM does not start with one vGPU of each node, so two elsewhere are not enough for it."""
    names = ("n1", "n2", "n3")
    record = snapshot(
        gpus=[gpu(name) for name in names],
        nodes=[node(name) for name in names],
        vgpus=[
            vgpu(function, node=name, asked=Q4, configured=Q4)
            for name, function in (("n1", 4), ("n1", 5), ("n2", 4), ("n3", 4))
        ],
        vms=[vm("idle", devices=[("a", RESOURCE), ("b", RESOURCE)])],
    ).fleet
    assert plan_sriov(record, nodes=["n2", "n3"], gpus=None, enabled=False, disable_vgpus=True).steps
    with pytest.raises(FleetError, match=r"too few vGPUs would be left.*default/idle"):
        plan_sriov(record, nodes=["n1"], gpus=None, enabled=False, disable_vgpus=True)
