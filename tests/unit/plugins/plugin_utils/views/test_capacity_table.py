"""The capacity table, and the numbers that programs get."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import UnboundRequest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.capacity_table import capacity_report, natural
from ansible_collections.vgpu.fleet.plugins.plugin_utils.views.record import fleet_record

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off, vm
from tests.unit.plugins.plugin_utils.views.results import harvester_info

Json = dict[str, Any]


def counts(total: int = 0, used: int = 0, claimed: int = 0, creatable: int = 0) -> Json:
    free = total - used - claimed
    return {
        "allocatable": total,
        "configured": total,
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
        ["PROFILE", "NODE", "TOTAL", "IN", "USE", "CLAIMED", "FREE"],
        ["A2-4Q", "gpu-a", "2", "1", "0", "1"],
        ["A2-4Q", "gpu-b", "2", "0", "0", "2"],
        ["A2-4Q", "all", "4", "1", "1", "2"],
    ]
    assert made["summary"]["profiles"] == {
        "A2-4Q": {"total": 4, "in_use": 1, "claimed": 1, "free": 2, "creatable": 0},
    }


def test_one_node_needs_no_sum_unless_more_is_claimed_than_on_it() -> None:
    assert len(report(profile("A2-4Q", counts(2), gpu_a=counts(2)))["lines"]) == 2
    assert len(report(profile("A2-4Q", counts(2, 0, 1), gpu_a=counts(2)))["lines"]) == 3


def test_what_could_still_be_made_is_one_line_by_size() -> None:
    made = report(
        *(profile(name, counts(creatable=4)) for name in ("A2-4A", "A2-4C")), profile("A2-8Q", counts(creatable=2))
    )
    assert made["lines"] == ["There are no vGPUs.", "Room for any one of: 4 x A2-4A/C, 2 x A2-8Q"]


def test_on_vsphere_what_is_not_in_use_is_room() -> None:
    idle = {**counts(6), "configured": 0}
    made = report(profile("A40-8Q", idle, esx1=idle), platform="vsphere")
    assert made["lines"] == ["There are no vGPUs.", "Room for any one of: 6 x A40-8Q"]


def test_asked_profiles_are_shown_in_any_spelling_even_if_there_are_none() -> None:
    made = report(profile("A2-4Q", counts(2), gpu_a=counts(2)), profile("A2-8Q", counts()), profiles=["nvidia a2-8q"])
    assert list(made["summary"]["profiles"]) == ["A2-8Q"]


def test_nodes_that_do_not_count_and_machines_that_do_not_fit_are_told() -> None:
    demand = {"name": "pool", "machines": 3, "surge": 1, "missing": 2, "fits": False, "reasons": ["Too few."]}
    made = report(nodes=[{"name": "gpu-c", "usable": False, "reason": "cordoned"}], demand=[demand])
    assert made["lines"][-2:] == ["gpu-c does not count: cordoned", "pool: 2 of 4 machines do not fit: Too few."]


def gpu_lines(*gpus: Any, details: str = "auto", **more: Any) -> list[str]:
    record = fleet_record(harvester_info(fleet(*gpus, **more)))
    lines: list[str] = report(record=record, details=details)["lines"]
    return lines[lines.index("") + 1 :] if "" in lines else []


def test_nodes_are_in_the_order_of_their_numbers() -> None:
    names = ["gpu-10", "gpu-2", "gpu-1", "gpu", "esx1.example"]
    assert sorted(names, key=natural) == ["esx1.example", "gpu", "gpu-1", "gpu-2", "gpu-10"]
    some = {f"gpu_{number}": counts(1) for number in (1, 10, 2)}
    made = report(profile("A2-4Q", counts(3), **some))
    assert [line.split()[1] for line in made["lines"][1:]] == ["gpu-1", "gpu-2", "gpu-10", "all"]


def test_many_nodes_are_one_row_unless_all_are_asked_for() -> None:
    one = profile("A2-4Q", counts(32, 5), **{f"gpu_{number}": counts(2) for number in range(16)})
    assert [line.split() for line in report(one)["lines"][1:]] == [["A2-4Q", "16", "nodes", "32", "5", "0", "27"]]
    assert len(report(one, details="full")["lines"]) == 18
    few = profile("A2-4Q", counts(4), gpu_a=counts(2), gpu_b=counts(2))
    assert len(report(few, details="summary")["lines"]) == 2


def test_columns_are_as_wide_as_their_content() -> None:
    made = report(profile("A2-4Q", counts(2), **{"a_very_long_name_of_a_node.example.com": counts(2)}))
    assert made["lines"] == [
        "PROFILE  NODE                                    TOTAL  IN USE  CLAIMED  FREE",
        "A2-4Q    a-very-long-name-of-a-node.example.com      2       0        0     2",
    ]


def test_each_gpu_has_a_bar_to_scale_and_says_who_uses_it() -> None:
    assert gpu_lines(gpu("n1:a", "4Q@web 4Q@web 4Q@batch-"), gpu("n1:b", "8Q")) == [
        "NODE  GPU   BOARD  MEMORY                      USED GIB  VGPUS",
        "n1    n1:a  A2     [############++++++......]  12 of 16  3 x A2-4Q (default/batch, default/web)",
        "n1    n1:b  A2     [============............]   8 of 16  1 x A2-8Q",
        "# in use  + claimed  = free vGPU  . empty",
    ]


def test_a_full_gpu_has_a_full_bar_and_a_bare_one_an_empty_one() -> None:
    lines = gpu_lines(gpu("n1:a", "1Q@a " * 16), off("n1:b"), gpu("n1:c", "3Q " * 5))
    bars = [line.partition("[")[2].partition("]")[0] for line in lines[1:4]]
    # Five times 3 GiB is 15 of 16 GiB, and so are 22.5 of 24 characters.
    assert bars == ["#" * 24, "." * 24, "=" * 22 + "." * 2]


def test_drifted_and_unusable_vgpus_can_be_told_apart() -> None:
    lines = gpu_lines(gpu("n1:a", "4Q~8Q 4Q"), gpu("n2:a", "4Q"), cordoned=["n2"])
    assert [line.partition("[")[2].partition("]")[0] for line in lines[1:3]] == [
        "======!!!!!!............",
        "xxxxxx..................",
    ]
    assert lines[3] == "= free vGPU  ! drifted  x unusable  . empty"


def test_many_gpus_are_one_line_for_each_board() -> None:
    gpus = [gpu(f"n{number}:a", "8Q@web 8Q") for number in range(17)]
    assert gpu_lines(*gpus)[:-1] == [
        "BOARD  GPUS  MEMORY                        USED GIB  VGPUS",
        "A2     17    [############============]  272 of 272  34 x A2-8Q",
    ]
    assert len(gpu_lines(*gpus, details="full")) == 19


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (UnboundRequest("NVIDIA A2-4Q", 2, vm("web"), node="n1"), "default/web uses 2 x A2-4Q on n1."),
        (UnboundRequest("NVIDIA A2-4Q", 1, vm("batch", running=False)), "default/batch claims 1 x A2-4Q."),
        (
            UnboundRequest("NVIDIA A2-4Q", 1, vm("web"), node="n1", pending=True),
            "default/web claims 1 x A2-4Q on n1 and gets them at its next restart.",
        ),
    ],
)
def test_vms_whose_vgpus_are_not_known_are_named(claim: UnboundRequest, said: str) -> None:
    assert gpu_lines(gpu("n1:a", "4Q 4Q"), claims=[claim])[-1] == said


def test_a_gpu_without_a_known_memory_has_no_bar() -> None:
    lines = gpu_lines(gpu("n1:a", "", board="X9"))
    assert "[" + "?" * 24 + "]" in lines[1]


def test_a_gpu_that_is_not_enabled_for_vgpus_says_so() -> None:
    assert gpu_lines(off("n1:a"))[1].endswith("not enabled")


def test_hosts_with_running_vgpus_say_whether_they_can_be_emptied() -> None:
    def host(name: str, *reasons: str, possible: bool = True, automatic: bool = False, vms: int = 1) -> Json:
        found = {"possible": possible, "automatic": automatic, "reasons": list(reasons), "vms": [{}] * vms}
        return {"name": name, "evacuation": found}

    hosts = [
        host("esx10", automatic=True),
        host("esx2", "DRS is off."),
        host("esx1", "The setting is off.", possible=False),
        host("esx3", vms=0),
        {"name": "esx4", "evacuation": None},
        {"name": "node-of-harvester"},
    ]
    assert report(platform="vsphere", hosts=hosts)["lines"][-3:] == [
        "esx1 can be emptied: no. The setting is off.",
        "esx2 can be emptied: yes, by hand. DRS is off.",
        "esx10 can be emptied: yes",
    ]
