"""Which VMs have to be stopped for another layout, what to put back, and what is refused before any of them is."""

from __future__ import annotations

from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet, Gpu, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.reprofile.plan import NOTHING, reprofile_plan

from tests.unit.plugins.module_utils.fleets import fleet, gpu, vm

Json = dict[str, Any]
LAYOUT = [{"profile": "A2-8Q", "count": 2}]
Q4, Q8 = "NVIDIA A2-4Q", "NVIDIA A2-8Q"


def plan(*gpus: Gpu, claims: tuple[UnboundRequest, ...] = (), layout: list[Json] | None = None, **options: Any) -> Json:
    return reprofile_plan(fleet(*gpus, claims=claims), [one.name for one in gpus], layout or LAYOUT, **options)


def gets(name: str, count: int = 1, profile: str = "A2-8Q") -> Json:
    return {"name": name, "vgpus": [{"profile": profile, "count": count}]}


def test_gpus_that_have_the_layout_are_left_alone_also_with_vms_on_them() -> None:
    nothing = {"work": [], "refusals": [], "lines": [NOTHING]}
    assert plan(gpu("n:a", "8Q 8Q@web"), vms=[{"name": "web"}]) == nothing
    assert plan(gpu("n:a", "8Q 8Q@web")) == nothing


def test_a_gpu_that_nobody_uses_is_changed_without_stopping_anything() -> None:
    found = plan(gpu("n:a", "4Q 4Q"))
    assert found["refusals"] == []
    assert found["lines"] == [f"n:a: 2 x {Q4} -> 2 x A2-8Q"]
    assert found["work"][0]["before"] == [{"name": "n:a-00", "profile": Q4}, {"name": "n:a-01", "profile": Q4}]


def test_a_vm_that_is_not_named_is_never_stopped() -> None:
    found = plan(gpu("n:a", "4Q@mine 4Q@theirs"), vms=[gets("mine")])
    assert found["refusals"] == ["n:a is used by default/theirs, which may not be stopped."]
    assert found["work"] == []


def test_vms_that_are_not_in_the_way_go_on_running() -> None:
    more = [{"profile": "A2-4Q", "count": 4}]
    found = plan(gpu("n:a", "4Q@mine 4Q@theirs"), layout=more, vms=[{"name": "mine"}])
    assert found["refusals"] == []
    assert [one["vms"] for one in found["work"]] == [[]]


def test_a_vm_of_the_same_name_elsewhere_is_not_the_one() -> None:
    assert plan(gpu("n:a", "4Q@mine"), vms=[{**gets("mine"), "namespace": "other"}])["refusals"]


def test_all_labels_have_to_match_and_no_labels_match_nothing() -> None:
    holder = vm("mine", labels={"team": "ml", "tier": "test"})
    record = fleet(gpu("n:a", "4Q@mine")).as_dict()
    record["nodes"][0]["gpus"][0]["slots"][0]["holders"] = [holder.as_dict()]

    def refused(labels: dict[str, str]) -> str:
        return " ".join(
            reprofile_plan(Fleet.from_dict(record), ["n:a"], [{"profile": "A2-8Q", "count": 1}], (), labels)["refusals"]
        )

    assert "may not be stopped" not in refused({"team": "ml"})
    assert "may not be stopped" in refused({"team": "ml", "tier": "prod"})
    assert "may not be stopped" in refused({})


def test_a_layout_that_no_gpu_can_have_is_refused_before_any_vm_is_stopped() -> None:
    three = [{"profile": "A2-8Q", "count": 3}]
    for found in (
        plan(gpu("n:a", "4Q"), layout=three),
        plan(gpu("n:a", "4Q@mine"), layout=three, vms=[gets("mine")]),
    ):
        assert found["work"] == []
        assert found["refusals"][0].startswith("n:a: ")
        assert "1 of 3 NVIDIA A2-8Q do not fit" in found["refusals"][0]


def test_a_vm_that_would_not_find_its_vgpus_afterwards_is_not_stopped() -> None:
    for vms in ([gets("mine", 3)], [{"name": "mine"}], [gets("mine", profile="A2-2Q")]):
        found = plan(gpu("n:a", "4Q@mine"), gpu("m:a", "4Q@other"), vms=[*vms, gets("other")])
        assert found["refusals"][0].startswith("n:a: default/mine would not find "), vms


def test_a_profile_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    assert "A2-9Q" in plan(gpu("n:a", "4Q@mine"), vms=[gets("mine", profile="A2-9Q")])["refusals"][0]
    assert "A2-9Q" in plan(gpu("n:a", "4Q"), layout=[{"profile": "A2-9Q", "count": 1}])["refusals"][0]


def test_vms_get_back_all_they_had_on_any_gpu_unless_told_otherwise() -> None:
    found = plan(
        gpu("n:a", "4Q@wide 4Q@new"),
        gpu("n:b", "4Q@wide"),
        layout=[{"profile": "A2-4C", "count": 1}, {"profile": "A2-4Q", "count": 3}],
        vms=[{"name": "wide"}, gets("new", profile="A2-4C")],
    )
    assert found["refusals"] == []
    first, second = found["work"][0]["vms"]
    assert (first["name"], first["after"]) == ("new", [{"profile": "NVIDIA A2-4C", "count": 1}])
    assert first["before"] == [{"profile": Q4, "count": 1}]
    assert second["after"] == second["before"] == [{"profile": Q4, "count": 2}]
    assert found["lines"][0].endswith(", stopping default/new, default/wide")


def test_a_vm_that_just_started_may_have_any_vgpu_of_its_profile() -> None:
    claim = UnboundRequest(Q4, 1, vm("fresh"), "n")
    assert plan(gpu("n:a", "4Q 4Q"), claims=(claim,))["refusals"] == [
        "n:a is used by default/fresh, which may not be stopped."
    ]
    (change,) = plan(gpu("n:a", "4Q 4Q"), claims=(claim,), vms=[gets("fresh")])["work"]
    assert [one["name"] for one in change["vms"]] == ["fresh"]


def test_stopped_vms_that_would_take_a_vgpu_are_changed_if_named_and_in_the_way_if_not() -> None:
    claim = UnboundRequest(Q4, 1, vm("later", running=False))
    (change,) = plan(gpu("n:a", "4Q 4Q"), claims=(claim,), vms=[gets("later")])["work"]
    assert [one["name"] for one in change["vms"]] == ["later"]
    assert plan(gpu("n:a", "4Q"), claims=(claim,))["refusals"]
    # Elsewhere it finds what it wants.
    kept = reprofile_plan(fleet(gpu("n:a", "4Q"), gpu("m:a", "4Q@x 4Q"), claims=[claim]), ["n:a"], LAYOUT)
    assert kept["refusals"] == []


def test_what_an_earlier_gpu_gives_a_vm_is_not_free_for_the_next() -> None:
    one_large = [{"profile": "A2-16Q", "count": 1}]
    vms = [gets("first", profile="A2-16Q"), gets("second", 2, profile="A2-16Q")]
    found = plan(gpu("n:a", "4Q@first"), gpu("n:b", "4Q@second"), layout=one_large, vms=vms)
    assert found["refusals"] == [
        "n:b: default/second would not find 2 x NVIDIA A2-16Q on one node afterwards."
        " Give it other vGPUs in vgpu_reprofile_vms, or choose another layout."
    ]


def test_several_gpus_at_a_time_are_one_piece_of_work_with_each_vm_stopped_once() -> None:
    found = plan(
        gpu("n:a", "4Q@wide"),
        gpu("n:b", "8Q 8Q@kept"),
        gpu("n:c", "4Q@wide 4Q"),
        gpu("n:d", "", sharing=False),
        vms=[gets("wide", 2), {"name": "kept"}],
        serial=2,
    )
    assert found["refusals"] == []
    first, second = found["work"]
    assert first["gpus"] == ["n:a", "n:c"]
    assert [one["name"] for one in first["vms"]] == ["wide"]
    assert [one["name"] for one in first["before"]] == ["n:a-00", "n:c-00", "n:c-01"]
    assert (first["empty"], first["off"]) == ([], [])
    assert (second["gpus"], second["empty"], second["off"], second["vms"]) == (["n:d"], ["n:d"], ["n:d"], [])
    assert found["lines"][0] == f"n:a, n:c: 3 x {Q4} -> 2 x A2-8Q each, stopping default/wide"


def test_of_several_gpus_each_that_may_not_be_freed_is_named() -> None:
    found = plan(gpu("n:a", "4Q@one"), gpu("n:b", "4Q@two"), gpu("n:c", "4Q"), serial=3)
    assert found["refusals"] == [
        "n:a is used by default/one, which may not be stopped. n:b is used by default/two, which may not be stopped."
    ]


def test_room_on_gpus_that_change_together_is_room_for_all_their_vms() -> None:
    """One after the other, the first VM would not find two large vGPUs."""
    vms = [gets("first", 2, profile="A2-16Q"), gets("second", 2, profile="A2-16Q")]
    gpus = [
        gpu(f"{node}:{number}", f"4Q@{name}" if number else "4Q")
        for node, name in (("n", "first"), ("m", "second"))
        for number in (1, 0)
    ]
    large = [{"profile": "A2-16Q", "count": 1}]
    assert "default/first would not find" in plan(*gpus, layout=large, vms=vms)["refusals"][0]
    together = plan(*gpus, layout=large, vms=vms, serial=2)
    assert together["refusals"] == []
    assert [[one["name"] for one in work["vms"]] for work in together["work"]] == [["first"], ["second"]]
