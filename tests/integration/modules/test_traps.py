"""Writes that are accepted and fail silently (harvester.md 6.3 to 6.7): modules wait until it is safe, or repair."""

from __future__ import annotations

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, A5, GPU_A, arranged, patched
from tests.integration.modules.moments import standing_still, step_until
from tests.integration.modules.playbooks import Playbooks

MODULE = "harvester_vgpu"
Q4, C4 = "NVIDIA A2-4Q", "NVIDIA A2-4C"
Q4_RESOURCE = "nvidia.com/NVIDIA_A2-4Q"


def enable_halfway(lab: Lab) -> None:
    """A vGPU has its status and not yet the name of its type.

    A scan at that moment writes both at once; then once more, since the next one is far away.
    """
    for _time in range(4):
        lab.write(f"{paths.VGPUS}/{A4}", {"spec": {"enabled": True, "vGPUTypeName": Q4}})
        step_until(lab, lambda: bool(lab.status(A4).get("vGPUStatus")))
        if "configureVGPUTypeName" not in lab.status(A4):
            return
        lab.disable_vgpus([A4])
        lab.advance(10)
    raise AssertionError("status and name always came together")


@arranged(beginnings.gpu_a_on)
def test_2_a_vgpu_is_not_disabled_before_the_name_of_its_type_is_there(lab_mdev: Lab, playbooks: Playbooks) -> None:
    """Up to 1.7, a disable between status and name never reaches the device plugin: the node goes on counting it."""
    lab = lab_mdev
    lab.run_clock(0)
    enable_halfway(lab)
    with standing_still(lab):
        done = playbooks.task(MODULE, name=A4, state="disabled")
    assert not done.failed, done.message
    assert patched(lab) == [A4]
    lab.until(lambda: lab.amounts("gpu-a").get(Q4_RESOURCE) == 0)


@arranged(beginnings.gpu_a_on)
def test_6_a_vgpu_is_not_enabled_again_while_its_claim_is_on_the_way_out(lab_vfio: Lab, playbooks: Playbooks) -> None:
    """From 1.8 on, the claim that goes is taken for the new one, and the node then counts nothing."""
    lab = lab_vfio
    lab.enable_vgpus({A4: Q4})
    lab.run_clock(0)
    lab.write(f"{paths.VGPUS}/{A4}", {"spec": {"enabled": False}})
    step_until(lab, lambda: not lab.status(A4).get("vGPUStatus") and Q4 in lab.types(A4))
    claim = lab.claim(A4)
    assert claim is not None
    assert "deletionTimestamp" in claim["metadata"]
    with standing_still(lab):
        done = playbooks.task(MODULE, name=A4, profile=Q4)
    assert not done.failed, done.message
    assert done["vgpus"][0]["state"] == "allocatable"
    assert lab.amounts("gpu-a")[Q4_RESOURCE] == 1
    assert lab.claim(A4) is not None


@arranged(beginnings.two_4q)
def test_1_a_claim_that_outlived_its_vgpu_is_found_and_a_vgpu_that_got_it_is_mended(
    lab_vfio: Lab, playbooks: Playbooks
) -> None:
    """From 1.8 on, switching a GPU off under its vGPUs leaves claims behind, which the next vGPUs are handed out as."""
    lab = lab_vfio
    lab.disable_gpus(GPU_A)
    lab.enable_gpus(GPU_A)
    lab.write(f"{paths.VGPUS}/{A4}", {"spec": {"enabled": True, "vGPUTypeName": C4}})
    lab.until(lambda: lab.status(A4).get("configureVGPUTypeName") == C4)
    ask = {"name": A4, "profile": C4}
    info, found, beside, mended, settled, again = playbooks.tasks(
        ("harvester_gpu_info", {}),
        (MODULE, ask),
        (MODULE, {"name": A5, "profile": C4}),
        (MODULE, {**ask, "reprofile": True}),
        (MODULE, ask),
        ("harvester_gpu_info", {}),
    )
    assert {(one["kind"], one["device"]) for one in info["findings"]} == {
        ("type_differs", A4),
        ("claim_left_behind", A5),
    }
    assert found.code == "needs_reprofile"
    assert "its node offers it as NVIDIA A2-4Q" in found.message
    # Nothing else than what the claim says can be had there.
    assert beside.code == "does_not_fit"
    assert mended.changed
    assert not settled.changed
    assert settled["vgpus"][0]["state"] == "allocatable"
    assert {(one["kind"], one["device"]) for one in again["findings"]} == {("claim_left_behind", A5)}
