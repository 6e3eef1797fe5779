"""Which types a vGPU may become, and how it says so (harvester.md 7.1, nvidia.md 4.3)."""

from __future__ import annotations

import uuid

from tests.integration.lab_harvester.stories import FIRST, SECOND

# nvidia.md 4.3: the type ids of an A2.
A2_TYPES = (
    {"1A": 749, "2A": 750, "4A": 751, "8A": 752, "16A": 753, "1B": 742, "2B": 743}
    | {"4C": 754, "8C": 755, "16C": 756}
    | {"1Q": 744, "2Q": 745, "4Q": 746, "8Q": 747, "16Q": 748}
)
OTHER = "gpu-a-000008006"


class TestFreeCard:
    def test_fact_12_7_every_function_offers_every_type_with_the_ids_of_its_era(self, sriov_lab):
        prefix = "" if sriov_lab.vfio else "nvidia-"
        offered = {f"NVIDIA A2-{suffix}": f"{prefix}{number}" for suffix, number in A2_TYPES.items()}
        for vgpu in sriov_lab.vgpus("gpu-a-000008000"):
            assert vgpu["status"] == {"availableTypes": offered}


class TestSizes:
    def test_fact_12_7_the_first_vgpu_fixes_the_size_but_not_the_series(self, card_filled):
        assert card_filled["half"].types(OTHER) == {"8A", "8C", "8Q"}

    def test_fact_12_7_a_full_card_offers_nothing(self, card_filled):
        full = card_filled["full"]
        assert full.status(OTHER) == {}
        assert full.status(SECOND)["configureVGPUTypeName"] == "NVIDIA A2-8C"

    def test_fact_12_7_a_configured_vgpu_offers_nothing_itself(self, card_filled):
        assert card_filled["half"].types(FIRST) == set()

    def test_fact_12_7_what_is_given_back_is_offered_again(self, card_filled):
        assert card_filled["half again"].types(OTHER) == card_filled["half again"].types(FIRST) == {"8A", "8C", "8Q"}
        assert card_filled["empty again"].types(OTHER) == set(A2_TYPES)

    def test_fact_12_7_the_hardware_holds_what_the_status_says(self, card_filled):
        assert card_filled["full"].type_ids("gpu-a") == {"0000:08:00.4": "747", "0000:08:00.5": "755"}
        assert card_filled["empty again"].type_ids("gpu-a") == {}


class TestIdentity:
    def test_fact_12_7_the_uuid_is_unique_up_to_1_7_and_the_type_id_from_1_8_on(self, vgpu_lab):
        found = [vgpu_lab.status(name)["uuid"] for name in (FIRST, SECOND)]
        if vgpu_lab.vfio:
            assert found == ["746", "746"]
        else:
            assert len({uuid.UUID(text) for text in found}) == 2
