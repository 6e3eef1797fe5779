"""H2, in the roles: a list that selects something and is empty is refused before anything else happens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.integration.playbooks.runs import CHECKOUT, INSTALLED

# The lists of names or patterns by which roles select what they work on.
SELECTIONS = {
    "gpu_smoke_test": ["gpu_smoke_test_nodes"],
    "harvester_gpu_node": ["harvester_gpu_node_nodes", "harvester_gpu_node_gpus"],
    "vgpu_capacity": ["vgpu_capacity_nodes", "vgpu_capacity_profiles"],
    "vgpu_drift": ["vgpu_drift_nodes", "vgpu_drift_gpus"],
    "vgpu_reprofile": ["vgpu_reprofile_nodes", "vgpu_reprofile_gpus"],
    "vsphere_gpu_host": ["vsphere_gpu_host_hosts"],
}
# What else is a list of texts, and declares contents.
CONTENTS = {
    "gpu_operator_driver_pull_secrets",
    "gpu_smoke_test_pull_secrets",
    "harvester_gpu_node_absent_addons",
    "harvester_gpu_node_gone_vms",
    "vsphere_gpu_host_profiles",
}


def test_each_list_of_names_is_known_here() -> None:
    found = set()
    for path in CHECKOUT.glob("roles/*/meta/argument_specs.yml"):
        options = yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
        found |= {name for name, option in options.items() if option.get("elements") == "str"}
    assert found == CONTENTS.union(*SELECTIONS.values())


def test_an_empty_selection_is_refused_by_name(tmp_path: Path) -> None:
    tasks = [
        {
            "block": [
                {"ansible.builtin.include_role": {"name": f"vgpu.fleet.{role}"}, "vars": {variable: []}},
                {"ansible.builtin.fail": {"msg": "not refused"}},
            ],
            "rescue": [{"ansible.builtin.set_fact": {f"said_{variable}": "{{ ansible_failed_result.msg }}"}}],
        }
        for role, variables in SELECTIONS.items()
        for variable in variables
    ]
    names = [f"said_{variable}" for variables in SELECTIONS.values() for variable in variables]
    shown = {"dest": str(tmp_path / "said.json"), "content": "{{ query('vars', *names) | to_json }}", "mode": "0600"}
    tasks.append({"ansible.builtin.copy": shown, "vars": {"names": names}})
    playbook = tmp_path / "play.yml"
    playbook.write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    environment = {**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(INSTALLED)}
    command = [sys.executable, "-m", "ansible", "playbook", str(playbook)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(zip(names, json.loads((tmp_path / "said.json").read_text()), strict=True))
    for name, message in said.items():
        assert name.removeprefix("said_") in message
        assert "is an empty list" in message
