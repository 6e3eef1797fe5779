"""What is told as drift, and what of it may be repaired."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import (
    Fleet,
    Gpu,
    Holder,
    Node,
    Slot,
    UnboundRequest,
)
from ansible_collections.vgpu.fleet.plugins.plugin_utils.drift import harvester_drift, vsphere_drift

Json = dict[str, Any]
Q4, C4 = "NVIDIA A2-4Q", "NVIDIA A2-4C"


def slot(name: str, *holders: str, wanted: str = Q4, running: bool = False) -> Slot:
    return Slot(name, profile=Q4, wanted=wanted, holders=tuple(Holder(one, running=running) for one in holders))


def claim(vm: str, *, running: bool = False) -> UnboundRequest:
    return UnboundRequest(Q4, 1, Holder(vm, running=running), node="n1" if running else None)


def fleet(*slots: Slot, findings: list[Json] | None = None, claims: tuple[UnboundRequest, ...] = ()) -> Json:
    nodes = (Node("n1", gpus=(Gpu("gpu", "n1", slots=slots),)),)
    return {**Fleet(nodes, claims).as_dict(), "findings": findings or []}


def found(kind: str, device: str) -> Json:
    return {"kind": kind, "device": device, "text": f"{device} is wrong."}


RESET = {
    "before": {"enabled": True, "values": {"image": {"tag": "v1"}, "driverLocation": "HTTPENDPOINT/x"}},
    "after": {"enabled": True, "values": {"image": {"tag": "v1"}, "driverLocation": "http://files.example/x"}},
}


def kinds(findings: list[Json]) -> list[tuple[str, str, str]]:
    return [(one["kind"], one["device"], one["repair"]) for one in findings]


def test_a_fleet_that_is_in_use_and_as_declared_has_no_drift() -> None:
    same = {"before": {"enabled": True}, "after": {"enabled": True}}
    assert harvester_drift(fleet(slot("a", "vm")), driver={"diff": same}, layout={"plan": {"steps": []}}) == []


def test_a_wrong_type_is_repaired_only_if_no_vm_refers_to_it() -> None:
    slots = (slot("free", wanted=C4), slot("held", "vm", wanted=C4))
    both = [found("type_differs", "free"), found("type_differs", "held")]
    drift = harvester_drift(fleet(*slots, findings=both), unused=False)
    assert kinds(drift) == [("type_differs", "free", "device"), ("type_differs", "held", "")]
    assert (drift[0]["gpu"], drift[0]["wanted"]) == ("gpu", {"name": "free", "profile": C4})


def test_the_spec_of_a_device_that_a_running_vm_uses_is_set_back_to_what_the_device_is() -> None:
    """M11: that changes nothing now, and keeps the VM from losing the device at the next reboot."""
    slots = (slot("free", wanted=C4), slot("held", "vm", wanted=C4, running=True))
    wrong = replace(slot("wrong", "vm", wanted=C4, running=True), hardware=C4)
    both = [found("type_differs", one) for one in ("free", "held", "wrong")]
    drift = harvester_drift(fleet(*slots, wrong, findings=both), unused=False)
    # One that its node hands out as another type than it is cannot be put right under a VM.
    assert kinds(drift) == [
        (*("type_differs", name), repair) for name, repair in (("free", "device"), ("held", "spec"), ("wrong", ""))
    ]
    assert [one["wanted"]["profile"] for one in drift[:2]] == [C4, Q4]
    # A VM that has just been started may have any of them.
    starting = fleet(*slots, findings=both[:2], claims=(claim("starting", running=True),))
    assert [one["wanted"]["profile"] for one in harvester_drift(starting, unused=False)] == [Q4, Q4]


def test_the_declared_layout_counts_for_more_than_what_was_written_into_a_device() -> None:
    seen = fleet(slot("a", wanted=C4), findings=[found("type_differs", "a")])
    step = {"action": "disable", "gpu": "gpu", "slot": "a", "before": Q4, "after": None}
    assert kinds(harvester_drift(seen, layout={"plan": {"steps": [step]}}, unused=False)) == [
        ("type_differs", "a", "layout"),
        ("layout_differs", "gpu", "layout"),
    ]


def test_vms_are_put_in_order_and_everything_else_is_only_told() -> None:
    names = (
        "stale_annotation",
        "two_displays",
        "not_allocatable",
        "invalid_annotation",
        "mig_out_of_sync",
        "no_functions",
    )
    drift = harvester_drift(fleet(findings=[found(name, "x") for name in names]))
    assert [one["repair"] for one in drift] == ["vm", "vm", "", "", "", ""]


def test_u15_a_controller_is_restarted_only_on_request() -> None:
    seen = fleet(slot("a"), findings=[found("not_allocatable", "a")])
    assert kinds(harvester_drift(seen, unused=False)) == [("not_allocatable", "a", "")]
    (one,) = harvester_drift(seen, unused=False, restart_controllers=True)
    assert (one["repair"], one["node"]) == ("controller", "n1")


def test_a_reset_driver_location_is_told_with_both_values() -> None:
    (one,) = harvester_drift(fleet(), driver={"diff": RESET})
    assert kinds([one]) == [("driver_addon", "nvidia-driver-toolkit", "driver")]
    assert "not as declared: driverLocation is HTTPENDPOINT/x and should be http://files.example/x." in one["text"]


def test_the_driver_is_left_alone_under_vms_that_run_and_on_nodes_that_were_not_looked_at() -> None:
    for used in (fleet(slot("a", "vm", running=True)), fleet(slot("a"), claims=(claim("vm", running=True),))):
        (one,) = harvester_drift(used, driver={"diff": RESET}, unused=False)
        assert (one["kind"], one["repair"]) == ("driver_addon", "")
        assert one["text"].endswith("No repair while VMs have vGPUs: vm.")
    (stopped,) = harvester_drift(fleet(slot("a", "vm")), driver={"diff": RESET})
    assert stopped["repair"] == "driver"
    (partly,) = harvester_drift(fleet(), driver={"diff": RESET}, all_nodes=False)
    assert partly["repair"] == ""


def test_a_driver_that_nobody_declared_a_location_for_cannot_be_repaired() -> None:
    refused = {"error": {"code": "no_driver_location", "message": "HTTPENDPOINT is left."}}
    assert kinds(harvester_drift(fleet(), driver=refused)) == [("driver_addon", "nvidia-driver-toolkit", "")]


def test_d1_an_addon_that_nobody_declared_is_not_judged() -> None:
    """The role does not ask harvester_addon then, and Ansible registers a task that was skipped."""
    assert harvester_drift(fleet(), driver={"changed": False, "skipped": True}) == []


def test_d2_what_is_more_than_an_exclusive_layout_asks_for_is_told() -> None:
    step = {"action": "disable", "gpu": "gpu", "slot": "a", "before": Q4, "after": None}
    (one,) = harvester_drift(fleet(slot("a")), layout={"plan": {"steps": [step]}}, unused=False)
    assert kinds([one]) == [("layout_differs", "gpu", "layout")]
    assert f"a: {Q4} -> empty" in one["text"]


def test_d2_vgpus_of_another_owner_do_not_hide_the_drift_of_an_exclusive_layout() -> None:
    refused = {"error": {"code": "device_in_use", "message": "vGPU b is held by owner green."}}
    step = {"action": "enable", "gpu": "gpu", "slot": "a", "before": None, "after": Q4}
    shared = {"plan": {"steps": [step]}}
    found = harvester_drift(fleet(slot("b")), layout=refused, shared_layout=shared, unused=False)
    assert kinds(found) == [("layout_differs", "", ""), ("layout_differs", "gpu", "layout")]
    assert "beyond the exclusive layout" in found[0]["text"]
    assert "owner green" in found[0]["text"]
    # A layout that is not possible at all is one finding, and a comparison that was not needed is none.
    for other in (refused, {"skipped": True}, None):
        (only,) = harvester_drift(fleet(slot("b")), layout=refused, shared_layout=other, unused=False)
        assert "is not possible" in only["text"]
    assert harvester_drift(fleet(slot("b")), layout={"plan": {"steps": []}}, unused=False) == []


def test_d2_mig_instances_are_compared_with_those_that_were_declared() -> None:
    cut = {"steps": [{"action": "create_mig_instances", "gpu": "a100"}]}
    refused = {"error": {"code": "in_use", "message": "VM x uses it."}}
    drift = harvester_drift(fleet(), mig=[cut, {"steps": []}, refused])
    assert kinds(drift) == [("mig_layout_differs", "a100", "mig"), ("mig_layout_differs", "", "")]
    assert "VM x uses it." in drift[1]["text"]


def test_a_layout_is_repaired_where_there_is_a_plan() -> None:
    step = {"action": "enable", "gpu": "gpu", "slot": "a", "before": None, "after": Q4}
    assert kinds(harvester_drift(fleet(), layout={"plan": {"steps": [step]}})) == [("layout_differs", "gpu", "layout")]
    refused = {"error": {"code": "does_not_fit", "message": "It does not fit."}}
    assert kinds(harvester_drift(fleet(), layout=refused)) == [("layout_differs", "", "")]


def test_vgpus_that_a_stopped_vm_will_take_are_not_unused() -> None:
    claims = (claim("vm"),)
    assert kinds(harvester_drift(fleet(slot("a"), slot("b"), claims=claims))) == [("unused", Q4, "")]
    assert harvester_drift(fleet(slot("a"), claims=claims)) == []
    assert harvester_drift(fleet(slot("a")), unused=False) == []


def test_a_lost_reservation_is_repaired_only_on_a_vm_that_is_off() -> None:
    def result(name: str, **outcome: Any) -> Json:
        return {"item": {"name": name, "labels": {"moid": f"vm-{name}"}}, **outcome}

    def lacking(power: str, **needs: Any) -> Json:
        return {"vm": {"power": power}, "diff": {"before": {}, "after": needs}}

    cycle = {"code": "power_cycle_required", "message": "VM old runs and has to be powered off."}
    drift = vsphere_drift(
        {"findings": [found("driver_missing", "esx1")]},
        [
            result("fine", **lacking("off")),
            result("off", **lacking("off", memory_reservation_locked=True, mmio_size_gb=64)),
            result("on", **lacking("on", memory_reservation_locked=True)),
            result("asleep", **lacking("suspended", memory_reservation_locked=True)),
            result("old", error=cycle),
            result("gone", error={"code": "vm_not_found", "message": "There is no VM gone."}),
        ],
    )
    assert kinds(drift) == [
        ("driver_missing", "esx1", ""),
        ("not_prepared", "off", "vm"),
        ("not_prepared", "on", ""),
        ("not_prepared", "asleep", ""),
        ("not_prepared", "old", ""),
        ("vm", "gone", ""),
    ]
    assert drift[1]["moid"] == "vm-off"
    assert drift[1]["text"].endswith(": its memory is not reserved; its MMIO region is too small.")


@pytest.mark.parametrize(("asked", "kinds"), [(False, []), (True, ["cannot_be_emptied"])])
def test_hosts_that_cannot_be_emptied_are_findings_on_demand(asked, kinds):
    blocked = {"possible": False, "automatic": False, "reasons": ["It is off."], "vms": [{"name": "trainer"}]}
    nodes = [
        {"name": "esx1", "evacuation": blocked},
        {"name": "esx2", "evacuation": {**blocked, "possible": True}},
        {"name": "esx3", "evacuation": None},
    ]
    drift = vsphere_drift({"findings": [], "nodes": nodes}, evacuation=asked)
    assert [(one["kind"], one["device"]) for one in drift] == [(kind, "esx1") for kind in kinds]
