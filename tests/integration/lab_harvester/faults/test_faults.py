"""Faults of devices, nodes, webhook, addons and driver: each is seen at the API, and over when it is switched off."""

from __future__ import annotations

import time

import pytest

from lab.errors import LabError
from tests.integration.api import HARVESTER_PODS, KUBEVIRT, NODES, PCI_DEVICES, SRIOV_GPUS, VGPUS
from tests.integration.lab_harvester.beginnings import GPU_A, GPU_B
from tests.integration.lab_harvester.controllers.test_addons import conditions
from tests.integration.lab_harvester.faults.test_silent_failures import TOOLKIT, bad_enable, driver_pods, state
from tests.integration.lab_harvester.stories import FIRST, switch

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"


def amounts(lab, node="gpu-a"):
    """Allocatable and capacity."""
    return lab.amounts(node).get(RESOURCE), lab.amounts(node, "capacity").get(RESOURCE)


def ready(lab, node):
    conditions = lab.read(f"{NODES}/{node}")["status"]["conditions"]
    return next(condition["status"] for condition in conditions if condition["type"] == "Ready")


def permitted(lab):
    devices = lab.read(KUBEVIRT)["spec"]["configuration"]["permittedHostDevices"]
    return [entry["resourceName"] for entry in devices["pciHostDevices" if lab.vfio else "mediatedDevices"]]


class TestDevices:
    def test_fact_12_6_one_function_without_types_hides_all_vgpus_of_its_node(self, lab):
        lab.control.fault("vf-without-types", node="gpu-a")
        for gpu in (GPU_A, GPU_B):
            lab.write(f"{SRIOV_GPUS}/{gpu}", {"spec": {"enabled": True}})
        lab.until(lambda: len(lab.vgpus(GPU_B)) == 16)
        lab.advance(60)
        assert len(lab.gpu(GPU_A)["status"]["vfAddresses"]) == 16
        assert lab.vgpus(GPU_A) == []

        lab.control.fault("vf-without-types", on=False, node="gpu-a")
        lab.until(lambda: len(lab.vgpus(GPU_A)) == 16, within=400)

    def test_the_device_plugin_drifts_by_era(self, vgpu_lab):
        lab = vgpu_lab
        assert amounts(lab) == (2, 2)
        lab.control.fault("plugin-drift", node="gpu-a")
        lab.advance(10)
        assert amounts(lab) == ((1, 2) if lab.vfio else (2, 3))
        lab.control.fault("plugin-drift", on=False, node="gpu-a")
        lab.advance(10)
        assert amounts(lab) == (2, 2)

    def test_the_permitted_list_loses_its_first_entry_and_has_its_last_one_twice(self, vgpu_lab):
        lab = vgpu_lab
        before = permitted(lab)
        assert len(before) == 2
        lab.control.fault("permitted-list")
        assert permitted(lab) == [before[1], before[1]]
        lab.control.fault("permitted-list", on=False)
        assert permitted(lab) == before

    def test_a_fault_that_needs_a_vgpu_says_so(self, lab_vfio):
        for name in ("plugin-drift", "permitted-list"):
            with pytest.raises(LabError, match="yet"):
                lab_vfio.control.fault(name)


class TestNodes:
    def test_after_a_restart_of_the_kubelet_nothing_is_allocatable_until_the_process_is_restarted(self, vgpu_lab):
        lab = vgpu_lab
        lab.control.fault("kubelet-restart", node="gpu-a")
        lab.advance(60)
        assert amounts(lab) == (0, 0)
        assert amounts(lab, "gpu-b") == (1, 1)
        assert lab.status(FIRST)["vGPUStatus"] == "vGPUConfigured"

        lab.control.fault("kubelet-restart", on=False, node="gpu-a")
        lab.advance(40)
        assert amounts(lab) == (2, 2)

    def test_on_a_node_that_is_not_ready_nothing_is_done(self, lab_vfio):
        lab = lab_vfio
        lab.control.fault("node-not-ready", node="gpu-a")
        assert (ready(lab, "gpu-a"), ready(lab, "gpu-b")) == ("Unknown", "True")
        taints = lab.read(f"{NODES}/gpu-a")["spec"]["taints"]
        assert {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}.items() <= taints[1].items()
        lab.write(f"{SRIOV_GPUS}/{GPU_A}", {"spec": {"enabled": True}})
        lab.advance(60)
        assert not lab.gpu(GPU_A).get("status")

        lab.control.fault("node-not-ready", on=False, node="gpu-a")
        lab.until(lambda: len(lab.vgpus(GPU_A)) == 16)
        assert ready(lab, "gpu-a") == "True"
        assert not lab.read(f"{NODES}/gpu-a")["spec"].get("taints")

    def test_a_node_that_is_removed_takes_its_devices_with_it(self, lab_vfio):
        lab = lab_vfio
        lab.control.fault("node-gone", node="gpu-b")
        lab.until(lambda: lab.find(f"{NODES}/gpu-b") is None)
        of_it = {"labelSelector": "nodename=gpu-b"}
        assert lab.items(SRIOV_GPUS, **of_it) == lab.items(PCI_DEVICES, **of_it) == []

        lab.control.fault("node-gone", on=False, node="gpu-b")
        lab.until(lambda: lab.find(f"{SRIOV_GPUS}/{GPU_B}"))
        assert ready(lab, "gpu-b") == "True"

    def test_a_node_with_an_enabled_card_stays_in_deletion(self, vgpu_lab):
        lab = vgpu_lab
        lab.control.fault("node-gone", node="gpu-b")
        lab.advance(60)
        assert "deletionTimestamp" in lab.read(f"{NODES}/gpu-b")["metadata"]
        assert lab.gpu(GPU_B)["spec"]["enabled"]
        assert lab.items(PCI_DEVICES, labelSelector="nodename=gpu-b") == []

    def test_the_pods_of_processes_that_are_down_are_not_ready(self, lab_vfio):
        lab = lab_vfio

        def pods_ready():
            pods = lab.items(HARVESTER_PODS, labelSelector="app.kubernetes.io/name=harvester-pcidevices-controller")
            return {pod["spec"]["nodeName"]: pod["status"]["containerStatuses"][0]["ready"] for pod in pods}

        lab.control.fault("process-down", node="gpu-a")
        lab.advance(5)
        assert pods_ready() == {"gpu-a": False, "gpu-b": True}
        lab.control.fault("process-down")
        lab.advance(5)
        assert pods_ready() == {"gpu-a": False, "gpu-b": False}
        lab.control.fault("process-down", on=False)
        lab.advance(10)
        assert pods_ready() == {"gpu-a": True, "gpu-b": True}


class TestWebhook:
    def test_a_slow_webhook_still_refuses(self, sriov_lab):
        sriov_lab.control.fault("webhook-slow", seconds=1)
        began = time.monotonic()
        assert bad_enable(sriov_lab).status == 500
        assert time.monotonic() - began >= 1
        sriov_lab.control.fault("webhook-slow", on=False)
        assert bad_enable(sriov_lab).status == 500


class TestAddonsAndDriver:
    def test_while_an_operation_does_not_end_the_addon_cannot_be_changed(self, lab_vfio):
        lab = lab_vfio
        lab.control.fault("addon-in-progress")
        lab.advance(120)
        assert state(lab) == "AddonUpdating"
        assert conditions(lab.read(TOOLKIT))["InProgress"] == "True"
        refused = lab.api.patch(TOOLKIT, {"spec": {"enabled": False}})
        assert "an existing operation is in progress on addon nvidia-driver-toolkit" in refused.message

        lab.control.fault("addon-in-progress", on=False)
        lab.until(lambda: state(lab) == "AddonDeploySuccessful", real=True)

    def test_fact_12_6_a_driver_that_does_not_fit_the_kernel_fails_after_a_while_and_leaves_the_gpu_empty(
        self, lab_vfio
    ):
        lab = lab_vfio
        lab.control.fault("driver-fails", node="gpu-a")
        lab.advance(30)
        assert driver_pods(lab)["gpu-a"] == (False, {})
        lab.advance(40)
        assert driver_pods(lab)["gpu-a"][1]["reason"] == "CrashLoopBackOff"
        assert driver_pods(lab)["gpu-b"] == (True, {})
        lab.write(f"{SRIOV_GPUS}/{GPU_A}", {"spec": {"enabled": True}})
        lab.advance(60)
        assert not lab.gpu(GPU_A).get("status")

        lab.control.fault("driver-fails", on=False, node="gpu-a")
        lab.until(lambda: len(lab.vgpus(GPU_A)) == 16, within=600)
        assert driver_pods(lab)["gpu-a"] == (True, {})


class TestTheSwitches:
    def test_the_status_tells_what_is_on_and_where(self, lab_vfio):
        lab_vfio.control.fault("webhook-slow")
        lab_vfio.control.fault("driver-missing", node="gpu-b")
        assert lab_vfio.control.status()["faults"] == {"webhook-slow": [], "driver-missing": ["gpu-b"]}
        lab_vfio.control.fault("driver-missing", on=False)
        lab_vfio.control.fault("webhook-slow", on=False)
        assert lab_vfio.control.status()["faults"] == {}

    @pytest.mark.parametrize(
        ("name", "options", "words"),
        [
            ("webhook-slow", {"node": "gpu-a"}, "does not take --node"),
            ("api-disconnect", {"on": False}, "cannot be switched off"),
            ("apiserver-restart", {"every": 2}, "does not take --every"),
            ("node-gone", {"node": "gpu-z"}, "no node 'gpu-z'"),
        ],
    )
    def test_a_mistake_is_told_and_changes_nothing(self, lab_vfio, name, options, words):
        with pytest.raises(LabError, match=words):
            lab_vfio.control.fault(name, **options)
        assert lab_vfio.control.status()["faults"] == {}


def test_a_vgpu_works_after_all_of_this(lab_vfio):
    """What the faults left is no fault of the lab."""
    lab_vfio.enable_gpus(GPU_A)
    switch(lab_vfio, FIRST, "NVIDIA A2-4Q")
    lab_vfio.until(lambda: lab_vfio.amounts("gpu-a").get(RESOURCE) == 1)
    assert lab_vfio.api.get(f"{VGPUS}/{FIRST}").body["status"]["vGPUStatus"] == "vGPUConfigured"
