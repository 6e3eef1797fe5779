"""Another layout on GPUs that VMs use. What happens when a step fails is in test_reprofile_faults.py."""

from __future__ import annotations

from tests.integration.api import VGPUS, VM_ACTIONS, VMIS, VMS
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import writes
from tests.integration.modules.permissions import Automation
from tests.integration.playbooks.reprofiling import (
    CHANGE,
    ENTRY,
    GPU,
    LARGE,
    NAMES,
    OTHER_GPU,
    RESOURCE,
    changed,
    entries,
    has,
    journals,
    layout,
    machine,
    runs_with,
    state,
    vm,
)
from tests.integration.playbooks.runs import Runs


def test_a_vm_that_is_not_named_is_not_stopped_and_nothing_changes(used: Lab, runs: Runs) -> None:
    refused = changed(runs, {**CHANGE, "vgpu_reprofile_vms": []})
    assert f"{GPU} is used by default/trainer, which may not be stopped." in refused.failure
    rehearsal = changed(runs, CHANGE, check=True)
    assert (rehearsal.status, rehearsal.tasks) == ("successful", ["Show the plan"])
    assert f"{GPU}: 2 x NVIDIA A2-4Q -> 2 x A2-8Q, stopping default/trainer" in rehearsal.shown
    assert writes(used) == []


def test_what_cannot_work_is_refused_before_any_vm_is_stopped(used: Lab, runs: Runs) -> None:
    too_many = {**CHANGE, "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 3}]}
    refused = changed(runs, too_many)
    assert f"{GPU}: 1 of 3 NVIDIA A2-8Q do not fit" in refused.failure
    starved = {**CHANGE, "vgpu_reprofile_vms": [{"name": "trainer", "vgpus": [{"profile": "A2-8Q", "count": 3}]}]}
    refused = changed(runs, starved)
    assert "default/trainer would not find 3 x NVIDIA A2-8Q on one node afterwards" in refused.failure
    assert writes(used) == []


def test_the_layout_changes_and_the_vm_runs_with_its_new_vgpu(used: Lab, runs: Runs) -> None:
    """By a user with the documented rights and no others."""
    both = {**CHANGE, "vgpu_reprofile_nodes": ["gpu-a", "gpu-b"], "vgpu_reprofile_serial": 2}
    user = Automation(used)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-devices", "vgpu-fleet-vms")
    user.grant("vgpu-fleet-vm-editor", namespace="default")
    allowed = {"harvester_kubeconfig": str(user.kubeconfig)}
    done = changed(runs, {**both, **allowed, "vgpu_reprofile_vm_labels": {"team": "ml"}})
    user.withdraw()
    assert done.status == "successful", done.shown
    assert f"{GPU}, {OTHER_GPU}: 2 x NVIDIA A2-4Q -> 2 x A2-8Q each, stopping default/trainer" in done.shown
    assert sorted([*layout(used).values(), *layout(used, OTHER_GPU).values()]) == ["NVIDIA A2-8Q"] * 4
    assert used.until(lambda: runs_with(used) == [LARGE], real=True)
    assert vm(used)["spec"]["runStrategy"] == "Always"
    assert entries(used) == [{**ENTRY, "deviceName": LARGE}]
    assert journals(used) == {}
    again = changed(runs, both)
    assert (again.status, again.changed) == ("successful", 0)
    assert "Nothing to do" in again.shown
    assert len(used.items(VMS)) == 1
    assert used.items(VGPUS)


def test_a_vm_with_the_label_is_stopped_and_finds_the_same_vgpu_elsewhere(used: Lab, runs: Runs) -> None:
    used.enable_gpus(OTHER_GPU)
    used.enable_vgpus({"gpu-b-000008004": "NVIDIA A2-4Q"})
    labelled = {**CHANGE, "vgpu_reprofile_vms": [], "vgpu_reprofile_vm_labels": {"team": "ml"}}
    done = changed(runs, labelled)
    assert done.status == "successful", done.shown
    assert sorted(layout(used).values()) == ["NVIDIA A2-8Q"] * 2
    assert used.until(lambda: runs_with(used) == [RESOURCE], real=True)
    assert used.read(f"{VMIS}/trainer")["status"]["nodeName"] == "gpu-b"


# Ways to set whether a VM runs.
HOW = {
    "rerun": {"runStrategy": "RerunOnFailure"},
    "by-hand": {"runStrategy": "Manual"},
    "older": {"running": True},
    "resting": {"runStrategy": "Manual"},
}


def set_in_every_way(lab: Lab) -> None:
    lab.enable_gpus(GPU)
    lab.enable_vgpus(dict.fromkeys(NAMES, "NVIDIA A2-4Q"))
    for name, how in HOW.items():
        lab.make(VMS, machine(name, **how))
    lab.until(lambda: state(lab, "by-hand") == "Stopped", real=True)
    lab.api.action(f"{VM_ACTIONS}/by-hand/start")
    for name in ("rerun", "by-hand", "older"):
        lab.until(lambda name=name: runs_with(lab, name) == [RESOURCE], real=True)


def test_vms_run_or_not_as_before_however_that_is_set(lab: Lab, runs: Runs) -> None:
    lab.begin(arranged=set_in_every_way)
    other = [{"profile": "A2-4C", "count": 1}]
    change = {
        "vgpu_reprofile_gpus": [GPU],
        "vgpu_reprofile_layout": [{"profile": "A2-4C", "count": 4}],
        "vgpu_reprofile_vms": [{"name": name, "vgpus": other} for name in HOW],
    }
    done = changed(runs, change)
    assert done.status == "successful", done.shown
    for name in ("rerun", "by-hand", "older"):
        assert lab.until(lambda name=name: runs_with(lab, name) == ["nvidia.com/NVIDIA_A2-4C"], real=True)
    assert (state(lab, "resting"), has(lab, "resting")) == ("Stopped", ["nvidia.com/NVIDIA_A2-4C"])
    for name, how in HOW.items():
        spec = vm(lab, name)["spec"]
        assert {key: spec[key] for key in ("running", "runStrategy") if key in spec} == how
