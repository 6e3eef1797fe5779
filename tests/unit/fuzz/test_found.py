"""What the long runs have found, each as the smallest example."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.mig import read_size
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.profile import parse_or_none
from pyVmomi import vim

from tests.unit.fuzz.arguments import ALWAYS, MODULES, VCENTER as LOGIN
from tests.unit.fuzz.harness import Outcome, run
from tests.unit.fuzz.kubernetes_world import World, everything
from tests.unit.fuzz.tasks import TASKS
from tests.unit.fuzz.vcenter_world import vcenter

NODES = "/api/v1/nodes"


def in_kubernetes(module: str, task: dict[str, Any], objects: dict[str, Any] | None = None) -> Outcome:
    return run(module, {**task, **ALWAYS}, World(objects or everything()), vcenter())


def test_every_module_has_a_task() -> None:
    assert sorted(TASKS) == MODULES


@pytest.mark.parametrize("name", ["A2-" + "9" * 5000 + "Q", "A100-1-" + "9" * 5000 + "C"])
def test_a_size_with_thousands_of_digits_is_not_a_profile(name: str) -> None:
    assert parse_or_none(name) is None
    assert read_size(f"1g.{'9' * 5000}gb") is None


@pytest.mark.parametrize("option", ["name", "namespace"])
@pytest.mark.parametrize("text", ["a/b", "..", "", "A", "日本語", "a" * 254, "a\n"])
def test_a_vm_that_cannot_have_this_name_is_refused(option: str, text: str) -> None:
    if option == "namespace" and not text:
        return
    outcome = in_kubernetes("harvester_vm_check", {"vms": [{"name": "new", option: text}]})
    assert outcome.code == "invalid_vm_name"
    assert option in outcome.result["msg"]
    assert not outcome.writes


def test_a_node_whose_list_of_conditions_has_a_null() -> None:
    objects = everything()
    objects[NODES][0]["status"]["conditions"].insert(0, None)
    assert not in_kubernetes("harvester_gpu_info", {}, objects).failed


def test_a_vm_without_a_power_state() -> None:
    server = vcenter()
    del server.objects["vm-1"][1]["runtime.powerState"]
    task = {"name": "trainer", "vgpus": [{"profile": "A40-16Q"}], "power_cycle": "hard", **LOGIN}
    outcome = run("vsphere_vgpu_vm", task, World({}), server)
    assert outcome.code == "vm_unavailable"
    assert "trainer" in outcome.result["msg"]
    assert isinstance(server.objects["vm-1"][0], vim.VirtualMachine)


def test_a_template_without_the_number_of_its_hardware_version() -> None:
    server = vcenter()
    server.objects["vm-3"][1]["config.version"] = "vmx-"
    outcome = run("vsphere_vgpu_vm", {**TASKS["vsphere_vgpu_vm"][0], **LOGIN}, World({}), server)
    assert outcome.code


@pytest.mark.parametrize("manager", ["configManager.graphicsManager", "configManager.pciPassthruSystem"])
def test_a_host_without_a_manager_is_refused_before_any_host_is_changed(manager: str) -> None:
    server = vcenter()
    del server.objects["host-2"][1][manager]
    passthrough = "Passthru" in manager
    task = TASKS["vsphere_gpu_host"][2 if passthrough else 0]
    outcome = run("vsphere_gpu_host", {**task, **LOGIN}, World({}), server)
    assert outcome.code == "host_unmanaged"
    assert "esx2" in outcome.result["msg"]
    assert not outcome.writes


def test_a_device_without_a_name_is_refused() -> None:
    outcome = in_kubernetes("harvester_vgpu", {"name": ""})
    assert outcome.code == "unknown_device"
    assert not outcome.writes
