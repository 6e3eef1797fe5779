"""A task for one owner marks what it enables, and disables nothing of another owner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.runner import patch_for
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.devices import DeviceRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.layout import VgpuRequest, request_from
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.owners import marked, marked_as_before
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.plan import Plan
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Demand, Policy
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.steps import Step

from tests.unit.plugins.module_utils.fleets import fleet, gpu, vm
from tests.unit.plugins.module_utils.harvester.objects import Q4, snapshot, vgpu
from tests.unit.plugins.plugin_utils.test_removal import owned

FOUR_Q, TWO_Q = "NVIDIA A2-4Q", "NVIDIA A2-2Q"
# Two of blue, one of nobody, one of red.
OWNERS = {"n1:a-00": "blue", "n1:a-01": "blue", "n1:a-03": "red"}


def of_three(vgpus: str = "4Q 4Q 4Q 4Q", **more: Any) -> Fleet:
    return owned(fleet(gpu("n1:a", vgpus), **more), OWNERS)


def planned(record: Fleet, *demands: Demand, owner: str | None = "red", **policy: Any) -> Plan:
    return VgpuRequest(demands=demands, policy=Policy(**policy), owner=owner).plan(record)


def changes(plan: Plan) -> list[tuple[str, str | None, str | None]]:
    return [(step.action, step.slot, step.owner) for step in plan.steps]


def test_new_vgpus_carry_the_mark_and_those_that_are_there_get_none() -> None:
    plan = planned(fleet(gpu("n1:a", "4Q 4Q")), Demand(FOUR_Q, 3))
    assert changes(plan) == [("enable", "n1:a-02", "red")]
    slots = {slot.name: slot.owner for _gpu, slot in plan.after.slots() if not slot.empty}
    assert slots == {"n1:a-00": None, "n1:a-01": None, "n1:a-02": "red"}
    assert changes(planned(fleet(gpu("n1:a", "4Q 4Q")), Demand(FOUR_Q, 3), owner=None))[0][2] is None


def test_a_lower_count_disables_own_and_unmarked_ones_only() -> None:
    plan = planned(of_three(), Demand(FOUR_Q, 2))
    assert {step.slot for step in plan.steps} == {"n1:a-02", "n1:a-03"}
    # The owner is no VM, so nothing of it is left in what the task returns.
    assert not any(slot.holders for _gpu, slot in plan.after.slots())
    with pytest.raises(FleetError, match=r"VMs and other owners hold 2 of them.*held by owner blue") as refused:
        planned(of_three(), Demand(FOUR_Q, 1))
    assert refused.value.code == "device_in_use"
    # Without an owner it is as it always was.
    assert len(planned(of_three(), Demand(FOUR_Q, 1), owner=None).steps) == 3


@pytest.mark.parametrize("policy", [{"exclusive": True, "reprofile": True}, {"reprofile": True}])
def test_exclusive_and_reprofile_refuse_and_name_the_owner(policy: dict[str, bool]) -> None:
    with pytest.raises(FleetError, match="owner blue"):
        planned(of_three(), Demand(TWO_Q, 8), **policy)
    assert planned(of_three(), Demand(TWO_Q, 8), owner=None, **policy).steps


def test_a_named_device_of_another_owner_is_refused() -> None:
    request = DeviceRequest("n1:a-00", enabled=False)
    with pytest.raises(FleetError, match="n1:a-00 of owner blue cannot be disabled for owner red") as refused:
        VgpuRequest(devices=(request,), owner="red").plan(of_three())
    assert (refused.value.code, refused.value.as_dict()["devices"][0]["owner"]) == ("other_owner", "blue")
    for owner, name in (("blue", "n1:a-00"), ("red", "n1:a-02"), (None, "n1:a-00")):
        assert VgpuRequest(devices=(replace(request, name=name),), owner=owner).plan(of_three()).steps


def test_a_vm_that_names_no_device_may_take_one_of_any_owner() -> None:
    stopped = UnboundRequest(FOUR_Q, 2, vm("idle", running=False))
    plan = planned(of_three(claims=[stopped]), Demand(FOUR_Q, 2))
    assert {step.slot for step in plan.steps} == {"n1:a-02", "n1:a-03"}


@pytest.mark.parametrize("owner", ["", "-x", "a" * 64, "team blue"])
def test_an_owner_has_to_be_a_label_value(owner: str) -> None:
    single = dict.fromkeys(("layout", "devices", "profile", "count", "per", "nodes", "gpus", "state"))
    flags = dict.fromkeys(("exclusive", "reprofile", "enable_sriov", "enable_mig"), False)
    with pytest.raises(FleetError, match="cannot be a mark"):
        request_from({**single, **flags, "placement": "consolidate", "name": "n1:a-00", "owner": owner})


def test_the_mark_is_part_of_the_request_that_enables_and_goes_with_the_one_that_disables() -> None:
    bare = vgpu()
    name = bare["metadata"]["name"]
    enable, disable = Step("enable", "n1", "g", name, after=Q4), Step("disable", "n1", "g", name)

    def body(step: Step, **marks: str) -> Any:
        device = {**bare, "metadata": {**bare["metadata"], "annotations": marks}}
        return patch_for(step, snapshot(vgpus=[device]))[2]

    stale = {r.OWNER_ANNOTATION: "blue"}
    assert body(replace(enable, owner="red")) == {
        "metadata": {"annotations": {r.OWNER_ANNOTATION: "red"}},
        "spec": {"enabled": True, "vGPUTypeName": Q4},
    }
    assert "metadata" not in body(enable)
    assert "metadata" not in body(disable)
    for step in (enable, disable):
        assert body(step, **stale)["metadata"]["annotations"] == {r.OWNER_ANNOTATION: None}


def test_a_vgpu_that_is_only_enabled_again_keeps_its_mark_whoever_asks_for_it() -> None:
    """As the repair of drift does: it disables a device and enables it as its spec says."""
    record = owned(fleet(gpu("n1:a", "4Q~4C 4Q")), {"n1:a-00": "blue"})
    request = DeviceRequest("n1:a-00", "NVIDIA A2-4C")
    plan = VgpuRequest(devices=(request,), policy=Policy(reprofile=True)).plan(record)
    assert changes(plan) == [("disable", "n1:a-00", None), ("enable", "n1:a-00", "blue")]
    # Another profile is another vGPU.
    other = DeviceRequest("n1:a-00", "NVIDIA A2-4A")
    plan = VgpuRequest(devices=(other,), policy=Policy(reprofile=True)).plan(record)
    assert changes(plan)[-1] == ("enable", "n1:a-00", None)


def test_a_vgpu_that_comes_back_on_another_device_keeps_its_mark() -> None:
    """On new MIG instances, vGPUs come back on the devices that are empty."""
    record = owned(fleet(gpu("n1:a", "4Q 4Q 2Q")), {"n1:a-00": "blue", "n1:a-02": "red"})
    gone = [Step("disable", "n1", "n1:a", f"n1:a-0{number}") for number in range(3)]
    made = [Step("enable", "n1", "n1:a", f"n1:a-0{number}", after=FOUR_Q) for number in (1, 3, 4)]
    cut = Step("create_mig_instances", "n1", "n1:a", after="2 x 1g.5gb")

    def owners(*steps: Step) -> list[str | None]:
        return [step.owner for step in marked(record, steps, "green") if step.action == "enable"]

    # The one without a mark comes back without one, blue's comes back elsewhere, and the third is new.
    assert owners(*gone, cut, *made) == [None, "blue", "green"]
    # Without new instances, what is enabled on another device is new. So it is on another GPU.
    assert owners(*gone, *made) == [None, "green", "green"]
    assert owners(*gone, replace(cut, gpu="n1:b"), *made) == [None, "green", "green"]
    # The device may not be known yet.
    unknown = [replace(made[0], slot=None)] * 3
    assert owners(*gone, cut, *unknown) == ["blue", None, "green"]


def test_vgpus_of_another_profile_belong_to_the_owner_of_those_before() -> None:
    steps = [Step("enable", "n1", "g", slot, after=TWO_Q) for slot in ("a", "b", "c")]

    def owners(**before: str | None) -> list[str | None]:
        return [step.owner for step in marked_as_before(steps, {"g": before})]

    assert owners(a="blue", b="blue") == ["blue", "blue", "blue"]
    assert owners(a="blue", b="red") == ["blue", "red", None]
    assert owners(a="blue", b=None) == ["blue", None, None]
    assert owners() == [None, None, None]


def test_a_mark_on_a_disabled_vgpu_means_nothing() -> None:
    def seen(**state: Any) -> str | None:
        device = vgpu(**state)
        device["metadata"]["annotations"] = {r.OWNER_ANNOTATION: "blue"}
        return next(slot.owner for _gpu, slot in snapshot(vgpus=[device]).fleet.slots())

    assert seen(asked=Q4, configured=Q4) == "blue"
    assert seen() is None
