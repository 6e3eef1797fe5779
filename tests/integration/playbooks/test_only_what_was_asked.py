"""Roles and playbooks touch only what they were told to, and say what they leave alone."""

from __future__ import annotations

from typing import Any

from tests.integration.api import CLAIMS, VGPUS, VMS
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import writes
from tests.integration.playbooks.reprofiling import (
    GPU,
    NAMES,
    OTHER_GPU,
    OWNER,
    has,
    layout,
    machine,
    owners,
    runs_with,
    state,
    vm,
)
from tests.integration.playbooks.runs import Run, Runs

Json = dict[str, Any]
MANAGER = "app.kubernetes.io/managed-by"
FOUR, TWO = "NVIDIA A2-4Q", "NVIDIA A2-2Q"
OTHERS = [f"gpu-b-00000800{function}" for function in "45"]
CONFIRMED = {"vgpu_teardown_confirm": True}
COUNTED = {"harvester_gpu_vm_count": 1, "harvester_gpu_vm_prefix": "team", "harvester_gpu_vm_profile": "A2-4Q"}


def of_two_teams(lab: Lab) -> None:
    """A running VM of another team with one of three A2-4Q on gpu-a, and unused A2-2Q on gpu-b."""
    lab.enable_gpus(GPU, OTHER_GPU)
    lab.enable_vgpus(dict.fromkeys(NAMES[:3], FOUR) | dict.fromkeys(OTHERS, TWO))
    made = machine("team-1", runStrategy="Always")
    made["metadata"]["labels"] = {"owner": "other-team"}
    lab.make(VMS, made)
    lab.until(lambda: runs_with(lab, "team-1"), real=True)


def refused(lab: Lab, run: Run) -> str:
    assert run.status == "failed", run.shown
    assert writes(lab) == []
    return run.failure


def test_vms_and_vgpus_of_another_team_stay(running: Lab, runs: Runs) -> None:
    """T1, T2 and U3."""
    lab = running.begin(arranged=of_two_teams)
    lab.mark()
    for told in (
        refused(lab, runs.playbook("teardown", {**COUNTED, **CONFIRMED})),
        refused(lab, runs.playbook("harvester_gpu_cluster", COUNTED, options="--tags vm")),
    ):
        assert "VM default/team-1 does not carry the mark of owner vgpu.fleet; its labels: owner=other-team." in told
    assert state(lab, "team-1") == "Running"

    # T2: nothing was said about GPUs, or only where they are.
    own = {**COUNTED, "harvester_gpu_vm_prefix": "mine"}
    for where in ({}, {"harvester_gpu_node_nodes": ["gpu-b"]}):
        none = runs.playbook("teardown", {**own, **where, **CONFIRMED})
        assert (none.status, none.changed, writes(lab)) == ("successful", 0, []), none.shown

    # U3: one of two unused ones, and nothing of gpu-b.
    one: Json = {"harvester_gpu_node_layout": [{"profile": "A2-4Q", "count": 1, "nodes": ["gpu-a"]}]}
    # They were not enabled by the role, so it is not known whose they are.
    kept = runs.playbook("teardown", {**one, **CONFIRMED})
    assert (kept.status, kept.changed, writes(lab)) == ("successful", 0, []), kept.shown
    assert "is kept: it has no owner mark" in kept.shown
    one["harvester_gpu_node_adopt"] = True
    foreseen = runs.playbook("teardown", one, check=True)
    assert (foreseen.status, foreseen.tasks, writes(lab)) == ("successful", ["Disable the vGPUs"], []), foreseen.shown
    done = runs.playbook("teardown", {**one, **CONFIRMED})
    assert done.status == "successful", done.shown
    assert "is in use by VM default/team-1. It is kept." in done.shown
    assert (len(layout(lab)), layout(lab, OTHER_GPU)) == (2, dict.fromkeys(OTHERS, TWO))
    assert [lab.gpu(gpu)["spec"]["enabled"] for gpu in (GPU, OTHER_GPU)] == [True, True]

    # The other team agrees: the VM is taken over as it is, and can be deleted from then on.
    taken = runs.playbook("harvester_gpu_cluster", {**COUNTED, "harvester_gpu_vm_adopt": "true"}, options="--tags vm")
    assert (taken.status, taken.tasks) == ("successful", ["Mark adopted VMs with their owner"])
    labels = vm(lab, "team-1")["metadata"]["labels"]
    assert labels == {"owner": "other-team", MANAGER: "vgpu.fleet", OWNER: "vgpu.fleet"}
    lab.mark()
    told = refused(lab, runs.playbook("teardown", {**COUNTED, **CONFIRMED, "harvester_gpu_vm_owner": "team-c"}))
    assert "VM default/team-1 belongs to owner vgpu.fleet, not to team-c." in told
    gone = runs.playbook("teardown", {**COUNTED, **CONFIRMED})
    assert (gone.status, lab.items(VMS)) == ("successful", []), gone.shown


def test_each_of_two_teams_takes_back_its_own_vgpus(lab: Lab, runs: Runs) -> None:
    def of(owner: str, count: int, **more: Any) -> Json:
        wanted = [{"profile": "A2-4Q", "count": count, "nodes": ["gpu-a"]}]
        return {"harvester_gpu_node_owner": owner, "harvester_gpu_node_layout": wanted, **more}

    for owner, count in (("blue", 1), ("red", 3)):
        lab.mark()
        made = runs.playbook("harvester_gpu_cluster", of(owner, count), options="--tags node")
        assert made.status == "successful", made.shown
    # The mark takes no request of its own.
    assert [written.startswith(f"patch {VGPUS}/") for written in writes(lab)] == [True, True], writes(lab)
    assert sorted(map(str, owners(lab).values())) == ["blue", "red", "red"]

    lab.mark()
    fewer = runs.playbook("harvester_gpu_cluster", of("red", 0), options="--tags node")
    assert "held by owner blue" in refused(lab, fewer)
    gone = runs.playbook("teardown", of("blue", 3, **CONFIRMED))
    assert gone.status == "successful", gone.shown
    assert "is kept: it was enabled for owner red." in gone.shown
    assert list(owners(lab).values()) == ["red", "red"]
    lab.mark()
    again = runs.playbook("teardown", of("blue", 3, **CONFIRMED))
    assert (again.status, again.changed, writes(lab)) == ("successful", 0, []), again.shown

    # A mark that was lost: nobody knows whose it is.
    lost = next(iter(owners(lab)))
    lab.write(f"{VGPUS}/{lost}", {"metadata": {"annotations": {OWNER: None}}})
    some = runs.playbook("teardown", of("red", 3, **CONFIRMED))
    assert (some.status, owners(lab)) == ("successful", {lost: None}), some.shown
    assert f"vGPU {lost} is kept: it has no owner mark" in some.shown
    last = runs.playbook("teardown", of("red", 3, harvester_gpu_node_adopt=True, **CONFIRMED))
    assert (last.status, layout(lab)) == ("successful", {}), last.shown
    assert not lab.gpu(GPU)["spec"]["enabled"]


def test_a_gpu_that_the_layout_does_not_need_is_left_alone(lab: Lab, runs: Runs) -> None:
    """U2 and M7: gpu-b is passed through whole in the end."""
    lab.mark()
    misspelt = runs.playbook("harvester_gpu_cluster", {"harvester_gpu_node_layuot": []}, options="--tags node")
    assert "Did you mean harvester_gpu_node_layout?" in refused(lab, misspelt)
    nothing = runs.playbook("harvester_gpu_cluster", {}, options="--tags node")
    assert (nothing.status, writes(lab)) == ("successful", []), nothing.shown
    assert "Neither a layout nor a profile is given, so no GPU is changed." in nothing.shown
    two = {"harvester_gpu_node_layout": [{"profile": "A2-4Q", "count": 2}]}
    every = {**two, "harvester_gpu_node_sriov": "all"}
    done = runs.playbook("harvester_gpu_cluster", two, options="--tags node")
    assert (done.status, len(layout(lab))) == ("successful", 2), done.shown
    assert not lab.gpu(OTHER_GPU)["spec"].get("enabled")
    foreseen = runs.playbook("harvester_gpu_cluster", every, options="--tags node", check=True)
    assert (foreseen.status, foreseen.tasks) == ("successful", ["Enable SR-IOV on the GPUs that do not have it yet"]), (
        foreseen.shown
    )

    lab.make(
        CLAIMS,
        {
            "apiVersion": "devices.harvesterhci.io/v1beta1",
            "kind": "PCIDeviceClaim",
            "metadata": {"name": OTHER_GPU},
            "spec": {"address": "0000:08:00.0", "nodeName": "gpu-b", "userName": "admin"},
        },
    )
    again = runs.playbook("harvester_gpu_cluster", every, options="--tags node")
    assert (again.status, again.changed) == ("successful", 0), again.shown
    assert f"SR-IOV stays off on {OTHER_GPU}: claimed for passthrough." in again.shown
    gone = runs.playbook("teardown", {**every, **CONFIRMED})
    assert (gone.status, layout(lab)) == ("successful", {}), gone.shown
    assert not lab.gpu(GPU)["spec"]["enabled"]


def test_a_vm_that_runs_without_its_vgpus_is_not_ok(running: Lab, runs: Runs) -> None:
    """U1."""

    def two_4q(lab: Lab) -> None:
        lab.enable_gpus(GPU)
        lab.enable_vgpus(dict.fromkeys(NAMES[:2], FOUR))

    lab = running.begin(arranged=two_4q)
    bare = {"harvester_gpu_vm_vms": [{"name": "trainer"}]}
    made = runs.playbook("harvester_gpu_cluster", bare, options="--tags vm")
    assert (made.status, state(lab, "trainer")) == ("successful", "Running"), made.shown
    assert vm(lab)["metadata"]["labels"][OWNER] == "vgpu.fleet"

    wanted = {"harvester_gpu_vm_vms": [{"name": "trainer", "vgpus": [{"profile": "A2-4Q", "count": 2}]}]}
    for _run in range(2):
        told = runs.playbook("harvester_gpu_cluster", wanted, options="--tags vm,report")
        assert (told.status, told.failed_task) == ("failed", "Require that the VMs run with their vGPUs"), told.shown
        assert "run without their declared vGPUs: default/trainer." in told.failure
    assert len(has(lab)) == 2
    warned = runs.playbook(
        "harvester_gpu_cluster", {**wanted, "harvester_gpu_vm_pending": "warn"}, options="--tags vm,report"
    )
    assert (warned.status, warned.changed) == ("successful", 0), warned.shown
    assert "VM default/trainer runs with no vGPUs and is to have 2 x NVIDIA A2-4Q" in warned.shown
    counts = warned.artifacts["vgpu_capacity"]["localhost"]["profiles"]["A2-4Q"]
    assert (counts["in_use"], counts["claimed"], counts["free"]) == (0, 2, 0)
    drifted = runs.playbook("drift", wanted)
    found = {(one["kind"], one["device"]) for one in drifted.artifacts["vgpu_drift"]["localhost"]}
    assert ("restart_required", "default/trainer") in found

    done = runs.playbook(
        "harvester_gpu_cluster", {**wanted, "harvester_gpu_vm_restart": "if_needed"}, options="--tags vm,report"
    )
    assert done.status == "successful", done.shown
    assert done.artifacts["vgpu_capacity"]["localhost"]["profiles"]["A2-4Q"]["in_use"] == 2
