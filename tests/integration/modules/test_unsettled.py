"""GPUs that are still changing, and devices that somebody else changes (issue 14, section 4; reviews C1 and P2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.integration import api as paths
from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import A4, A5, A6, A7, GPU_A, arranged, patched, requests
from tests.integration.modules.meddling import meddling
from tests.integration.modules.moments import SPEED, standing_still, step_until
from tests.integration.modules.permissions import Automation
from tests.integration.modules.playbooks import Playbooks, Result

VGPU, SRIOV = "harvester_vgpu", "harvester_sriov_gpu"
Q4, Q8 = "NVIDIA A2-4Q", "NVIDIA A2-8Q"
FULL = (A4, A5, A6, A7)


def being_cleared(lab: Lab) -> None:
    """Somebody has disabled all vGPUs of a full GPU, and most of its devices do not know yet what they can be now."""
    lab.run_clock(0)
    # On a busy machine there is something left to do when the clock stops.
    lab.control.settle()
    for name in FULL:
        lab.write(f"{paths.VGPUS}/{name}", {"spec": {"enabled": False, "vGPUTypeName": ""}})

    def knowing() -> list[str]:
        names = [vgpu["metadata"]["name"] for vgpu in lab.vgpus(GPU_A)]
        return [name for name in names if "NVIDIA A2-2Q" in lab.types(name)]

    step_until(lab, lambda: bool(knowing()))
    assert len(knowing()) < 8


@arranged(beginnings.four_4q)
def test_a_gpu_that_somebody_has_just_cleared_is_waited_for(lab: Lab, playbooks: Playbooks) -> None:
    """The answer was: 8 of 8 A2-2Q do not fit (the driver does not offer it there). No single change would help."""
    being_cleared(lab)
    ask = {"profile": "A2-2Q", "count": 8, "nodes": ["gpu-a"]}
    lab.mark()
    predicted = playbooks.task(VGPU, check=True, **ask)
    off = playbooks.task(SRIOV, check=True, nodes=["gpu-a"], state="disabled")
    with standing_still(lab):
        done = playbooks.task(VGPU, **ask)
    assert predicted.code == "does_not_fit"
    assert f"GPU {GPU_A}" in predicted.message
    assert "still changing, so this answer is not final" in predicted.message
    assert "No single change" not in predicted.message
    assert "by)" not in predicted.message
    assert predicted["error"]["exhaustive"] is False
    assert predicted["error"]["unsettled"][0]["gpu"] == GPU_A
    assert [one["gpu"] for one in off["unsettled"]] == [GPU_A]
    assert any("not final" in warning for warning in off["warnings"])
    assert not done.failed, done.message
    assert [one["state"] for one in done["vgpus"]] == ["allocatable"] * 8
    assert done["unsettled"] == []
    lab.mark()
    again = playbooks.task(VGPU, **ask)
    assert not again.changed
    assert not [event for event in requests(lab, again) if event["verb"] == "watch"]


@contextmanager
def beside(lab: Lab, folder: Path, **ask: object) -> Iterator[list[Result]]:
    """A task that runs at the same time, in an Ansible of its own."""
    folder.mkdir()
    results: list[Result] = []
    other = Playbooks(folder, {**lab.env, "ANSIBLE_FORKS": "6"})
    thread = threading.Thread(target=lambda: results.append(other.task(VGPU, **ask)))
    thread.start()
    yield results
    thread.join()


@arranged(beginnings.gpu_a_on)
def test_c1_of_two_contradicting_layouts_one_says_at_once_that_it_lost(
    lab_vfio: Lab, playbooks: Playbooks, tmp_path: Path
) -> None:
    lab = lab_vfio
    smaller = {"profile": Q4, "count": 4, "nodes": ["gpu-a"], "exclusive": True, "wait_timeout": 120}
    larger = {"profile": Q8, "count": 2, "nodes": ["gpu-a"], "exclusive": True, "wait_timeout": 120}
    (tmp_path / "other").mkdir()
    other = Playbooks(tmp_path / "other", {**lab.env, "ANSIBLE_FORKS": "6"})
    won: list[Result] = []
    # The first has read the cluster and made its plan; the second does all of its own before the first one writes.
    with meddling(lab, lambda: won.append(other.task(VGPU, **larger))) as connection:
        lost = playbooks.task(VGPU, **smaller, **connection)
    assert not won[0].failed, won[0].message
    assert [one["profile"] for one in won[0]["vgpus"]] == [Q8, Q8]
    assert lost.code == "changed_by_other"
    assert f"vGPU {A4} was set to enabled ({Q8}) by vgpu.fleet at 20" in lost.message
    assert "another task of this collection" in lost.message
    assert not lost.changed
    assert lost["task_seconds"] - won[0]["task_seconds"] < 30
    # Nothing of the loser is left behind.
    asked = {name: lab.vgpu(name)["spec"]["vGPUTypeName"] for name in FULL}
    assert asked == {A4: Q8, A5: Q8, A6: "", A7: ""}


@arranged(beginnings.gpu_a_on)
def test_c1_a_user_who_disables_what_a_task_waits_for_ends_it_at_once(lab_vfio: Lab, tmp_path: Path) -> None:
    lab = lab_vfio
    lab.run_clock(0)
    ask = {"devices": [{"name": A4, "profile": Q4}, {"name": A5, "profile": Q4}], "wait_timeout": 120}
    with beside(lab, tmp_path / "other", **ask) as results:
        deadline = time.monotonic() + 60
        while len(patched(lab)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        lab.write(f"{paths.VGPUS}/{A5}", {"spec": {"enabled": False}})
    (ended,) = results
    lab.run_clock(SPEED)
    assert ended.code == "changed_by_other"
    assert f"vGPU {A5} was set to disabled by " in ended.message
    assert f"while this task needs it to be enabled ({Q4})" in ended.message
    assert ended["error"]["device"] == A5
    assert ended.changed
    assert ended["task_seconds"] < 60


@arranged(stays=True)
def test_p2_who_may_not_watch_is_told_before_anything_is_written(lab_vfio: Lab, playbooks: Playbooks) -> None:
    lab = lab_vfio
    user = Automation(lab)
    try:
        user.grant("vgpu-fleet-reader")
        user.grant("vgpu-fleet-devices", without=["nodes"])
        lab.mark()
        refused = playbooks.task(SRIOV, gpus=[GPU_A], kubeconfig=user.kubeconfig)
    finally:
        user.withdraw()
    assert refused.code == "forbidden"
    assert "watch" in refused.message
    assert "nodes" in refused.message
    assert not refused.changed
    assert patched(lab) == []
