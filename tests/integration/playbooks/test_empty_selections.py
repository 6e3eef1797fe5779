"""H2, in the roles: a list that selects something and is empty is refused before anything else happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.integration.playbooks.runs import CHECKOUT, INSTALLED

# The lists of names or patterns by which roles select what they work on.
SELECTIONS = {
    "gpu_smoke_test": ["gpu_smoke_test_nodes"],
    "harvester_gpu_node": [
        "harvester_gpu_node_nodes",
        "harvester_gpu_node_gpus",
        "harvester_gpu_node_layout.nodes",
        "harvester_gpu_node_layout.gpus",
        "harvester_gpu_node_mig.nodes",
        "harvester_gpu_node_mig.gpus",
    ],
    "vgpu_capacity": ["vgpu_capacity_nodes", "vgpu_capacity_profiles"],
    "vgpu_drift": [
        "vgpu_drift_nodes",
        "vgpu_drift_gpus",
        "vgpu_drift_layout.nodes",
        "vgpu_drift_layout.gpus",
        "vgpu_drift_mig.nodes",
        "vgpu_drift_mig.gpus",
    ],
    "vgpu_reprofile": ["vgpu_reprofile_nodes", "vgpu_reprofile_gpus"],
    "vsphere_gpu_host": ["vsphere_gpu_host_hosts"],
}
# All other lists, which declare contents: an empty one declares that there are none, and nothing is done for it.
CONTENTS = {
    "capv_gpu_cluster_addons",
    "capv_gpu_cluster_pod_cidrs",
    "capv_gpu_cluster_pools",
    "capv_gpu_cluster_service_cidrs",
    "capv_gpu_cluster_ssh_authorized_keys",
    "capv_gpu_pool_pci_devices",
    "capv_gpu_pool_vgpus",
    "gpu_operator_driver_pull_secrets",
    "gpu_smoke_test_pull_secrets",
    "harvester_gpu_node_absent_addons",
    # What a dry run assumes changes nothing.
    "harvester_gpu_node_assume",
    "harvester_gpu_node_assume.nodes",
    "harvester_gpu_node_gone_vms",
    "vsphere_gpu_host_gone_vms",
    "harvester_gpu_node_layout",
    "harvester_gpu_node_mig",
    "harvester_gpu_node_mig.instances",
    "harvester_gpu_vm_vms",
    "harvester_gpu_vm_vms.disks",
    "harvester_gpu_vm_vms.networks",
    "harvester_gpu_vm_vms.vgpus",
    "rancher_gpu_cluster_pools",
    "vgpu_capacity_demand",
    "vgpu_drift_layout",
    "vgpu_drift_mig",
    "vgpu_drift_mig.instances",
    "vgpu_reprofile_layout",
    "vgpu_reprofile_vms",
    "vgpu_reprofile_vms.vgpus",
    "vsphere_gpu_host_devices",
    "vsphere_gpu_host_passthrough",
    "vsphere_gpu_host_profiles",
    "vsphere_gpu_vm_defaults.networks",
    "vsphere_gpu_vm_defaults.device_groups",
    "vsphere_gpu_vm_defaults.pci_devices",
    "vsphere_gpu_vm_defaults.vgpus",
    "vsphere_gpu_vm_vms",
    "vsphere_gpu_vm_vms.networks",
    "vsphere_gpu_vm_vms.device_groups",
    "vsphere_gpu_vm_vms.pci_devices",
    "vsphere_gpu_vm_vms.vgpus",
}
# Entries that would change as much as they can, but for the selection in question.
WIDEST = {"layout": {"profile": "A2-4Q", "count": 0}, "mig": {"state": "disabled"}}


def list_options(options: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, option in options.items():
        if option.get("type") == "list":
            yield prefix + name
        yield from list_options(option.get("options") or {}, f"{prefix}{name}.")


def emptied(selection: str) -> dict[str, Any]:
    """The variable with an empty list, in an entry of its own if it is an option of entries."""
    variable, _dot, option = selection.partition(".")
    if not option:
        return {variable: []}
    return {variable: [{**WIDEST[variable.rpartition("_")[2]], option: []}]}


def test_each_list_option_of_each_role_is_known_here() -> None:
    """A new list option has to say what an empty list means."""
    found = set()
    for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml"):
        for spec in yaml.safe_load(path.read_text())["argument_specs"].values():
            found |= set(list_options(spec["options"]))
    assert found == CONTENTS.union(*SELECTIONS.values())


def test_an_empty_selection_is_refused_by_name(tmp_path: Path) -> None:
    selections = [(role, one) for role, found in SELECTIONS.items() for one in found]
    names = [f"said_{number}" for number in range(len(selections))]
    tasks = [
        {
            "block": [
                {"ansible.builtin.include_role": {"name": f"vgpu.fleet.{role}"}, "vars": emptied(selection)},
                {"ansible.builtin.fail": {"msg": "not refused"}},
            ],
            "rescue": [{"ansible.builtin.set_fact": {name: "{{ ansible_failed_result.msg }}"}}],
        }
        for name, (role, selection) in zip(names, selections, strict=True)
    ]
    shown = {"dest": str(tmp_path / "said.json"), "content": "{{ query('vars', *names) | to_json }}", "mode": "0600"}
    tasks.append({"ansible.builtin.copy": shown, "vars": {"names": names}})
    playbook = tmp_path / "play.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED)}
    command = [sys.executable, "-m", "ansible", "playbook", str(playbook)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads((tmp_path / "said.json").read_text())
    for (_role, selection), message in zip(selections, said, strict=True):
        assert selection.partition(".")[0] in message, selection
        assert "is an empty list" in message, selection
