"""Which kinds the API serves, and when (harvester.md 1.2 and 2.1)."""

from __future__ import annotations

import pytest

from tests.integration.api import ADDONS, DEFINITIONS, DEVICES, MIG_CONFIGURATIONS, SETTINGS, SRIOV_GPUS, VGPUS

GROUP = "devices.harvesterhci.io"
COLUMNS = {
    "sriovgpudevices": ["Address", "Node Name", "Enabled", "VGPUDevices"],
    "vgpudevices": ["Address", "Node Name", "Enabled", "UUID", "VGPUType", "ParentGPUDevice"],
    "pcidevices": ["Address", "Vendor Id", "Device Id", "Node Name", "Description", "Kernel Driver In Use"],
    "migconfigurations": ["Node Name", "Address", "Enabled", "Status"],
}


def definition(lab, plural):
    return lab.read(f"{DEFINITIONS}/{plural}.{GROUP}")


def device_definitions(lab):
    return {thing["spec"]["names"]["plural"] for thing in lab.items(DEFINITIONS) if thing["spec"]["group"] == GROUP}


class TestServerVersion:
    def test_fact_12_1_the_setting_names_the_version_and_with_it_the_era(self, lab):
        assert lab.read(f"{SETTINGS}/server-version")["value"] == ("v1.8.1" if lab.vfio else "v1.7.1")


class TestDeviceKinds:
    @pytest.mark.parametrize("plural", COLUMNS)
    def test_fact_1_devices_belong_to_no_namespace_and_have_a_status_subresource(self, lab, plural):
        spec = definition(lab, plural)["spec"]
        (served,) = spec["versions"]
        assert (spec["scope"], served["name"], served["storage"]) == ("Cluster", "v1beta1", True)
        assert served["subresources"] == {"status": {}}

    @pytest.mark.parametrize(("plural", "columns"), COLUMNS.items())
    def test_fact_1_kubectl_shows_the_columns_of_the_real_definitions(self, lab, plural, columns):
        (served,) = definition(lab, plural)["spec"]["versions"]
        assert [column["name"] for column in served["additionalPrinterColumns"]] == columns

    def test_fact_1_the_group_has_a_kind_node_of_its_own_without_a_status(self, lab):
        (served,) = definition(lab, "nodes")["spec"]["versions"]
        assert "subresources" not in served
        assert {node["metadata"]["name"] for node in lab.items(f"{DEVICES}/nodes")} == {"gpu-a", "gpu-b"}

    def test_fact_1_2_the_status_lacks_the_d_of_configured(self, lab):
        (served,) = definition(lab, "vgpudevices")["spec"]["versions"]
        status = served["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        assert set(status) == {"vGPUStatus", "uuid", "configureVGPUTypeName", "availableTypes"}


class TestAbsence:
    """On a fresh installation no addon has run yet."""

    def test_fact_12_2_before_the_addon_has_run_the_device_kinds_are_unknown(self, labs):
        lab = labs("vfio").begin(scenario="bare")
        assert device_definitions(lab) == set()
        for collection in (SRIOV_GPUS, VGPUS):
            assert lab.api.get(collection).status == 404
        assert not lab.read(f"{ADDONS}/pcidevices-controller")["spec"]["enabled"]

    @pytest.mark.parametrize(("era", "version", "mig"), [("vfio", "1.8", True), ("mdev", "1.4", False)])
    def test_fact_12_2_enabling_the_addon_brings_them_and_mig_only_from_1_7_on(self, labs, era, version, mig):
        lab = labs(era).begin(scenario="bare", version=version)
        lab.write(f"{ADDONS}/pcidevices-controller", {"spec": {"enabled": True}})
        lab.until(lambda: device_definitions(lab))
        lab.until(lambda: len(lab.items(SRIOV_GPUS)) == 2)
        assert ("migconfigurations" in device_definitions(lab)) is mig
        assert lab.api.get(MIG_CONFIGURATIONS).status == (200 if mig else 404)
        assert lab.read(f"{SETTINGS}/server-version")["value"].startswith(f"v{version}.")
