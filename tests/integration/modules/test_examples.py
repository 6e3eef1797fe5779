"""Every example in the documentation of the modules, run as a new user would."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import yaml

from tests.integration.labs import Lab
from tests.integration.modules.playbooks import Playbooks

PLUGINS = Path(__file__).parents[3] / "plugins"
CONFIGURATION = """
version: v1
vgpu-configs:
  A2-4Q:
    - devices: all
      vgpu-devices: {A2-4Q: 4}
"""


def examples(file: str) -> list[dict[str, Any]]:
    for statement in ast.parse((PLUGINS / file).read_text()).body:
        if isinstance(statement, ast.Assign) and getattr(statement.targets[0], "id", "") == "EXAMPLES":
            return list(yaml.safe_load(ast.literal_eval(statement.value)))
    raise AssertionError(f"{file} has no examples")


def test_every_example_runs(lab_vfio: Lab, playbooks: Playbooks, tmp_path: Path) -> None:
    (tmp_path / "vgpu-config.yaml").write_text(CONFIGURATION)
    tasks = [
        *examples("modules/harvester_vgpu.py"),
        *examples("filter/vgpu_device_manager.py"),
        *examples("modules/harvester_sriov_gpu.py"),
        *examples("modules/harvester_gpu_info.py"),
    ]
    results = playbooks.run(tasks)
    assert not [result.message for result in results if result.failed]
    assert {vgpu["profile"] for vgpu in results[-2]["vgpus"]} == {"NVIDIA A2-4Q"}
    assert lab_vfio.amounts("gpu-b")["nvidia.com/NVIDIA_A2-4Q"] == 4
