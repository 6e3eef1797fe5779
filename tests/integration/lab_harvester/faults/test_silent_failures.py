"""Faults whose only trace is that nothing happens (harvester.md 4.5 and 5.3)."""

from __future__ import annotations

import yaml

from tests.integration.api import ADDONS, HARVESTER_PODS, SRIOV_GPUS, VGPUS
from tests.integration.lab_harvester.beginnings import GPU_A, GPU_B
from tests.integration.lab_harvester.stories import FIRST, SECOND, switch

TOOLKIT = f"{ADDONS}/nvidia-driver-toolkit"
FREE = "gpu-a-000008006"
DRIVER_NEEDED = "sriovgpu.harvesterhci.io/driver-needed"


def driver_pods(lab):
    """By node: whether the driver pod is ready, and what its container waits for."""
    found = {}
    for pod in lab.items(HARVESTER_PODS, labelSelector="app=nvidia-driver-daemonset"):
        (container,) = pod["status"].get("containerStatuses") or [{"ready": False, "state": {}}]
        found[pod["spec"].get("nodeName", "")] = (container["ready"], container["state"].get("waiting") or {})
    return found


def crashing(lab, message):
    return [node for node, (_, waiting) in driver_pods(lab).items() if message in waiting.get("message", "")]


def state(lab):
    return lab.read(TOOLKIT)["status"]["status"]


def bad_enable(lab):
    lab.control.settle()
    return lab.api.patch(f"{VGPUS}/{FREE}", {"spec": {"enabled": True, "vGPUTypeName": "nonsense"}}, dryRun="All")


class TestDriver:
    def test_fact_12_6_without_a_driver_an_enabled_gpu_stays_empty_and_nothing_says_why(self, lab):
        lab.control.fault("driver-missing", node="gpu-a")
        lab.advance(5)
        ready, waiting = driver_pods(lab)["gpu-a"]
        assert (ready, waiting["reason"]) == (False, "CrashLoopBackOff")
        assert driver_pods(lab)["gpu-b"] == (True, {})

        for gpu in (GPU_A, GPU_B):
            lab.write(f"{SRIOV_GPUS}/{gpu}", {"spec": {"enabled": True}})
        lab.advance(290)
        assert lab.gpu(GPU_A)["spec"]["enabled"]
        assert not lab.gpu(GPU_A).get("status")
        assert lab.vgpus(GPU_A) == []
        assert len(lab.vgpus(GPU_B)) == 16
        assert lab.items("/api/v1/namespaces/default/events") == []

        lab.control.fault("driver-missing", on=False, node="gpu-a")
        lab.until(lambda: len(lab.vgpus(GPU_A)) == 16, within=400)
        lab.disable_gpus(GPU_A, GPU_B)

    def test_fact_5_with_the_placeholder_in_its_location_the_addon_is_deployed_and_no_driver_runs(self, lab):
        lab.control.fault("httpendpoint")
        lab.until(lambda: set(crashing(lab, "Could not resolve host: HTTPENDPOINT")) == {"gpu-a", "gpu-b"}, real=True)
        lab.until(lambda: state(lab) == "AddonDeploySuccessful")
        values = yaml.safe_load(lab.read(TOOLKIT)["spec"]["valuesContent"])
        assert values["driverLocation"].startswith("HTTPENDPOINT/")

        lab.write(f"{SRIOV_GPUS}/{GPU_A}", {"spec": {"enabled": True}})
        lab.advance(60)
        assert not lab.gpu(GPU_A).get("status")

        lab.control.fault("httpendpoint", on=False)
        lab.until(lambda: len(lab.vgpus(GPU_A)) == 16, within=600, real=True)


class TestWebhookDown:
    def test_fact_3_the_webhooks_are_registered_to_be_ignored_when_they_do_not_answer(self, lab):
        for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            configurations = lab.items(f"/apis/admissionregistration.k8s.io/v1/{kind}")
            hooks = [hook for configuration in configurations for hook in configuration["webhooks"]]
            policies = {hook["failurePolicy"] for hook in hooks if hook["name"] == "pcidevices.harvesterhci.io"}
            assert policies == {"Ignore"}

    def test_fact_12_8_while_the_webhook_is_down_no_rule_applies(self, sriov_lab):
        assert bad_enable(sriov_lab).status == 500
        sriov_lab.control.fault("webhook-down")
        assert bad_enable(sriov_lab).status == 200
        sriov_lab.control.fault("webhook-down", on=False)
        assert bad_enable(sriov_lab).status == 500


class TestProcessDown:
    def test_fact_3_any_process_answers_for_all_so_one_alone_still_refuses(self, sriov_lab):
        sriov_lab.control.fault("process-down", node="gpu-a")
        assert bad_enable(sriov_lab).status == 500
        sriov_lab.control.fault("process-down")
        assert bad_enable(sriov_lab).status == 200

    def test_fact_4_4_9_after_a_restart_what_fits_is_applied_and_what_does_not_loops_in_silence(self, sriov_lab):
        lab = sriov_lab
        lab.control.fault("process-down")
        switch(lab, FIRST, "nonsense")
        switch(lab, SECOND, "NVIDIA A2-4Q")
        lab.control.fault("process-down", on=False)
        lab.until(lambda: lab.status(SECOND).get("configureVGPUTypeName"), within=60)
        lab.advance(60)
        assert "vGPUStatus" not in lab.status(FIRST)

        lab.write(f"{VGPUS}/{FIRST}", {"spec": {"vGPUTypeName": "NVIDIA A2-4Q"}})
        lab.until(lambda: lab.status(FIRST).get("configureVGPUTypeName"), within=30)


class TestScanErrors:
    def test_fact_4_4_10_a_vgpu_without_its_node_label_stops_the_whole_scan(self, sriov_lab):
        lab = sriov_lab
        lab.write(f"{VGPUS}/{FIRST}", {"metadata": {"labels": {"nodename": None}}})
        assert lab.api.delete(f"{VGPUS}/{SECOND}").status == 200
        lab.advance(90)
        missing = lab.find(f"{VGPUS}/{SECOND}")
        lab.write(f"{VGPUS}/{FIRST}", {"metadata": {"labels": {"nodename": "gpu-a"}}})
        lab.until(lambda: lab.find(f"{VGPUS}/{SECOND}"), within=330)
        assert missing is None

    def test_fact_4_4_10_the_label_of_the_node_comes_back_with_a_scan(self, lab):
        lab.write("/api/v1/nodes/gpu-a", {"metadata": {"labels": {DRIVER_NEEDED: None}}})
        lab.until(lambda: DRIVER_NEEDED in lab.read("/api/v1/nodes/gpu-a")["metadata"]["labels"], within=40)
