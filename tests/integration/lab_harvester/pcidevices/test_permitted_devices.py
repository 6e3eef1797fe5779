"""KubeVirt's list of permitted devices, kept by the pcidevices controllers (harvester.md 1.1 and 9.5)."""

from __future__ import annotations

from tests.integration.api import KUBEVIRT


def test_fact_12_16_kubevirt_permits_no_vgpu_before_one_was_configured(life_of_a_vgpu):
    assert life_of_a_vgpu["split"].permitted == {}


def test_fact_12_16_a_configured_type_is_permitted_in_the_way_of_the_era(life_of_a_vgpu, era):
    resource = {"resourceName": "nvidia.com/NVIDIA_A2-4Q", "externalResourceProvider": True}
    if era == "vfio":
        expected = {"pciHostDevices": [{**resource, "pciVendorSelector": "10de:25b6"}]}
    else:
        expected = {"mediatedDevices": [{**resource, "mdevNameSelector": "NVIDIA A2-4Q"}]}
    assert life_of_a_vgpu["configured"].permitted == expected


def test_fact_3_3_the_entry_stays_for_ever(life_of_a_vgpu):
    assert life_of_a_vgpu["after"].permitted == life_of_a_vgpu["configured"].permitted


def test_fact_12_16_all_nodes_share_one_list(vgpu_lab):
    (entries,) = vgpu_lab.read(KUBEVIRT)["spec"]["configuration"]["permittedHostDevices"].values()
    # harvester.md 9.5: from 1.8 on an entry may be there twice.
    assert {entry["resourceName"] for entry in entries} == {"nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4A"}
