"""Names of types, available types and resources that stay or follow later, as recordings of 1.8 and 1.9 show them."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.integration.api import KUBEVIRT, VGPUS, VMS
from tests.integration.lab_harvester.beginnings import GPU_A, one_card_split
from tests.integration.lab_harvester.machines import ALLOCATION, device, note_for
from tests.integration.lab_harvester.stories import FIRST, SECOND
from tests.integration.labs import Lab

Labs = Callable[[str], Lab]
Q4, C4 = "NVIDIA A2-4Q", "NVIDIA A2-4C"
Q4_ID, C4_ID = "746", "754"
Q4_RESOURCE, GENERIC = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/GA107GL_A2___A16"
ALL_TYPES = 15


def permitted(lab: Lab) -> set[str]:
    lists = lab.read(KUBEVIRT)["spec"]["configuration"]["permittedHostDevices"]
    return {entry["resourceName"] for entry in lists["pciHostDevices"]}


@pytest.mark.parametrize("version", ["1.8", "1.9"])
def test_functions_that_come_back_are_not_advertised_under_their_generic_name(labs: Labs, version: str) -> None:
    """SR-IOV was disabled under a vGPU: its claim stays, and so does the resource of the claim."""
    lab = labs("vfio").begin(version=version, arranged=one_card_split)
    lab.enable_vgpus({FIRST: Q4})
    lab.disable_gpus(GPU_A)
    lab.enable_gpus(GPU_A)
    lab.advance(60)
    assert lab.claim(FIRST) is not None
    assert lab.amounts("gpu-a") == {Q4_RESOURCE: 1}
    assert permitted(lab) == {Q4_RESOURCE}


@pytest.mark.parametrize(("version", "name"), [("1.8", C4), ("1.9", Q4)])
def test_after_a_reboot_with_another_type_1_9_keeps_the_name_of_the_old_one(
    labs: Labs, version: str, name: str
) -> None:
    lab = labs("vfio").begin(version=version, arranged=one_card_split)
    lab.enable_vgpus({FIRST: Q4})
    lab.write(f"{VGPUS}/{FIRST}", {"spec": {"vGPUTypeName": C4}})
    lab.control.reboot("gpu-a")
    lab.until(lambda: lab.status(FIRST).get("uuid") == C4_ID, within=400)
    lab.advance(40)
    assert (lab.status(FIRST)["uuid"], lab.status(FIRST)["configureVGPUTypeName"]) == (C4_ID, name)
    assert lab.amounts("gpu-a")[Q4_RESOURCE] == 1


def halfway(lab: Lab) -> None:
    """Enable a vGPU up to the moment in which its status is there."""
    lab.write(f"{VGPUS}/{FIRST}", {"spec": {"enabled": True, "vGPUTypeName": Q4}})
    for _moment in range(400):
        if lab.status(FIRST).get("vGPUStatus"):
            return
        lab.control.advance(0.01)
    raise AssertionError(lab.status(FIRST))


@pytest.mark.parametrize(("version", "left"), [("1.8", None), ("1.9", Q4)])
def test_a_disable_before_the_name_is_set_leaves_the_name_behind_on_1_9(
    labs: Labs, version: str, left: str | None
) -> None:
    lab = labs("vfio").begin(version=version, arranged=one_card_split)
    halfway(lab)
    assert ("configureVGPUTypeName" in lab.status(FIRST)) == (version == "1.8")
    lab.write(f"{VGPUS}/{FIRST}", {"spec": {"enabled": False}})
    lab.until(lambda: not lab.status(FIRST).get("vGPUStatus") and lab.claim(FIRST) is None)
    lab.advance(60)
    status = lab.status(FIRST)
    assert (status.get("uuid"), status.get("configureVGPUTypeName")) == (None, left)
    assert len(lab.types(FIRST)) == ALL_TYPES


def test_on_1_9_the_name_follows_and_a_later_disable_removes_it(labs: Labs) -> None:
    lab = labs("vfio").begin(version="1.9", arranged=one_card_split)
    lab.enable_vgpus({FIRST: Q4})
    lab.disable_vgpus([FIRST])
    lab.advance(40)
    assert "configureVGPUTypeName" not in lab.status(FIRST)


@pytest.mark.parametrize("version", ["1.7", "1.8", "1.9"])
@pytest.mark.parametrize(
    "written",
    [
        {"availableTypes": None},
        {"availableTypes": {"NVIDIA A2-16Q": None, "NVIDIA A2-8Q": None}},
        {"availableTypes": {"NVIDIA A2-4Q": "1"}},
        {"vGPUStatus": "nonsense", "uuid": "x"},
    ],
    ids=["emptied", "fewer", "other", "nonsense"],
)
def test_after_a_write_to_the_status_all_types_of_an_empty_gpu_are_back(
    labs: Labs, version: str, written: dict[str, object]
) -> None:
    lab = labs("mdev" if version == "1.7" else "vfio").begin(version=version, arranged=one_card_split)
    before = lab.status(SECOND)
    assert len(lab.types(SECOND)) == ALL_TYPES
    answer = lab.api.patch(f"{VGPUS}/{SECOND}/status", {"status": written})
    assert answer.status == 200
    lab.advance(40)
    assert lab.status(SECOND) == before


def test_a_patch_of_a_stopped_vm_is_answered_without_the_note_which_follows(labs: Labs) -> None:
    """From 1.9 on the note of a VM that does not run is rebuilt from its spec."""
    lab = labs("vfio").begin(version="1.9")
    body = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "user", "namespace": "default"},
        "spec": {
            "runStrategy": "Halted",
            "template": {
                "spec": {
                    "domain": {
                        "devices": {"hostDevices": [device(GPU_A, GENERIC)]},
                        "resources": {"requests": {"memory": "1Gi"}},
                    }
                }
            },
        },
    }
    lab.make(VMS, body)
    answer = lab.api.patch(f"{VMS}/user", {"metadata": {"labels": {"a": "b"}}}).body
    assert ALLOCATION not in (answer["metadata"].get("annotations") or {})
    lab.advance(2)
    note = json.loads(lab.read(f"{VMS}/user")["metadata"]["annotations"][ALLOCATION])
    assert note == note_for(GPU_A, vfio=True, resource=GENERIC)
    detached = {"spec": {"template": {"spec": {"domain": {"devices": {"hostDevices": None}}}}}}
    answer = lab.api.patch(f"{VMS}/user", detached).body
    assert ALLOCATION in answer["metadata"]["annotations"]
    lab.advance(2)
    assert ALLOCATION not in (lab.read(f"{VMS}/user")["metadata"].get("annotations") or {})
