"""What becomes of a VirtualMachine on its way in (harvester.md 10.5 to 10.7). VMs are stored here, not run."""

from __future__ import annotations

from tests.integration.api import VMS
from tests.integration.lab_harvester.beginnings import FROM_1_8_ON, UP_TO_1_7
from tests.integration.lab_harvester.machines import (
    A2_4A,
    ALLOCATION,
    device,
    devices_of,
    machine,
    memory,
    note_for,
)

OPTIONS = {"display": {"ramFB": {"enabled": False}}}


def tried(lab, **options):
    return lab.api.post(VMS, machine("new", **options), dryRun="All")


class TestGpus:
    def test_fact_12_12_one_gpu_becomes_a_host_device_from_1_8_on(self, vgpu_lab):
        gpu = device("g1", tag="mine", virtualGPUOptions=OPTIONS)
        devices = devices_of(tried(vgpu_lab, gpus=[gpu]).body)
        if vgpu_lab.vfio:
            assert devices == {"gpus": [], "hostDevices": [device("g1")]}
        else:
            assert devices == {"gpus": [gpu]}

    def test_fact_12_12_two_gpus_break_the_conversion(self, vgpu_lab):
        answer = tried(vgpu_lab, gpus=[device("g1"), device("g2")])
        if vgpu_lab.vfio:
            assert (answer.status, answer.reason) == (500, "InternalError")
            assert answer.message == (
                "Internal error occurred: error in remove for path: '/spec/template/spec/domain/devices/gpus/1':"
                " Unable to access invalid index: 1: invalid index referenced"
            )
        else:
            assert answer.status == 201

    @FROM_1_8_ON
    def test_fact_4_4_13_a_gpu_joins_the_host_devices_that_are_there_from_1_8_on(self, vgpu_lab):
        answer = tried(vgpu_lab, gpus=[device("g1")], host_devices=[device("h1")])
        assert devices_of(answer.body)["hostDevices"] == [device("h1"), device("g1")]

    def test_fact_4_4_13_a_gpu_without_a_name_passes_from_1_8_on(self, vgpu_lab):
        answer = tried(vgpu_lab, gpus=[{"deviceName": "nvidia.com/NVIDIA_A2-4Q"}])
        if vgpu_lab.vfio:
            assert answer.status == 201
        else:
            assert (answer.status, answer.reason) == (422, "Invalid")
            assert "gpus[0].name: Required value" in answer.message

    @UP_TO_1_7
    def test_fact_4_4_13_gpus_may_be_named_after_devices_of_two_nodes_before_1_8(self, vgpu_lab):
        answer = tried(vgpu_lab, gpus=[device("gpu-a-000008004"), device("gpu-b-000008004")])
        assert answer.status == 201


class TestAcceptedWithoutAWord:
    """harvester.md 10.6."""

    def names(self, lab):
        return "host_devices" if lab.vfio else "gpus"

    def test_the_same_name_twice(self, vgpu_lab):
        assert tried(vgpu_lab, **{self.names(vgpu_lab): [device("same"), device("same")]}).status == 201

    def test_more_devices_than_there_are(self, vgpu_lab):
        devices = [device(f"d{number}") for number in range(9)]
        assert tried(vgpu_lab, **{self.names(vgpu_lab): devices}).status == 201

    def test_a_name_on_one_node_with_a_resource_of_the_other(self, vgpu_lab):
        assert tried(vgpu_lab, **{self.names(vgpu_lab): [device("gpu-a-000008004", A2_4A)]}).status == 201

    def test_a_whole_gpu_by_its_generic_name_without_a_claim(self, vgpu_lab):
        devices = [device("gpu-a-000008000", "nvidia.com/GA107GL_A2___A16")]
        assert tried(vgpu_lab, host_devices=devices).status == 201


class TestMemory:
    def test_fact_4_3_a_vm_with_a_device_gets_and_requests_all_of_its_limit(self, vgpu_lab):
        answer = tried(vgpu_lab, gpus=[device("g1")], memory="1Gi", limit="4Gi", requests="1Gi")
        assert memory(answer.body) == ("4Gi", "4Gi")

    def test_fact_4_3_both_are_made_where_there_were_none(self, vgpu_lab):
        answer = tried(vgpu_lab, gpus=[device("g1")], limit="4Gi", requests=None)
        assert memory(answer.body) == ("4Gi", "4Gi")

    def test_fact_4_3_a_vm_without_devices_may_overcommit(self, vgpu_lab):
        assert memory(tried(vgpu_lab, limit="3Gi", requests=None).body) == ("3Gi", "2Gi")

    def test_fact_4_3_a_vm_without_a_limit_is_left_alone(self, vgpu_lab):
        answer = tried(vgpu_lab, gpus=[device("g1")], memory="4Gi", requests="1Gi")
        assert memory(answer.body) == ("4Gi", "1Gi")

    def test_fact_4_3_a_device_added_later_ends_it(self, vgpu_lab, stored_vm):
        field = "hostDevices" if vgpu_lab.vfio else "gpus"
        with stored_vm(vgpu_lab, "plain", limit="3Gi", requests="1Gi"):
            devices = {"template": {"spec": {"domain": {"devices": {field: [device("d1")]}}}}}
            answer = vgpu_lab.api.patch(f"{VMS}/plain", {"spec": devices}, dryRun="All")
        assert memory(answer.body) == ("3Gi", "3Gi")

    def test_more_memory_reserved_than_there_is_is_refused(self, vgpu_lab):
        vm = machine("vm", limit="1Gi", requests=None)
        vm["metadata"]["annotations"] = {"harvesterhci.io/reservedMemory": "1Gi"}
        answer = vgpu_lab.api.post(VMS, vm, dryRun="All")
        assert (answer.status, "reservedMemory can't be equal" in answer.message) == (500, True)


class TestVersions:
    def test_fact_10_device_names_are_not_checked_before_1_5(self, labs):
        lab = labs("mdev").begin(version="1.4")
        devices = [device("d1", "nvidia.com/NO_SUCH_THING")]
        assert tried(lab, gpus=devices).status == 201
        assert tried(lab, host_devices=devices).status == 201

    def test_fact_4_2_from_1_9_on_an_update_of_a_halted_vm_rewrites_its_note_from_its_spec(self, labs, stored_vm):
        lab = labs("vfio").begin(version="1.9")
        resource = "nvidia.com/GA107GL_A2___A16"
        stale = note_for("gpu-b-000008000", vfio=True, resource=resource)
        with stored_vm(lab, "user", note=stale, host_devices=[device("gpu-a-000008000", resource)]):
            lab.api.patch(f"{VMS}/user", {"metadata": {"labels": {"a": "b"}}})
            lab.advance(2)
            assert lab.read(f"{VMS}/user")["metadata"]["annotations"][ALLOCATION] == (
                '{"hostdevices":{"nvidia.com/GA107GL_A2___A16":["gpu-a-000008000"]}}'
            )
            lab.api.patch(
                f"{VMS}/user", {"spec": {"template": {"spec": {"domain": {"devices": {"hostDevices": None}}}}}}
            )
            lab.advance(2)
            assert ALLOCATION not in (lab.read(f"{VMS}/user")["metadata"].get("annotations") or {})

    def test_fact_4_2_up_to_1_8_a_detached_device_stays_in_the_note(self, vgpu_lab, stored_vm):
        note = note_for("gpu-a-000008004", vfio=vgpu_lab.vfio)
        field, path = ("host_devices", "hostDevices") if vgpu_lab.vfio else ("gpus", "gpus")
        with stored_vm(vgpu_lab, "user", note=note, **{field: [device("gpu-a-000008004")]}):
            detached = {"spec": {"template": {"spec": {"domain": {"devices": {path: None}}}}}}
            answer = vgpu_lab.api.patch(f"{VMS}/user", detached, dryRun="All").body
        assert "gpu-a-000008004" in answer["metadata"]["annotations"][ALLOCATION]
