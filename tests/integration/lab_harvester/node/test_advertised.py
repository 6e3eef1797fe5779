"""What a node advertises: capacity and allocatable as a device plugin makes them (harvester.md 9.1 and 9.2)."""

from __future__ import annotations

from tests.integration.lab_harvester.beginnings import FROM_1_8_ON, UP_TO_1_7
from tests.integration.lab_harvester.machines import A2_4A, A2_4Q


class TestAppearing:
    def test_fact_12_10_nothing_is_advertised_until_a_vgpu_has_a_type(self, life_of_a_vgpu):
        assert life_of_a_vgpu["split"].allocatable("gpu-a") == {}

    def test_fact_12_10_each_type_is_a_resource_of_its_own_on_its_node(self, vgpu_lab):
        assert vgpu_lab.amounts("gpu-a") == {A2_4Q: 2}
        assert vgpu_lab.amounts("gpu-b") == {A2_4Q: 1, A2_4A: 1}
        assert vgpu_lab.amounts("gpu-b", "capacity") == {A2_4Q: 1, A2_4A: 1}

    def test_fact_12_10_zero_entries_linger(self, life_of_a_vgpu):
        assert life_of_a_vgpu["after"].allocatable("gpu-a") == {A2_4Q: 0}


class TestDrift:
    """What disabling and enabling again does to the numbers, while another vGPU keeps the plugin alive."""

    @UP_TO_1_7
    def test_fact_12_10_up_to_1_7_the_capacity_creeps_up(self, enabled_again):
        assert enabled_again["again"].capacity("gpu-a") == {A2_4Q: 3}
        assert enabled_again["again"].allocatable("gpu-a") == {A2_4Q: 2}

    @FROM_1_8_ON
    def test_fact_12_10_from_1_8_on_the_vgpu_is_not_counted_again(self, enabled_again):
        assert enabled_again["again"].status("gpu-a-000008004")["vGPUStatus"] == "vGPUConfigured"
        assert enabled_again["again"].capacity("gpu-a") == {A2_4Q: 2}
        assert enabled_again["again"].allocatable("gpu-a") == {A2_4Q: 1}


class TestProcess:
    def test_fact_4_4_9_while_the_process_is_down_nothing_is_allocatable_and_capacity_stays(self, enabled_again):
        down, before = enabled_again["process down"], enabled_again["again"]
        assert down.allocatable("gpu-a") == {A2_4Q: 0}
        assert down.capacity("gpu-a") == before.capacity("gpu-a")
        assert down.allocatable("gpu-b") == before.allocatable("gpu-b")

    def test_fact_12_10_a_restart_of_the_process_sets_the_numbers_right(self, enabled_again):
        assert enabled_again["process up"].allocatable("gpu-a") == {A2_4Q: 2}
        assert enabled_again["process up"].capacity("gpu-a") == {A2_4Q: 2}
