"""Another layout on GPUs that VMs use, and the way back when a step fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api import VGPUS, VMS
from tests.integration.labs import Lab
from tests.integration.playbooks.runs import Runs

GPU = "gpu-a-000008000"
NAMES = [f"gpu-a-00000800{function}" for function in "4567"]
RESOURCE = "nvidia.com/NVIDIA_A2-4Q"
# The trainer has one A2-4Q of gpu-a, and gets an A2-8Q.
CHANGE: dict[str, Any] = {
    "vgpu_reprofile_nodes": ["gpu-a"],
    "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 2}],
    "vgpu_reprofile_vms": [{"name": "trainer", "vgpus": [{"profile": "A2-8Q"}]}],
    "vgpu_reprofile_wait_timeout": 60,
}


def in_use(lab: Lab) -> None:
    """Two A2-4Q on gpu-a, of which a running VM has one."""
    lab.enable_gpus(GPU)
    lab.enable_vgpus(dict.fromkeys(NAMES[:2], "NVIDIA A2-4Q"))
    spec = {
        "domain": {
            "devices": {"hostDevices": [{"name": "vgpu-0", "deviceName": RESOURCE}]},
            "resources": {"requests": {"memory": "1Gi"}},
        }
    }
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "trainer", "namespace": "default", "labels": {"team": "ml"}},
        "spec": {"runStrategy": "Always", "template": {"metadata": {"labels": {"team": "ml"}}, "spec": spec}},
    }
    lab.make("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", body)
    lab.until(lambda: runs_with(lab) == [RESOURCE] and noted(lab), real=True)


def trainer(lab: Lab) -> dict[str, Any]:
    return lab.read("/apis/kubevirt.io/v1/namespaces/default/virtualmachines/trainer")


def noted(lab: Lab) -> bool:
    return "harvesterhci.io/deviceAllocationDetails" in (trainer(lab)["metadata"].get("annotations") or {})


def runs_with(lab: Lab) -> list[str]:
    """The vGPUs of the VM if it runs."""
    vm = trainer(lab)
    if (vm.get("status") or {}).get("printableStatus") != "Running":
        return []
    devices = vm["spec"]["template"]["spec"]["domain"]["devices"]
    return [device["deviceName"] for device in devices.get("hostDevices") or []]


def layout(lab: Lab) -> dict[str, str]:
    vgpus = lab.vgpus(GPU)
    return {vgpu["metadata"]["name"]: vgpu["spec"]["vGPUTypeName"] for vgpu in vgpus if vgpu["spec"]["enabled"]}


BEFORE = dict.fromkeys(NAMES[:2], "NVIDIA A2-4Q")


@pytest.fixture
def used(lab: Lab) -> Lab:
    return lab.begin(arranged=in_use)


def test_a_vm_that_is_not_named_is_not_stopped_and_nothing_changes(used: Lab, runs: Runs) -> None:
    refused = runs.playbook("reprofile", {**CHANGE, "vgpu_reprofile_vms": []})
    assert f"{GPU} is used by default/trainer, which may not be stopped." in refused.failure
    rehearsal = runs.playbook("reprofile", CHANGE, check=True)
    assert (rehearsal.status, rehearsal.tasks) == ("successful", ["The plan is shown"])
    assert f"{GPU}: 2 x NVIDIA A2-4Q -> 2 x A2-8Q, stopping default/trainer" in rehearsal.shown
    assert [event for event in used.audit() if "dryRun=All" not in event["requestURI"]] == []


def test_an_impossible_layout_is_taken_back_and_the_vm_runs_as_before(used: Lab, runs: Runs) -> None:
    failed = runs.playbook("reprofile", {**CHANGE, "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 3}]})
    assert failed.status == "failed"
    assert "The GPU and its VMs are as they were before." in failed.failure
    assert layout(used) == BEFORE
    assert used.until(lambda: runs_with(used) == [RESOURCE], real=True)
    assert trainer(used)["spec"]["runStrategy"] == "Always"


def test_vgpus_that_the_vm_cannot_have_are_taken_back_with_the_layout(used: Lab, runs: Runs) -> None:
    too_many = [{"name": "trainer", "vgpus": [{"profile": "A2-8Q", "count": 3}]}]
    failed = runs.playbook("reprofile", {**CHANGE, "vgpu_reprofile_vms": too_many})
    assert "The VMs have their vGPUs" in failed.failure
    assert "The GPU and its VMs are as they were before." in failed.failure
    assert layout(used) == BEFORE
    assert used.until(lambda: runs_with(used) == [RESOURCE], real=True)


def test_a_node_that_does_nothing_any_more_is_told_with_what_was_not_put_back(used: Lab, runs: Runs) -> None:
    used.control.fault("process-down", node="gpu-a")
    failed = runs.playbook("reprofile", {**CHANGE, "vgpu_reprofile_wait_timeout": 15})
    assert "The profiles are changed" in failed.failure
    assert f"Not put back: the profiles of {GPU}" in failed.failure
    used.control.fault("process-down", node="gpu-a", on=False)


def test_the_layout_changes_and_the_vm_runs_with_its_new_vgpu(used: Lab, runs: Runs) -> None:
    done = runs.playbook("reprofile", {**CHANGE, "vgpu_reprofile_vm_labels": {"team": "ml"}})
    assert done.status == "successful", done.shown
    assert sorted(layout(used).values()) == ["NVIDIA A2-8Q"] * 2
    assert used.until(lambda: runs_with(used) == ["nvidia.com/NVIDIA_A2-8Q"], real=True)
    assert trainer(used)["spec"]["runStrategy"] == "Always"
    again = runs.playbook("reprofile", CHANGE)
    assert (again.status, again.changed) == ("successful", 0)
    assert "Nothing to do" in again.shown
    assert len(used.items(VMS)) == 1
    assert used.items(VGPUS)
