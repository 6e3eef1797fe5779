"""Every fault that concerns a vGPU ends in a sentence with the VM, the host, the profile or the privilege in it."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.faults import Operation, error_from, text_of
from pyVmomi import vim, vmodl

SUBJECT = Operation("power on VM trainer", vm="trainer", host="esx1", profiles=("nvidia_a40-8q",))
NAMES = {"host-1": "esx1", "host-2": "esx2", "vm-7": "trainer", "group-v3": "team"}


def reference(kind, moid):
    return kind(moid, None)


def name_of(moved):
    return NAMES[moved._moId]


FAULTS = [
    (vim.fault.InsufficientGraphicsResourcesFault(), "no_room", ["esx1", "nvidia_a40-8q"]),
    (
        vim.fault.InvalidPowerState(existingState="poweredOn", requestedState="poweredOff"),
        "invalid_power_state",
        ["trainer is powered on", "would have to be powered off"],
    ),
    (vim.fault.DeviceHotPlugNotSupported(), "invalid_power_state", ["trainer", "nvidia_a40-8q"]),
    (vim.fault.InvalidDeviceBacking(deviceIndex=0), "profile_not_offered", ["nvidia_a40-8q"]),
    (
        vim.fault.DeviceUnsupportedForVmVersion(currentVersion="vmx-13", expectedVersion="vmx-17"),
        "hardware_version",
        ["vmx-17", "trainer has vmx-13", "nvidia_a40-8q"],
    ),
    (vim.fault.DeviceUnsupportedForVmPlatform(), "device_not_supported", ["esx1", "nvidia_a40-8q"]),
    (vim.fault.DeviceNotSupported(device="a GPU"), "device_not_supported", ["esx1", "a GPU", "nvidia_a40-8q"]),
    (vim.fault.DeviceBackingNotSupported(device="x", backing="y"), "device_not_supported", ["esx1", "nvidia_a40-8q"]),
    (vim.fault.TooManyDevices(), "too_many_devices", ["trainer", "nvidia_a40-8q"]),
    (vim.fault.InvalidDeviceSpec(deviceIndex=2), "invalid_device", ["device change 2", "nvidia_a40-8q"]),
    (
        vim.fault.GenericVmConfigFault(reason="Could not initialize plugin"),
        "vm_config",
        ["plugin", "trainer", "esx1", "nvidia_a40-8q", "driver"],
    ),
    (
        vim.fault.GenericVmConfigFault(reason="Memory must be fully reserved"),
        "vm_config",
        ["reserved", "prepare"],
    ),
    (
        vim.fault.InsufficientMemoryResourcesFault(unreserved=1 << 30, requested=4 << 30),
        "insufficient_memory",
        ["esx1", "4096 MiB", "1024 MiB"],
    ),
    (
        vim.fault.InsufficientHostMemoryCapacityFault(host=reference(vim.HostSystem, "host-2")),
        "insufficient_memory",
        ["esx2"],
    ),
    (vim.fault.NoCompatibleHostWithAccessToDevice(), "no_compatible_host", ["nvidia_a40-8q"]),
    (vim.fault.ConcurrentAccess(), "conflict", ["trainer"]),
    (vim.fault.TaskInProgress(), "conflict", ["trainer"]),
    (
        vim.fault.SnapshotIncompatibleDeviceInVm(fault=vim.fault.DeviceNotSupported(device="a vGPU")),
        "hindered_by_vgpu",
        ["trainer", "nvidia_a40-8q"],
    ),
    (vim.fault.VMotionNotSupported(), "hindered_by_vgpu", ["trainer", "nvidia_a40-8q"]),
    (vim.fault.FeatureRequirementsNotMet(), "hindered_by_vgpu", ["trainer"]),
    (vim.fault.NoDiskSpace(datastore="ds1", file="[ds1]"), "no_disk_space", ["ds1", "trainer"]),
    (vim.fault.DuplicateName(name="trainer"), "duplicate_name", ["trainer"]),
    (
        vim.fault.NoPermission(privilegeId="VirtualMachine.Interact.PowerOn", object=reference(vim.Folder, "group-v3")),
        "forbidden",
        ["VirtualMachine.Interact.PowerOn", "team"],
    ),
    (vim.fault.RestrictedVersion(), "not_licensed", ["esx1", "nvidia_a40-8q"]),
    (vmodl.fault.NotEnoughLicenses(), "not_licensed", ["esx1", "nvidia_a40-8q"]),
    (
        vmodl.fault.ManagedObjectNotFound(obj=reference(vim.VirtualMachine, "vm-7")),
        "not_found",
        ["trainer"],
    ),
    (vmodl.fault.HostNotConnected(), "host_unavailable", ["esx1"]),
    (vmodl.fault.InvalidArgument(invalidProperty="spec"), "invalid_argument", ["spec", "trainer"]),
    (vim.fault.Timedout(), "vsphere_fault", ["Timedout", "trainer", "esx1", "nvidia_a40-8q"]),
]


@pytest.mark.parametrize(("fault", "code", "words"), FAULTS, ids=lambda value: type(value).__name__)
def test_a_fault_ends_in_words_a_user_can_act_on(fault, code, words):
    error = error_from(fault, SUBJECT, name_of)
    assert error.code == code
    assert error.message.startswith("vCenter refused to power on VM trainer: ")
    assert all(word in str(error) for word in words), str(error)
    assert error.as_dict()["fault"] == type(fault).__name__.rsplit(".", 1)[-1]


@pytest.mark.parametrize(("fault", "_code", "_words"), FAULTS, ids=lambda value: type(value).__name__)
def test_without_any_context_there_is_still_a_sentence(fault, _code, _words):
    message = error_from(fault, Operation("do it")).message
    assert message.endswith((".", "!", "?"))
    assert "None" not in message


def test_no_compatible_host_is_unrolled_into_the_reason_of_each_host():
    fault = vim.fault.NoCompatibleHost(
        host=[reference(vim.HostSystem, "host-1"), reference(vim.HostSystem, "host-2")],
        error=[
            vim.fault.InsufficientGraphicsResourcesFault(msg="all slots are taken"),
            vim.fault.DeviceNotSupported(device="NVIDIA GRID vGPU nvidia_a40-8q"),
        ],
    )
    error = error_from(fault, SUBJECT, name_of)
    assert "esx1: no GPU of host esx1 has room for nvidia_a40-8q (all slots are taken)" in error.message
    assert "esx2: host esx2 cannot serve NVIDIA GRID vGPU nvidia_a40-8q" in error.message
    assert "vgpu_availability" in error.hint


def test_a_conflict_can_be_tried_again_and_a_refusal_cannot():
    assert error_from(vim.fault.ConcurrentAccess(), SUBJECT).retryable
    assert not error_from(vim.fault.TooManyDevices(), SUBJECT).retryable


def test_all_privileges_that_are_missing_are_named():
    fault = vim.fault.NoPermission(
        privilegeId="VirtualMachine.Config.AddRemoveDevice",
        missingPrivileges=[
            vim.fault.NoPermission.EntityPrivileges(privilegeIds=["VirtualMachine.Config.Resource"]),
        ],
    )
    message = error_from(fault, SUBJECT).message
    assert "VirtualMachine.Config.AddRemoveDevice, VirtualMachine.Config.Resource" in message


def test_words_are_found_wherever_they_stand():
    message = vmodl.LocalizableMessage(key="k", message="The driver said no")
    cause = vmodl.MethodFault(msg="The plugin died")
    assert text_of(vmodl.MethodFault(msg="*types.InvalidState", faultMessage=[message])) == "The driver said no."
    assert text_of(vmodl.MethodFault(msg="It failed", faultCause=cause)) == "It failed. The plugin died."
    assert text_of(vmodl.MethodFault()) == ""
