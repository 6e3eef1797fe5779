"""Another layout on GPUs that VMs use. What happens when a step fails is in test_reprofile_faults.py."""

from __future__ import annotations

import pytest

from tests.integration.api import VGPUS, VMS
from tests.integration.labs import Lab
from tests.integration.playbooks.reprofiling import CHANGE, GPU, changed, in_use, layout, runs_with, trainer
from tests.integration.playbooks.runs import Runs


@pytest.fixture
def used(lab: Lab) -> Lab:
    return lab.begin(arranged=in_use)


def test_a_vm_that_is_not_named_is_not_stopped_and_nothing_changes(used: Lab, runs: Runs) -> None:
    refused = changed(runs, {**CHANGE, "vgpu_reprofile_vms": []})
    assert f"{GPU} is used by default/trainer, which may not be stopped." in refused.failure
    rehearsal = changed(runs, CHANGE, check=True)
    assert (rehearsal.status, rehearsal.tasks) == ("successful", ["The plan is shown"])
    assert f"{GPU}: 2 x NVIDIA A2-4Q -> 2 x A2-8Q, stopping default/trainer" in rehearsal.shown
    assert [event for event in used.audit() if "dryRun=All" not in event["requestURI"]] == []


def test_what_cannot_work_is_refused_before_any_vm_is_stopped(used: Lab, runs: Runs) -> None:
    too_many = {**CHANGE, "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 3}]}
    refused = changed(runs, too_many)
    assert f"{GPU}: 1 of 3 NVIDIA A2-8Q do not fit" in refused.failure
    starved = {**CHANGE, "vgpu_reprofile_vms": [{"name": "trainer", "vgpus": [{"profile": "A2-8Q", "count": 3}]}]}
    refused = changed(runs, starved)
    assert "default/trainer would not find 3 x NVIDIA A2-8Q on one node afterwards" in refused.failure
    assert [event for event in used.audit() if "dryRun=All" not in event["requestURI"]] == []


def test_the_layout_changes_and_the_vm_runs_with_its_new_vgpu(used: Lab, runs: Runs) -> None:
    done = changed(runs, {**CHANGE, "vgpu_reprofile_vm_labels": {"team": "ml"}})
    assert done.status == "successful", done.shown
    assert sorted(layout(used).values()) == ["NVIDIA A2-8Q"] * 2
    assert used.until(lambda: runs_with(used) == ["nvidia.com/NVIDIA_A2-8Q"], real=True)
    assert trainer(used)["spec"]["runStrategy"] == "Always"
    again = changed(runs, CHANGE)
    assert (again.status, again.changed) == ("successful", 0)
    assert "Nothing to do" in again.shown
    assert len(used.items(VMS)) == 1
    assert used.items(VGPUS)
