"""harvester_vgpu asked for numbers of vGPUs, against a lab, in both eras."""

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
    GPU_B,
    arranged,
    dry_runs,
    machine,
    patched,
    writes,
)
from tests.integration.modules.playbooks import Playbooks, Result, predicting

MODULE = "harvester_vgpu"


def brief(result: Result) -> list[tuple[str, str, str]]:
    return [(vgpu["name"], vgpu["profile"], vgpu["state"]) for vgpu in result["vgpus"]]


@arranged(beginnings.gpu_a_on)
def test_numbers_become_allocatable_vgpus_and_a_second_run_writes_nothing(lab: Lab, playbooks: Playbooks) -> None:
    asked = {"profile": "nvidia.com/NVIDIA_A2-4Q", "count": 4, "per": "node", "enable_sriov": True}
    predicted, done, again = playbooks.tasks(predicting(MODULE, asked), (MODULE, asked), (MODULE, asked))
    assert writes(lab, predicted) == []
    # Four vGPUs and a GPU can be tried; the other four vGPUs do not exist yet.
    assert len(dry_runs(lab, predicted)) == 5
    assert predicted.changed
    assert done.changed
    assert set(predicted) == set(done)
    assert [step | {"slot": None} for step in predicted.steps] == [step | {"slot": None} for step in done.steps]
    assert [(one["node"], one["profile"], one["state"]) for one in predicted["vgpus"]] == [
        (one["node"], one["profile"], one["state"]) for one in done["vgpus"]
    ]
    assert lab.amounts("gpu-a") == lab.amounts("gpu-b") == {"nvidia.com/NVIDIA_A2-4Q": 4}
    assert brief(done)[:4] == [(name, "NVIDIA A2-4Q", "allocatable") for name in (A4, A5, A6, A7)]
    assert not again.changed
    assert again["plan"]["steps"] == []
    assert brief(again) == brief(done)
    assert writes(lab, again) == dry_runs(lab, again) == []
    # One request for each vGPU and one for the GPU, on each GPU in order.
    assert len(patched(lab, done)) == 9
    on_b = [name for name in patched(lab, done) if name.startswith("gpu-b")]
    assert on_b[0] == GPU_B
    assert on_b == sorted(on_b)


@arranged(beginnings.gpus_on, stays=True)
def test_new_vgpus_are_put_on_few_gpus_or_spread_over_many(lab: Lab, playbooks: Playbooks) -> None:
    asked = {"profile": "A2-4Q", "count": 2}
    few, many = playbooks.tasks(predicting(MODULE, asked), predicting(MODULE, {**asked, "placement": "spread"}))
    assert {step["gpu"] for step in few.steps} == {GPU_A}
    assert {step["gpu"] for step in many.steps} == {GPU_A, GPU_B}
    assert writes(lab) == []


@arranged(beginnings.two_4q, stays=True)
def test_what_does_not_fit_is_explained_and_changes_nothing(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    machine(lab, "render", spec=[A5])
    lab.mark()
    off, full, sizes, board, unknown, node, letter, negative, empty = playbooks.tasks(
        (MODULE, {"profile": "A2-4Q", "count": 5}),
        (MODULE, {"profile": "A2-4Q", "count": 9, "enable_sriov": True}),
        (MODULE, {"profile": "A2-8Q", "count": 1, "nodes": ["gpu-a"], "reprofile": True}),
        (MODULE, {"profile": "L40S-8Q", "count": 1}),
        (MODULE, {"profile": "A2-5Q", "count": 1}),
        (MODULE, {"profile": "A2-4Q", "count": 1, "nodes": ["gpu-z"]}),
        (MODULE, {"profile": "NVIDIA A2-4", "count": 1}),
        (MODULE, {"profile": "A2-4Q", "count": -1}),
        (MODULE, {"layout": []}),
    )
    assert off.code == full.code == sizes.code == "does_not_fit"
    assert "enable_sriov: true" in off.message
    assert "SR-IOV is off" in off.message
    assert "count: 8" in full.message
    # A VM's wish for a device counts, though it does not run: nothing is taken from it.
    assert "default/render" in sizes.message
    assert "same size" in sizes.message
    assert board.code == "no_suitable_gpu"
    assert unknown.code == "unknown_profile"
    assert node.code == "nothing_selected"
    assert letter.code == "invalid_profile"
    assert negative.code == empty.code == "invalid_demand"
    assert writes(lab) == []


@arranged(beginnings.four_4q)
def test_exclusive_disables_what_nobody_asked_for_unless_a_vm_has_it(lab: Lab, playbooks: Playbooks) -> None:
    fewer = {"profile": "A2-4Q", "count": 2, "nodes": ["gpu-a"], "exclusive": True}
    predicted, done = playbooks.tasks(predicting(MODULE, fewer), (MODULE, fewer))
    assert predicted.steps == done.steps
    assert [step["action"] for step in done.steps] == ["disable", "disable"]
    assert len(done["vgpus"]) == 2
    gone = [step["slot"] for step in done.steps]
    # The type goes as well, or it would come back at a reboot.
    assert all(not lab.vgpu(name)["spec"].get("vGPUTypeName") for name in gone)
    assert all(lab.claim(name) is None for name in gone)
    machine(lab, "render", noted=[done["vgpus"][0]["name"]])
    lab.mark()
    refused = playbooks.task(MODULE, profile="A2-8Q", count=1, nodes=["gpu-a"], exclusive=True)
    assert refused.code == "does_not_fit"
    assert "default/render" in refused.message
    assert writes(lab) == []


@arranged(beginnings.four_4q)
def test_reprofile_makes_room_and_waits_for_what_the_next_step_needs(lab: Lab, playbooks: Playbooks) -> None:
    asked = {"profile": "A2-8Q", "count": 2, "nodes": ["gpu-a"]}
    allowed = {**asked, "reprofile": True}
    refused, predicted, done = playbooks.tasks((MODULE, asked), predicting(MODULE, allowed), (MODULE, allowed))
    assert "reprofile: true" in refused.message
    assert writes(lab, refused) == writes(lab, predicted) == []
    assert predicted.steps == done.steps
    assert [step["action"] for step in done.steps] == ["disable"] * 4 + ["enable"] * 2
    assert [(vgpu["profile"], vgpu["state"]) for vgpu in done["vgpus"]] == [("NVIDIA A2-8Q", "allocatable")] * 2
    assert lab.amounts("gpu-a")["nvidia.com/NVIDIA_A2-8Q"] == 2
    # Two of them are the journal of the GPU, which is written first and removed last.
    assert len(patched(lab, done)) == 8


def test_a_file_of_the_device_manager_is_a_layout(lab_vfio: Lab, playbooks: Playbooks) -> None:
    content = "version: v1\nvgpu-configs:\n  A2-8Q:\n    - devices: all\n      vgpu-devices: {A2-8Q: 2}\n"
    layout = "{{ content | vgpu.fleet.vgpu_device_manager('A2-8Q', nodes=['gpu-a']) }}"
    (done,) = playbooks.tasks((MODULE, {"layout": layout, "enable_sriov": True}), vars={"content": content})
    assert [(vgpu["profile"], vgpu["gpu"]) for vgpu in done["vgpus"]] == [("NVIDIA A2-8Q", GPU_A)] * 2
    assert lab_vfio.amounts("gpu-a") == {"nvidia.com/NVIDIA_A2-8Q": 2}
    assert len(lab_vfio.items(paths.VGPUS)) == 16
