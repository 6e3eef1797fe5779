"""An existing fleet is described by a file, and a run with that file changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.api import VMS
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import writes
from tests.integration.playbooks.reprofiling import GPU, NAMES, OTHER_GPU, OWNER, RESOURCE, layout, machine, state
from tests.integration.playbooks.runs import Runs

Json = dict[str, Any]
FOUR, TWO = "NVIDIA A2-4Q", "NVIDIA A2-2Q"
OTHERS = [f"gpu-b-00000800{function}" for function in "456"]
MANAGER = "app.kubernetes.io/managed-by"


def grown(lab: Lab) -> None:
    """A fleet that people have made in the UI and by scripts: a VM of ours that runs, and one of somebody."""
    lab.enable_gpus(GPU, OTHER_GPU)
    lab.enable_vgpus(dict.fromkeys(NAMES[:3], FOUR) | dict.fromkeys(OTHERS, TWO))
    for name, labels in (("ours", {OWNER: "vgpu.fleet", MANAGER: "vgpu.fleet"}), ("theirs", {"team": "red"})):
        made = machine(name, runStrategy="Always")
        made["metadata"]["labels"] = labels
        devices = made["spec"]["template"]["spec"]["domain"]["devices"]
        if not lab.vfio:
            devices["gpus"] = [{"name": "gpu", "deviceName": RESOURCE}]
            del devices["hostDevices"]
        lab.make(VMS, made)
        lab.until(lambda name=name: state(lab, name) == "Running", real=True)  # type: ignore[misc]


def exported(runs: Runs, folder: Path, platform: str) -> Json:
    where = {"vgpu_fleet_output_dir": str(folder), "vgpu_export_platform": platform}
    run = runs.playbook("export", where)
    assert (run.status, run.changed) == ("successful", 0), run.shown
    again = runs.playbook("export", where)
    assert again.status == "failed"
    assert "cluster.yml exists" in again.failure
    found = yaml.safe_load((folder / "cluster.yml").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("version", ["1.7", "1.8"])
def test_a_run_with_the_file_of_a_harvester_changes_nothing(
    version: str, running: Lab, runs: Runs, tmp_path: Path
) -> None:
    lab = running.begin(version=version, arranged=grown, scenario="default")
    before = layout(lab), layout(lab, OTHER_GPU)
    lab.mark()
    variables = exported(runs, tmp_path, "harvester")
    assert [entry["profile"] for entry in variables["harvester_gpu_node_layout"]] == ["A2-2Q", "A2-4Q"]
    assert [vm["name"] for vm in variables["harvester_gpu_vm_vms"]] == ["ours"]
    text = (tmp_path / "cluster.yml").read_text()
    assert "#   - " in text
    assert "theirs" in text
    done = runs.playbook("harvester_gpu_cluster", variables)
    assert (done.status, done.changed, writes(lab)) == ("successful", 0, []), done.shown
    assert (layout(lab), layout(lab, OTHER_GPU)) == before


def test_a_run_with_the_file_of_a_vcenter_changes_nothing(lab: Lab, runs: Runs, tmp_path: Path) -> None:
    made = runs.playbook(
        "vsphere_gpu_cluster",
        {
            "vsphere_gpu_host_cluster": "gpu",
            "vsphere_gpu_vm_defaults": {"template": "ubuntu-22.04-efi", "cluster": "gpu"},
            "vsphere_gpu_vm_vms": [{"name": "exported-1", "vgpus": [{"profile": "A40-8Q"}]}],
        },
    )
    assert made.status == "successful", made.shown
    variables = exported(runs, tmp_path, "vsphere")
    assert "exported-1" in [vm["name"] for vm in variables["vsphere_gpu_vm_vms"]]
    done = runs.playbook("vsphere_gpu_cluster", variables)
    assert (done.status, done.changed) == ("successful", 0), done.shown
