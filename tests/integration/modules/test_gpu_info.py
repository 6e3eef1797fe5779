"""harvester_gpu_info against a lab, in both eras."""

from __future__ import annotations

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, A5, GPU_A, arranged, machine, writes
from tests.integration.modules.playbooks import Playbooks

MODULE = "harvester_gpu_info"


@arranged(beginnings.two_4q, stays=True)
def test_the_whole_fleet_in_few_requests(lab: Lab, playbooks: Playbooks) -> None:
    machine(lab, "render", spec=[A5])
    lab.mark()
    info = playbooks.task(MODULE, detail="full")
    requests = lab.audit(writes_only=False)
    assert writes(lab) == []
    # Eight lists, and the PCI devices, since the GPU without SR-IOV does not show its board.
    assert len(requests) <= 9
    assert info["harvester"] == {"version": lab.version, "vfio_framework": "vendor_vfio" if lab.vfio else "mdev"}
    assert [node["name"] for node in info["nodes"]] == ["gpu-a", "gpu-b"]
    assert info["nodes"][0]["advertised"]["NVIDIA A2-4Q"] == 2
    assert [(vgpu["name"], vgpu["state"], vgpu["gpu"]) for vgpu in info["vgpus"]] == [
        (A4, "allocatable", GPU_A),
        (A5, "allocatable", GPU_A),
    ]
    assert info["profiles"] == [
        {
            "type": "NVIDIA A2-4Q",
            "short": "A2-4Q",
            "resource": "nvidia.com/NVIDIA_A2-4Q",
            "vsphere": "nvidia_a2-4q",
            "total": 2,
            "in_use": 1,
        }
    ]
    assert info["vgpus"][0]["holders"] == []
    assert [(one["name"], one["running"]) for one in info["vgpus"][1]["holders"]] == [("render", False)]
    assert info["findings"] == []
    short = playbooks.task(MODULE)
    assert {key: short[key] for key in ("profiles", "findings", "harvester", "claims")} == {
        key: info[key] for key in ("profiles", "findings", "harvester", "claims")
    }
    assert "vgpus" not in short
    (gpu,) = short["nodes"][0]["gpus"]
    assert gpu == {
        "name": GPU_A,
        "address": "0000:08:00.0",
        "board": "A2",
        "possible_boards": ["A2"],
        "mode": "time_sliced",
        "vgpu_enabled": True,
        "unavailable_reason": "",
        "vgpus": {"NVIDIA A2-4Q": 2},
        "in_use": 1,
        "empty": 14,
    }


@arranged(beginnings.two_4q, stays=True)
def test_filters_narrow_the_fleet(lab_vfio: Lab, playbooks: Playbooks) -> None:
    by_node, by_gpu, by_profile, nothing, unknown = playbooks.tasks(
        (MODULE, {"nodes": ["*-b"]}),
        (MODULE, {"gpus": [GPU_A]}),
        (MODULE, {"profiles": ["nvidia.com/NVIDIA_A2-4C"]}),
        (MODULE, {"nodes": ["elsewhere"]}),
        (MODULE, {"profiles": ["A2-5Q"]}),
    )
    assert [node["name"] for node in by_node["nodes"]] == ["gpu-b"]
    assert by_node["profiles"] == []
    assert [node["name"] for node in by_gpu["nodes"]] == ["gpu-a"]
    # The second node's GPU is still off and offers nothing yet.
    assert [node["name"] for node in by_profile["nodes"]] == ["gpu-a"]
    assert nothing["nodes"] == []
    assert unknown.code == "unknown_profile"
    assert "A2-4Q" in unknown.message


@arranged(beginnings.two_4q)
def test_disagreements_are_found(lab: Lab, playbooks: Playbooks) -> None:
    lab.write(f"{paths.VGPUS}/{A4}", {"spec": {"vGPUTypeName": "NVIDIA A2-4C"}})
    lab.write(f"{paths.VGPUS}/{A5}", {"metadata": {"labels": {"nodename": None}}})
    info = playbooks.task(MODULE, detail="full")
    assert {finding["kind"]: finding["device"] for finding in info["findings"]} == {
        "type_differs": A4,
        "missing_label": A5,
    }
    assert info["vgpus"][0]["drifted"]


@arranged(scenario="bare", stays=True)
def test_without_the_addon_the_error_says_so(lab_vfio: Lab, playbooks: Playbooks) -> None:
    missing = playbooks.task(MODULE)
    assert missing.code == "addon_missing"
    assert "pcidevices-controller" in missing.message
