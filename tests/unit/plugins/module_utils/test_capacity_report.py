"""The table of capacity, and the numbers that programs get."""

from __future__ import annotations

from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.capacity_report import capacity_report

Json = dict[str, Any]


def counts(there: int = 0, used: int = 0, claimed: int = 0, creatable: int = 0) -> Json:
    free = there - used - claimed
    return {
        "allocatable": there,
        "configured": there,
        "in_use": used,
        "claimed": claimed,
        "free": free,
        "creatable": creatable,
    }


def profile(short: str, total: Json, **nodes: Json) -> Json:
    spellings = {"type": f"NVIDIA {short}", "short": short, "resource": f"nvidia.com/NVIDIA_{short}"}
    listed = [{"node": name.replace("_", "-"), **one} for name, one in nodes.items()]
    return {"profile": f"NVIDIA {short}", "spellings": spellings, "nodes": listed, **total}


def report(*profiles: Json, nodes: list[Json] | None = None, demand: list[Json] | None = None, **options: Any) -> Json:
    found = {"profiles": list(profiles), "nodes": nodes or [], "demand": demand or [], "fits": True}
    return capacity_report(found, **options)


def test_each_node_has_a_row_and_the_sum_counts_vms_that_are_bound_to_none() -> None:
    made = report(profile("A2-4Q", counts(4, 1, 1), gpu_a=counts(2, 1), gpu_b=counts(2)))
    assert [line.split() for line in made["lines"]] == [
        ["PROFILE", "NODE", "THERE", "IN", "USE", "CLAIMED", "FREE"],
        ["NVIDIA", "A2-4Q", "gpu-a", "2", "1", "0", "1"],
        ["NVIDIA", "A2-4Q", "gpu-b", "2", "0", "0", "2"],
        ["NVIDIA", "A2-4Q", "all", "4", "1", "1", "2"],
    ]
    assert made["summary"]["profiles"] == {
        "A2-4Q": {"there": 4, "in_use": 1, "claimed": 1, "free": 2, "creatable": 0},
    }


def test_one_node_needs_no_sum_unless_more_is_claimed_than_on_it() -> None:
    assert len(report(profile("A2-4Q", counts(2), gpu_a=counts(2)))["lines"]) == 2
    assert len(report(profile("A2-4Q", counts(2, 0, 1), gpu_a=counts(2)))["lines"]) == 3


def test_what_could_still_be_made_is_one_line_by_size() -> None:
    made = report(
        *(profile(name, counts(creatable=4)) for name in ("A2-4A", "A2-4C")), profile("A2-8Q", counts(creatable=2))
    )
    assert made["lines"][1:] == ["no vGPUs", "Room is left for any one of: 4 x A2-4A/C, 2 x A2-8Q"]


def test_on_vsphere_what_is_not_in_use_is_room() -> None:
    idle = {**counts(6), "configured": 0}
    made = report(profile("A40-8Q", idle, esx1=idle), platform="vsphere")
    assert made["lines"][1:] == ["no vGPUs", "Room is left for any one of: 6 x A40-8Q"]


def test_asked_profiles_are_shown_in_any_spelling_even_if_there_are_none() -> None:
    made = report(profile("A2-4Q", counts(2), gpu_a=counts(2)), profile("A2-8Q", counts()), profiles=["nvidia a2-8q"])
    assert list(made["summary"]["profiles"]) == ["A2-8Q"]


def test_nodes_that_do_not_count_and_machines_that_do_not_fit_are_told() -> None:
    demand = {"name": "pool", "machines": 3, "surge": 1, "missing": 2, "fits": False, "reasons": ["Too few."]}
    made = report(nodes=[{"name": "gpu-c", "usable": False, "reason": "cordoned"}], demand=[demand])
    assert made["lines"][-2:] == ["gpu-c does not count: cordoned", "pool: 2 of 4 machines do not fit: Too few."]
