"""A GPU in use that is to have another layout, and an API server that refuses some of what it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.integration.api import SRIOV_GPUS, VGPUS, VMIS, VMS
from tests.integration.lab_harvester import machines
from tests.integration.labs import Lab
from tests.integration.playbooks.runs import Run, Runs

GPU = "gpu-a-000008000"
NAMES = [f"gpu-a-00000800{function}" for function in "4567"]
OTHER_GPU = "gpu-b-000008000"
RESOURCE, LARGE = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-8Q"
ENTRY = {"name": "render-gpu", "tag": "gpu0", "deviceName": RESOURCE}
JOURNAL, OWNER = "vgpu.fleet/journal", "vgpu.fleet/owner"
TRAINER = f"{VMIS}/trainer"
# The trainer has one A2-4Q of gpu-a, and gets an A2-8Q.
CHANGE: dict[str, Any] = {
    "vgpu_reprofile_nodes": ["gpu-a"],
    "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 2}],
    "vgpu_reprofile_vms": [{"name": "trainer", "vgpus": [{"profile": "A2-8Q"}]}],
    "vgpu_reprofile_wait_timeout": 60,
}


def in_use(lab: Lab) -> None:
    """Two A2-4Q on gpu-a, which one owner has enabled, and of which a running VM has one."""
    lab.enable_gpus(GPU)
    lab.enable_vgpus(dict.fromkeys(NAMES[:2], "NVIDIA A2-4Q"))
    for name in NAMES[:2]:
        lab.write(f"{VGPUS}/{name}", {"metadata": {"annotations": {OWNER: "blue"}}})
    lab.make(VMS, machine("trainer", runStrategy="Always"))
    lab.until(lambda: runs_with(lab) == [RESOURCE] and noted(lab), real=True)


def machine(name: str, **how: Any) -> dict[str, Any]:
    """A VM with an A2-4Q."""
    body = machines.machine(name, host_devices=[ENTRY])
    body["metadata"]["labels"] = {"team": "ml"}
    del body["spec"]["runStrategy"]
    body["spec"] |= how
    return body


def vm(lab: Lab, name: str = "trainer") -> dict[str, Any]:
    return lab.read(f"{VMS}/{name}")


def noted(lab: Lab) -> bool:
    return machines.ALLOCATION in (vm(lab)["metadata"].get("annotations") or {})


def runs_with(lab: Lab, name: str = "trainer") -> list[str]:
    """The vGPUs of the VM if it runs."""
    return has(lab, name) if state(lab, name) == "Running" else []


def has(lab: Lab, name: str = "trainer") -> list[str]:
    return [device["deviceName"] for device in entries(lab, name)]


def entries(lab: Lab, name: str = "trainer") -> list[dict[str, Any]]:
    devices = vm(lab, name)["spec"]["template"]["spec"]["domain"]["devices"]
    return list(devices.get("hostDevices") or [])


def journals(lab: Lab) -> dict[str, dict[str, Any]]:
    """By the name of the object."""
    found = {}
    for item in [*lab.items(SRIOV_GPUS), *lab.items(VMS)]:
        text = (item["metadata"].get("annotations") or {}).get(JOURNAL)
        if text:
            found[item["metadata"]["name"]] = json.loads(text)
    return found


def owners(lab: Lab) -> dict[str, str | None]:
    """For whom each enabled vGPU of the GPU is, by its mark."""
    found = {one["metadata"]["name"]: one for one in lab.items(VGPUS)}
    return {name: (found[name]["metadata"].get("annotations") or {}).get(OWNER) for name in layout(lab)}


def state(lab: Lab, name: str) -> str:
    return str((vm(lab, name).get("status") or {}).get("printableStatus"))


def layout(lab: Lab, gpu: str = GPU) -> dict[str, str]:
    vgpus = lab.vgpus(gpu)
    return {vgpu["metadata"]["name"]: vgpu["spec"]["vGPUTypeName"] for vgpu in vgpus if vgpu["spec"]["enabled"]}


HELD_UP = "tests.example/held-up"


def hold_up(lab: Lab) -> None:
    """From now on the trainer does not end when it is stopped."""
    lab.write(TRAINER, {"metadata": {"finalizers": [*lab.read(TRAINER)["metadata"]["finalizers"], HELD_UP]}})


def let_go(lab: Lab) -> None:
    left = [name for name in lab.read(TRAINER)["metadata"]["finalizers"] if name != HELD_UP]
    lab.write(TRAINER, {"metadata": {"finalizers": left}})


POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
PROBE = "tests.example/probe"
WHERE = {
    "virtualmachines": ("kubevirt.io", f"{VMS}/trainer"),
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
