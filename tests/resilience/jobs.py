"""The tasks of the matrix: what each starts from, what it asks for, and what takes it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.integration.api import KUBEVIRT, VMIS, VMS
from tests.integration.lab_harvester import machines
from tests.integration.labs import Lab
from tests.integration.playbooks import reprofiling

Json = dict[str, Any]
Call = tuple[str, Json]

GPU_A, GPU_B, A100 = "gpu-a-000008000", "gpu-b-000008000", "mig-a100-000004000"
Q4 = "NVIDIA A2-4Q"


@dataclass(frozen=True)
class World:
    """The beginning of several jobs."""

    name: str
    arranged: Callable[[Lab], Any]
    scenario: str = "default"
    version: str = "1.8"


def used(lab: Lab) -> None:
    """A running VM holds one of two vGPUs on gpu-a, another one runs without, a third one is stopped."""
    reprofiling.in_use(lab)
    lab.make(VMS, machines.machine("worker", run=True))
    lab.make(VMS, machines.machine("spare"))
    lab.until(lambda: (lab.find(f"{VMIS}/worker") or {}).get("status", {}).get("phase") == "Running", real=True)


def nothing(lab: Lab) -> None:
    """The scenario as it is."""


USED = World("used", used)
MIG = World("mig", nothing, scenario="mig", version="1.9")


@dataclass(frozen=True)
class Job:
    """A task with its beginning. `prepare` and `undo` are tasks as well; `spoil` is done to the lab before the task."""

    name: str
    call: Call
    undo: tuple[Call, ...] = ()
    prepare: tuple[Call, ...] = ()
    spoil: Callable[[Lab], Any] = nothing
    world: World = USED

    @property
    def module(self) -> str:
        return self.call[0]


OFF = ("harvester_sriov_gpu", {"gpus": [GPU_B], "state": "disabled", "disable_vgpus": True})
FULL = {"profile": "A2-4Q", "count": 4, "nodes": ["gpu-b"], "enable_sriov": True}
LOCATION = "http://files.example/other/NVIDIA-Linux-x86_64-vgpu-kvm.run"


def lose_permitted(lab: Lab) -> None:
    """Take every type of a vGPU out of KubeVirt's list of permitted devices."""
    found = lab.read(KUBEVIRT)["spec"]["configuration"]["permittedHostDevices"]
    kept = {
        kind: [one for one in entries if "nvidia" not in one["resourceName"].lower()] for kind, entries in found.items()
    }
    lab.write(KUBEVIRT, {"spec": {"configuration": {"permittedHostDevices": kept}}})


def reprofile(profile: str) -> Call:
    return (
        "harvester_reprofile",
        {
            "gpus": [GPU_A],
            "layout": [{"profile": profile, "count": 2}],
            "vms": [{"name": "trainer", "vgpus": [{"profile": profile}]}],
        },
    )


JOBS = (
    Job("sriov", ("harvester_sriov_gpu", {"gpus": [GPU_B]}), undo=(OFF,)),
    Job(
        "sriov-off",
        OFF,
        prepare=(("harvester_vgpu", {"profile": "A2-8Q", "count": 2, "nodes": ["gpu-b"], "enable_sriov": True}),),
        undo=(OFF,),
    ),
    Job(
        "vgpu",
        ("harvester_vgpu", {"profile": "A2-8Q", "count": 2, "nodes": ["gpu-b"], "enable_sriov": True}),
        undo=(OFF,),
    ),
    Job(
        "vgpu-layout",
        (
            "harvester_vgpu",
            {"profile": "A2-8Q", "count": 2, "nodes": ["gpu-b"], "exclusive": True, "reprofile": True},
        ),
        prepare=(("harvester_vgpu", FULL),),
        undo=(OFF,),
    ),
    Job(
        "vm",
        ("harvester_vgpu_vm", {"name": "spare", "vgpus": [{"profile": "A2-4Q"}]}),
        undo=(("harvester_vgpu_vm", {"name": "spare", "state": "absent"}),),
    ),
    Job(
        "vm-restart",
        ("harvester_vgpu_vm", {"name": "worker", "vgpus": [{"profile": "A2-4Q"}], "restart": "if_needed"}),
        undo=(("harvester_vgpu_vm", {"name": "worker", "state": "absent", "restart": "if_needed"}),),
    ),
    Job("reprofile", reprofile("A2-8Q"), undo=(reprofile("A2-4Q"),)),
    Job(
        "addon",
        (
            "harvester_addon",
            {"name": "nvidia-driver-toolkit", "driver_location": LOCATION, "disrupt": True},
        ),
        undo=(
            (
                "harvester_addon",
                {"name": "nvidia-driver-toolkit", "driver_location": "@driver_location", "disrupt": True},
            ),
        ),
    ),
    Job("repair", ("harvester_repair", {"permitted_devices": True}), spoil=lose_permitted),
    Job(
        "mig",
        ("harvester_mig", {"gpus": [A100], "instances": [{"profile": "3g.20gb", "count": 2}], "enable_sriov": True}),
        undo=(
            ("harvester_mig", {"gpus": [A100], "state": "disabled"}),
            ("harvester_sriov_gpu", {"gpus": [A100], "state": "disabled"}),
        ),
        world=MIG,
    ),
)
BY_NAME = {job.name: job for job in JOBS}
