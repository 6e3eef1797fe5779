"""Another layout on GPUs that VMs use, and the way back when a step fails."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from tests.integration.api import VGPUS
from tests.integration.labs import Lab
from tests.integration.playbooks.reprofiling import (
    BEFORE,
    CHANGE,
    ENTRY,
    GPU,
    LARGE,
    NAMES,
    OTHER_GPU,
    RESOURCE,
    changed,
    entries,
    has,
    hold_up,
    journals,
    layout,
    let_go,
    owners,
    refusing,
    runs_with,
    vm,
)
from tests.integration.playbooks.runs import Runs

# The steps of the role in order, and what keeps each of them from being done. What puts things back is let through.
HALTED = "object.spec.runStrategy == 'Halted'"
DEVICES = "spec.template.spec.domain.devices"
PUT_IN = (
    f"(has(object.{DEVICES}.hostDevices) && object.{DEVICES}.hostDevices.exists(one, one.deviceName.endsWith('8Q')))"
)
FAULTS = {
    "Stop the VMs": ("virtualmachines", HALTED),
    "Take the vGPUs out of the VMs": (
        "virtualmachines",
        f"!has(object.{DEVICES}.hostDevices) && has(oldObject.{DEVICES}.hostDevices)",
    ),
    "Change the profiles": ("vgpudevices", "object.spec.vGPUTypeName == 'NVIDIA A2-8Q'"),
    "Give the VMs their vGPUs and start them": ("virtualmachines", PUT_IN),
}


def test_a_fault_in_any_phase_is_told_and_everything_is_as_before(used: Lab, runs: Runs) -> None:
    """R3: also the names and tags of device entries."""
    for step, (resource, refused) in FAULTS.items():
        with refusing(used, resource, refused):
            failed = changed(runs, CHANGE)
        assert failed.status == "failed"
        assert f"{GPU} could not be changed. {step}: " in failed.failure, failed.shown
        assert "Everything is as it was before." in failed.failure, failed.failure
        assert layout(used) == BEFORE, step
        assert owners(used) == dict.fromkeys(BEFORE, "blue"), step
        assert used.until(lambda: runs_with(used) == [RESOURCE], real=True), step
        assert vm(used)["spec"]["runStrategy"] == "Always", step
        assert entries(used) == [ENTRY], step
        assert journals(used) == {}, step


def test_what_somebody_changes_meanwhile_is_seen_and_undone(used: Lab, runs: Runs) -> None:
    """The last phase looks at the outcome: there is a vGPU now that nobody asked the role for."""
    one = {**CHANGE, "vgpu_reprofile_layout": [{"profile": "A2-8Q", "count": 1}]}
    with once_it_has_its_vgpu_another_is_enabled(used):
        failed = changed(runs, one)
    assert f"{GPU} could not be changed. Check the result: there are 2 vGPUs" in failed.failure, failed.shown
    assert "Everything is as it was before." in failed.failure, failed.failure
    assert layout(used) == BEFORE
    assert used.until(lambda: runs_with(used) == [RESOURCE], real=True)


@contextmanager
def once_it_has_its_vgpu_another_is_enabled(lab: Lab) -> Iterator[None]:
    def enable() -> None:
        lab.until(lambda: has(lab) == [LARGE], real=True)
        free = next(name for name in NAMES if name not in layout(lab))
        lab.write(f"{VGPUS}/{free}", {"spec": {"enabled": True, "vGPUTypeName": "NVIDIA A2-8Q"}})

    with ThreadPoolExecutor(1) as somebody:
        enabled = somebody.submit(enable)
        yield
        enabled.result()


def test_of_several_gpus_at_a_time_all_are_put_back(used: Lab, runs: Runs) -> None:
    both = {**CHANGE, "vgpu_reprofile_nodes": ["gpu-a", "gpu-b"], "vgpu_reprofile_serial": 2}
    with refusing(used, *FAULTS["Give the VMs their vGPUs and start them"]):
        failed = changed(runs, both)
    said = f"{GPU}, {OTHER_GPU} could not be changed. Give the VMs their vGPUs and start them: "
    assert said in failed.failure, failed.shown
    assert "Everything is as it was before." in failed.failure, failed.failure
    assert layout(used) == BEFORE
    assert used.vgpus(OTHER_GPU) == []
    assert not used.gpu(OTHER_GPU)["spec"]["enabled"]
    assert used.until(lambda: runs_with(used) == [RESOURCE], real=True)


def test_a_vm_that_does_not_end_keeps_its_vgpu_and_is_told(used: Lab, runs: Runs) -> None:
    hold_up(used)
    failed = changed(runs, {**CHANGE, "vgpu_reprofile_wait_timeout": 3})
    said = f"{GPU} could not be changed. Stop the VMs: default/trainer still runs after 3 s."
    assert said in failed.failure, failed.failure
    assert "Not put back: default/trainer: " in failed.failure
    assert layout(used) == BEFORE
    let_go(used)
    # It was told to run again, and does as soon as it can.
    assert used.until(lambda: runs_with(used) == [RESOURCE], real=True)


def test_what_cannot_be_put_back_is_told(used: Lab, runs: Runs) -> None:
    with refusing(used, "vgpudevices", "object.spec.enabled"):
        failed = changed(runs, CHANGE)
    assert f"{GPU} could not be changed. Change the profiles: " in failed.failure
    assert f"Not put back: the profiles of {GPU}: " in failed.failure
    assert "; default/trainer: " in failed.failure
