"""Roles pass on every option of the entries that they take, and refuse all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
import yaml
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.options import connection_spec
from ansible_collections.vgpu.fleet.plugins.modules.rancher_gpu_pool import argument_spec

ROLES = Path(__file__).parents[2] / "roles"


def read(path: str) -> Any:
    return yaml.safe_load((ROLES / path).read_text())


def test_every_option_of_a_pool_is_passed_on_and_known() -> None:
    (passed,) = [
        task["vgpu.fleet.rancher_gpu_pool"]
        for task in read("rancher_gpu_cluster/tasks/present.yml")
        if "vgpu.fleet.rancher_gpu_pool" in task
    ]
    listed = set(read("rancher_gpu_cluster/vars/main.yml")["__rancher_gpu_cluster_pool_options"])
    # They are the role's own, for all its pools.
    own = {"cluster", "namespace", "harvester_cluster", "owner"}
    assert listed == set(passed) - own
    assert listed <= set(argument_spec()) - set(connection_spec())


def test_every_option_of_a_vm_on_harvester_is_known() -> None:
    options = read("harvester_gpu_vm/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    presets = set(read("harvester_gpu_vm/vars/main.yml")["__harvester_gpu_vm_presets"])
    assert set(options["harvester_gpu_vm_vms"]["options"]) == presets | {"name"}


def test_drift_is_repaired_for_the_owner_that_configures_the_nodes() -> None:
    default = jinja2.Template(read("vgpu_drift/defaults/main.yml")["vgpu_drift_owner"])
    assert default.render(harvester_gpu_node_owner="blue") == "blue"
    assert default.render() == read("harvester_gpu_node/defaults/main.yml")["harvester_gpu_node_owner"]
