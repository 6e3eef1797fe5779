"""Playbooks and roles refuse misspelt variables before they connect to anything."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", *arguments],
        cwd=folder,
        env=os.environ | {"ANSIBLE_HOME": str(folder / "home"), "K8S_AUTH_HOST": "https://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("--tags", "report")], ids=["all", "one tag"])
def test_a_playbook_refuses_a_misspelt_variable_of_any_role_and_shows_no_value(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    told = json.dumps({"harvester_gpu_vm_vmss": [{"name": "hidden"}]})
    code, shown = run(tmp_path, "vgpu.fleet.capacity", "-e", told, *options)
    assert code != 0
    assert "The variable harvester_gpu_vm_vmss is unknown. Did you mean harvester_gpu_vm_vms?" in shown
    assert "unknown_variable" in shown
    assert "hidden" not in shown
    assert "127.0.0.1" not in shown


def test_a_role_refuses_its_own_misspelt_variable_and_leaves_others_alone(tmp_path: Path) -> None:
    role = {"role": "vgpu.fleet.harvester_gpu_node", "vars": {"harvester_gpu_node_layuot": []}}
    play: list[dict[str, Any]] = [{"hosts": "all", "gather_facts": False, "roles": [role]}]
    (tmp_path / "play.yml").write_text(json.dumps(play))
    code, shown = run(tmp_path, "play.yml", "-e", "vgpu_drift_layuot=1")
    assert code != 0
    assert "Did you mean harvester_gpu_node_layout?" in shown
    assert "vgpu_drift_layuot" not in shown
