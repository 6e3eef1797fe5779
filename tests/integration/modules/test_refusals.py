"""What the cluster refuses after all, because it changed after it was read: said in our words, and sent once."""

from __future__ import annotations

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, A5, A6, GPU_A, arranged, machine
from tests.integration.modules.meddling import meddling
from tests.integration.modules.playbooks import Playbooks, predicting

VGPU, SRIOV, ADDON = "harvester_vgpu", "harvester_sriov_gpu", "harvester_addon"
Q4, Q8 = "NVIDIA A2-4Q", "NVIDIA A2-8Q"


def refusals(lab: Lab) -> list[tuple[str, str, int]]:
    """Requests that were refused, each time that they were sent."""
    return [
        (event["verb"], event["objectRef"]["name"], event["responseStatus"]["code"])
        for event in lab.audit()
        if event["responseStatus"]["code"] >= 400
    ]


@arranged(beginnings.two_4q)
def test_a_device_that_a_vm_got_meanwhile_is_not_disabled(lab: Lab, playbooks: Playbooks) -> None:
    with meddling(lab, lambda: machine(lab, "render", noted=[A4])) as connection:
        refused = playbooks.task(VGPU, name=A4, state="disabled", **connection)
    assert refused.code == "refused"
    assert f"The cluster rejected the change to {A4}: device {A4} is in use with VM render" in refused.message
    assert "harvester_vgpu_vm" in refused.message
    assert not refused.changed
    # HTTP 500 for a refusal: it is no failure of the server, and asking again would not help.
    assert refusals(lab) == [("patch", A4, 500)]
    assert lab.status(A4)["configureVGPUTypeName"] == Q4
    lab.api.delete(f"{paths.VMS}/render")
    lab.mark()
    with meddling(lab, lambda: machine(lab, "render", noted=[A5])) as connection:
        whole = playbooks.task(SRIOV, gpus=[GPU_A], state="disabled", disable_vgpus=True, **connection)
    # The first vGPU was free and is disabled. The second is not, so the GPU stays.
    assert whole.code == "refused"
    assert A5 in whole.message
    assert whole.changed
    assert refusals(lab) == [("patch", A5, 500)]
    assert lab.gpu(GPU_A)["spec"]["enabled"]


@arranged(beginnings.gpu_a_on)
def test_a_profile_that_is_not_offered_any_more_is_said_and_check_mode_asks_the_cluster(
    lab: Lab, playbooks: Playbooks
) -> None:

    def another_size() -> None:
        lab.enable_vgpus({A6: Q8})
        lab.until(lambda: Q4 not in lab.types(A4))

    with meddling(lab, another_size) as connection:
        # The dry run of check mode meets the change first; nothing but it is sent.
        (predicted,) = playbooks.tasks(predicting(VGPU, {"name": A4, "profile": Q4, **connection}))
    assert predicted.code == "refused"
    assert f"VGPUTypeName {Q4} is not a valid profile" in predicted.message
    assert "run the task again" in predicted.message
    assert refusals(lab) == [("patch", A4, 500)]


@arranged(beginnings.two_4q)
def test_an_addon_that_a_vm_came_to_need_meanwhile_is_not_disabled(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    with meddling(lab, lambda: machine(lab, "render", spec=[A4])) as connection:
        refused = playbooks.task(ADDON, name="nvidia-driver-toolkit", state="disabled", **connection)
    assert refused.code == "addon_in_use"
    assert "render" in refused.message
    assert len(refusals(lab)) == 1
