"""Tasks that are cut off between taking something away on a GPU and building on it (issue 14, section 4)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, A5, A6, A7, GPU_A, arranged, begin, patched
from tests.integration.modules.meddling import meddling
from tests.integration.modules.permissions import Automation
from tests.integration.modules.playbooks import Playbooks

VGPU, MIG = "harvester_vgpu", "harvester_mig"
Q4, Q8, C4 = "NVIDIA A2-4Q", "NVIDIA A2-8Q", "NVIDIA A2-4C"
BEFORE = dict.fromkeys((A4, A5, A6, A7), Q4)
EIGHTS: dict[str, Any] = {"profile": Q8, "count": 2, "nodes": ["gpu-a"], "exclusive": True, "reprofile": True}
A100 = "mig-a100-000004000"


def entry(lab: Lab, gpu: str = GPU_A) -> dict[str, Any] | None:
    text = (lab.gpu(gpu)["metadata"].get("annotations") or {}).get("vgpu.fleet/journal")
    return json.loads(text) if text else None


def layout(lab: Lab) -> dict[str, str]:
    found = {vgpu["metadata"]["name"]: vgpu["spec"] for vgpu in lab.vgpus(GPU_A)}
    return {name: spec["vGPUTypeName"] for name, spec in found.items() if spec["enabled"]}


def cut_off(lab: Lab, playbooks: Playbooks, writes: int, module: str = VGPU, **ask: Any) -> None:
    with meddling(lab, ends_after=writes) as connection:
        ended = playbooks.task(module, **(ask or EIGHTS), wait_timeout=60, **connection)
    assert ended.failed


@arranged(beginnings.four_4q)
@pytest.mark.parametrize("writes", [1, 3, 5, 6, 7])
def test_a_task_that_was_cut_off_is_finished_by_the_same_and_refused_to_others(
    lab_vfio: Lab, playbooks: Playbooks, writes: int
) -> None:
    lab = lab_vfio
    cut_off(lab, playbooks, writes)
    left = entry(lab)
    assert left is not None
    assert dict(left["before"]["vgpus"]) == BEFORE
    lab.mark()
    other, predicted = playbooks.tasks(
        (VGPU, {**EIGHTS, "profile": C4, "count": 4}), (VGPU, EIGHTS, {"check_mode": True})
    )
    assert other.code == "journal_held"
    assert f"run {left['run']}, started " in other.message
    assert f"task harvester_vgpu 2 x {Q8}" in other.message
    assert predicted.changed
    assert predicted["finished"] == [left["run"]]
    assert any(f"Finish run {left['run']}" in warning for warning in predicted["warnings"])
    assert patched(lab) == []
    done, again = playbooks.tasks((VGPU, EIGHTS), (VGPU, EIGHTS))
    assert not done.failed, done.message
    assert done["finished"] == [left["run"]]
    assert [(one["profile"], one["state"]) for one in done["vgpus"]] == [(Q8, "allocatable")] * 2
    assert entry(lab) is None
    assert not again.changed


@arranged(beginnings.four_4q)
def test_a_dead_task_is_undone_by_one_that_takes_over(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    cut_off(lab, playbooks, 6)
    left = entry(lab)
    assert left is not None
    same = {**EIGHTS, "profile": Q4, "count": 4, "take_over": True}
    done = playbooks.task(VGPU, **same)
    assert not done.failed, done.message
    assert done["undone"] == [left["run"]]
    assert done.steps == []
    assert layout(lab) == BEFORE
    assert [one["state"] for one in done["vgpus"]] == ["allocatable"] * 4
    assert entry(lab) is None


@arranged(beginnings.four_4q)
def test_the_role_for_devices_suffices_for_the_journal(lab_vfio: Lab, playbooks: Playbooks, tmp_path: Path) -> None:
    user = Automation(lab_vfio)
    try:
        user.grant("vgpu-fleet-reader")
        user.grant("vgpu-fleet-devices")
        cut_off(lab_vfio, playbooks, 4)
        done = playbooks.task(VGPU, **EIGHTS, kubeconfig=user.kubeconfig)
    finally:
        user.withdraw()
    assert not done.failed, done.message
    assert done["finished"]
    assert entry(lab_vfio) is None


@pytest.fixture
def mig_lab(running: Lab, request: pytest.FixtureRequest) -> Lab:
    return begin(running, "1.9", request)


@arranged(scenario="mig")
@pytest.mark.parametrize("writes", [2, 3, 4])
def test_a_change_of_the_mode_that_was_cut_off_is_finished_or_undone(
    mig_lab: Lab, playbooks: Playbooks, writes: int
) -> None:
    """Without the journal a GPU whose SR-IOV was switched off on the way would be refused: nothing allows it again."""
    cut = {"gpus": [A100], "instances": [{"profile": "3g.20gb", "count": 2}], "enable_sriov": True}
    sliced = {"gpus": [A100], "mode": "time_sliced", "relayout": True}
    made = playbooks.task(MIG, **cut)
    assert not made.failed, made.message
    cut_off(mig_lab, playbooks, writes, MIG, **sliced)
    left = entry(mig_lab, A100)
    assert left is not None
    assert left["before"]["instances"] == [["3g.20gb", 2]]
    refused = playbooks.task(MIG, gpus=[A100], instances=[{"profile": "1g.5gb", "count": 7}], relayout=True)
    assert refused.code == "journal_held"
    if writes % 2:
        done = playbooks.task(MIG, **sliced)
        assert not done.failed, done.message
        assert done["finished"] == [left["run"]]
        assert [(one["mode"], one["vgpu_enabled"]) for one in done["gpus"]] == [("time_sliced", True)]
    else:
        back = playbooks.task(MIG, **{**cut, "enable_sriov": False, "take_over": True})
        assert not back.failed, back.message
        assert back["undone"] == [left["run"]]
        assert back["gpus"] == made["gpus"]
    assert entry(mig_lab, A100) is None
