"""The shipped scenarios, and the awkward cases in `mixed` (harvester.md 2.6, nvidia.md 4.1 and 4.2)."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.integration.api import HARVESTER_PODS, NODES, PCI_DEVICES, SRIOV_GPUS
from tests.integration.lab_harvester.beginnings import GPU_A

DRIVER_NEEDED = "sriovgpu.harvesterhci.io/driver-needed"
DOTTED, OTHER_DOMAIN, QUARTER = "node2.dc1.example-0000ae000", "node2.dc1.example-000104000", "dense-3-000018000"


def three_cards_split(lab):
    lab.enable_gpus(DOTTED, OTHER_DOMAIN, QUARTER)
    lab.enable_vgpus({"node2.dc1.example-0000ae004": "NVIDIA L40S-48Q"})


@pytest.fixture
def mixed(labs, era):
    return labs(era).begin(scenario="mixed", arranged=three_cards_split)


class TestDefault:
    def test_two_nodes_with_one_a2_each(self, lab):
        assert {gpu["spec"]["nodeName"]: gpu["spec"]["address"] for gpu in lab.items(SRIOV_GPUS)} == {
            "gpu-a": "0000:08:00.0",
            "gpu-b": "0000:08:00.0",
        }
        assert lab.control.hardware("gpu-a")["0000:08:00.0"]["board"] == "A2"

    def test_its_nodes_are_ready_and_can_be_scheduled_on(self, lab):
        for node in lab.items(NODES):
            assert not node["spec"].get("taints")
            assert {condition["type"]: condition["status"] for condition in node["status"]["conditions"]}[
                "Ready"
            ] == "True"
            assert node["metadata"]["labels"]["kubevirt.io/schedulable"] == "true"


class TestMixed:
    def test_fact_12_17_cards_of_three_models_on_three_nodes(self, mixed):
        gpus = Counter(gpu["spec"]["nodeName"] for gpu in mixed.items(SRIOV_GPUS))
        assert gpus == {"small-1": 1, "node2.dc1.example": 2, "dense-3": 4}

    def test_fact_1_5_dots_of_a_node_stay_in_the_name_and_so_does_the_pci_domain(self, mixed):
        names = {gpu["metadata"]["name"] for gpu in mixed.items(SRIOV_GPUS)}
        assert {DOTTED, OTHER_DOMAIN} <= names
        assert mixed.gpu(OTHER_DOMAIN)["spec"]["address"] == "0001:04:00.0"

    def test_fact_11_an_l40s_has_32_functions_up_to_04_3(self, mixed):
        addresses = mixed.gpu(DOTTED)["status"]["vfAddresses"]
        assert len(addresses) == len(mixed.vgpus(DOTTED)) == 32
        assert (min(addresses), max(addresses)) == ("0000:ae:00.4", "0000:ae:04.3")
        assert addresses[:3] == ["0000:ae:00.4", "0000:ae:00.5", "0000:ae:01.6"]

    def test_fact_11_functions_share_the_domain_of_their_card(self, mixed):
        names = {vgpu["metadata"]["name"] for vgpu in mixed.vgpus(OTHER_DOMAIN)}
        assert "node2.dc1.example-000104004" in names
        assert "node2.dc1.example-000104043" in names

    def test_fact_11_each_board_offers_its_own_types(self, mixed):
        assert "NVIDIA L40S-24Q" in mixed.types("node2.dc1.example-000104004")
        assert "NVIDIA A16-4Q" in mixed.types("dense-3-000018004")
        prefix = "" if mixed.vfio else "nvidia-"
        types = mixed.status("node2.dc1.example-000104004")["availableTypes"]
        assert types["NVIDIA L40S-2Q"] == f"{prefix}1148"

    def test_fact_12_7_a_full_card_leaves_its_neighbour_alone(self, mixed):
        assert mixed.types("node2.dc1.example-0000ae005") == set()
        assert "NVIDIA L40S-48Q" in mixed.types("node2.dc1.example-000104005")
        assert mixed.amounts("node2.dc1.example") == {"nvidia.com/NVIDIA_L40S-48Q": 1}

    def test_fact_11_the_quarters_of_an_a16_are_cards_of_their_own(self, mixed):
        assert len(mixed.vgpus(QUARTER)) == 16
        assert mixed.vgpus("dense-3-000017000") == []

    def test_fact_9_a_t4_is_a_pci_device_and_never_an_sriov_gpu(self, mixed):
        assert mixed.find(f"{PCI_DEVICES}/old-4-00003b000")
        assert mixed.find(f"{SRIOV_GPUS}/old-4-00003b000") is None

    def test_fact_1_6_a_node_without_sriov_needs_no_driver(self, mixed):
        labelled = {n["metadata"]["name"] for n in mixed.items(NODES) if DRIVER_NEEDED in n["metadata"]["labels"]}
        assert labelled == {"small-1", "node2.dc1.example", "dense-3"}
        pods = mixed.items(HARVESTER_PODS, labelSelector="app=nvidia-driver-daemonset")
        assert {pod["spec"]["nodeName"] for pod in pods} == labelled


class TestOwnFile:
    def test_a_scenario_may_start_with_sriov_on(self, labs, tmp_path):
        file = tmp_path / "split.yaml"
        file.write_text('nodes: [{name: gpu-a, gpus: [{address: "0000:08:00.0", board: A2, sriov: true}]}]\n')
        lab = labs("vfio").begin(scenario=str(file))
        assert lab.gpu(GPU_A)["spec"]["enabled"]
        assert len(lab.vgpus(GPU_A)) == 16
