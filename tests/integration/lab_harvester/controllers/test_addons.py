"""Addons: operations that take time, what is refused meanwhile, and their workloads (harvester.md 10.8 and 11)."""

from __future__ import annotations

import pytest
import yaml

from tests.integration.api import ADDONS, DAEMON_SETS, HARVESTER_PODS, VGPUS
from tests.integration.history import sequences
from tests.integration.lab_harvester.beginnings import FROM_1_8_ON, UP_TO_1_7
from tests.integration.lab_harvester.machines import A2_4Q, device

PCIDEVICES, TOOLKIT = f"{ADDONS}/pcidevices-controller", f"{ADDONS}/nvidia-driver-toolkit"
DRIVER_NEEDED = "sriovgpu.harvesterhci.io/driver-needed"


def conditions(addon):
    return {condition["type"]: condition["status"] for condition in (addon.get("status") or {}).get("conditions") or []}


def state(addon):
    return (addon.get("status") or {}).get("status", ""), conditions(addon).get("InProgress")


def tried(lab, path, spec):
    return lab.api.patch(path, {"spec": spec}, dryRun="All")


def ready_driver_pods(lab):
    pods = lab.items(HARVESTER_PODS, labelSelector="app=nvidia-driver-daemonset")
    return {
        pod["spec"]["nodeName"]
        for pod in pods
        if any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in pod["status"].get("conditions") or []
        )
    }


class TestDeployed:
    @pytest.mark.parametrize(
        ("path", "chart", "daemon_set"),
        [
            (PCIDEVICES, "harvester-pcidevices-controller", "harvester-pcidevices-controller"),
            (TOOLKIT, "nvidia-driver-runtime", "nvidia-driver-runtime"),
        ],
    )
    def test_fact_5_an_addon_that_is_on_has_a_finished_operation_and_a_daemon_set(self, lab, path, chart, daemon_set):
        addon = lab.read(path)
        assert addon["spec"]["chart"] == chart
        assert state(addon) == ("AddonDeploySuccessful", "False")
        assert conditions(addon)["Completed"] == "True"
        assert lab.find(f"{DAEMON_SETS}/{daemon_set}")

    def test_fact_5_the_driver_runs_on_each_node_that_needs_it(self, lab):
        for node in ("gpu-a", "gpu-b"):
            assert lab.read(f"/api/v1/nodes/{node}")["metadata"]["labels"][DRIVER_NEEDED] == "true"
        assert ready_driver_pods(lab) == {"gpu-a", "gpu-b"}

    def test_fact_5_the_values_are_text_that_holds_yaml(self, lab):
        values = yaml.safe_load(lab.read(TOOLKIT)["spec"]["valuesContent"])
        assert values["fullnameOverride"] == "nvidia-driver-runtime"
        assert values["driverLocation"].endswith(".run")
        assert {"repo", "tag"} == set(values["image"])

    def test_fact_10_addons_are_those_of_the_version(self, lab):
        version, series = ("1.8.1", "v1.8-") if lab.vfio else ("1.7.1", "v1.7-")
        addons = [lab.read(path)["spec"] for path in (PCIDEVICES, TOOLKIT)]
        assert [addon["version"] for addon in addons] == [version, version]
        tags = [yaml.safe_load(addon["valuesContent"])["image"]["tag"] for addon in addons]
        assert tags[0] == f"v{version}"
        assert tags[1].startswith(series)


class TestRefusals:
    def test_fact_4_3_the_chart_cannot_be_changed(self, lab):
        answer = tried(lab, TOOLKIT, {"chart": "another"})
        assert answer.status >= 400
        assert "chart field cannot be changed." in answer.message

    def test_fact_4_3_there_is_one_addon_per_chart(self, lab):
        addon = lab.read(TOOLKIT)
        body = {**addon, "metadata": {"name": "second", "namespace": "harvester-system"}}
        answer = lab.api.post(ADDONS, body, dryRun="All")
        assert answer.status >= 400
        assert "has been created, cannot create a new one" in answer.message

    def test_fact_4_3_an_addon_is_not_deleted_unless_it_is_experimental(self, lab):
        answer = lab.api.delete(PCIDEVICES, dryRun="All")
        assert answer.status >= 400
        assert "addon cannot be deleted" in answer.message

    def test_fact_5_all_fields_of_the_spec_are_required(self, lab):
        answer = tried(lab, TOOLKIT, {"valuesContent": None})
        assert (answer.status, answer.reason) == (422, "Invalid")


class TestGuards:
    """From 1.8 on an addon stays while VMs use what it brings; it looks at names only."""

    @FROM_1_8_ON
    @pytest.mark.parametrize(("path", "kind"), [(TOOLKIT, "vGPU"), (PCIDEVICES, "passthrough")])
    def test_fact_4_3_it_cannot_be_disabled_while_a_vm_names_a_device(self, vgpu_lab, stored_vm, path, kind):
        name = path.rpartition("/")[2]
        with stored_vm(vgpu_lab, "user", host_devices=[device("gpu-a-000008004")]):
            answer = tried(vgpu_lab, path, {"enabled": False})
        assert answer.status >= 400
        assert f"{name} addon cannot be disabled as the following VMs are using {kind} devices" in answer.message
        assert "default/user" in answer.message

    @FROM_1_8_ON
    def test_fact_4_3_a_device_under_a_free_name_escapes(self, vgpu_lab, stored_vm):
        with stored_vm(vgpu_lab, "user", host_devices=[device("provisioned")]):
            assert tried(vgpu_lab, TOOLKIT, {"enabled": False}).status == 200

    @FROM_1_8_ON
    def test_fact_1_6_an_annotation_skips_the_check(self, vgpu_lab, stored_vm):
        skip = {"harvesterhci.io/skipNvidiaDriverToolkitAddonWebhookCheck": "true"}
        body = {"metadata": {"annotations": skip}, "spec": {"enabled": False}}
        with stored_vm(vgpu_lab, "user", host_devices=[device("gpu-a-000008004")]):
            assert vgpu_lab.api.patch(TOOLKIT, body, dryRun="All").status == 200

    @UP_TO_1_7
    def test_fact_10_up_to_1_7_nobody_asks(self, vgpu_lab, stored_vm):
        with stored_vm(vgpu_lab, "user", gpus=[device("gpu-a-000008004", A2_4Q)]):
            assert tried(vgpu_lab, TOOLKIT, {"enabled": False}).status == 200


class TestOperations:
    def test_fact_12_13_off_on_again_with_another_driver_and_back(self, lab):
        since, original = lab.point(), lab.read(TOOLKIT)["spec"]["valuesContent"]
        lab.write(TOOLKIT, {"spec": {"enabled": False}})
        lab.advance(1)
        assert state(lab.read(TOOLKIT)) == ("AddonDisabling", "True")
        refused = tried(lab, TOOLKIT, {"enabled": True})
        assert refused.status >= 400
        assert (
            "cannot perform operation, as an existing operation is in progress on addon nvidia-driver-toolkit"
            in refused.message
        )
        lab.until(lambda: state(lab.read(TOOLKIT)) == ("AddonDisabled", "False"))
        lab.until(lambda: not lab.items(HARVESTER_PODS, labelSelector="app=nvidia-driver-daemonset"), real=True)
        assert lab.find(f"{DAEMON_SETS}/nvidia-driver-runtime") is None

        values = yaml.safe_load(original)
        content = yaml.safe_dump({**values, "driverLocation": "http://files.example/other.run"})
        lab.write(TOOLKIT, {"spec": {"enabled": True, "valuesContent": content}})
        lab.until(lambda: state(lab.read(TOOLKIT)) == ("AddonDeploySuccessful", "False"))
        # Deployed means that Helm has finished, not that a driver was built.
        assert ready_driver_pods(lab) == set()
        lab.until(lambda: ready_driver_pods(lab) == {"gpu-a", "gpu-b"}, real=True)

        lab.write(TOOLKIT, {"spec": {"valuesContent": original}})
        lab.advance(1)
        assert state(lab.read(TOOLKIT)) == ("AddonUpdating", "True")
        lab.until(lambda: state(lab.read(TOOLKIT)) == ("AddonDeploySuccessful", "False"))

        changes = [change for change in lab.changes(since, ADDONS) if change.name == "nvidia-driver-toolkit"]
        (states,) = sequences(changes, lambda change: state(change.object)[0]).values()
        assert states == [
            "AddonDeploySuccessful",
            "AddonDisabling",
            "AddonDisabled",
            "AddonEnabling",
            "AddonDeploySuccessful",
            "AddonUpdating",
            "AddonDeploySuccessful",
        ]

    def test_fact_5_a_failed_operation_stays_until_the_addon_is_disabled(self, labs):
        lab = labs("vfio").begin(scenario="bare")
        lab.control.fault("addon-fails")
        lab.write(TOOLKIT, {"spec": {"enabled": True}})
        lab.until(lambda: conditions(lab.read(TOOLKIT)).get("OperationFailed") == "True")
        lab.advance(60)
        assert state(lab.read(TOOLKIT)) == ("AddonEnabling", "False")
        lab.write(TOOLKIT, {"spec": {"enabled": False}})
        lab.until(lambda: state(lab.read(TOOLKIT)) == ("AddonDisabled", "False"))

    def test_fact_5_without_pcidevices_no_node_asks_for_a_driver(self, labs):
        lab = labs("vfio").begin(scenario="bare")
        content = yaml.safe_dump({"driverLocation": "http://files.example/NVIDIA.run"})
        lab.write(TOOLKIT, {"spec": {"enabled": True, "valuesContent": content}})
        lab.until(lambda: state(lab.read(TOOLKIT)) == ("AddonDeploySuccessful", "False"))
        lab.advance(30)
        assert lab.items(HARVESTER_PODS, labelSelector="app=nvidia-driver-daemonset") == []

        lab.write(PCIDEVICES, {"spec": {"enabled": True}})
        lab.until(lambda: ready_driver_pods(lab) == {"gpu-a", "gpu-b"}, real=True)

    def test_pcidevices_switched_off_leaves_its_objects_and_no_rule(self, labs):
        lab = labs("vfio").begin()
        lab.enable_gpus("gpu-a-000008000")
        lab.write(PCIDEVICES, {"spec": {"enabled": False}})
        lab.until(lambda: state(lab.read(PCIDEVICES)) == ("AddonDisabled", "False"))
        assert len(lab.items(VGPUS)) == 16
        body = {"spec": {"enabled": True, "vGPUTypeName": "nonsense"}}
        assert lab.api.patch(f"{VGPUS}/gpu-a-000008004", body, dryRun="All").status == 200
