"""U15: a node that has lost count of a vGPU offers it again after a restart of its controller, on request."""

from __future__ import annotations

from tests.integration.labs import Lab
from tests.integration.modules import beginnings
from tests.integration.modules.beginnings import arranged
from tests.integration.modules.permissions import Automation
from tests.integration.modules.playbooks import Playbooks, predicting

MODULE, VGPU, INFO = "harvester_repair", "harvester_vgpu", "harvester_gpu_info"
PODS = "/api/v1/namespaces/harvester-system/pods"


def controllers(lab: Lab) -> dict[str, str]:
    """The pods of the pcidevices controller, by node."""
    return {
        pod["spec"]["nodeName"]: pod["metadata"]["name"]
        for pod in lab.read(PODS)["items"]
        if pod["metadata"]["name"].startswith("harvester-pcidevices-controller-")
    }


@arranged(beginnings.two_4q)
def test_u15_a_controller_is_restarted_on_request_with_the_documented_roles(
    lab_vfio: Lab, playbooks: Playbooks
) -> None:
    lab_vfio.control.fault("plugin-drift", node="gpu-a")
    before = controllers(lab_vfio)
    user = Automation(lab_vfio)
    user.grant("vgpu-fleet-reader", "vgpu-fleet-devices", "vgpu-fleet-controllers")
    ask = {"controllers": ["*"]}
    lost, told, done, again, found, wrong = playbooks.tasks(
        (INFO, {}),
        predicting(MODULE, ask),
        (MODULE, ask),
        (MODULE, ask),
        (INFO, {}),
        (MODULE, {"controllers": ["gpu-a", "gpu-x"]}),
        kubeconfig=user.kubeconfig,
    )
    user.withdraw()
    (finding,) = [one for one in lost["findings"] if one["kind"] == "not_allocatable"]
    assert (
        "kubectl -n harvester-system delete pod -l app.kubernetes.io/name=harvester-pcidevices-controller"
        in (finding["text"])
    )
    assert not done.failed, done.message
    # Only the node that needs it.
    expected = [{"node": "gpu-a", "pod": before["gpu-a"], "vgpus": [finding["device"]]}]
    assert told["controllers"] == done["controllers"] == expected
    assert (told.changed, done.changed, again.changed) == (True, True, False)
    assert [one for one in found["findings"] if one["kind"] == "not_allocatable"] == []
    after = controllers(lab_vfio)
    assert after["gpu-b"] == before["gpu-b"]
    assert after["gpu-a"] != before["gpu-a"]
    assert wrong.code == "invalid_request"
    assert "Node gpu-x in controllers has no GPU." in wrong.message
