"""The examples of modules that work on GPUs and vGPUs, run one after the other as a new user would.

Those of the other modules are run by the tests of these.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.labs import Lab
from tests.integration.modules.examples import examples
from tests.integration.modules.playbooks import Playbooks

CONFIGURATION = """
version: v1
vgpu-configs:
  A2-4Q:
    - devices: all
      vgpu-devices: {A2-4Q: 4}
"""


def test_every_example_runs(lab_vfio: Lab, playbooks: Playbooks, tmp_path: Path) -> None:
    (tmp_path / "vgpu-config.yaml").write_text(CONFIGURATION)
    tasks = [
        *examples("harvester_vgpu"),
        *examples("vgpu_device_manager", "filter"),
        *examples("harvester_sriov_gpu"),
        *examples("harvester_gpu_info"),
    ]
    # A count that looks stuck, as of a vGPU that was enabled again, is waited for a part of that time.
    defaults = {"vgpu.fleet.harvester_vgpu": {"wait_timeout": 120}}
    results = playbooks.run(tasks, module_defaults=defaults)
    assert not [result.message for result in results if result.failed]
    assert {profile["type"] for profile in results[-2]["profiles"]} == {"NVIDIA A2-4Q"}
    assert lab_vfio.amounts("gpu-b")["nvidia.com/NVIDIA_A2-4Q"] == 4
