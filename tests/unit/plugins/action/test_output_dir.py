"""Files go to the folder that the user chose, or to the current directory, never into the collection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

INFO = {"nodes": [], "claims": [], "vgpus": [], "findings": [], "harvester": {"version": "1.8"}}


def run(folder: Path, tasks: list[dict[str, Any]], *options: str) -> None:
    (folder / "elsewhere").mkdir(exist_ok=True)
    (folder / "elsewhere/play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    done = subprocess.run(
        [
            "ansible-playbook",
            "-i",
            "localhost,",
            "-c",
            "local",
            "elsewhere/play.yml",
            "-e",
            f"ansible_python_interpreter={sys.executable}",
            *options,
        ],
        cwd=folder,
        env=os.environ | {"ANSIBLE_HOME": str(folder / "home"), "PWD": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_relative_paths_are_relative_to_the_output_folder(tmp_path: Path) -> None:
    export = [{"vgpu.fleet.fleet_export": {"info": INFO, "json": "fleet.json"}}]
    run(tmp_path, export)
    assert (tmp_path / "fleet.json").exists()
    (tmp_path / "out").mkdir()
    run(tmp_path, export, "-e", f"vgpu_fleet_output_dir={tmp_path}/out")
    assert (tmp_path / "out/fleet.json").exists()


def test_the_inventory_of_machines_is_not_written_into_the_collection(tmp_path: Path) -> None:
    tasks = Path(__file__).parents[4] / "playbooks/tasks/gpu_machines.yml"
    vm = {"name": "worker-1", "running": True, "address": "10.0.0.7", "profiles": ["A40-8Q"]}
    play = [
        {"ansible.builtin.set_fact": {"vsphere_gpu_vm_result": [vm]}},
        {"ansible.builtin.include_tasks": str(tasks), "vars": {"vsphere_gpu_cluster_inventory": "machines.yml"}},
    ]
    run(tmp_path, play)
    assert "worker-1" in (tmp_path / "machines.yml").read_text()
    assert not (tasks.parent / "machines.yml").exists()
    (tmp_path / "out").mkdir()
    run(tmp_path, play, "-e", f"vgpu_fleet_output_dir={tmp_path}/out")
    assert (tmp_path / "out/machines.yml").exists()
