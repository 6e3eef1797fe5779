"""The role vsphere_gpu_vm passes on everything that its module takes, so that no option is ignored silently."""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.options import connection_spec
from ansible_collections.vgpu.fleet.plugins.modules.vsphere_vgpu_vm import argument_spec

ROLE = Path(__file__).parents[2] / "roles/vsphere_gpu_vm"
MODULE = "vgpu.fleet.vsphere_vgpu_vm"
# They are the role's own, for all its VMs.
OF_THE_ROLE = {"owner", "adopt"}
PLACE = {"datacenter", "folder", "cluster", "resource_pool", "esxi_host"}


def read(path: str):
    return yaml.safe_load((ROLE / path).read_text())


def passed(path: str) -> set[str]:
    """Return the options that all tasks of a file pass to the module."""
    first, *others = (set(task[MODULE]) for task in read(path) if MODULE in task)
    assert all(other == first for other in others)
    return first


def test_a14_every_option_of_the_module_is_an_option_of_the_role():
    taken = set(argument_spec()) - set(connection_spec())
    listed = set(read("vars/main.yml")["__vsphere_gpu_vm_options"])
    variables = read("meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    assert passed("tasks/present.yml") == taken
    assert listed == taken - OF_THE_ROLE
    assert set(variables["vsphere_gpu_vm_vms"]["options"]) == listed
    assert set(variables["vsphere_gpu_vm_defaults"]["options"]) == listed


def test_a1_absent_passes_the_place_and_the_owner():
    assert passed("tasks/absent.yml") >= PLACE | OF_THE_ROLE | {"name", "uuid", "moid", "power_cycle"}


def test_the_plan_of_a_dry_run_gets_the_results_of_both_states():
    for state in ("present", "absent"):
        (*_checks, task) = (task for task in read(f"tasks/{state}.yml") if MODULE in task)
        assert task["register"] == "__vsphere_gpu_vm_done"
    assert "__vsphere_gpu_vm_done" in (ROLE.parents[1] / "playbooks/tasks/vsphere_plan.yml").read_text()


def test_a1_names_have_no_default_that_two_teams_could_share():
    assert read("defaults/main.yml")["vsphere_gpu_vm_prefix"] == ""


def test_a10_room_is_asked_where_the_vms_belong():
    (task,) = read("tasks/check_capacity.yml")
    assert {"cluster", "esxi_hosts"} <= set(task["vgpu.fleet.vgpu_availability"])
