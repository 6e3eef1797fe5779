"""Names, labels, addresses and the order of lists (harvester.md 2.6, 2.7 and 3.1)."""

from __future__ import annotations

import pytest

from lab.harvester.names import resource_name
from tests.integration.api import PCI_DEVICES, SRIOV_GPUS

GPU = "gpu-a-000008000"
# virtfn0, virtfn1, virtfn10 ... virtfn15, virtfn2 ...: as sorted text.
FUNCTIONS = [
    *("0000:08:00.4", "0000:08:00.5"),
    *("0000:08:01.6", "0000:08:01.7", "0000:08:02.0", "0000:08:02.1", "0000:08:02.2", "0000:08:02.3"),
    *("0000:08:00.6", "0000:08:00.7", "0000:08:01.0", "0000:08:01.1", "0000:08:01.2", "0000:08:01.3"),
    *("0000:08:01.4", "0000:08:01.5"),
]


class TestCards:
    def test_fact_12_3_a_card_is_named_after_node_and_address(self, lab):
        gpus = lab.items(SRIOV_GPUS)
        assert [gpu["metadata"]["name"] for gpu in gpus] == ["gpu-a-000008000", "gpu-b-000008000"]
        assert gpus[0]["metadata"]["labels"] == {"nodename": "gpu-a"}
        assert gpus[0]["spec"] == {"address": "0000:08:00.0", "nodeName": "gpu-a", "enabled": False}
        assert "finalizers" not in gpus[0]["metadata"]

    def test_fact_12_3_functions_are_listed_in_the_order_of_their_names_as_text(self, sriov_lab):
        status = sriov_lab.gpu(GPU)["status"]
        assert status["vfAddresses"] == FUNCTIONS
        assert status["vGPUDevices"] == [f"gpu-a-{a.replace(':', '').replace('.', '')}" for a in FUNCTIONS]


class TestVgpus:
    def test_fact_12_3_a_vgpu_carries_node_and_parent_as_labels_and_no_finalizer(self, sriov_lab):
        vgpu = sriov_lab.vgpu("gpu-a-000008004")
        assert vgpu["metadata"]["labels"] == {"nodename": "gpu-a", "harvesterhci.io/parentSRIOVGPUDevice": GPU}
        assert "finalizers" not in vgpu["metadata"]
        assert vgpu["spec"] == {
            "address": "0000:08:00.4",
            "nodeName": "gpu-a",
            "parentGPUDeviceAddress": "0000:08:00.0",
            "enabled": False,
            "vGPUTypeName": "",
        }

    def test_fact_12_3_every_function_of_a_card_is_found_by_its_parent_label(self, sriov_lab):
        names = {vgpu["metadata"]["name"] for vgpu in sriov_lab.vgpus(GPU)}
        assert names == set(sriov_lab.gpu(GPU)["status"]["vGPUDevices"])
        assert len(names) == 16


class TestPciDevices:
    def test_fact_1_4_card_and_functions_are_pci_devices_with_generic_resource_names(self, sriov_lab):
        devices = {device["metadata"]["name"]: device for device in sriov_lab.items(PCI_DEVICES)}
        assert len(devices) == 1 + 16 + 1
        status = devices["gpu-a-000008004"]["status"]
        assert (status["vendorId"], status["deviceId"], status["nodeName"]) == ("10de", "25b6", "gpu-a")
        assert status["resourceName"] == devices[GPU]["status"]["resourceName"] == "nvidia.com/GA107GL_A2___A16"
        assert devices[GPU]["metadata"]["labels"] == {"nodename": "gpu-a"}

    def test_fact_1_6_functions_are_labelled_with_their_parent_from_1_8_on(self, sriov_lab):
        labels = sriov_lab.read(f"{PCI_DEVICES}/gpu-a-000008004")["metadata"]["labels"]
        assert labels.get("harvesterhci.io/parentSRIOVGPUDevice") == (GPU if sriov_lab.vfio else None)


class TestNodes:
    def test_fact_4_4_17_core_nodes_carry_harvesters_finalizer(self, lab):
        assert lab.read("/api/v1/nodes/gpu-a")["metadata"]["finalizers"] == ["wrangler.cattle.io/node-remove"]


@pytest.mark.parametrize(
    ("type_name", "resource"),
    [
        ("NVIDIA A2-2Q", "nvidia.com/NVIDIA_A2-2Q"),
        ("GRID A100-4C", "nvidia.com/GRID_A100-4C"),
        ("NVIDIA A30-1-6CME", "nvidia.com/NVIDIA_A30-1-6CME"),
        ("NVIDIA RTX5000-Ada-2Q", "nvidia.com/NVIDIA_RTX5000-Ada-2Q"),
        ("NVIDIA RTX Pro 6000 Blackwell DC-2-48Q", "nvidia.com/NVIDIA_RTX_Pro_6000_Blackwell_DC-2-48Q"),
        ("  NVIDIA  L40S-8Q \n", "nvidia.com/NVIDIA_L40S-8Q"),
        ("NVIDIA X/Y.Z-1Q", "nvidia.com/NVIDIA_X_Y_Z-1Q"),
        ("NVIDIA A2-4Q(b)+", "nvidia.com/NVIDIA_A2-4Q(b)+"),
        ("", "nvidia.com/"),
    ],
)
def test_fact_2_a_resource_is_named_after_its_type(type_name, resource):
    assert resource_name(type_name) == resource


def test_fact_2_old_versions_upper_case_the_whole_name():
    assert resource_name("NVIDIA RTX5000-Ada-2Q", upper_case=True) == "nvidia.com/NVIDIA_RTX5000-ADA-2Q"
