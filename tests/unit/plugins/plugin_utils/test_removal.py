"""T2, U3: plan what to remove for a declaration, and what to keep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import InvalidDemand, NothingSelected
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import MIG, Fleet, UnboundRequest
from ansible_collections.vgpu.fleet.plugins.plugin_utils.removal import Declaration, plan_removal

from tests.unit.plugins.module_utils.fleets import fleet, gpu, off, vm

FOUR_Q = "NVIDIA A2-4Q"


def taken(record: Fleet, *layout: dict[str, Any], gone: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return plan_removal(record, Declaration.read(layout, **more), gone or [], more.get("labels")).as_dict()


def entry(count: int, profile: str = "A2-4Q", **more: Any) -> dict[str, Any]:
    return {"profile": profile, "count": count, **more}


def test_u3_only_the_declared_profile_on_the_declared_node_goes_and_no_more_than_declared() -> None:
    found = taken(fleet(gpu("n1:a", "4Q 4Q 4Q"), gpu("n2:a", "2Q 2Q 4Q")), entry(1, nodes=["n1"]))
    assert (found["vgpus"], found["gpus"]) == (["n1:a-00"], [])
    assert found["kept"] == [
        "vGPU n1:a-01, n1:a-02 is kept: there are more vGPUs than the declared 1 x A2-4Q on n1.",
        "SR-IOV stays enabled on GPU n1:a, which still has vGPU n1:a-01, n1:a-02.",
    ]


def test_sriov_goes_where_no_vgpu_is_left() -> None:
    found = taken(fleet(gpu("n1:a", "4Q 4Q"), gpu("n2:a", "4Q 2Q"), off("n3:a")), entry(2, per="node"))
    assert found["vgpus"] == ["n1:a-00", "n1:a-01", "n2:a-00"]
    assert found["gpus"] == ["n1:a"]
    assert found["steps"][-1] == "Disable SR-IOV on GPU n1:a."
    assert found["kept"] == ["SR-IOV stays enabled on GPU n2:a, which still has vGPU n2:a-01."]


def test_an_empty_gpu_that_nobody_named_keeps_sriov_and_a_named_one_does_not() -> None:
    """Somebody else may have prepared it; and a run that was cut off is finished by the next one."""
    record = fleet(gpu("n1:a"), gpu("n2:a", "4Q"))
    assert taken(record, entry(1))["gpus"] == ["n2:a"]
    assert taken(record, entry(1, nodes=["n1"]))["gpus"] == ["n1:a"]
    assert taken(record, entry(1), nodes=["n*"])["gpus"] == ["n1:a", "n2:a"]
    assert taken(record, all_sriov=True)["gpus"] == ["n1:a"]


def test_what_vms_use_stays_and_names_them() -> None:
    found = taken(fleet(gpu("n1:a", "4Q@web 4Q@idle- 4Q")), entry(3))
    assert found["vgpus"] == ["n1:a-02"]
    assert "vGPU n1:a-00 (NVIDIA A2-4Q) is in use by VM default/web. It is kept." in found["kept"]
    assert "VM default/idle (stopped)" in " ".join(found["kept"])
    assert found["held"] == []


def test_what_a_running_vm_may_have_and_what_a_stopped_one_asks_for_stays() -> None:
    starting = UnboundRequest(FOUR_Q, 1, vm("web"), node="n1")
    assert taken(fleet(gpu("n1:a", "4Q 4Q"), claims=[starting]), entry(2))["vgpus"] == []
    stopped = UnboundRequest(FOUR_Q, 1, vm("idle", running=False))
    assert len(taken(fleet(gpu("n1:a", "4Q 4Q"), claims=[stopped]), entry(2))["vgpus"]) == 1


def test_gpus_that_have_nothing_else_are_emptied_first() -> None:
    assert taken(fleet(gpu("n1:a", "4Q 2Q"), gpu("n2:a", "4Q")), entry(1))["gpus"] == ["n2:a"]


def test_t2_without_a_declaration_nothing_goes() -> None:
    assert taken(fleet(gpu("n1:a", "4Q")), nodes=["n1"])["steps"] == []


def test_everything_is_all_of_the_selection_and_refused_where_a_vm_uses_it() -> None:
    record = fleet(gpu("n1:a", "4Q 2Q"), gpu("n2:a", "4Q@web"))
    found = taken(record, nodes=["n1"], everything=True)
    assert (found["vgpus"], found["gpus"], found["held"]) == (["n1:a-00", "n1:a-01"], ["n1:a"], [])
    assert taken(record, everything=True)["held"] == ["vGPU n2:a-00 (NVIDIA A2-4Q) is in use by VM default/web."]


def test_vms_that_will_be_gone_count_no_more() -> None:
    record = fleet(gpu("n1:a", "4Q@web 4Q@other"), claims=[UnboundRequest(FOUR_Q, 1, vm("gone", running=False))])
    found = taken(record, entry(2), gone=["default/web", "default/gone"])
    assert (found["vgpus"], found["waits_for"]) == (["n1:a-00"], ["default/web"])
    labelled = UnboundRequest(FOUR_Q, 1, vm("node", labels={"guest": "ml"}), node="n1")
    record = fleet(gpu("n1:a", "4Q"), claims=[labelled])
    found = plan_removal(record, Declaration.read([entry(1)]), (), {"guest": "ml"}).as_dict()
    assert (found["vgpus"], found["waits_for"]) == (["n1:a-00"], ["default/node"])


def test_mig_instances_go_with_the_last_vgpu() -> None:
    record = fleet(replace(gpu("n1:a", "", board="A100", vfs=2), mode=MIG), gpu("n2:a", "4Q"))
    found = taken(record, mig=[{"nodes": ["n1"], "instances": []}])
    assert (found["gpus"], found["mig_gpus"]) == (["n1:a"], ["n1:a"])
    assert found["steps"] == ["Remove the MIG instances of GPU n1:a.", "Disable SR-IOV on GPU n1:a."]


def test_a_node_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(NothingSelected, match="n9"):
        taken(fleet(gpu("n1:a", "4Q")), entry(1, nodes=["n9"]))


@pytest.mark.parametrize("missing", ["profile", "count"])
def test_an_entry_that_lacks_something_is_an_error(missing: str) -> None:
    given = {name: value for name, value in entry(1).items() if name != missing}
    with pytest.raises(InvalidDemand, match=f"no {missing}"):
        taken(fleet(gpu("n1:a", "4Q")), given)


def owned(record: Fleet, owners: dict[str, str]) -> Fleet:
    """The fleet with these vGPUs enabled for somebody."""
    nodes = tuple(
        replace(
            node,
            gpus=tuple(
                replace(one, slots=tuple(replace(slot, owner=owners.get(slot.name)) for slot in one.slots))
                for one in node.gpus
            ),
        )
        for node in record.nodes
    )
    return replace(record, nodes=nodes)


def test_only_vgpus_of_the_owner_go_and_the_others_stay_with_the_reason() -> None:
    record = owned(fleet(gpu("n1:a", "4Q 4Q 4Q 4Q")), {"n1:a-00": "blue", "n1:a-01": "red", "n1:a-02": "red"})
    red = taken(record, entry(4), owner="red")
    assert (red["vgpus"], red["gpus"]) == (["n1:a-01", "n1:a-02"], [])
    unmarked, blue, sriov = red["kept"]
    assert unmarked.startswith("vGPU n1:a-03 is kept: it has no owner mark")
    assert "harvester_gpu_node_adopt" in unmarked
    assert blue == "vGPU n1:a-00 is kept: it was enabled for owner blue."
    assert sriov == "SR-IOV stays enabled on GPU n1:a, which still has vGPU n1:a-00, n1:a-03."
    # The second teardown of a team finds nothing of its own, and takes nobody else's.
    assert taken(record, entry(4), owner="green")["vgpus"] == []
    assert taken(record, entry(4), owner="red", adopt=True)["vgpus"] == ["n1:a-01", "n1:a-02", "n1:a-03"]
    assert len(taken(record, entry(4), owner="red", everything=True)["vgpus"]) == 4


def test_an_own_vgpu_that_a_vm_uses_stays_because_of_the_vm() -> None:
    record = owned(fleet(gpu("n1:a", "4Q@web 4Q")), {"n1:a-00": "red", "n1:a-01": "red"})
    found = taken(record, entry(2), owner="red")
    assert (found["vgpus"], "in use by VM default/web" in found["kept"][0]) == (["n1:a-01"], True)
