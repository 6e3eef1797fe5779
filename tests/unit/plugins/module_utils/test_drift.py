"""What is told as drift, and what of it may be repaired."""

from __future__ import annotations

from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.drift import harvester_drift, vsphere_drift

Json = dict[str, Any]
Q4 = "NVIDIA A2-4Q"


def slot(name: str, *holders: str, wanted: str = Q4) -> Json:
    return {"name": name, "profile": Q4, "wanted": wanted, "holders": [{"name": holder} for holder in holders]}


def fleet(*slots: Json, findings: list[Json] | None = None, claims: list[Json] | None = None) -> Json:
    nodes = [{"gpus": [{"name": "gpu", "slots": list(slots)}]}]
    return {"nodes": nodes, "vgpus": list(slots), "findings": findings or [], "claims": claims or []}


def found(kind: str, device: str) -> Json:
    return {"kind": kind, "device": device, "text": f"{device} is wrong."}


def kinds(findings: list[Json]) -> list[tuple[str, str, str]]:
    return [(one["kind"], one["device"], one["repair"]) for one in findings]


def test_a_fleet_that_is_in_use_and_as_declared_has_no_drift() -> None:
    same = {"before": {"enabled": True}, "after": {"enabled": True}}
    assert harvester_drift(fleet(slot("a", "vm")), driver={"diff": same}, layout={"plan": {"steps": []}}) == []


def test_a_wrong_type_is_repaired_only_if_no_vm_refers_to_it() -> None:
    seen = fleet(
        slot("free", wanted="NVIDIA A2-4C"),
        slot("held", "vm", wanted="NVIDIA A2-4C"),
        findings=[found("type_differs", "free"), found("type_differs", "held")],
    )
    drift = harvester_drift(seen, unused=False)
    assert kinds(drift) == [("type_differs", "free", "device"), ("type_differs", "held", "")]
    assert drift[0]["wanted"] == {"name": "free", "profile": "NVIDIA A2-4C"}


def test_vms_are_put_in_order_and_everything_else_is_only_told() -> None:
    names = ("stale_note", "two_displays", "not_counted", "broken_note", "mig_out_of_sync", "no_functions")
    drift = harvester_drift(fleet(findings=[found(name, "x") for name in names]))
    assert [one["repair"] for one in drift] == ["vm", "vm", "", "", "", ""]


def test_a_reset_driver_location_is_told_with_both_values() -> None:
    diff = {"before": {"driverLocation": "HTTPENDPOINT/x"}, "after": {"driverLocation": "http://files.example/x"}}
    (one,) = harvester_drift(fleet(), driver={"diff": diff})
    assert kinds([one]) == [("driver_addon", "nvidia-driver-toolkit", "driver")]
    assert "HTTPENDPOINT/x" in one["text"]
    assert "http://files.example/x" in one["text"]


def test_a_driver_that_nobody_declared_a_location_for_cannot_be_repaired() -> None:
    refused = {"error": {"code": "no_driver_location", "message": "HTTPENDPOINT is left."}}
    assert kinds(harvester_drift(fleet(), driver=refused)) == [("driver_addon", "nvidia-driver-toolkit", "")]


def test_a_layout_is_repaired_where_there_is_a_plan() -> None:
    step = {"action": "enable", "gpu": "gpu", "slot": "a", "before": None, "after": Q4}
    assert kinds(harvester_drift(fleet(), layout={"plan": {"steps": [step]}})) == [("layout_differs", "gpu", "layout")]
    refused = {"error": {"code": "does_not_fit", "message": "It does not fit."}}
    assert kinds(harvester_drift(fleet(), layout=refused)) == [("layout_differs", "", "")]


def test_vgpus_that_a_stopped_vm_will_take_are_not_unused() -> None:
    claim = {"profile": Q4, "count": 1}
    assert kinds(harvester_drift(fleet(slot("a"), slot("b"), claims=[claim]))) == [("unused", Q4, "")]
    assert harvester_drift(fleet(slot("a"), claims=[claim])) == []
    assert harvester_drift(fleet(slot("a")), unused=False) == []


def test_a_lost_reservation_is_repaired_only_on_a_vm_that_is_off() -> None:
    def result(name: str, **outcome: Any) -> Json:
        return {"item": {"name": name, "labels": {"moid": f"vm-{name}"}}, **outcome}

    same, other = {"before": {"memory": 1}, "after": {"memory": 1}}, {"before": {"memory": 1}, "after": {"memory": 2}}
    running = {"code": "power_cycle_required", "message": "It runs."}
    drift = vsphere_drift(
        {"findings": [found("driver_missing", "esx1")]},
        [result("fine", diff=same), result("off", diff=other), result("on", error=running)],
    )
    assert kinds(drift) == [("driver_missing", "esx1", ""), ("not_prepared", "off", "vm"), ("not_prepared", "on", "")]
    assert drift[1]["moid"] == "vm-off"
