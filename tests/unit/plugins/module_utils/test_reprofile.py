"""Which VMs have to be stopped for another layout, and what to put back."""

from __future__ import annotations

from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.reprofile import NOTHING, reprofile_plan

Json = dict[str, Any]
LAYOUT = [{"profile": "A2-8Q", "count": 2}]
IN_USE = {"code": "does_not_fit", "message": "It does not fit."}


def vm(name: str, **labels: str) -> Json:
    return {"kind": "VM", "namespace": "default", "name": name, "running": True, "labels": labels}


def slot(number: int, *holders: Json, profile: str | None = "NVIDIA A2-4Q") -> Json:
    return {"name": f"gpu-a-00000800{number}", "profile": profile, "wanted": profile, "holders": list(holders)}


def gpu(name: str, *slots: Json) -> Json:
    return {"name": name, "slots": list(slots)}


def plan(*gpus: Json, error: Json | None = None, steps: int = 1, **options: Any) -> Json:
    rehearsals = [
        {"item": one, "error": error} if error else {"item": one, "plan": {"steps": [1] * steps}} for one in gpus
    ]
    return reprofile_plan(rehearsals, [{"gpus": list(gpus)}], LAYOUT, **options)


def test_gpus_that_have_the_layout_are_left_alone() -> None:
    assert plan(gpu("a", slot(4)), steps=0) == {"work": [], "refusals": [], "lines": [NOTHING]}


def test_a_gpu_that_nobody_uses_is_changed_without_stopping_anything() -> None:
    found = plan(gpu("a", slot(4), slot(5), slot(6, profile=None)))
    assert found["refusals"] == []
    assert found["lines"] == ["a: 2 x NVIDIA A2-4Q -> 2 x A2-8Q"]
    assert found["work"][0]["before"] == [
        {"name": "gpu-a-000008004", "profile": "NVIDIA A2-4Q"},
        {"name": "gpu-a-000008005", "profile": "NVIDIA A2-4Q"},
    ]


def test_a_vm_that_is_not_named_is_never_stopped() -> None:
    found = plan(gpu("a", slot(4, vm("mine")), slot(5, vm("theirs"))), error=IN_USE, vms=[{"name": "mine"}])
    assert found["refusals"] == ["a is used by default/theirs, which may not be stopped."]


def test_a_vm_of_the_same_name_elsewhere_is_not_the_one() -> None:
    found = plan(gpu("a", slot(4, vm("mine"))), error=IN_USE, vms=[{"name": "mine", "namespace": "other"}])
    assert found["refusals"]


def test_all_labels_have_to_match_and_no_labels_match_nothing() -> None:
    used = gpu("a", slot(4, vm("mine", team="ml", tier="test")))
    assert not plan(used, error=IN_USE, vm_labels={"team": "ml"})["refusals"]
    assert plan(used, error=IN_USE, vm_labels={"team": "ml", "tier": "prod"})["refusals"]
    assert plan(used, error=IN_USE, vm_labels={})["refusals"]


def test_a_layout_that_is_impossible_without_any_vm_is_refused_with_the_reason() -> None:
    assert plan(gpu("a", slot(4)), error=IN_USE)["refusals"] == ["a: It does not fit."]


def test_vms_get_back_all_they_had_on_any_gpu_unless_told_otherwise() -> None:
    wide = vm("wide")
    found = plan(
        gpu("a", slot(4, wide), slot(5, vm("new"))),
        gpu("b", slot(4, wide)),
        error=IN_USE,
        vms=[{"name": "wide"}, {"name": "new", "vgpus": [{"profile": "A2-8Q"}]}],
    )
    first, second = found["work"][0]["vms"]
    assert (first["name"], first["after"]) == ("new", [{"profile": "A2-8Q"}])
    assert first["before"] == [{"profile": "NVIDIA A2-4Q", "count": 1}]
    assert second["after"] == second["before"] == [{"profile": "NVIDIA A2-4Q", "count": 2}]
    assert found["lines"][0].endswith(", stopping default/new, default/wide")
