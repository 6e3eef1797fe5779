"""vsphere_vgpu_vm on VMs that exist: an exact set of vGPUs, what they need, and power only where it must be."""

from __future__ import annotations

import pytest
from pyVmomi import vim

from tests.integration.modules.examples import examples, returned
from tests.integration.vsphere_lab.conftest import Specs

MODULE = "vsphere_vgpu_vm"
FOUR, EIGHT, WHOLE = "nvidia_a40-4q", "nvidia_a40-8q", "nvidia_a40-48q"


def want(*profiles, **options):
    """The VM with its place, without which a VM that carries no mark is not stopped."""
    vgpus = [{"profile": profile} for profile in profiles]
    return {"name": "app-1", "cluster": "gpu", "vgpus": vgpus, **options}


def devices(vcenter, name="app-1"):
    found = vcenter.vm(name).config.hardware.device
    return [device for device in found if isinstance(device, vim.vm.device.VirtualPCIPassthrough)]


def profiles(vcenter, name="app-1"):
    return [device.backing.vgpu for device in devices(vcenter, name)]


def options(vcenter, name="app-1"):
    return {option.key: option.value for option in vcenter.vm(name).config.extraConfig}


def power(vcenter, name="app-1"):
    return str(vcenter.vm(name).runtime.powerState)


def running(name, *vgpus, **more):
    return {"name": name, "host": "esx1", "power": "on", "vgpus": list(vgpus), "memory_locked": True, **more}


# The set of vGPUs
def test_a_vgpu_is_attached_in_one_task_with_what_it_needs_and_a_second_run_writes_nothing(vcenter, playbooks):
    run = playbooks(vcenter)
    vcenter.mark()
    result = run.task(MODULE, **want("A40-8Q"))
    assert result.changed, result.message
    assert vcenter.calls["ReconfigVM_Task"] == vcenter.writes == 1
    assert profiles(vcenter) == [EIGHT]
    assert vcenter.vm("app-1").config.memoryReservationLockedToMax
    assert result["vgpus"] == [
        {
            "profile": EIGHT,
            "spellings": {
                "type": "NVIDIA A40-8Q",
                "short": "A40-8Q",
                "resource": "nvidia.com/NVIDIA_A40-8Q",
                "vsphere": EIGHT,
            },
            "device": "PCI device 0",
            "gpu": None,
        }
    ]
    assert result["diff"]["before"] == {"memory_reservation_locked": False, "vgpus": {}, "pci_devices": []}
    assert result["diff"]["after"] == {"memory_reservation_locked": True, "vgpus": {EIGHT: 1}, "pci_devices": []}
    vcenter.mark()
    again = run.task(MODULE, **want("nvidia.com/NVIDIA_A40-8Q"))
    assert not again.changed
    assert again["diff"] == {"before": {}, "after": {}}
    assert again["vgpus"] == result["vgpus"]
    assert vcenter.writes == 0
    assert sum(vcenter.calls.values()) <= 6


def test_check_mode_predicts_the_run_and_writes_nothing(vcenter, playbooks):
    run = playbooks(vcenter)
    vcenter.mark()
    predicted = run.task(MODULE, check=True, **want("A40-8Q", "A40-8Q"))
    assert predicted.changed, predicted.message
    assert vcenter.writes == 0
    assert vcenter.calls["CheckVmConfig_Task"] == 1
    done = run.task(MODULE, **want("A40-8Q", "A40-8Q"))
    assert predicted["diff"] == done["diff"]
    assert predicted["vm"] == done["vm"]
    assert [vgpu["profile"] for vgpu in predicted["vgpus"]] == [vgpu["profile"] for vgpu in done["vgpus"]]
    assert set(predicted) == set(done)


def test_several_of_a_profile_are_counted_and_the_first_ones_stay(vcenter, playbooks):
    run = playbooks(vcenter)
    grown, shrunk, gone = run.tasks(
        (MODULE, {"name": "app-1", "vgpus": [{"profile": FOUR, "count": 3}]}),
        (MODULE, {"name": "app-1", "vgpus": [{"profile": FOUR, "count": 2}]}),
        (MODULE, {"name": "app-1", "vgpus": []}),
    )
    assert [vgpu["device"] for vgpu in grown["vgpus"]] == ["PCI device 0", "PCI device 1", "PCI device 2"]
    assert [vgpu["device"] for vgpu in shrunk["vgpus"]] == ["PCI device 0", "PCI device 1"]
    assert gone.changed
    assert gone["vgpus"] == []
    # Only asked for would the reservation be given back.
    assert vcenter.vm("app-1").config.memoryReservationLockedToMax


def test_not_exclusive_adds_what_is_missing_and_removes_nothing(vcenter, playbooks):
    vcenter.give(vcenter.vm("app-1"), FOUR)
    first, again = playbooks(vcenter).tasks(
        (MODULE, want(EIGHT, exclusive=False)),
        (MODULE, want(EIGHT, exclusive=False)),
    )
    assert first.changed, first.message
    assert not again.changed
    assert sorted(profiles(vcenter)) == [FOUR, EIGHT]


def test_without_the_option_vgpus_are_left_alone(vcenter, playbooks):
    vcenter.give(vcenter.vm("app-1"), FOUR)
    result = playbooks(vcenter).task(MODULE, name="app-1", annotation="trainer", cpus=4)
    assert result.changed, result.message
    assert result["diff"]["after"] == {"annotation": "trainer", "cpus": 4}
    assert profiles(vcenter) == [FOUR]


# What others get wrong (vsphere.md 12.2)
def test_absent_vgpus_of_a_vm_without_any_are_no_crash(vcenter, playbooks):
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, **want())
    assert not result.failed, result.message
    assert not result.changed
    assert vcenter.writes == 0


def test_another_profile_replaces_the_device_and_the_answer_shows_the_new_one(vcenter, playbooks):
    vcenter.give(vcenter.vm("app-1"), FOUR)
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, **want(EIGHT))
    assert result.changed
    assert profiles(vcenter) == [EIGHT]
    assert [vgpu["profile"] for vgpu in result["vgpus"]] == [EIGHT]
    assert vcenter.calls["ReconfigVM_Task"] == 1


def test_repeating_a_task_never_adds_a_second_device(vcenter, playbooks):
    results = playbooks(vcenter).tasks(*[(MODULE, want(FOUR))] * 3)
    assert [result.changed for result in results] == [True, False, False]
    assert profiles(vcenter) == [FOUR]


@pytest.mark.parametrize("refusals", ["task", "soap"])
def test_the_reason_of_a_refusal_reaches_the_user_in_either_form(vcenter, playbooks, refusals):
    vcenter.order_fault(
        "ReconfigVM_Task",
        "NoPermission",
        form=refusals,
        fields={"privilegeId": "VirtualMachine.Config.AddRemoveDevice"},
    )
    result = playbooks(vcenter).task(MODULE, **want(FOUR))
    assert result.failed
    assert not result.changed
    assert result.code == "forbidden"
    assert "VirtualMachine.Config.AddRemoveDevice" in result.message
    assert "app-1" in result.message


def test_a_profile_is_checked_against_the_cluster_and_not_against_the_host_of_the_moment(start, section, playbooks):
    section["vms"] = [{"name": "app-1", "host": "esx3"}]
    vcenter = start(section)
    result = playbooks(vcenter).task(MODULE, **want(FOUR, state="powered_on"))
    assert not result.failed, result.message
    assert result["vm"]["node"] in ("esx1", "esx2")


# Names
def test_an_unknown_profile_is_refused_with_the_nearest_ones_the_cluster_offers(vcenter, playbooks):
    vcenter.mark()
    nine, other_board, nonsense = playbooks(vcenter).tasks(
        (MODULE, want("A40-9Q")), (MODULE, want("L40S-8Q")), (MODULE, want("A40"))
    )
    assert nine.code == other_board.code == "profile_not_offered"
    assert EIGHT in nine["error"]["hint"]
    assert "nvidia_l40s-8q" in other_board.message
    assert nonsense.code == "invalid_profile"
    assert vcenter.writes == 0


def test_vms_of_one_name_are_told_apart_by_folder_uuid_or_moid(start, section, playbooks):
    section["folders"] = ["team/ml", "team/web"]
    section["vms"] = [{"name": "app-1", "folder": folder} for folder in ("team/ml", "team/web")]
    vcenter = start(section)
    twins = {vm.parent.name: vm for vm in vcenter.all(vim.VirtualMachine) if vm.name == "app-1"}
    asked = {"vgpus": [{"profile": FOUR}]}
    results = playbooks(vcenter).tasks(
        (MODULE, {"name": "app-1", **asked}),
        (MODULE, {"name": "app-1", "folder": "team/ml", **asked}),
        (MODULE, {"name": "app-1", "folder": "/dc1/vm/team/ml", **asked}),
        (MODULE, {"moid": twins["web"]._moId, **asked}),
        (MODULE, {"uuid": twins["web"].config.uuid, **asked}),
        (MODULE, {"uuid": twins["web"].config.instanceUuid.upper(), **asked}),
        (MODULE, {"moid": "vm-999", **asked}),
        (MODULE, {"name": "app-7", **asked}),
    )
    assert results[0].code == "vm_ambiguous"
    for words in ("/dc1/vm/team/ml/app-1", "/dc1/vm/team/web/app-1", twins["ml"]._moId):
        assert words in results[0].message
    assert [result.changed for result in results[1:6]] == [True, False, True, False, False]
    assert results[1]["vm"]["folder"] == "/dc1/vm/team/ml"
    assert results[3]["vm"]["folder"] == "/dc1/vm/team/web"
    assert [result.code for result in results[6:]] == ["vm_not_found"] * 2
    assert "app-1" in results[7]["error"]["hint"]


def test_a_vm_is_found_by_path_in_one_call(vcenter, playbooks):
    run = playbooks(vcenter)
    vcenter.mark()
    assert not run.task(MODULE, name="app-1", folder="/dc1/vm").failed
    assert vcenter.calls["FindByInventoryPath"] == 1
    assert vcenter.calls["RetrievePropertiesEx"] == 1


def test_a_vm_is_found_by_uuid_in_two_calls_and_copies_are_told_apart(start, section, playbooks):
    vcenter = start(section)
    uuid, run = vcenter.vm("app-1").config.uuid, playbooks(vcenter)
    vcenter.mark()
    assert run.task(MODULE, uuid=uuid.upper())["vm"]["name"] == "app-1"
    assert vcenter.calls["FindAllByUuid"] == 2
    assert vcenter.calls["RetrievePropertiesEx"] == 1
    vcenter.clone("ubuntu-22.04-efi", "twin", vim.vm.ConfigSpec(uuid=uuid))
    shared, unknown = run.tasks((MODULE, {"uuid": uuid}), (MODULE, {"uuid": uuid.replace(uuid[:8], "0" * 8)}))
    assert shared.code == "vm_ambiguous"
    for words in ("/dc1/vm/app-1", "/dc1/vm/twin", vcenter.vm("twin")._moId):
        assert words in shared.message
    assert unknown.code == "vm_not_found"


def test_a_template_is_not_changed(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, name="ubuntu-22.04-efi", vgpus=[{"profile": FOUR}])
    assert result.code == "vm_is_template"


# Refusals: every fault of vsphere.md 8.2, with what its message has to name
FAULTS = {
    "InsufficientGraphicsResourcesFault": ("no_room", FOUR),
    "InvalidPowerState": ("invalid_power_state", "app-1"),
    "DeviceHotPlugNotSupported": ("invalid_power_state", FOUR),
    "InvalidDeviceSpec": ("invalid_device", FOUR),
    "InvalidDeviceBacking": ("profile_not_offered", FOUR),
    "DeviceUnsupportedForVmVersion": ("hardware_version", "vmx-17"),
    "DeviceUnsupportedForVmPlatform": ("device_not_supported", FOUR),
    "DeviceNotSupported": ("device_not_supported", FOUR),
    "DeviceBackingNotSupported": ("device_not_supported", FOUR),
    "TooManyDevices": ("too_many_devices", FOUR),
    "GenericVmConfigFault": ("vm_config", "Could not initialize plugin"),
    "InsufficientMemoryResourcesFault": ("insufficient_memory", "app-1"),
    "InsufficientHostMemoryCapacityFault": ("insufficient_memory", "esx2"),
    "NoCompatibleHost": ("no_compatible_host", "esx2: no GPU of host esx2 has room for nvidia_a40-4q"),
    "NoCompatibleHostWithAccessToDevice": ("no_compatible_host", FOUR),
    "SnapshotIncompatibleDeviceInVm": ("hindered_by_vgpu", FOUR),
    "VMotionNotSupported": ("hindered_by_vgpu", FOUR),
    "FeatureRequirementsNotMet": ("hindered_by_vgpu", FOUR),
    "DuplicateName": ("duplicate_name", "app-1"),
    "NoPermission": ("forbidden", "VirtualMachine.Config.AddRemoveDevice"),
    "RestrictedVersion": ("not_licensed", FOUR),
    "NotEnoughLicenses": ("not_licensed", FOUR),
}
# Two more end in another attempt: ConcurrentAccess and TaskInProgress, see below.


AT_THE_START = ["InsufficientGraphicsResourcesFault", "GenericVmConfigFault", "NoCompatibleHost", "NotEnoughLicenses"]


def fault_fields(vcenter):
    def inside(fault, **fields):
        return {"fault": {"_typeName": fault, **fields}, "localizedMessage": "It is full."}

    host = {"type": "HostSystem", "value": vcenter.host("esx2")._moId}
    return {
        "DeviceUnsupportedForVmVersion": {"currentVersion": "vmx-13", "expectedVersion": "vmx-17"},
        "DuplicateName": {"name": "app-1", "object": {"type": "VirtualMachine", "value": vcenter.vm("app-1")._moId}},
        "GenericVmConfigFault": {"reason": "Could not initialize plugin"},
        "InsufficientHostMemoryCapacityFault": {"host": host},
        "InvalidPowerState": {"requestedState": "poweredOff", "existingState": "poweredOn"},
        "NoCompatibleHost": {"host": [host], "error": [inside("InsufficientGraphicsResourcesFault")]},
        "NoPermission": {"privilegeId": "VirtualMachine.Config.AddRemoveDevice"},
        "SnapshotIncompatibleDeviceInVm": {"fault": inside("DeviceNotSupported", device="a vGPU")},
    }


@pytest.mark.parametrize(
    ("method", "form", "faults"), [("ReconfigVM_Task", "task", list(FAULTS)), ("PowerOnVM_Task", "soap", AT_THE_START)]
)
def test_every_refusal_names_what_it_is_about(start, section, playbooks, method, form, faults):
    # Without DRS a VM starts by the call on which the fault is ordered.
    section["clusters"][0]["drs"] = "off"
    vcenter = start(section)
    fields = fault_fields(vcenter)
    if method == "PowerOnVM_Task":
        vcenter.give(vcenter.vm("app-1"), FOUR)
    rules = [
        {"method": method, "fault": fault, "as": form, "count": 1, "fields": fields.get(fault, {})} for fault in faults
    ]
    vcenter.control("PUT", "/faults", rules)
    state = "present" if method == "ReconfigVM_Task" else "powered_on"
    results = playbooks(vcenter).tasks(*[(MODULE, want(FOUR, state=state))] * len(faults))
    for result, fault in zip(results, faults, strict=True):
        code, word = FAULTS[fault]
        assert result.code == code, result.message
        assert word in result.message, fault
        assert "app-1" in result.message, fault
        assert not result.changed
    assert vcenter.control("GET", "/faults") == []
    assert power(vcenter) == "poweredOff"


# What the devices need
def test_a6_a_large_vm_gets_the_mmio_space_of_the_board(vcenter, playbooks):
    """The simulator checks the list of NVIDIA, and starts no VM with 32 GB or more without it."""
    small, large = playbooks(vcenter).tasks(
        (MODULE, want("A40-8Q", state="powered_on")),
        (MODULE, want("A40-8Q", memory_mb=32 * 1024, power_cycle="hard")),
    )
    assert not small.failed, small.message
    assert "mmio_size_gb" not in small["diff"]["after"]
    assert large["diff"]["after"]["mmio_size_gb"] == 128, large.message
    assert power(vcenter) == "poweredOn"


def test_a6_a_compute_vgpu_gets_an_mmio_region(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, **want("A40-4C", state="powered_on"))
    assert not result.failed, result.message
    assert options(vcenter)["pciPassthru.64bitMMIOSizeGB"] == "64"


def test_a6_several_fractional_compute_vgpus_are_refused_before_8_0(start, section, playbooks):
    old = start(section, "7.0.3")
    old.mark()
    result = playbooks(old).task(MODULE, **want("A40-8C", "A40-8C"))
    assert result.code == "cannot_boot"
    assert "before vSphere 8.0" in result.message
    assert old.writes == 0


def test_large_framebuffers_get_an_mmio_region_and_a_larger_one_is_kept(vcenter, playbooks):
    run = playbooks(vcenter)
    whole, smaller, two = run.tasks(
        (MODULE, want(WHOLE, state="powered_on")),
        (MODULE, want("A40-16Q", power_cycle="hard")),
        (MODULE, want(WHOLE, WHOLE, power_cycle="hard")),
    )
    assert whole["diff"]["after"]["mmio_size_gb"] == 128, whole.message
    assert "mmio_size_gb" not in smaller["diff"]["after"]
    assert two["diff"]["before"]["mmio_size_gb"] == 128
    assert two["diff"]["after"]["mmio_size_gb"] == 256
    assert power(vcenter) == "poweredOn"
    shown = options(vcenter)
    assert shown["pciPassthru.use64bitMMIO"] == "TRUE"
    assert shown["pciPassthru.64bitMMIOSizeGB"] == "256"


def test_old_hardware_is_upgraded_before_the_devices_come(start, section, playbooks):
    section["vms"] = [{"name": "app-1", "hardware_version": 13}]
    vcenter = start(section)
    run = playbooks(vcenter)
    predicted = run.task(MODULE, check=True, **want(FOUR))
    result = run.task(MODULE, **want(FOUR))
    assert result.changed, result.message
    assert predicted["diff"] == result["diff"]
    assert result["diff"]["before"]["hardware_version"] == "vmx-13"
    assert result["diff"]["after"]["hardware_version"] == "vmx-17"
    assert vcenter.vm("app-1").config.version == "vmx-17"
    assert profiles(vcenter) == [FOUR]


def test_firmware_is_demanded_and_never_changed(start, section, playbooks):
    section["vms"] = [{"name": "app-1", "firmware": "bios"}]
    vcenter = start(section)
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, **want(WHOLE))
    assert result.code == "needs_efi"
    assert "app-1" in result.message
    assert vcenter.writes == 0
    assert vcenter.vm("app-1").config.firmware == "bios"


def test_a_reservation_that_was_unlocked_by_hand_is_locked_again_without_a_restart(start, section, playbooks):
    section["vms"] = [running("app-1", FOUR)]
    vcenter = start(section)
    vcenter.wait(vcenter.reconfigure(vcenter.vm("app-1"), memoryReservationLockedToMax=False))
    result = playbooks(vcenter).task(MODULE, **want(FOUR))
    assert result.changed, result.message
    assert not result["restarted"]
    assert result["diff"]["after"] == {"memory_reservation_locked": True}
    assert power(vcenter) == "poweredOn"


def test_unprepared_vms_are_warned_about_and_left_as_they_are(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, **want(WHOLE, prepare=False))
    assert result.changed, result.message
    assert not vcenter.vm("app-1").config.memoryReservationLockedToMax
    (warning,) = result["warnings"]
    for word in ("app-1", "memory reservation", "MMIO region becomes 128 GB"):
        assert word in warning


def test_memory_that_cannot_be_reserved_is_told_as_such(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, **want(FOUR, memory_mb=1 << 20))
    assert result.code == "insufficient_memory"
    assert "app-1" in result.message


# Power
def test_never_fails_before_anything_is_changed_and_says_what_needs_it(start, section, playbooks):
    section["vms"] = [running("app-1", FOUR)]
    vcenter = start(section)
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, **want(EIGHT, EIGHT))
    assert result.code == "power_cycle_required"
    assert "add 2 x nvidia_a40-8q; remove 1 x nvidia_a40-4q" in result.message
    assert vcenter.writes == 0
    assert power(vcenter) == "poweredOn"


@pytest.mark.parametrize(("how", "call"), [("soft", "ShutdownGuest"), ("hard", "PowerOffVM_Task")])
def test_a_running_vm_is_stopped_changed_and_started_again(start, section, playbooks, how, call):
    section["vms"] = [running("app-1", FOUR)]
    vcenter = start(section)
    run = playbooks(vcenter)
    predicted = run.task(MODULE, check=True, **want(EIGHT, power_cycle=how))
    vcenter.mark()
    result = run.task(MODULE, **want(EIGHT, power_cycle=how))
    assert result.changed, result.message
    assert result["restarted"]
    assert predicted["restarted"]
    assert predicted["diff"] == result["diff"]
    assert vcenter.calls[call] == 1
    assert power(vcenter) == "poweredOn"
    assert result["vm"]["running"]
    assert result["vm"]["node"] == "esx1"
    assert result["vgpus"][0]["gpu"] in result["vm"]["gpus"]
    vcenter.mark()
    again = run.task(MODULE, **want(EIGHT, power_cycle=how))
    assert not again.changed
    assert again["vm"] == result["vm"]
    assert vcenter.writes == 0


def test_a_guest_that_does_not_shut_down_is_only_powered_off_if_asked_for(start, section, playbooks):
    section["vms"] = [running("bare", tools="none"), running("stubborn", ignores_shutdown=True)]
    vcenter = start(section)
    asked = {"cluster": "gpu", "vgpus": [{"profile": FOUR}], "power_cycle": "soft", "power_off_timeout": 1}
    results = playbooks(vcenter).tasks(
        (MODULE, {"name": "bare", **asked}),
        (MODULE, {"name": "stubborn", **asked}),
        (MODULE, {"name": "bare", "power_off_force": True, **asked}),
        (MODULE, {"name": "stubborn", "power_off_force": True, **asked}),
    )
    assert [result.code for result in results[:2]] == ["shutdown_failed"] * 2
    assert "VMware Tools" in results[0].message
    assert "1 s" in results[1].message
    assert all(result.changed and result["restarted"] for result in results[2:])
    assert power(vcenter, "bare") == power(vcenter, "stubborn") == "poweredOn"


def test_power_states_are_kept_to_and_present_leaves_power_alone(vcenter, playbooks):
    run = playbooks(vcenter)
    results = run.tasks(
        (MODULE, want(FOUR, state="powered_on")),
        (MODULE, want(FOUR, state="powered_on")),
        (MODULE, want(FOUR)),
        (MODULE, want(state="powered_off")),
        (MODULE, want(state="powered_off")),
    )
    assert [result.changed for result in results] == [True, False, False, True, False]
    assert [result["vm"]["power"] for result in results] == ["on", "on", "on", "off", "off"]
    assert profiles(vcenter) == []


def test_a_suspended_vm_needs_an_option_of_its_own(start, section, playbooks):
    section["vms"] = [{"name": "app-1", "power": "suspended", "host": "esx1"}]
    vcenter = start(section)
    refused, done = playbooks(vcenter).tasks(
        (MODULE, want(FOUR, power_cycle="hard")), (MODULE, want(FOUR, discard_suspended=True))
    )
    assert refused.code == "vm_suspended"
    assert done.changed, done.message
    assert done["vm"]["power"] == "off"
    assert profiles(vcenter) == [FOUR]


def test_a_change_that_fails_brings_the_vm_back_as_it_was(start, section, playbooks):
    section["vms"] = [running("app-1", FOUR)]
    vcenter = start(section)
    vcenter.order_fault("ReconfigVM_Task", "TooManyDevices", form="task")
    result = playbooks(vcenter).task(MODULE, **want(EIGHT, power_cycle="hard"))
    assert result.code == "too_many_devices"
    assert "runs again as it was" in result.message
    assert power(vcenter) == "poweredOn"
    assert profiles(vcenter) == [FOUR]


# Deleting
def test_a_running_vm_is_only_deleted_with_leave_to_stop_it(start, section, playbooks):
    section["vms"] = [running("app-1", FOUR, extra_config={"vgpu.fleet.owner": "vgpu.fleet"})]
    vcenter = start(section)
    run = playbooks(vcenter)
    predicted = run.task(MODULE, check=True, name="app-1", state="absent", power_cycle="hard")
    refused, deleted, again = run.tasks(
        (MODULE, {"name": "app-1", "state": "absent"}),
        (MODULE, {"name": "app-1", "state": "absent", "power_cycle": "hard"}),
        (MODULE, {"name": "app-1", "state": "absent"}),
    )
    assert refused.code == "power_cycle_required"
    assert [predicted.changed, deleted.changed, again.changed] == [True, True, False]
    assert predicted["diff"] == deleted["diff"]
    assert deleted["diff"]["before"]["vgpus"] == {FOUR: 1}
    assert "app-1" not in {vm.name for vm in vcenter.all(vim.VirtualMachine)}


# Others at work
@pytest.mark.parametrize("fault", ["ConcurrentAccess", "TaskInProgress"])
def test_a_vm_that_somebody_else_changes_is_read_and_changed_again(vcenter, playbooks, fault):
    fields = {"task": {"type": "Task", "value": "task-1"}} if fault == "TaskInProgress" else {}
    vcenter.order_fault("ReconfigVM_Task", fault, form="task", count=2, fields=fields)
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, **want(FOUR))
    assert result.changed, result.message
    assert vcenter.calls["ReconfigVM_Task"] == 3
    assert profiles(vcenter) == [FOUR]


def test_foreign_devices_are_never_touched(vcenter, playbooks):
    kind = vim.vm.device.VirtualPCIPassthrough
    foreign = vim.vm.device.VirtualDeviceSpec(
        operation="add",
        device=kind(
            key=-300,
            backing=kind.DeviceBackingInfo(
                id="0000:01:00.0", deviceId="1234", systemId="system", vendorId=0x10DE, deviceName="whole"
            ),
        ),
    )
    vcenter.wait(vcenter.reconfigure(vcenter.vm("app-1"), deviceChange=[foreign, Specs.add(FOUR)]))
    before = [device.key for device in devices(vcenter)]
    result = playbooks(vcenter).task(MODULE, name="app-1", vgpus=[], pci_devices=[])
    assert result.changed, result.message
    assert [device.key for device in devices(vcenter)] == before[:1]
    assert result["vgpus"] == []


def test_tasks_are_awaited_by_updates_and_never_asked_for_again_and_again(vcenter, playbooks):
    vcenter.control("PUT", "/tasks", {"queued_ms": 300, "running_ms": 700})
    vcenter.mark()
    result = playbooks(vcenter).task(MODULE, **want(FOUR, state="powered_on"))
    assert result.changed, result.message
    # Queued, running, done: three updates for each of three tasks, the one inside DRS's included.
    assert 3 <= vcenter.calls["WaitForUpdatesEx"] <= 9
    assert vcenter.calls["RetrievePropertiesEx"] <= 12
    assert "RetrieveProperties" not in vcenter.calls


def test_a_task_that_takes_too_long_is_named(vcenter, playbooks):
    vcenter.control("PUT", "/tasks", {"running_ms": 3000, "methods": ["ReconfigVM_Task"]})
    result = playbooks(vcenter).task(MODULE, **want(FOUR, wait_timeout=1))
    assert result.code == "timeout"
    assert "change VM app-1" in result.message


# Several in one VM
def test_sets_that_no_vm_can_have_are_refused_before_anything_is_changed(start, section, playbooks):
    section["clusters"][0]["hosts"][1]["gpus"] = [{"board": "L40S"}]
    vcenter = start(section)
    vcenter.mark()
    results = playbooks(vcenter).tasks(
        (MODULE, want("A40-4Q", "A40-4C")),
        (MODULE, want("A40-4Q", "L40S-4Q")),
        (MODULE, {"name": "app-1", "vgpus": [{"profile": "A40-1Q", "count": 9}]}),
        (MODULE, {"name": "app-1", "vgpus": [{"profile": "A40-4Q", "count": 0}]}),
    )
    assert [result.code for result in results] == [
        "cannot_boot",
        "profile_not_offered",
        "cannot_boot",
        "invalid_request",
    ]
    assert "takes 8" in results[2].message
    assert vcenter.writes == 0


def test_how_many_a_vm_may_have_is_asked_of_the_server(start, section, playbooks):
    section["max_vgpus_per_vm"] = 10
    vcenter = start(section)
    nine, eleven = playbooks(vcenter).tasks(
        (MODULE, {"name": "app-1", "vgpus": [{"profile": "A40-1Q", "count": 9}]}),
        (MODULE, {"name": "app-1", "vgpus": [{"profile": "A40-1Q", "count": 11}]}),
    )
    assert len(nine["vgpus"]) == 9, nine.message
    assert "takes 10" in eleven.message


def test_what_is_returned_is_what_the_documentation_says(vcenter, playbooks):
    result = playbooks(vcenter).task(MODULE, **want(FOUR, state="powered_on"))
    documented = returned(MODULE)
    more = {"changed", "diff", "failed", "invocation", "output", "task_seconds"}
    assert {key for key in result if not key.startswith("_")} == set(documented) | more
    assert set(result["vm"]) == set(documented["vm"]["contains"])
    assert set(result["vgpus"][0]) == set(documented["vgpus"]["contains"])


def test_the_examples_of_the_documentation_run(start, section, playbooks):
    nvlink = {"name": "Nvidia:2@nvidia_a40-48q%NVLink", "description": "Two GPUs connected by NVLink"}
    nvlink["devices"] = [{"address": f"0000:{bus}:00.0", "profile": "nvidia_a40-48q"} for bus in ("3b", "3d")]
    section["clusters"][0]["hosts"][0]["device_groups"] = [nvlink]
    vcenter = start(section)
    results = playbooks(vcenter).run(examples(MODULE))
    assert not any(result.failed for result in results), [result.message for result in results]
    first, larger, said, worker, none, gone, grouped, adopted = results
    assert grouped["device_groups"][0]["name"] == nvlink["name"]
    assert [first.changed, larger.changed, worker.changed, none.changed, gone.changed] == [True] * 5
    assert adopted["diff"] == {"before": {"owner": None}, "after": {"owner": "vgpu.fleet"}}
    assert larger["restarted"]
    assert "trainer runs on esx" in said.message
    assert not {vm.name for vm in vcenter.all(vim.VirtualMachine)} & {"trainer", "worker-1"}


def test_a13_a_session_may_end_anywhere_in_a_change(vcenter, playbooks):
    run = playbooks(vcenter)
    wanted = [(FOUR, "powered_on"), (FOUR, "powered_off"), (EIGHT, "powered_on"), (EIGHT, "powered_off")]
    for calls, (profile, state) in zip((4, 7, 5, 6), wanted, strict=True):
        vcenter.control("PUT", "/sessions", {"expire_after_calls": calls})
        vcenter.mark()
        result = run.task(MODULE, **want(profile, cluster="gpu", state=state, power_cycle="hard"))
        assert result.changed, (calls, result.message)
        assert vcenter.calls["Login"] == 2, calls
        # The session of the test itself has ended as well, so the result has to do.
        assert [vgpu["profile"] for vgpu in result["vgpus"]] == [profile]
        assert result["vm"]["running"] == (state == "powered_on")
