"""The record that maps, metrics and exports are made from."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.availability.counts import Availability
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import (
    STATES,
    NotAFleet,
    findings_of,
    fleet_record,
    gpus_of,
    restarts_of,
)
from hypothesis import given, strategies as st

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off, vm
from tests.unit.plugins.module_utils.vsphere import facts
from tests.unit.plugins.plugin_utils.views.results import finding, harvester_info, vsphere_availability, vsphere_info

Json = dict[str, Any]


def harvester(*gpus: Any, findings: tuple[Json, ...] = (), **more: Any) -> Json:
    return fleet_record(harvester_info(fleet(*gpus, **more), findings), cluster="lab")


def vsphere(*hosts: Any, vms: tuple[Any, ...] = ()) -> Json:
    found = facts.snapshot(*hosts, vms=vms)
    return fleet_record(vsphere_info(found), vsphere_availability(found), cluster="vc")


def one_gpu(record: Json) -> Json:
    return next(gpu for _node, gpu in gpus_of(record))


def states(record: Json) -> list[str]:
    return [vgpu["state"] for _node, gpu in gpus_of(record) for vgpu in gpu["vgpus"]]


def test_a_vgpu_has_a_state_by_who_holds_it_and_whether_it_is_what_was_asked_for() -> None:
    record = harvester(gpu("n1:a", "4Q@web 4Q@batch- 4Q 4Q~8Q"))
    assert states(record) == ["in_use", "claimed", "free", "drifted"]
    found = one_gpu(record)
    assert {state: found[state] for state in ("total", *STATES)} == {
        "total": 4,
        "in_use": 1,
        "claimed": 1,
        "free": 1,
        "drifted": 1,
        "unusable": 0,
    }
    web = found["vgpus"][0]
    assert web["holders"] == [{"kind": "VM", "path": "default/web", "running": True}]
    assert (web["short"], web["framebuffer_mib"], web["requested"]) == ("A2-4Q", 4096, "NVIDIA A2-4Q")


def test_what_was_asked_for_and_is_not_there_is_unusable() -> None:
    record = harvester(gpu("n1:a", "4Q ?4Q"))
    assert states(record) == ["free", "unusable"]
    assert one_gpu(record)["vgpus"][1]["profile"] is None
    assert one_gpu(record)["framebuffer_used_mib"] == 4096


@pytest.mark.parametrize(("how", "reason"), [("down", "not ready"), ("cordoned", "cordoned")])
def test_nothing_is_free_on_a_node_that_cannot_be_used(how: str, reason: str) -> None:
    record = harvester(gpu("n1:a", "4Q 4Q@web"), **{how: ["n1"]})
    assert states(record) == ["unusable", "in_use"]
    assert record["nodes"][0]["unavailable_reason"] == reason
    assert one_gpu(record)["available_profiles"] == []


def test_a_gpu_that_is_blocked_has_nothing_free_and_says_why() -> None:
    record = harvester(gpu("n1:a", "4Q", blocked="given to a VM whole"))
    assert states(record) == ["unusable"]
    assert one_gpu(record)["unavailable_reason"] == "given to a VM whole"


def test_a_gpu_without_sriov_has_no_vgpus_and_its_memory_is_known_by_its_board() -> None:
    found = one_gpu(harvester(off("n1:a")))
    assert (found["vgpu_enabled"], found["total"], found["framebuffer_mib"]) == (False, 0, 16384)


def test_what_still_fits_is_counted_for_each_gpu() -> None:
    record = harvester(gpu("n1:a", "4Q 4Q"), gpu("n1:b", ""), gpu("n1:c", "4Q 4Q 4Q 4Q"))
    fits = [{one["short"]: one["count"] for one in found["available_profiles"]} for _node, found in gpus_of(record)]
    assert fits[0]["A2-4Q"] == 2
    assert "A2-8Q" not in fits[0]
    assert fits[1]["A2-8Q"] == 2
    assert fits[2] == {}


def test_profiles_are_counted_as_the_module_for_availability_counts_them() -> None:
    claims = (UnboundRequest("NVIDIA A2-4Q", 1, vm("later", running=False)),)
    what = fleet(gpu("n1:a", "4Q@web 4Q 4Q"), gpu("n2:a", "4Q 8Q"), claims=claims)
    counted = Availability(what, frozenset(["n1", "n2"])).totals["NVIDIA A2-4Q"]
    record = fleet_record(harvester_info(what))
    found = next(one for one in record["profiles"] if one["short"] == "A2-4Q")
    assert (found["total"], found["in_use"], found["claimed"], found["free"], found["available"]) == (
        counted.allocatable,
        counted.in_use,
        counted.claimed,
        counted.free,
        counted.creatable,
    )
    assert (found["total"], found["in_use"], found["claimed"], found["free"]) == (4, 1, 1, 2)
    assert record["requests"] == [
        {
            "holder": {"kind": "VM", "path": "default/later", "running": False},
            "profile": "NVIDIA A2-4Q",
            "short": "A2-4Q",
            "count": 1,
            "node": None,
            "state": "claimed",
            "restart_pending": False,
        }
    ]


def test_mig_instances_are_listed_with_how_many_of_them_are_empty() -> None:
    card = gpu("n1:a", "3-20C@web", board="A100", mode="mig", max_instances={"GRID A100-3-20C": 1, "GRID A100-1-5C": 2})
    slots = tuple(
        replace(slot, profile=slot.profile and "GRID A100-3-20C", wanted=slot.wanted and "GRID A100-3-20C")
        for slot in card.slots
    )
    found = one_gpu(harvester(replace(card, slots=slots)))
    assert [(one["instance"], one["count"], one["empty"]) for one in found["geometry"]] == [
        ("3g.20gb", 1, 0),
        ("1g.5gb", 2, 2),
    ]
    assert (found["mode"], found["slices"], found["framebuffer_mib"]) == ("mig", 8, 40960)


def test_shared_mig_instances_are_listed_once_and_empty_if_no_vgpu_is_on_them() -> None:
    board = "RTX Pro 6000 Blackwell DC"
    has = {"1g.24gb+gfx": 2, "2g.48gb+gfx": 1, "1g.24gb": 0}
    served = {f"NVIDIA {board}-1-8Q": 6, f"NVIDIA {board}-1-24C": 2, f"NVIDIA {board}-2-48C": 1}
    card = gpu("n1:a", "1-8Q@a 1-8Q@b", board=board, mode="mig", max_instances=served, instances=has)
    found = one_gpu(harvester(card))
    assert [(one["instance"], one["short"], one["count"], one["empty"]) for one in found["geometry"]] == [
        ("2g.48gb+gfx", f"{board}-2-48C", 1, 1),
        ("1g.24gb+gfx", f"{board}-1-24C", 2, 1),
    ]
    assert (found["slices"], found["framebuffer_mib"]) == (4, 96 * 1024)


def test_an_unstable_gpu_says_so() -> None:
    found = one_gpu(harvester(gpu("n1:a", board="A100", unstable="it changes by itself")))
    assert found["unavailable_reason"] == "it changes by itself"
    assert found["available_profiles"] == []


def test_findings_are_found_where_they_belong_and_each_only_there() -> None:
    record = harvester(
        gpu("n1:a", "4Q@web 4Q~8Q"),
        findings=(
            finding("type_differs", "n1:a-01"),
            finding("restart_required", "default/web"),
            finding("no_functions", "n1:a"),
            finding("graphics_pending", "n1"),
            finding("invalid_annotation", "default/elsewhere"),
        ),
    )
    found = one_gpu(record)
    assert [[one["kind"] for one in vgpu["findings"]] for vgpu in found["vgpus"]] == [
        ["restart_required"],
        ["type_differs"],
    ]
    assert [one["kind"] for one in found["findings"]] == ["no_functions"]
    assert [one["kind"] for one in record["nodes"][0]["findings"]] == ["graphics_pending"]
    assert [one["device"] for one in record["findings"]] == ["default/elsewhere"]
    assert [one["restart"] for one in restarts_of(record["nodes"][0])] == ["host", "vm", "node"]


def test_on_vsphere_room_is_counted_for_each_profile_and_vms_that_are_off_are_requests() -> None:
    record = vsphere(
        facts.host("esx1", facts.gpu(facts.FIRST, "trainer"), facts.gpu(facts.SECOND)),
        vms=(facts.vm("trainer", "nvidia_a40-8q"), facts.vm("resting", "nvidia_a40-16q", power="poweredOff")),
    )
    assert record["platform"] == "vsphere"
    assert record["shares_room"]
    node = record["nodes"][0]
    assert node["cluster"] == "gpu"
    first, second = node["gpus"]
    assert [(vgpu["short"], vgpu["state"], vgpu["holders"][0]["path"]) for vgpu in first["vgpus"]] == [
        ("A40-8Q", "in_use", "trainer")
    ]
    assert {one["short"]: one["count"] for one in first["available_profiles"]} == {"A40-8Q": 5, "A40-8C": 5}
    assert {one["short"] for one in second["available_profiles"]} >= {"A40-48Q", "A40-4Q"}
    assert first["framebuffer_mib"] == 49152
    assert [(one["holder"]["path"], one["state"]) for one in record["requests"]] == [("resting", "claimed")]


def test_a_gpu_of_vsphere_that_waits_for_a_restart_says_so() -> None:
    waiting, ready = facts.gpu(facts.FIRST, graphics_type="shared"), facts.gpu(facts.SECOND)
    record = vsphere(facts.host("esx1", waiting, ready, default_type="sharedDirect"))
    gpus = record["nodes"][0]["gpus"]
    assert [(one["graphics_type"], one["restart_pending"]) for one in gpus] == [
        ("shared", True),
        ("shared_direct", False),
    ]
    assert [(one["kind"], one["restart"]) for one in record["nodes"][0]["findings"]] == [("graphics_pending", "host")]


def test_profiles_have_one_short_name_on_both_platforms() -> None:
    record = vsphere(facts.host("esx1", facts.gpu(facts.FIRST, "vm")), vms=(facts.vm("vm", "nvidia_a40-8q"),))
    assert one_gpu(record)["vgpus"][0]["short"] == "A40-8Q"


def test_a_vcenter_needs_the_availability_and_the_error_says_so() -> None:
    found = facts.snapshot(facts.host())
    with pytest.raises(NotAFleet, match=r"needs the result of vgpu\.fleet\.vgpu_availability"):
        fleet_record(vsphere_info(found))


@pytest.mark.parametrize("wrong", [{}, [], "text", {"changed": False}, {"nodes": None}])
def test_something_else_is_refused(wrong: Any) -> None:
    with pytest.raises(NotAFleet, match="it has no nodes"):
        fleet_record(wrong)


WORDS = st.sampled_from(["4Q", "4Q@web", "4Q@batch-", "4Q~8Q", "?4Q", "8Q", "8Q@web", "1Q", ".", "nonsense"])
GPUS = st.lists(st.lists(WORDS, max_size=6).map(" ".join), max_size=5)


@given(GPUS, st.booleans())
def test_every_vgpu_is_in_the_record_once_and_the_sums_are_right(contents: list[str], cordoned: bool) -> None:
    gpus = [gpu(f"n{number % 2}:{number}", words) for number, words in enumerate(contents)]
    what: Fleet = fleet(*gpus, cordoned=["n0"] if cordoned else [])
    record = fleet_record(harvester_info(what), cluster="lab")
    assert json.loads(json.dumps(record)) == record
    shown = [vgpu["name"] for _node, one in gpus_of(record) for vgpu in one["vgpus"]]
    assert shown == [slot.name for _gpu, slot in what.slots() if not slot.empty]
    for scope in (record, *record["nodes"]):
        assert scope["total"] == sum(scope[state] for state in STATES)
    assert record["total"] == len(shown) == sum(node["total"] for node in record["nodes"])
    by_node = {node["name"]: node for node in record["nodes"]}
    for profile in record["profiles"]:
        for node in profile["nodes"]:
            fits = [
                one["count"]
                for found in by_node[node["node"]]["gpus"]
                for one in found["available_profiles"]
                if one["profile"] == profile["profile"]
            ]
            assert sum(fits) == node["available"]
    assert [one for node in record["nodes"] for one in findings_of(node)] == []
