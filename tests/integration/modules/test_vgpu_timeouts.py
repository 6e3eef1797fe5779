"""What did not happen, and why: a task that waited in vain names the cause."""

from __future__ import annotations

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, A5, GPU_A, GPU_B, VMS, arranged, machine, patched
from tests.integration.modules.moments import break_driver, driver_rolled_out
from tests.integration.modules.playbooks import Playbooks

SRIOV, VGPU = "harvester_sriov_gpu", "harvester_vgpu"
Q4 = "NVIDIA A2-4Q"


def test_a_driver_that_does_not_build_and_a_placeholder_are_named(lab: Lab, playbooks: Playbooks) -> None:
    lab.control.fault("httpendpoint")
    lab.until(lambda: driver_rolled_out(lab), real=True)
    break_driver(lab, "gpu-a")
    late = playbooks.task(SRIOV, gpus=[GPU_A], wait_timeout=2, fail_fast=False)
    assert late.code == "timeout"
    assert late.changed
    early = playbooks.task(SRIOV, gpus=[GPU_A], wait_timeout=600)
    assert (early.code, early.changed) == ("driver_cannot_start", False)
    assert "on node gpu-a cannot start: CrashLoopBackOff" in early.message
    assert f"GPU {GPU_A} on node gpu-a: it has no virtual functions" in late.message
    assert "HTTPENDPOINT" in late.message
    assert "CrashLoopBackOff" in late.message
    assert late["error"]["waiting"] == [{"device": GPU_A, "node": "gpu-a", "missing": "it has no virtual functions"}]
    # Once it is mended, the next run finds that it has been asked for, and only waits.
    lab.control.fault("httpendpoint", on=False)
    lab.control.fault("driver-missing", on=False, node="gpu-a")
    lab.mark()
    mended = playbooks.task(SRIOV, gpus=[GPU_A])
    assert not mended.failed, mended.message
    assert not mended.changed
    assert patched(lab) == []


def test_addons_that_are_off_are_named(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    lab.write(f"{paths.ADDONS}/nvidia-driver-toolkit", {"spec": {"enabled": False}})
    lab.until(lambda: not [pod for pod in lab.items(paths.HARVESTER_PODS) if "nvidia" in pod["metadata"]["name"]])
    late = playbooks.task(SRIOV, gpus=[GPU_A], wait_timeout=2)
    assert "The addon nvidia-driver-toolkit is not enabled" in late.message
    assert "no NVIDIA driver pod on node gpu-a" in late.message


@arranged(beginnings.gpu_a_on)
def test_a_lost_label_and_a_process_that_is_down_are_named(lab: Lab, playbooks: Playbooks) -> None:
    lab.write(f"{paths.VGPUS}/{A5}", {"metadata": {"labels": {"nodename": None}}})
    lab.control.fault("process-down", on=True, node="gpu-a")
    late = playbooks.task(VGPU, name=A4, profile=Q4, wait_timeout=2)
    assert late.code == "timeout"
    assert f"vGPU {A4} on node gpu-a: it is not configured as {Q4}" in late.message
    assert f"{A5} has lost its label nodename=gpu-a" in late.message
    assert late.changed


def test_a_vm_with_a_broken_note_is_named_as_what_takes_all_controllers_down(lab: Lab, playbooks: Playbooks) -> None:
    machine(lab, "broken", note="{not json")
    lab.until(lambda: not any(lab.control.status()["processes"].values()))
    late = playbooks.task(SRIOV, gpus=[GPU_B], wait_timeout=2)
    assert "VM default/broken cannot be read" in late.message
    lab.api.delete(f"{VMS}/broken")
    lab.mark()
    assert not playbooks.task(SRIOV, gpus=[GPU_B]).failed


@arranged(beginnings.two_4q)
def test_a_plugin_that_lost_count_is_a_warning(lab_vfio: Lab, playbooks: Playbooks) -> None:
    """From 1.8 on a vGPU that is enabled again may not be counted until the node's pod restarts (harvester.md 9.2)."""
    lab = lab_vfio
    # How long a count that looks stuck is waited for is a part of the whole.
    off, on = playbooks.tasks(
        (VGPU, {"name": A4, "state": "disabled"}), (VGPU, {"name": A4, "profile": Q4, "wait_timeout": 120})
    )
    assert not off.failed, off.message
    assert not on.failed, on.message
    assert on["vgpus"][0]["profile"] == Q4
    assert lab.amounts("gpu-a")["nvidia.com/NVIDIA_A2-4Q"] == 1
    assert any("lost count" in warning for warning in on["warnings"])
