"""harvester_vgpu asked for single devices, against a lab, in both eras."""

from __future__ import annotations

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import (
    A4,
    A5,
    A6,
    A7,
    GPU_A,
    VMS,
    arranged,
    dry_runs,
    machine,
    patched,
    requests,
    writes,
)
from tests.integration.modules.playbooks import Playbooks, predicting

MODULE = "harvester_vgpu"
Q4, C4, Q8 = "NVIDIA A2-4Q", "NVIDIA A2-4C", "NVIDIA A2-8Q"


@arranged(beginnings.two_4q)
def test_devices_get_their_profiles_and_lose_them(lab: Lab, playbooks: Playbooks) -> None:
    asked = {"devices": [{"name": A6, "profile": "a2-4c"}, {"name": A5, "state": "disabled"}, {"name": A4}]}
    predicted, done, again = playbooks.tasks(predicting(MODULE, asked), (MODULE, asked), (MODULE, asked))
    assert writes(lab, predicted) == []
    assert predicted.steps == done.steps
    assert predicted["diff"] == done["diff"]
    assert [(one["name"], one["profile"], one["state"]) for one in done["vgpus"]] == [
        (A4, Q4, "allocatable"),
        (A5, None, "empty"),
        (A6, C4, "allocatable"),
    ]
    assert patched(lab, done) == [GPU_A, A5, A6, GPU_A]
    assert not again.changed
    assert writes(lab, again) == dry_runs(lab, again) == []
    assert again["vgpus"][0] == done["vgpus"][0]
    amounts = lab.amounts("gpu-a")
    assert amounts["nvidia.com/NVIDIA_A2-4C"] == 1


@arranged(beginnings.two_4q)
def test_another_profile_is_only_given_by_way_of_disabling_and_only_with_reprofile(
    lab: Lab, playbooks: Playbooks
) -> None:
    ask = {"name": A4, "profile": C4}
    refused, done = playbooks.tasks((MODULE, ask), (MODULE, {**ask, "reprofile": True}))
    assert refused.code == "needs_reprofile"
    assert writes(lab, refused) == []
    assert [(step["action"], step["slot"]) for step in done.steps] == [("disable", A4), ("enable", A4)]
    assert patched(lab, done) == [GPU_A, A4, A4, GPU_A]
    assert lab.status(A4)["configureVGPUTypeName"] == C4
    amounts = lab.amounts("gpu-a")
    assert (amounts["nvidia.com/NVIDIA_A2-4C"], amounts["nvidia.com/NVIDIA_A2-4Q"]) == (1, 1)


@arranged(beginnings.two_4q)
def test_a_type_that_was_changed_while_enabled_is_found_and_repaired(lab: Lab, playbooks: Playbooks) -> None:
    lab.write(f"{paths.VGPUS}/{A4}", {"spec": {"vGPUTypeName": C4}})
    lab.mark()
    ask = {"name": A4, "profile": C4}
    found, repaired, settled = playbooks.tasks((MODULE, ask), (MODULE, {**ask, "reprofile": True}), (MODULE, ask))
    assert found.code == "needs_reprofile"
    assert C4 in found.message
    assert writes(lab, found) == []
    assert repaired.changed
    assert not settled.changed
    assert (settled["vgpus"][0]["profile"], settled["vgpus"][0]["drifted"]) == (C4, False)


@arranged(beginnings.two_4q)
def test_a_claim_that_advertises_another_type_after_a_reboot_is_found_and_repaired(
    lab_vfio: Lab, playbooks: Playbooks
) -> None:
    lab = lab_vfio
    lab.write(f"{paths.VGPUS}/{A4}", {"spec": {"vGPUTypeName": C4}})
    lab.control.reboot("gpu-a")
    lab.until(lambda: lab.status(A4).get("configureVGPUTypeName") == C4 and lab.status(A4).get("vGPUStatus"))
    claim = lab.claim(A4)
    assert claim is not None
    override = "pcidevice.harvesterhci.io/override-resource-name"
    assert claim["metadata"]["annotations"][override] == "nvidia.com/NVIDIA_A2-4Q"
    ask = {"name": A4, "profile": C4}
    info, refused, done = playbooks.tasks(
        ("harvester_gpu_info", {}), (MODULE, ask), (MODULE, {**ask, "reprofile": True})
    )
    assert [(one["kind"], one["device"]) for one in info["findings"]] == [("type_differs", A4)]
    assert refused.code == "needs_reprofile"
    assert done.changed
    assert done["vgpus"][0]["state"] == "allocatable"
    claim = lab.claim(A4)
    assert claim is not None
    assert claim["metadata"]["annotations"][override] == "nvidia.com/NVIDIA_A2-4C"


@arranged(beginnings.two_4q, stays=True)
def test_a_device_that_a_vm_refers_to_is_neither_disabled_nor_changed(lab: Lab, playbooks: Playbooks) -> None:
    for how in ("spec", "noted"):
        machine(lab, "render", **{how: [A4]})
        lab.mark()
        for refused in playbooks.tasks(
            (MODULE, {"name": A4, "state": "disabled"}),
            (MODULE, {"name": A4, "profile": C4, "reprofile": True}),
            (MODULE, {"name": A5, "profile": Q4, "exclusive": True}),
        ):
            assert refused.code == "device_in_use"
            assert A4 in refused.message
            assert "default/render" in refused.message
        assert writes(lab) == dry_runs(lab) == []
        lab.api.delete(f"{VMS}/render")


@arranged(beginnings.four_4q, stays=True)
def test_what_the_webhook_would_refuse_is_refused_before_it_is_asked(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    no_profile, size, many, unknown, off, twice, board = playbooks.tasks(
        (MODULE, {"name": "gpu-a-000008010"}),
        (MODULE, {"name": "gpu-a-000008010", "profile": Q8}),
        (MODULE, {"name": "gpu-a-000008010", "profile": Q4}),
        (MODULE, {"name": "gpu-a-000008044", "profile": Q4}),
        (MODULE, {"name": "gpu-b-000008004", "profile": Q4}),
        (MODULE, {"devices": [{"name": A4, "profile": Q4}, {"name": A4, "state": "disabled"}]}),
        (MODULE, {"name": "gpu-a-000008010", "profile": "L40S-8Q"}),
    )
    assert "without a profile" in no_profile.message
    assert size.code == many.code == board.code == "does_not_fit"
    assert "different sizes" in size.message
    assert "takes 4" in many.message
    assert unknown.code == "unknown_device"
    assert off.code == "sriov_off"
    assert "enable_sriov" in off.message
    assert "more than once" in twice.message
    assert writes(lab) == dry_runs(lab) == []


def test_a_device_of_a_gpu_that_is_off_can_be_had_with_enable_sriov(lab: Lab, playbooks: Playbooks) -> None:
    device = "gpu-b-000008006"
    asked = {"name": device, "profile": Q8, "enable_sriov": True}
    predicted, done = playbooks.tasks(predicting(MODULE, asked), (MODULE, asked))
    assert writes(lab, predicted) == []
    assert predicted.steps == done.steps
    assert [(one["name"], one["profile"], one["state"]) for one in done["vgpus"]] == [(device, Q8, "allocatable")]


@arranged(beginnings.gpu_a_on)
def test_a_run_that_did_not_wait_or_was_cut_short_is_finished_by_the_next(lab: Lab, playbooks: Playbooks) -> None:
    devices = [{"name": name, "profile": Q4} for name in (A4, A5, A6, A7)]
    asked, done = playbooks.tasks((MODULE, {**devices[0], "wait": False}), (MODULE, {"devices": devices}))
    assert asked.changed
    assert not [event for event in requests(lab, asked) if event["verb"] == "watch"]
    assert [one["state"] for one in done["vgpus"]] == ["allocatable"] * 4
    assert sorted(patched(lab)) == [A4, A5, A6, A7]
