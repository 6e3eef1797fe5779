"""What the pcidevices webhook refuses, rule by rule and word by word (harvester.md 10.2).

Every request here is a dry run, which asks the webhook like any other.
"""

from __future__ import annotations

import pytest

from tests.integration.api import CLAIMS, MIG_CONFIGURATIONS, PCI_DEVICES, SRIOV_GPUS, VGPUS, VMS
from tests.integration.lab_harvester.beginnings import FROM_1_8_ON
from tests.integration.lab_harvester.machines import A2_4Q, device, machine, note_for

PREFIX = 'admission webhook "pcidevices.harvesterhci.io" denied the request: '
USED, FREE, GPU = "gpu-a-000008004", "gpu-a-000008006", "gpu-a-000008000"
GENERIC = "nvidia.com/GA107GL_A2___A16"
UNKNOWN = "nvidia.com/NVIDIA_A2-16Q"


def assert_denied(answer, phrase):
    """A denial comes as a fault of the server, not as a 403 (harvester.md 10.1)."""
    assert (answer.status, answer.reason) == (500, "InternalError")
    assert answer.message == PREFIX + phrase


def patched(lab, path, **spec):
    return lab.api.patch(path, {"spec": spec}, dryRun="All")


def deleted(lab, path, user="admin"):
    return lab.api.as_user(user).delete(path, dryRun="All")


class TestVgpus:
    def test_rule_1_a_vgpu_that_a_vm_was_given_cannot_be_disabled(self, vgpu_lab, stored_vm):
        with stored_vm(vgpu_lab, "user", note=note_for(USED, vfio=vgpu_lab.vfio)):
            answer = patched(vgpu_lab, f"{VGPUS}/{USED}", enabled=False)
        assert_denied(answer, f"device {USED} is in use with VM user in namespace default")

    def test_rule_1_the_resource_in_the_note_does_not_matter(self, vgpu_lab, stored_vm):
        """harvester.md 10.4."""
        note = note_for(USED, vfio=vgpu_lab.vfio, resource="nvidia.com/OTHER")
        with stored_vm(vgpu_lab, "user", note=note):
            assert patched(vgpu_lab, f"{VGPUS}/{USED}", enabled=False).status == 500

    def test_rule_1_each_era_looks_at_its_own_key_of_the_note(self, vgpu_lab, stored_vm):
        with stored_vm(vgpu_lab, "user", note=note_for(USED, vfio=not vgpu_lab.vfio)):
            assert patched(vgpu_lab, f"{VGPUS}/{USED}", enabled=False).status == 200

    def test_rule_1_a_vm_that_only_names_the_device_in_its_spec_does_not_protect_it(self, vgpu_lab, stored_vm):
        field = "host_devices" if vgpu_lab.vfio else "gpus"
        with stored_vm(vgpu_lab, "user", **{field: [device(USED)]}):
            assert patched(vgpu_lab, f"{VGPUS}/{USED}", enabled=False).status == 200

    @pytest.mark.parametrize("spec", [{}, {"vGPUTypeName": ""}])
    def test_rule_2_a_vgpu_is_not_enabled_without_a_type(self, sriov_lab, spec):
        answer = patched(sriov_lab, f"{VGPUS}/{FREE}", enabled=True, **spec)
        assert_denied(answer, f"VGPUTypeName cannot be empty for vGPU device {FREE}")

    @pytest.mark.parametrize(
        "name", ["NVIDIA A2-99Q", "nvidia a2-4q", " NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q", "746"]
    )
    def test_rule_3_a_vgpu_is_not_enabled_with_a_type_that_is_not_offered_to_the_letter(self, sriov_lab, name):
        answer = patched(sriov_lab, f"{VGPUS}/{FREE}", enabled=True, vGPUTypeName=name)
        assert_denied(answer, f"VGPUTypeName {name} is not a valid profile for vGPU device {FREE}")

    def test_rule_3_a_type_of_another_size_is_not_offered_any_more(self, vgpu_lab):
        answer = patched(vgpu_lab, f"{VGPUS}/{FREE}", enabled=True, vGPUTypeName="NVIDIA A2-8Q")
        assert_denied(answer, f"VGPUTypeName NVIDIA A2-8Q is not a valid profile for vGPU device {FREE}")

    @pytest.mark.parametrize("name", ["NVIDIA A2-4A", "NVIDIA A2-8Q", "anything at all", ""])
    def test_rule_4_any_change_of_type_while_enabled_is_accepted(self, vgpu_lab, name):
        assert patched(vgpu_lab, f"{VGPUS}/{USED}", vGPUTypeName=name).status == 200

    def test_rule_4_any_type_is_accepted_while_disabled(self, sriov_lab):
        assert patched(sriov_lab, f"{VGPUS}/{FREE}", vGPUTypeName="anything at all").status == 200

    def test_rule_5_a_vgpu_that_a_vm_was_given_cannot_be_deleted(self, vgpu_lab, stored_vm):
        with stored_vm(vgpu_lab, "user", note=note_for(USED, vfio=vgpu_lab.vfio)):
            answer = deleted(vgpu_lab, f"{VGPUS}/{USED}")
        assert_denied(answer, f"device {USED} is in use with VM user in namespace default")

    def test_rule_5_one_that_nobody_uses_can(self, vgpu_lab):
        assert deleted(vgpu_lab, f"{VGPUS}/{USED}").status == 200


class TestCards:
    def test_rule_6_a_gpu_with_a_vgpu_that_a_vm_was_given_cannot_be_disabled(self, vgpu_lab, stored_vm):
        with stored_vm(vgpu_lab, "user", note=note_for(USED, vfio=vgpu_lab.vfio)):
            answer = patched(vgpu_lab, f"{SRIOV_GPUS}/{GPU}", enabled=False)
        assert_denied(answer, f"device {USED} is in use with VM user in namespace default")

    def test_fact_12_9_a_gpu_with_enabled_vgpus_that_nobody_uses_can_be_disabled(self, vgpu_lab):
        assert patched(vgpu_lab, f"{SRIOV_GPUS}/{GPU}", enabled=False).status == 200

    def test_rule_7_an_enabled_gpu_cannot_be_deleted(self, sriov_lab):
        answer = deleted(sriov_lab, f"{SRIOV_GPUS}/{GPU}")
        assert_denied(answer, f"please disable gpuDevice {GPU} before deletion")

    def test_rule_7_a_disabled_one_can(self, sriov_lab):
        assert deleted(sriov_lab, f"{SRIOV_GPUS}/gpu-b-000008000").status == 200


@pytest.fixture
def mig(vgpu_lab):
    """A MigConfiguration for the card of gpu-a; nobody in the lab acts on it."""
    profile = {"name": "MIG 1g.5gb", "id": 19}
    body = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "MigConfiguration",
        "metadata": {"name": GPU},
        "spec": {"nodeName": "nowhere", "enabled": False, "profileSpec": [{**profile, "requested": 0}]},
    }
    vgpu_lab.make(MIG_CONFIGURATIONS, body)

    def put(requested=0, *, available=7, state="", enabled=False):
        path = f"{MIG_CONFIGURATIONS}/{GPU}"
        profiles = [{**profile, "available": available, "total": 7}]
        vgpu_lab.write(f"{path}/status", {"status": {"profileStatus": profiles}})
        vgpu_lab.write(path, {"spec": {"enabled": enabled, "profileSpec": [{**profile, "requested": requested}]}})
        vgpu_lab.write(f"{path}/status", {"status": {"status": state}})

    def try_to(requested, *, enabled):
        spec = {"enabled": enabled, "profileSpec": [{**profile, "requested": requested}]}
        return vgpu_lab.api.patch(f"{MIG_CONFIGURATIONS}/{GPU}", {"spec": spec}, dryRun="All")

    yield put, try_to
    assert vgpu_lab.api.delete(f"{MIG_CONFIGURATIONS}/{GPU}").status == 200


class TestMigConfigurations:
    """With a configuration made by hand, since an A2 has no MIG."""

    def test_rule_8_no_more_than_seven_instances(self, mig):
        put, try_to = mig
        put()
        phrase = f"MIGConfiguration {GPU} Invalid: Cannot have more than 7 instances defined, found 8"
        assert_denied(try_to(8, enabled=False), phrase)

    @pytest.mark.parametrize("state", ["synced", "out-of-sync"])
    def test_rule_9_no_change_unless_disabled(self, mig, state):
        put, try_to = mig
        put(1, state=state)
        phrase = f"MIGConfiguration {GPU} cannot be modified unless configuration is disabled"
        assert_denied(try_to(2, enabled=False), phrase)

    def test_rule_10_no_more_than_there_are(self, mig):
        put, try_to = mig
        put(available=2)
        phrase = (
            f"MIGConfiguration {GPU} cannot has requested count 3 for profile MIG 1g.5gb,"
            " which exceeds available count 2"
        )
        assert_denied(try_to(3, enabled=True), phrase)

    def test_rule_11_not_disabled_while_a_vgpu_of_the_card_is_enabled(self, mig):
        put, try_to = mig
        put(1, enabled=True)
        answer = try_to(1, enabled=False)
        assert (answer.status, answer.reason) == (500, "InternalError")
        assert answer.message.startswith(f"{PREFIX}cannot disable MIGConfiguration {GPU} as vGPU gpu-a-00000800")
        assert answer.message.endswith(" is enabled")


def claim_for(name):
    """A claim that no node's process reacts to."""
    return {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "PCIDeviceClaim",
        "metadata": {"name": name},
        "spec": {"address": "0000:08:00.0", "nodeName": "nowhere", "userName": "admin"},
    }


class TestClaims:
    def test_rule_12_a_device_without_an_iommu_group_cannot_be_claimed(self, vgpu_lab):
        device = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "PCIDevice", "metadata": {"name": "plain"}}
        vgpu_lab.make(PCI_DEVICES, {**device, "spec": {}})
        try:
            answer = vgpu_lab.api.post(CLAIMS, claim_for("plain"), dryRun="All")
        finally:
            vgpu_lab.api.delete(f"{PCI_DEVICES}/plain")
        assert answer.status == 500
        assert answer.message.startswith(PREFIX)
        assert "has no iommuGroup available" in answer.message

    def test_rule_13_a_gpu_with_functions_cannot_be_claimed_whole_from_1_8_1_on(self, vgpu_lab):
        answer = vgpu_lab.api.post(CLAIMS, claim_for(GPU), dryRun="All")
        if vgpu_lab.vfio:
            assert (answer.status, answer.reason) == (500, "InternalError")
            assert answer.message.startswith(f"{PREFIX}these vGPU devices [")
            assert f"] are using the PCI GPU Device [{GPU}], so it can't be claimed" in answer.message
        else:
            assert answer.status == 201

    def test_rule_14_a_claimed_device_that_a_vm_was_given_stays_claimed(self, vgpu_lab, stored_vm):
        # Without functions, so that it can be claimed in both eras.
        name = USED if vgpu_lab.vfio else GPU
        if not vgpu_lab.vfio:
            vgpu_lab.make(CLAIMS, claim_for(name))
        try:
            with stored_vm(vgpu_lab, "user", note={"hostdevices": {"any": [name]}}):
                answer = deleted(vgpu_lab, f"{CLAIMS}/{name}")
        finally:
            if not vgpu_lab.vfio:
                vgpu_lab.api.delete(f"{CLAIMS}/{name}")
        assert_denied(answer, f"pcideviceclaim {name} is already in use with vm user in namespace default")

    @FROM_1_8_ON
    def test_rule_15_only_the_controller_may_delete_the_claim_of_a_vgpu(self, vgpu_lab):
        answer = deleted(vgpu_lab, f"{CLAIMS}/{USED}")
        assert_denied(answer, f"pcideviceclaim {USED} cannot be deleted as it is owned by VGPUDevice {USED}")
        assert deleted(vgpu_lab, f"{CLAIMS}/{USED}", user="pcidevices").status == 200


class TestVirtualMachines:
    def test_rule_16_an_unknown_gpu_is_refused_in_the_words_of_the_era(self, vgpu_lab):
        answer = vgpu_lab.api.post(VMS, machine("new", gpus=[device("g1", UNKNOWN)]), dryRun="All")
        kind, cache = ("hostdevice", "pcidevice and usbdevice") if vgpu_lab.vfio else ("gpu device", "pcidevice")
        assert_denied(answer, f"{kind} g1: resource name {UNKNOWN} not found in {cache} cache")

    def test_rule_17_an_unknown_host_device_is_refused(self, vgpu_lab):
        answer = vgpu_lab.api.post(VMS, machine("new", host_devices=[device("h1", UNKNOWN)]), dryRun="All")
        assert_denied(answer, f"hostdevice h1: resource name {UNKNOWN} not found in pcidevice and usbdevice cache")

    def test_rule_17_a_vgpu_is_no_host_device_before_1_8(self, vgpu_lab):
        answer = vgpu_lab.api.post(VMS, machine("new", host_devices=[device("h1")]), dryRun="All")
        if vgpu_lab.vfio:
            assert answer.status == 201
        else:
            assert_denied(answer, f"hostdevice h1: resource name {A2_4Q} not found in pcidevice and usbdevice cache")

    def test_rule_17_an_update_is_looked_at_as_well(self, vgpu_lab, stored_vm):
        with stored_vm(vgpu_lab, "plain"):
            devices = {"template": {"spec": {"domain": {"devices": {"hostDevices": [device("h1", UNKNOWN)]}}}}}
            assert patched(vgpu_lab, f"{VMS}/plain", **devices).status == 500

    def test_rule_18_devices_of_two_nodes_do_not_go_into_one_vm(self, vgpu_lab):
        resource = A2_4Q if vgpu_lab.vfio else GENERIC
        devices = [device("gpu-a-000008004", resource), device("gpu-b-000008004", resource)]
        answer = vgpu_lab.api.post(VMS, machine("new", host_devices=devices), dryRun="All")
        assert_denied(
            answer,
            "device pcidevice/gpu-b-000008004 is not on the same node in"
            " VirtualMachine.Spec.Template.Spec.Domain.Devices.HostDevices new",
        )

    def test_rule_18_a_name_that_is_no_device_is_not_looked_at(self, vgpu_lab):
        resource = A2_4Q if vgpu_lab.vfio else GENERIC
        devices = [device("gpu-a-000008004", resource), device("provisioned", resource)]
        assert vgpu_lab.api.post(VMS, machine("new", host_devices=devices), dryRun="All").status == 201
