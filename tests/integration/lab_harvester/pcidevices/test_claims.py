"""PCIDevice and PCIDeviceClaim, the side objects of a vGPU from 1.8 on (harvester.md 2.5 and 6.2)."""

from __future__ import annotations

from tests.integration.api import CLAIMS, VGPUS
from tests.integration.lab_harvester.beginnings import FROM_1_8_ON, UP_TO_1_7
from tests.integration.lab_harvester.machines import A2_4Q
from tests.integration.lab_harvester.stories import FIRST, switch

OVERRIDE = "pcidevice.harvesterhci.io/override-resource-name"
PARENT = "harvesterhci.io/parentSRIOVGPUDevice"


@UP_TO_1_7
def test_fact_12_11_up_to_1_7_a_vgpu_has_no_claim_and_its_function_keeps_its_generic_name(life_of_a_vgpu):
    configured = life_of_a_vgpu["configured"]
    assert configured.claims == {}
    assert configured.pci_devices[FIRST]["status"]["resourceName"] == "nvidia.com/GA107GL_A2___A16"


@FROM_1_8_ON
class TestFrom18On:
    def test_fact_12_11_a_claim_names_its_owners_its_resource_and_always_the_user_admin(self, life_of_a_vgpu):
        configured = life_of_a_vgpu["configured"]
        claim = configured.claims[FIRST]
        metadata = claim["metadata"]
        assert claim["spec"] == {"address": "0000:08:00.4", "nodeName": "gpu-a", "userName": "admin"}
        assert claim["status"]["passthroughEnabled"] is True
        assert metadata["labels"] == {PARENT: "gpu-a-000008000"}
        assert metadata["annotations"] == {
            OVERRIDE: A2_4Q,
            "pcidevices.harvesterhci.io/skip-vfio-binding": "true",
        }
        assert metadata["finalizers"] == ["wrangler.cattle.io/PCIDeviceClaimOnRemove"]
        owners = [(owner["kind"], owner["name"], owner["uid"]) for owner in metadata["ownerReferences"]]
        assert owners == [
            ("PCIDevice", FIRST, configured.pci_devices[FIRST]["metadata"]["uid"]),
            ("VGPUDevice", FIRST, configured.vgpus[FIRST]["metadata"]["uid"]),
        ]

    def test_fact_12_11_the_function_takes_the_name_of_the_type(self, life_of_a_vgpu):
        device = life_of_a_vgpu["configured"].pci_devices[FIRST]
        assert device["status"]["resourceName"] == A2_4Q
        assert device["metadata"]["annotations"][OVERRIDE] == A2_4Q
        assert device["metadata"]["labels"][PARENT] == "gpu-a-000008000"

    def test_fact_3_3_v4_disabling_takes_it_all_back(self, life_of_a_vgpu):
        device = life_of_a_vgpu["after"].pci_devices[FIRST]
        assert OVERRIDE not in device["metadata"]["annotations"]
        assert PARENT not in device["metadata"]["labels"]
        assert life_of_a_vgpu["after"].claims == {}

    def test_the_function_gets_its_generic_name_back_with_the_next_scan(self, life_of_a_vgpu):
        device = life_of_a_vgpu["scanned"].pci_devices[FIRST]
        assert device["status"]["resourceName"] == "nvidia.com/GA107GL_A2___A16"

    def test_fact_4_4_6_enabled_again_too_early_the_claim_vanishes_under_the_vgpu(self, vgpu_lab):
        lab, only = vgpu_lab, "gpu-b-000008005"
        switch(lab, only, None)
        lab.until(lambda: "NVIDIA A2-4A" in lab.types(only))
        assert "deletionTimestamp" in lab.read(f"{CLAIMS}/{only}")["metadata"]
        switch(lab, only, "NVIDIA A2-4A")
        lab.advance(25)
        assert lab.vgpu(only)["status"]["vGPUStatus"] == "vGPUConfigured"
        assert lab.claim(only) is None
        assert lab.amounts("gpu-b")["nvidia.com/NVIDIA_A2-4A"] == 0

    def test_fact_1_6_a_vgpu_that_is_deleted_comes_back_disabled_and_without_its_claim(self, vgpu_lab):
        """harvester.md 6.8."""
        lab = vgpu_lab
        assert lab.api.delete(f"{VGPUS}/{FIRST}").status == 200
        lab.until(lambda: lab.find(f"{VGPUS}/{FIRST}"))
        assert lab.vgpu(FIRST)["spec"]["enabled"] is False
        lab.until(lambda: lab.claim(FIRST) is None)
        lab.until(lambda: lab.types(FIRST))
        assert "0000:08:00.4" not in {
            address for address, held in lab.control.hardware("gpu-a")["0000:08:00.0"]["vfs"].items() if held
        }
