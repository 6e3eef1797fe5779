"""Why a filter would refuse, as sentences for an assert: an error inside a template is pages long."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.filter.harvester_removal import harvester_removal
from ansible_collections.vgpu.fleet.plugins.filter.harvester_vm_problems import harvester_vm_problems
from ansible_collections.vgpu.fleet.plugins.filter.vgpu_device_manager_problems import vgpu_device_manager_problems

from tests.unit.plugins.module_utils.fleets import fleet, gpu

CONFIGURATION = {"version": "v1", "vgpu-configs": {"A2-4Q": [{"devices": "all", "vgpu-devices": {"A2-4Q": 4}}]}}
IMAGE = {"image": "default/ubuntu", "size_gib": 10}
GOOD = {"name": "trainer", "cpus": "8", "disks": [IMAGE], "networks": ["default/vlan1"]}


def test_vms_that_can_be_created_have_no_problems() -> None:
    assert harvester_vm_problems([GOOD]) == []
    assert harvester_vm_problems([GOOD], {"default/ubuntu": "image-class"}) == []


@pytest.mark.parametrize(
    ("vm", "said"),
    [
        ({}, "A VM needs a name."),
        ({"disks": [{"size_gib": 5}]}, "A disk of VM trainer needs one of image, storage_class and container."),
        ({"networks": ["vlan1"]}, "Network vlan1 of VM trainer must have the form namespace/name."),
        ({"cpus": "many"}, "VM trainer is not valid. cpus, memory_gib and size_gib must be numbers"),
        ({"disks": [40]}, "VM trainer is not valid. cpus"),
        ("trainer", "VM trainer is not valid. cpus"),
    ],
)
def test_each_problem_is_one_sentence_about_its_vm(vm: Any, said: str) -> None:
    bad = {"name": "trainer", **vm} if vm and isinstance(vm, dict) else vm
    (problem,) = harvester_vm_problems([GOOD, bad])
    assert problem.startswith(said)
    assert "\n" not in problem


def test_images_are_checked_once_they_are_known() -> None:
    (problem,) = harvester_vm_problems([GOOD], {"default/other": "image-class"})
    assert problem.startswith("Image default/ubuntu of VM trainer does not exist or is not ready. Use the form")


def test_a_configuration_has_at_most_one_problem() -> None:
    assert vgpu_device_manager_problems(CONFIGURATION, "A2-4Q", nodes=["gpu-*"]) == []
    assert vgpu_device_manager_problems(CONFIGURATION, "A2-8Q") == [
        "Configuration 'A2-8Q' does not exist. Existing ones: A2-4Q."
    ]
    (problem,) = vgpu_device_manager_problems("a: [", "A2-4Q")
    assert problem.startswith("The vGPU Device Manager configuration is not valid YAML")


@pytest.mark.parametrize("layout", [[{"profile": "A2-4Q"}], [{"profile": "A2-4Q", "count": "two"}], ["A2-4Q"]])
def test_a_declaration_that_is_not_valid_takes_nothing_back(layout: Any) -> None:
    plan = harvester_removal(fleet(gpu("n1:a", "4Q")).as_dict(), layout)
    assert plan["problem"].startswith(("An entry of the layout has no count.", "The layout is not valid."))
    assert not any(value for key, value in plan.items() if key != "problem")
    assert harvester_removal(fleet(gpu("n1:a", "4Q")).as_dict(), [{"profile": "A2-4Q", "count": 1}])["problem"] == ""
