"""harvester_sriov_gpu against a lab, in both eras."""

from __future__ import annotations

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import (
    A4,
    A5,
    GPU_A,
    GPU_B,
    VMS,
    arranged,
    dry_runs,
    machine,
    patched,
    requests,
    writes,
)
from tests.integration.modules.playbooks import Playbooks, predicting

MODULE = "harvester_sriov_gpu"


def test_enabling_ends_when_every_function_offers_types_and_a_second_run_writes_nothing(
    lab: Lab, playbooks: Playbooks
) -> None:
    ask = {"nodes": ["gpu-a"], "detail": "full"}
    predicted, done, again = playbooks.tasks(predicting(MODULE, ask), (MODULE, ask), (MODULE, ask))
    assert writes(lab, predicted) == []
    assert len(dry_runs(lab, predicted)) == 1
    assert predicted.changed
    assert done.changed
    assert predicted.steps == done.steps
    assert predicted["diff"] == done["diff"]
    assert set(predicted) == set(done)
    assert patched(lab, done) == [GPU_A]
    (gpu,) = done["gpus"]
    assert (gpu["name"], gpu["board"], gpu["vgpu_enabled"], len(gpu["slots"])) == (GPU_A, "A2", True, 16)
    assert all("NVIDIA A2-4Q" in slot["available_profiles"] for slot in gpu["slots"])
    assert all("NVIDIA A2-4Q" in lab.types(slot["name"]) for slot in gpu["slots"])
    assert not again.changed
    assert again["gpus"] == done["gpus"]
    assert writes(lab, again) == dry_runs(lab, again) == []


@arranged(beginnings.gpus_on)
def test_disabling_removes_the_vgpu_devices(lab: Lab, playbooks: Playbooks) -> None:
    ask = {"gpus": ["gpu-*"], "state": "disabled"}
    predicted, done, again = playbooks.tasks(predicting(MODULE, ask), (MODULE, ask), (MODULE, ask))
    assert writes(lab, predicted) == []
    assert predicted.steps == done.steps
    assert predicted["gpus"] == done["gpus"]
    assert done.changed
    assert [(gpu["name"], gpu["node"], gpu["vgpu_enabled"], gpu["empty"]) for gpu in done["gpus"]] == [
        (GPU_A, "gpu-a", False, 0),
        (GPU_B, "gpu-b", False, 0),
    ]
    assert lab.items(paths.VGPUS) == []
    assert sorted(patched(lab, done)) == [GPU_A, GPU_B]
    assert not again.changed
    assert writes(lab, again) == []


@arranged(beginnings.two_4q)
def test_a_gpu_with_enabled_vgpus_is_not_disabled_unless_they_may_be_disabled_first(
    lab: Lab, playbooks: Playbooks
) -> None:
    ask = {"gpus": [GPU_A], "state": "disabled"}
    allowed = {**ask, "disable_vgpus": True}
    refused, predicted, done = playbooks.tasks((MODULE, ask), predicting(MODULE, allowed), (MODULE, allowed))
    assert refused.failed
    assert refused.code == "vgpus_enabled"
    assert A4 in refused.message
    assert "disable_vgpus" in refused.message
    assert writes(lab, refused) == writes(lab, predicted) == []
    assert predicted.steps == done.steps
    assert predicted["gpus"] == done["gpus"]
    assert [(step["action"], step["slot"]) for step in done.steps] == [
        ("disable", A4),
        ("disable", A5),
        ("disable_sriov", None),
    ]
    assert patched(lab) == [A4, A5, GPU_A]
    # Nothing is left behind: no claims, and the node offers none.
    assert lab.items(paths.CLAIMS) == []
    lab.until(lambda: not any(lab.amounts("gpu-a").values()))


@arranged(beginnings.two_4q, stays=True)
def test_a_gpu_is_never_disabled_while_a_vm_refers_to_one_of_its_vgpus(lab: Lab, playbooks: Playbooks) -> None:
    for how in ("spec", "noted"):
        machine(lab, "render", **{how: [A5]})
        lab.mark()
        refused = playbooks.task(MODULE, gpus=[GPU_A], state="disabled", disable_vgpus=True)
        assert refused.failed
        assert refused.code == "device_in_use"
        assert A5 in refused.message
        assert "default/render" in refused.message
        assert writes(lab) == []
        lab.api.delete(f"{VMS}/render")


@arranged(stays=True)
def test_what_nothing_matches_is_an_error_that_lists_what_exists(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    by_node, by_gpu, neither = playbooks.tasks(
        (MODULE, {"nodes": ["gpu-x"]}), (MODULE, {"gpus": ["gpu-a-0000080*5"]}), (MODULE, {})
    )
    assert by_node.code == by_gpu.code == "nothing_selected"
    assert "gpu-a, gpu-b" in by_node.message
    assert GPU_A in by_gpu.message
    assert GPU_B in by_gpu.message
    assert "gpus, nodes" in neither.message
    assert writes(lab) == []


def test_a_gpu_that_is_claimed_for_passthrough_is_named(lab: Lab, playbooks: Playbooks) -> None:
    claim = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "PCIDeviceClaim",
        "metadata": {"name": GPU_A},
        "spec": {"address": "0000:08:00.0", "nodeName": "gpu-a", "userName": "admin"},
    }
    lab.make(paths.CLAIMS, claim)
    lab.mark()
    refused = playbooks.task(MODULE, gpus=[GPU_A])
    assert refused.code == "gpu_blocked"
    assert "claimed for passthrough" in refused.message
    assert writes(lab) == []


def test_without_waiting_the_task_only_asks(lab: Lab, playbooks: Playbooks) -> None:
    asked, finished = playbooks.tasks((MODULE, {"gpus": [GPU_A], "wait": False}), (MODULE, {"gpus": [GPU_A]}))
    assert asked.changed
    assert not [event for event in requests(lab, asked) if event["verb"] == "watch"]
    # The next run waits for what this one has asked for, and changes nothing.
    assert not finished.changed
    assert finished["gpus"][0]["empty"] == 16
    assert patched(lab) == [GPU_A]
