"""Two at once: a second task or a user of the UI changes something between the reads and the writes of a task."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import yaml
from pyVmomi import vim

from tests.integration.api import ADDONS, KUBEVIRT, VGPUS, VMS
from tests.integration.labs import Lab
from tests.integration.vsphere_lab.conftest import VCenter
from tests.resilience import jobs, vsphere
from tests.resilience.jobs import Call, Job
from tests.resilience.modules import Ended, Running
from tests.resilience.stage import LONG_SECONDS, Stage

Json = dict[str, Any]


@dataclass
class Meeting:
    """What came of two at once. `said` is how the one that was disturbed ended, `wrong` what should not be."""

    name: str
    said: str = ""
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return not self.wrong

    def as_dict(self) -> Json:
        return {**asdict(self), "good": self.good}


def ending(ended: Ended) -> str:
    if not ended.failed:
        return "ok"
    return f"failed: {ended.code or ended.message[:80]}"


# Harvester
@dataclass(frozen=True)
class Case:
    """A job that is stopped before its first write, what happens then, and what has to be true in the end.

    `check` gets the lab, the disturbed run and what `between` returned, and returns what is wrong.
    """

    name: str
    job: Job
    between: Callable[[Stage], Any]
    check: Callable[[Lab, Ended, Any], list[str]]


OTHER_LAYOUT: Call = (
    "harvester_vgpu",
    {"profile": "A2-4C", "count": 4, "nodes": ["gpu-b"], "exclusive": True, "reprofile": True},
)
LABEL = "tests.example/edited"


def enabled_types(lab: Lab) -> list[str]:
    return sorted(one["spec"]["vGPUTypeName"] for one in lab.vgpus(jobs.GPU_B) if one["spec"].get("enabled"))


def check_layouts(lab: Lab, first: Ended, second: Ended) -> list[str]:
    """One of two contradicting layouts wins as a whole, and the other task says that it did not."""
    wrong = []
    if first.failed == second.failed:
        wrong.append(f"both ended alike: {first.message} / {second.message}")
    expected = ["NVIDIA A2-4C"] * 4 if first.failed else ["NVIDIA A2-8Q"] * 2
    if enabled_types(lab) != expected:
        wrong.append(f"the GPU has {enabled_types(lab)}")
    return wrong


def enable_another(stage: Stage) -> str:
    """A user of the UI enables a vGPU of another size on the same GPU."""
    name = next(one["metadata"]["name"] for one in stage.lab.vgpus(jobs.GPU_B) if not one["spec"].get("enabled"))
    stage.lab.write(f"{VGPUS}/{name}", {"spec": {"enabled": True, "vGPUTypeName": "NVIDIA A2-4C"}})
    return str(name)


def check_foreign_vgpu(lab: Lab, first: Ended, name: str) -> list[str]:
    kept = lab.vgpu(name)["spec"]
    wrong = [] if kept.get("enabled") and kept["vGPUTypeName"] == "NVIDIA A2-4C" else [f"{name} is {kept}"]
    return wrong if first.failed else [*wrong, "the task says ok although its GPU was changed"]


def edit_vm(stage: Stage) -> str:
    stage.lab.write(f"{VMS}/spare", {"metadata": {"labels": {LABEL: "yes"}}, "spec": {"runStrategy": "Halted"}})
    return "spare"


def check_vm(lab: Lab, first: Ended, name: str) -> list[str]:
    found = lab.read(f"{VMS}/{name}")
    wrong = [] if (found["metadata"].get("labels") or {}).get(LABEL) == "yes" else ["the label of the user is lost"]
    devices = found["spec"]["template"]["spec"]["domain"]["devices"].get("hostDevices") or []
    if not first.failed and len(devices) != 1:
        wrong.append(f"the task says ok, and the VM has {devices}")
    return wrong


def second_vm_task(stage: Stage) -> Ended:
    return stage.run(("harvester_vgpu_vm", {"name": "spare", "vgpus": [{"profile": "A2-4Q", "count": 2}]}))


def check_two_vm_tasks(lab: Lab, first: Ended, second: Ended) -> list[str]:
    devices = lab.read(f"{VMS}/spare")["spec"]["template"]["spec"]["domain"]["devices"].get("hostDevices") or []
    if second.failed:
        return [f"the second task failed: {second.message}"]
    return [] if len(devices) == (2 if first.failed else 1) else [f"the VM has a mixture: {devices}"]


def edit_addon(stage: Stage) -> str:
    path = f"{ADDONS}/nvidia-driver-toolkit"
    values = yaml.safe_load(stage.lab.read(path)["spec"]["valuesContent"])
    values["edited"] = "by a user"
    stage.lab.write(path, {"spec": {"valuesContent": yaml.safe_dump(values, sort_keys=False)}})
    return path


def check_addon(lab: Lab, first: Ended, path: str) -> list[str]:
    values = yaml.safe_load(lab.read(path)["spec"]["valuesContent"])
    wrong = [] if values.get("edited") == "by a user" else ["the value of the user is lost"]
    if not first.failed and values["driverLocation"] != jobs.LOCATION:
        wrong.append("the task says ok without its own value")
    return wrong


def edit_permitted(stage: Stage) -> str:
    found = stage.lab.read(KUBEVIRT)["spec"]["configuration"]["permittedHostDevices"]
    own = {"pciVendorSelector": "8086:1572", "resourceName": "example.com/own"}
    listed = [*(found.get("pciHostDevices") or []), own]
    stage.lab.write(KUBEVIRT, {"spec": {"configuration": {"permittedHostDevices": {"pciHostDevices": listed}}}})
    return "example.com/own"


def check_permitted(lab: Lab, first: Ended, name: str) -> list[str]:
    found = lab.read(KUBEVIRT)["spec"]["configuration"]["permittedHostDevices"]["pciHostDevices"]
    names = [one["resourceName"] for one in found]
    wrong = [] if name in names else ["the entry of the user is lost"]
    if not first.failed and "nvidia.com/NVIDIA_A2-4Q" not in names:
        wrong.append("the task says ok without its own entry")
    return wrong


CASES = (
    Case(
        "two contradicting layouts of one GPU",
        jobs.BY_NAME["vgpu-layout"],
        lambda stage: stage.run(OTHER_LAYOUT),
        check_layouts,
    ),
    Case(
        "a layout, and a user who enables a vGPU of another size",
        Job(
            "vgpu-add",
            ("harvester_vgpu", {"profile": "A2-8Q", "count": 1, "nodes": ["gpu-b"]}),
            prepare=(("harvester_sriov_gpu", {"gpus": [jobs.GPU_B]}),),
            undo=(jobs.OFF,),
        ),
        enable_another,
        check_foreign_vgpu,
    ),
    Case("two tasks for one VM", jobs.BY_NAME["vm"], second_vm_task, check_two_vm_tasks),
    Case("a VM, and a user who edits it", jobs.BY_NAME["vm"], edit_vm, check_vm),
    Case("an addon, and a user who edits its values", jobs.BY_NAME["addon"], edit_addon, check_addon),
    Case("permitted devices, and a user who adds one", jobs.BY_NAME["repair"], edit_permitted, check_permitted),
)


def meet(stage: Stage, case: Case, requests: tuple[str, ...]) -> Meeting:
    """Stop a task before its first write, let the other one act, and let the task go on."""
    meeting = Meeting(case.name)
    stage.prepare(case.job)
    reads = next((i for i, one in enumerate(requests) if not one.startswith("GET")), len(requests))
    stage.hold(max(reads, 1), writes=False)
    running = stage.start(case.job.call, LONG_SECONDS)
    held = stage.until_held(running)
    if held:
        running.stop()
        stage.release()
    else:
        meeting.wrong.append("the task ended before it was held")
    other = case.between(stage)
    if held:
        running.go()
    first = running.wait()
    stage.stop_counting()
    meeting.said = ending(first) if not isinstance(other, Ended) else f"{ending(first)}; the other: {ending(other)}"
    meeting.wrong += case.check(stage.lab, first, other)
    # Nothing of a meeting is taken back by name.
    stage.world = None
    return meeting


# vSphere
@dataclass(frozen=True)
class VsphereCase:
    name: str
    job: vsphere.Job
    between: Callable[[VCenter], Any]
    check: Callable[[VCenter, Ended, Any], list[str]]


def edit_machine(vcenter: VCenter) -> None:
    spec = vim.vm.ConfigSpec(annotation="edited by a user", memoryMB=8192)
    vcenter.wait(vcenter.vm("idle").ReconfigVM_Task(spec))


def check_machine(vcenter: VCenter, first: Ended, _nothing: object) -> list[str]:
    config = vcenter.vm("idle").config
    wrong = [] if config.annotation == "edited by a user" and config.hardware.memoryMB == 8192 else ["an edit is lost"]
    found = vsphere.state(vcenter)["machines"]["idle"]
    if not first.failed and found["vgpus"] != ["nvidia_a40-4q"]:
        wrong.append(f"the task says ok, and the VM has {found['vgpus']}")
    return wrong


def second_create(vcenter: VCenter) -> Ended:
    return vsphere.task(vcenter, vsphere.BY_NAME["vsphere-create"].call)


def check_creates(vcenter: VCenter, first: Ended, second: Ended) -> list[str]:
    names = [vm.name for vm in vcenter.all(vim.VirtualMachine) if vm.name.startswith("trainer")]
    wrong = [] if names == ["trainer"] else [f"there are {names}"]
    if second.failed:
        wrong.append(f"the second task failed: {second.message}")
    found = vsphere.state(vcenter)["machines"].get("trainer") or {}
    return wrong if found.get("power") == "poweredOn" else [*wrong, f"trainer is {found}"]


VSPHERE_CASES = (
    VsphereCase(
        "a vSphere VM, and a user who edits it", vsphere.BY_NAME["vsphere-attach"], edit_machine, check_machine
    ),
    VsphereCase(
        "two tasks that create one vSphere VM", vsphere.BY_NAME["vsphere-create"], second_create, check_creates
    ),
)


def meet_on_vsphere(case: VsphereCase, plain: vsphere.Undisturbed) -> Meeting:
    meeting = Meeting(case.name)
    writes = {"ReconfigVM_Task", "CloneVM_Task"}
    reads = next(i for i, one in enumerate(plain.calls) if one in writes)
    with vsphere.vcenter_for(case.job) as vcenter:
        vcenter.control("PUT", "/hold", {"after": reads, "writes": False})
        running = Running(case.job.module, vsphere.options(case.job.call, LONG_SECONDS), vsphere.environment(vcenter))
        if vsphere.until_held(vcenter, running):
            running.stop()
            vcenter.control("DELETE", "/hold")
        else:
            meeting.wrong.append("the task ended before it was held")
        other = case.between(vcenter)
        running.go()
        first = running.wait()
        meeting.said = ending(first) if not isinstance(other, Ended) else f"{ending(first)}; the other: {ending(other)}"
        meeting.wrong += case.check(vcenter, first, other)
    return meeting
