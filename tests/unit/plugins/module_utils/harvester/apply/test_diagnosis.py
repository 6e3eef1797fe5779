"""Why something did not happen, beyond what tests/integration/modules/test_vgpu_timeouts.py shows on a lab."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.apply.diagnosis import Diagnosis

GPU = "n1-000008000"
DRIVER = "nvidia-driver-daemonset"


class Cluster:
    """Answers lists, or refuses them."""

    def __init__(self, **lists):
        self._lists = {getattr(r, name): items for name, items in lists.items()}

    def get(self, path):
        items = self._lists.get(path, [])
        if items is None:
            raise FleetError("no")
        return {"items": items}

    def together(self, calls):
        return [call() for call in calls]


def pod(app, *, waiting=None, ready="False"):
    state = {"waiting": waiting} if waiting else {}
    return {
        "metadata": {"name": f"{app}-1", "namespace": "harvester-system", "labels": {"app": app}},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": ready}], "containerStatuses": [{"state": state}]},
    }


def addon(name, **values):
    return {"metadata": {"name": name, "namespace": "harvester-system"}, "spec": {"enabled": True}, **values}


def causes(**lists):
    return Diagnosis(Cluster(**lists)).causes(["n1"], [GPU])


def test_a_gpu_that_was_claimed_for_passthrough_meanwhile_is_named():
    found = causes(CLAIMS=[{"metadata": {"name": GPU}}])
    assert f"GPU {GPU} is claimed for passthrough as a whole: delete its PCIDeviceClaim first" in found


def test_a_node_that_is_not_ready_is_named():
    conditions = [{"type": "Ready", "status": "Unknown"}]
    found = causes(NODES=[{"metadata": {"name": "n1"}, "status": {"conditions": conditions}}])
    assert "Node n1 is not ready" in found


@pytest.mark.parametrize(
    ("mig", "said"),
    [
        ({"spec": {"enabled": False}}, f"GPU {GPU} is in MIG mode and its MIG configuration is not enabled"),
        (
            {"spec": {"enabled": True}, "status": {"status": "out-of-sync", "message": "no room"}},
            f"The MIG configuration of GPU {GPU} is out of sync: no room",
        ),
    ],
)
def test_a_mig_configuration_in_the_way_is_named(mig, said):
    assert any(one.startswith(said) for one in causes(MIG_CONFIGURATIONS=[{"metadata": {"name": GPU}, **mig}]))


def test_an_addon_that_failed_says_why():
    failed = [{"type": "OperationFailed", "status": "True", "message": "no chart"}]
    found = causes(ADDONS=[addon(r.DRIVER_ADDON, status={"conditions": failed}), addon(r.PCIDEVICES_ADDON)])
    assert f"The addon {r.DRIVER_ADDON} failed: no chart" in found


def test_a_driver_pod_that_crashes_says_why_and_one_that_is_ready_says_nothing():
    crash = {"reason": "CrashLoopBackOff", "message": "no such kernel"}
    (said,) = driver_pods(pod(DRIVER, waiting=crash))
    assert said.endswith("on node n1 is not ready: CrashLoopBackOff (no such kernel)")
    assert not driver_pods(pod(DRIVER, ready="True"))


def driver_pods(*pods):
    return [one for one in causes(SYSTEM_PODS=list(pods)) if "driver pod" in one]


def test_who_may_not_read_pods_is_told_so_only_where_nothing_else_was_found():
    fine = [addon(r.DRIVER_ADDON), addon(r.PCIDEVICES_ADDON)]
    assert causes(SYSTEM_PODS=None, ADDONS=fine) == [
        "The pods in harvester-system could not be read; the driver's may not be ready"
    ]
    assert "could not be read" not in " ".join(causes(SYSTEM_PODS=None))


def vgpu(name, **status):
    labels = {"harvesterhci.io/parentSRIOVGPUDevice": GPU, "nodename": "n1"}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"nodeName": "n1"}, "status": status}


def test_a_scan_that_ends_at_an_unreadable_function_is_named():
    """harvester.md 4.2: the GPU has its functions, and no vGPU device is created for any of them."""
    gpu = {
        "metadata": {"name": GPU},
        "spec": {"nodeName": "n1"},
        "status": {"vGPUDevices": ["n1-000008004", "n1-000008005"]},
    }
    said = f"GPU {GPU} has 2 virtual functions, but the pcidevices controller of node n1 has created no vGPU device"
    assert any(cause.startswith(said) for cause in causes(GPUS=[gpu]))
    assert not any(cause.startswith(said) for cause in causes(GPUS=[gpu], VGPUS=[vgpu("n1-000008004")]))
    assert not any(cause.startswith(said) for cause in causes(GPUS=[gpu], VGPUS=None))


def test_vgpus_of_the_requested_type_are_no_cause():
    there = Cluster(VGPUS=[vgpu("n1-000008004", configureVGPUTypeName="NVIDIA A2-4Q")])
    limits = f"GPU {GPU} has NVIDIA A2-4Q, which limits what its other vGPUs can be"
    assert limits in Diagnosis(there).causes(["n1"], [GPU], {"NVIDIA A2-8Q"})
    assert limits not in Diagnosis(there).causes(["n1"], [GPU], {"NVIDIA A2-4Q"})
