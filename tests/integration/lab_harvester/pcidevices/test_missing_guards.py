"""What Harvester allows: types changed while enabled, GPUs disabled, reboots (harvester.md 5.4, 6.5 and 6.7)."""

from __future__ import annotations

from tests.integration.api import CLAIMS
from tests.integration.history import first
from tests.integration.lab_harvester.beginnings import FROM_1_8_ON, GPU_B, UP_TO_1_7
from tests.integration.lab_harvester.machines import A2_4A, A2_4Q
from tests.integration.lab_harvester.stories import FIRST, SECOND, THIRD

OVERRIDE = "pcidevice.harvesterhci.io/override-resource-name"


class TestTypeChangedWhileEnabled:
    def test_fact_12_9_it_is_accepted_and_ignored(self, rebooted):
        changed = rebooted["changed"]
        assert changed.vgpus[FIRST]["spec"]["vGPUTypeName"] == "NVIDIA A2-4C"
        assert changed.vgpus[SECOND]["spec"]["vGPUTypeName"] == "nonsense"
        for name in (FIRST, SECOND):
            assert changed.status(name) == rebooted["before"].status(name)
        assert set(changed.type_ids("gpu-a").values()) == {"746"}

    def test_fact_12_9_a_reboot_suddenly_applies_it(self, rebooted):
        after = rebooted["after"]
        assert after.status(FIRST)["configureVGPUTypeName"] == "NVIDIA A2-4C"
        assert after.type_ids("gpu-a") == {"0000:08:00.4": "754", "0000:08:00.6": "746"}

    @UP_TO_1_7
    def test_fact_4_4_7_up_to_1_7_the_node_advertises_the_new_type(self, rebooted):
        assert rebooted["after"].allocatable("gpu-a") == {"nvidia.com/NVIDIA_A2-4C": 1, A2_4Q: 1}

    @FROM_1_8_ON
    def test_fact_4_4_7_from_1_8_on_claim_and_node_still_advertise_the_old_one(self, rebooted):
        after = rebooted["after"]
        assert after.claims[FIRST]["metadata"]["annotations"][OVERRIDE] == A2_4Q
        assert after.allocatable("gpu-a") == {A2_4Q: 3}

    @UP_TO_1_7
    def test_fact_4_4_7_up_to_1_7_a_type_that_does_not_exist_leaves_nothing(self, rebooted):
        assert set(rebooted["after"].status(SECOND)) <= {"availableTypes"}

    @FROM_1_8_ON
    def test_fact_4_4_7_from_1_8_on_a_type_that_does_not_exist_leaves_the_old_name(self, rebooted):
        after = rebooted["after"].status(SECOND)
        assert "vGPUStatus" not in after
        assert after["configureVGPUTypeName"] == "NVIDIA A2-4Q"


class TestReboot:
    """The vGPU whose type was not changed."""

    def test_fact_12_9_right_after_it_the_status_still_says_configured(self, rebooted):
        down = rebooted["down"]
        assert down.hardware["gpu-a"]["0000:08:00.0"]["vfs"] == {}
        assert down.status(THIRD) == rebooted["before"].status(THIRD)

    def test_fact_12_9_vgpus_are_kept_while_their_card_is_wanted(self, rebooted):
        assert set(rebooted["down"].vgpus) == set(rebooted["functions are back"].vgpus) == set(rebooted["after"].vgpus)

    def test_fact_3_3_there_is_a_window_in_which_configured_is_not_true(self, rebooted):
        back = rebooted["functions are back"]
        assert len(back.hardware["gpu-a"]["0000:08:00.0"]["vfs"]) == 16
        assert back.type_ids("gpu-a") == {}
        assert back.status(THIRD)["vGPUStatus"] == "vGPUConfigured"

    def test_fact_12_9_it_comes_back_by_itself(self, rebooted):
        after = rebooted["after"]
        assert after.type_ids("gpu-a")["0000:08:00.6"] == "746"
        assert after.status(THIRD)["configureVGPUTypeName"] == "NVIDIA A2-4Q"

    def test_fact_3_3_v5_up_to_1_7_with_another_uuid(self, rebooted, era):
        before, after = (rebooted[when].status(THIRD)["uuid"] for when in ("before", "after"))
        assert (before == after) is (era == "vfio")


class TestCardTakenAway:
    def test_fact_12_9_a_card_can_be_disabled_under_its_enabled_vgpus(self, card_taken_away):
        at_once = card_taken_away["at once"]
        assert not at_once.gpus[GPU_B].get("status")
        assert at_once.hardware["gpu-b"]["0000:08:00.0"]["vfs"] == {}
        assert at_once.vgpus["gpu-b-000008004"]["spec"]["enabled"]

    def test_fact_4_4_17_first_the_pci_devices_go_then_the_vgpus(self, card_taken_away):
        changes = card_taken_away.changes
        pci_device, vgpu = (
            first(changes, lambda change, kind=kind: change.gone and change.kind == kind)
            for kind in ("PCIDevice", "VGPUDevice")
        )
        assert pci_device < vgpu
        after = card_taken_away["after"]
        assert {name for name in (*after.pci_devices, *after.vgpus) if name.startswith("gpu-b")} == {GPU_B}

    @FROM_1_8_ON
    def test_fact_4_1_from_1_8_on_claims_stay_behind_and_what_they_advertised(self, card_taken_away):
        after = card_taken_away["after"]
        assert {"gpu-b-000008004", "gpu-b-000008005"} <= set(after.claims)
        assert after.allocatable("gpu-b") == {A2_4Q: 1, A2_4A: 1}

    @FROM_1_8_ON
    def test_fact_4_1_from_1_8_on_an_admin_cannot_delete_them(self, card_taken_away, labs):
        answer = labs("vfio").api.delete(f"{CLAIMS}/gpu-b-000008004", dryRun="All")
        assert answer.status == 500
        assert "cannot be deleted as it is owned by VGPUDevice" in answer.message
