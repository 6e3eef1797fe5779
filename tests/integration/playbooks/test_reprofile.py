"""Another layout on GPUs that VMs use, and the way back when a step fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.integration.api import VGPUS, VMS
from tests.integration.labs import Lab
from tests.integration.playbooks.runs import Run, Runs

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


VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
HELD_UP = "tests.example/held-up"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
PROBE = "tests.example/probe"
WHERE = {
    "virtualmachines": ("kubevirt.io", "/apis/kubevirt.io/v1/namespaces/default/virtualmachines/trainer"),
    "vgpudevices": ("devices.harvesterhci.io", f"{VGPUS}/{NAMES[0]}"),
}


@contextmanager
def refusing(lab: Lab, resource: str, updates: str) -> Iterator[None]:
    """The API server refuses such updates by people. Controllers may go on."""
    group, example = WHERE[resource]
    name = "refusing"
    rule = {"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": ["UPDATE"]}
    probed = f"has(object.metadata.annotations) && '{PROBE}' in object.metadata.annotations"
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "matchConditions": [{"name": "people", "expression": "request.userInfo.username == 'lab:admin'"}],
            "validations": [{"expression": f"!({one})", "message": "refused by a test"} for one in (updates, probed)],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }

    def in_force() -> bool:
        answer = lab.api.patch(example, {"metadata": {"annotations": {PROBE: ""}}}, dryRun="All")
        return answer.status != 200

    lab.make(POLICIES, policy)
    lab.make(BINDINGS, binding)
    lab.until(in_force, real=True)
    try:
        yield
    finally:
        lab.api.delete(f"{BINDINGS}/{name}")
        lab.api.delete(f"{POLICIES}/{name}")
        lab.until(lambda: not in_force(), real=True)


BEFORE = dict.fromkeys(NAMES[:2], "NVIDIA A2-4Q")


def changed(runs: Runs, variables: dict[str, Any], *, check: bool = False) -> Run:
    return runs.playbook("reprofile", variables, check=check, options="--tags reprofile")


@pytest.fixture
def used(lab: Lab) -> Lab:
    return lab.begin(arranged=in_use)


def test_a_vm_that_is_not_named_is_not_stopped_and_nothing_changes(used: Lab, runs: Runs) -> None:
    refused = changed(runs, {**CHANGE, "vgpu_reprofile_vms": []})
    assert f"{GPU} is used by default/trainer, which may not be stopped." in refused.failure
    rehearsal = changed(runs, CHANGE, check=True)
    assert (rehearsal.status, rehearsal.tasks) == ("successful", ["The plan is shown"])
    assert f"{GPU}: 2 x NVIDIA A2-4Q -> 2 x A2-8Q, stopping default/trainer" in rehearsal.shown
    assert [event for event in used.audit() if "dryRun=All" not in event["requestURI"]] == []


def test_what_cannot_work_is_refused_before_any_vm_is_stopped(used: Lab, runs: Runs) -> None:
    too_many = {**CHANGE, "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 3}]}
    refused = changed(runs, too_many)
    assert f"{GPU}: 1 of 3 NVIDIA A2-8Q do not fit" in refused.failure
    starved = {**CHANGE, "vgpu_reprofile_vms": [{"name": "trainer", "vgpus": [{"profile": "A2-8Q", "count": 3}]}]}
    refused = changed(runs, starved)
    assert "default/trainer would not find 3 x NVIDIA A2-8Q on one node afterwards" in refused.failure
    assert [event for event in used.audit() if "dryRun=All" not in event["requestURI"]] == []


# The steps of the role in order, and what keeps each of them from being done. What puts things back is let through.
HALTED = "object.spec.runStrategy == 'Halted'"
DEVICES = "spec.template.spec.domain.devices"
PUT_IN = (
    f"(has(object.{DEVICES}.hostDevices) && object.{DEVICES}.hostDevices.exists(one, one.deviceName.endsWith('8Q')))"
)
FAULTS = {
    "The VMs are stopped": ("virtualmachines", HALTED),
    "They refer to no vGPU": (
        "virtualmachines",
        f"!has(object.{DEVICES}.hostDevices) && has(oldObject.{DEVICES}.hostDevices)",
    ),
    "The profiles are changed": ("vgpudevices", "object.spec.vGPUTypeName == 'NVIDIA A2-8Q'"),
    "The VMs have their vGPUs": ("virtualmachines", PUT_IN),
    "Those that ran run again": ("virtualmachines", f"{PUT_IN} && !({HALTED})"),
}


def test_a_fault_in_any_phase_is_told_and_everything_is_as_before(used: Lab, runs: Runs) -> None:
    for step, (resource, refused) in FAULTS.items():
        with refusing(used, resource, refused):
            failed = changed(runs, CHANGE)
        assert failed.status == "failed"
        assert f"{GPU} could not get its layout. {step}: " in failed.failure, failed.shown
        assert "The GPU and its VMs are as they were before." in failed.failure, failed.failure
        assert layout(used) == BEFORE, step
        assert used.until(lambda: runs_with(used) == [RESOURCE], real=True), step
        assert trainer(used)["spec"]["runStrategy"] == "Always", step


def test_a_vm_that_does_not_end_keeps_its_vgpu_and_is_told(used: Lab, runs: Runs) -> None:
    instance = f"{VMIS}/trainer"
    used.write(instance, {"metadata": {"finalizers": [*used.read(instance)["metadata"]["finalizers"], HELD_UP]}})
    failed = changed(runs, {**CHANGE, "vgpu_reprofile_wait_timeout": 3})
    assert f"{GPU} could not get its layout. They have ended: " in failed.failure
    assert "Not put back: trainer: " in failed.failure
    assert layout(used) == BEFORE
    left = [name for name in used.read(instance)["metadata"]["finalizers"] if name != HELD_UP]
    used.write(instance, {"metadata": {"finalizers": left}})
    # It was told to run again, and does as soon as it can.
    assert used.until(lambda: runs_with(used) == [RESOURCE], real=True)


def test_what_cannot_be_put_back_is_told(used: Lab, runs: Runs) -> None:
    with refusing(used, "vgpudevices", "object.spec.enabled"):
        failed = changed(runs, CHANGE)
    assert f"{GPU} could not get its layout. The profiles are changed: " in failed.failure
    assert f"Not put back: the profiles of {GPU}: " in failed.failure
    assert "; trainer: " in failed.failure


def test_the_layout_changes_and_the_vm_runs_with_its_new_vgpu(used: Lab, runs: Runs) -> None:
    done = changed(runs, {**CHANGE, "vgpu_reprofile_vm_labels": {"team": "ml"}})
    assert done.status == "successful", done.shown
    assert sorted(layout(used).values()) == ["NVIDIA A2-8Q"] * 2
    assert used.until(lambda: runs_with(used) == ["nvidia.com/NVIDIA_A2-8Q"], real=True)
    assert trainer(used)["spec"]["runStrategy"] == "Always"
    again = changed(runs, CHANGE)
    assert (again.status, again.changed) == ("successful", 0)
    assert "Nothing to do" in again.shown
    assert len(used.items(VMS)) == 1
    assert used.items(VGPUS)
