"""What has drifted is found, and what is safe is repaired."""

from __future__ import annotations

from typing import Any

import yaml

from tests.integration.api import ADDONS, VGPUS
from tests.integration.labs import Lab
from tests.integration.playbooks.runs import Runs

GPU = "gpu-a-000008000"
A4, A5, A6 = (f"gpu-a-00000800{function}" for function in "456")
Q4, C4 = "NVIDIA A2-4Q", "NVIDIA A2-4C"
LOCATION = "http://files.example/NVIDIA-Linux-x86_64-vgpu-kvm.run"
DECLARED: dict[str, Any] = {
    "harvester_gpu_node_layout": [{"profile": Q4, "count": 3, "nodes": ["gpu-a"]}],
    "harvester_gpu_node_driver_location": LOCATION,
}


def drifted(lab: Lab) -> None:
    """One of each: another type in the spec, too few vGPUs, a stale note, and a driver location that was reset."""
    lab.enable_gpus(GPU)
    lab.enable_vgpus({A4: Q4, A5: Q4})
    lab.write(f"{VGPUS}/{A5}", {"spec": {"vGPUTypeName": C4}})
    note = f'{{"hostdevices": {{"nvidia.com/NVIDIA_A2-4Q": ["{A6}"]}}}}'
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {
            "name": "old",
            "namespace": "default",
            "annotations": {"harvesterhci.io/deviceAllocationDetails": note},
        },
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}},
    }
    lab.make("/apis/kubevirt.io/v1/namespaces/default/virtualmachines", body)
    values = yaml.safe_load(lab.read(f"{ADDONS}/nvidia-driver-toolkit")["spec"]["valuesContent"])
    content = yaml.safe_dump({**values, "driverLocation": "HTTPENDPOINT/driver.run"})
    lab.write(f"{ADDONS}/nvidia-driver-toolkit", {"spec": {"valuesContent": content}})


def kinds(findings: list[dict[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in findings:
        found.setdefault(one["kind"], []).append(one["device"])
    return found


def test_drift_is_told_then_repaired_and_then_there_is_none(lab: Lab, runs: Runs) -> None:
    lab.begin(arranged=drifted)
    told = runs.playbook("drift", {**DECLARED, "vgpu_drift_fail": "true"})
    assert (told.status, told.changed) == ("failed", 0), told.shown
    assert "default/old" in told.failure
    found = kinds(told.artifacts["vgpu_drift"]["localhost"])
    assert found["type_differs"] == [A5]
    assert found["stale_note"] == ["default/old"]
    assert found["driver_addon"] == ["nvidia-driver-toolkit"]
    assert found["layout_differs"] == [GPU]
    assert [event for event in lab.audit() if "dryRun=All" not in event["requestURI"]] == []
    mended = runs.playbook("drift", {**DECLARED, "vgpu_drift_repair": "true", "vgpu_drift_fail": "true"})
    assert mended.status == "successful", mended.shown
    assert set(kinds(mended.artifacts["vgpu_drift"]["localhost"])) == {"unused"}
    again = runs.playbook("drift", {**DECLARED, "vgpu_drift_repair": "true"})
    assert (again.status, again.changed) == ("successful", 0)
