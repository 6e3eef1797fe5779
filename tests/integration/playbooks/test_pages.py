"""The first page that a new user reads runs as written. `make pages` runs the pages of the playbooks as well."""

from __future__ import annotations

from pathlib import Path

from tests.integration.api import VMS
from tests.integration.labs import Lab
from tests.integration.modules.beginnings import writes
from tests.integration.playbooks.pages import Page, Reader
from tests.integration.playbooks.runs import Runs


def test_getting_started_runs_as_written_on_the_lab_that_it_proposes(bare: Lab, tmp_path: Path) -> None:
    lab = bare
    page = Page.read("docs/getting-started.md")
    *_exports, foreseen, done, capacity = Reader(tmp_path, lab.env).follow(page)
    assert "Once the GPUs are known" in foreseen
    assert "failed=0" in done
    (table,) = page.shown
    # The scheduler chooses the node of the VM, so the lines of single nodes can differ.
    lines = [
        line for line in table.splitlines() if line and "A2-4Q    gpu-" not in line and not line.startswith("gpu-")
    ]
    assert len(lines) == 6
    assert [line for line in lines if line not in capacity.splitlines()] == [], capacity
    assert [vm["metadata"]["name"] for vm in lab.items(VMS)] == ["trainer"]


def test_what_a_vm_lacks_is_reported_before_the_first_change(bare: Lab, runs: Runs) -> None:
    lab = bare
    lab.mark()
    run = runs.playbook(
        "harvester_gpu_cluster",
        {
            "harvester_gpu_node_driver_location": "http://files.example/driver.run",
            "harvester_gpu_node_layout": [{"profile": "A2-4Q", "count": 2}],
            "harvester_gpu_vm_defaults": {"disks": [{"image": "default/ubunto", "size_gib": 40}]},
            "harvester_gpu_vm_vms": [
                {"name": "trainer", "vgpus": [{"profile": "A2-4Q"}], "networks": ["default/vlan9"]},
                {"name": "other", "namespace": "nowhere", "vgpus": [{"profile": "A2-4Q"}]},
            ],
        },
    )
    assert run.status == "failed"
    assert writes(lab) == []
    for text in (
        "Image default/ubunto of VMs default/trainer, nowhere/other does not exist. Did you mean default/ubuntu?",
        "Network default/vlan9 of VM default/trainer does not exist. Did you mean default/vlan1?",
        "Namespace nowhere of VM nowhere/other does not exist.",
        "Nothing was changed.",
    ):
        assert text in run.failure


def test_what_a_vm_on_vsphere_lacks_is_reported_before_the_hosts_are_configured(bare: Lab, runs: Runs) -> None:
    run = runs.playbook(
        "vsphere_gpu_cluster",
        {
            "vsphere_gpu_host_cluster": "gpu",
            "vsphere_gpu_vm_defaults": {"cluster": "gpu"},
            "vsphere_gpu_vm_vms": [
                {"name": "worker-1", "template": "ubuntu-22.04", "vgpus": [{"profile": "A40-8Q"}]},
                {
                    "name": "worker-2",
                    "template": "ubuntu-22.04-efi",
                    "datastore": "nowhere",
                    "vgpus": [{"profile": "A40-8Q"}],
                },
            ],
        },
    )
    assert (run.status, run.changed) == ("failed", 0), run.shown
    assert "VM worker-1: " in run.failure
    assert "VM worker-2: " in run.failure
    assert "nowhere" in run.failure
