"""What a VM needs besides its vGPU: KubeVirt permits its type."""

from __future__ import annotations

from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import arranged
from tests.integration.modules.permissions import Automation
from tests.integration.modules.playbooks import Playbooks

MODULE, VGPU, INFO = "harvester_repair", "harvester_vgpu", "harvester_gpu_info"
Q4 = "NVIDIA A2-4Q"


@arranged(beginnings.two_4q, stays=True)
def test_a_missing_right_to_read_the_list_is_a_warning(lab_vfio: Lab, playbooks: Playbooks) -> None:
    user = Automation(lab_vfio)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-devices", "vgpu-fleet-version", without=["kubevirts"])
    info, room, vgpus, repair = playbooks.tasks(
        (INFO, {}),
        ("vgpu_availability", {"platform": "harvester"}),
        (VGPU, {"profile": Q4, "count": 2, "nodes": ["gpu-a"]}),
        (MODULE, {"permitted_devices": True}),
        kubeconfig=user.kubeconfig,
    )
    user.withdraw()
    for result in (info, vgpus):
        assert not result.failed, result.message
        assert any("kubevirts" in warning for warning in result["warnings"])
    assert {one["permitted"] for one in room["profiles"]} == {None}
    assert repair.code == "permitted_devices_unknown"
