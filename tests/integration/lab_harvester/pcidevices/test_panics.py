"""What takes the pcidevices processes of all nodes down, and with them every rule (harvester.md 4.4)."""

from __future__ import annotations

from tests.integration.api import SRIOV_GPUS, VGPUS, VMS
from tests.integration.lab_harvester.beginnings import GPU_B
from tests.integration.lab_harvester.machines import machine


def alive(lab):
    return set(lab.control.status()["processes"].values())


def bad_type_is_refused(lab):
    lab.control.settle()
    body = {"spec": {"enabled": True, "vGPUTypeName": "no such type"}}
    return lab.api.patch(f"{VGPUS}/gpu-a-000008004", body, dryRun="All").status == 500


class TestDeletedCard:
    def test_fact_3_2_s3_deleting_a_disabled_gpu_ends_all_processes(self, sriov_lab):
        lab = sriov_lab
        assert bad_type_is_refused(lab)
        assert lab.api.delete(f"{SRIOV_GPUS}/{GPU_B}").status == 200
        lab.advance(1)
        assert alive(lab) == {False}
        assert not bad_type_is_refused(lab)

        lab.control.process("*", "start")
        lab.until(lambda: lab.find(f"{SRIOV_GPUS}/{GPU_B}"), within=60)
        assert alive(lab) == {True}
        assert bad_type_is_refused(lab)


class TestBrokenNote:
    def test_fact_4_4_5_a_note_that_is_not_json_ends_all_processes_again_and_again(self, sriov_lab):
        lab = sriov_lab
        lab.make(VMS, machine("bad", note="{not json"))
        lab.advance(1)
        assert alive(lab) == {False}
        assert not bad_type_is_refused(lab)

        # Their kubelets start them again after ten seconds, and they end again on the way up.
        lab.advance(30)
        assert alive(lab) == {False}
        assert not bad_type_is_refused(lab)

        assert lab.api.delete(f"{VMS}/bad").status == 200
        lab.until(lambda: bad_type_is_refused(lab), within=120)
        assert alive(lab) == {True}
