"""Host graphics: what would be changed, and what is refused."""

from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import NothingSelected
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.host.plan import (
    DeviceGraphicsRequest,
    GpuInUse,
    HostGraphicsRequest,
    HostUnavailable,
    NotSettable,
    host_record,
    normal_address,
    pending,
    pending_text,
    plan,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.inventory import ConfiguredGraphics

from tests.unit.plugins.module_utils.vsphere.facts import FIRST, SECOND, gpu, host, old_host, snapshot, vm

SHARED = {FIRST: ConfiguredGraphics("shared", "sameSize"), SECOND: ConfiguredGraphics("shared", "sameSize")}
DIRECT = {FIRST: ConfiguredGraphics("sharedDirect", "sameSize"), SECOND: ConfiguredGraphics("sharedDirect", "sameSize")}
READY = host(configured=DIRECT, default_type="sharedDirect")


def shared_host(**more):
    return host("esx1", gpu(graphics_type="shared", vgpu_mode="none"), configured=SHARED, **more)


def change(facts, wish, **options):
    (only,) = plan(snapshot(facts), wish, **options).changes
    return only


def test_what_is_as_wanted_is_left_alone():
    found = change(READY, HostGraphicsRequest("sharedDirect", "performance", "sameSize"))
    assert not found.changed
    assert not plan(snapshot(READY), HostGraphicsRequest("sharedDirect")).changed


def test_a_type_is_written_and_takes_a_restart():
    found = change(shared_host(), HostGraphicsRequest("sharedDirect"))
    assert (found.write, found.restart) == (True, True)
    assert found.after.default_type == "sharedDirect"
    assert found.after.gpus[0].graphics_type == "sharedDirect"
    assert "nvidia_a40-12q" in found.after.profiles
    assert not pending(found.after)


def test_a_policy_is_written_and_takes_no_restart():
    found = change(READY, HostGraphicsRequest(assignment_policy="consolidation"))
    assert (found.write, found.restart) == (True, False)


def test_a_default_alone_is_written_and_takes_no_restart():
    found = change(host(configured=DIRECT, default_type="shared"), HostGraphicsRequest("sharedDirect"))
    assert (found.write, found.restart) == (True, False)


def test_a_configuration_that_waits_takes_a_restart_and_no_write():
    waiting = host("esx1", gpu(graphics_type="shared"), configured=DIRECT, default_type="sharedDirect")
    found = change(waiting, HostGraphicsRequest("sharedDirect"))
    assert (found.write, found.restart) == (False, True)
    assert not change(waiting, HostGraphicsRequest("sharedDirect"), restart_xorg=False).changed


def test_a_gpu_in_use_that_waits_is_no_reason_to_restart_again():
    waiting = host("esx1", gpu(FIRST, "a", graphics_type="shared"), configured=DIRECT, default_type="sharedDirect")
    found = change(waiting, HostGraphicsRequest("sharedDirect"))
    assert not found.changed
    assert host_record(found.after)["reboot_required"]


def test_a_gpu_that_is_not_listed_has_the_default():
    assert not change(host(default_type="sharedDirect"), HostGraphicsRequest("sharedDirect")).changed
    assert change(host(default_type="sharedDirect"), HostGraphicsRequest(vgpu_mode="mixedSize")).write


def test_one_device_differs_and_the_others_follow():
    wish = HostGraphicsRequest(
        "sharedDirect",
        devices=(DeviceGraphicsRequest(SECOND, "shared"), DeviceGraphicsRequest(FIRST, vgpu_mode="mixedSize")),
    )
    found = change(READY, wish).after.configured
    assert found == {
        FIRST: ConfiguredGraphics("sharedDirect", "mixedSize"),
        SECOND: ConfiguredGraphics("shared", "sameSize"),
    }


def test_devices_of_other_vendors_keep_what_they_have():
    other = host(configured={**DIRECT, "0000:02:00.0": ConfiguredGraphics("shared")}, default_type="sharedDirect")
    assert change(other, HostGraphicsRequest(vgpu_mode="mixedSize")).after.configured[
        "0000:02:00.0"
    ] == ConfiguredGraphics("shared")


def test_a_gpu_in_use_is_refused_with_its_vms_and_by_force_waits():
    busy = snapshot(
        host("esx1", gpu(FIRST, "trainer"), configured=DIRECT, default_type="sharedDirect"),
        vms=(vm("trainer", "nvidia_a40-8q"),),
    )
    with pytest.raises(GpuInUse, match="esx1 is used by VM trainer"):
        plan(busy, HostGraphicsRequest("shared"))
    forced = plan(busy, HostGraphicsRequest("shared"), force=True)
    assert forced.changes[0].write
    assert not forced.changes[0].restart
    assert forced.left_to_do(forced.preview()) == [pending_text(forced.changes[0].after)]
    assert "reboot" in forced.left_to_do(forced.preview())[0]
    assert not plan(busy, HostGraphicsRequest(assignment_policy="consolidation")).warnings


@pytest.mark.parametrize(
    ("facts", "wish", "error"),
    [
        (old_host(), HostGraphicsRequest(vgpu_mode="mixedSize"), NotSettable),
        (
            host("esx1", gpu(graphics_type="direct")),
            HostGraphicsRequest(devices=(DeviceGraphicsRequest(FIRST, "shared"),)),
            NotSettable,
        ),
        (
            host("esx1", gpu(vgpu_mode="multiInstanceGpu")),
            HostGraphicsRequest(devices=(DeviceGraphicsRequest(FIRST, vgpu_mode="sameSize"),)),
            NotSettable,
        ),
        (READY, HostGraphicsRequest(devices=(DeviceGraphicsRequest(FIRST, "shared", "mixedSize"),)), NotSettable),
        (READY, HostGraphicsRequest(devices=(DeviceGraphicsRequest("0000:ff:00.0", "shared"),)), NothingSelected),
        (shared_host(connected=False), HostGraphicsRequest("sharedDirect"), HostUnavailable),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(facts, wish, error):
    with pytest.raises(error):
        plan(snapshot(facts), wish)


def test_hosts_without_gpus_are_an_error_only_where_they_are_named():
    bare = host("esx3", profiles=())
    bare = type(bare)(bare.moid, "esx3", cluster="gpu")
    assert len(plan(snapshot(READY, bare), HostGraphicsRequest("sharedDirect")).changes) == 1
    with pytest.raises(NothingSelected, match="esx3 has no NVIDIA GPU"):
        plan(snapshot(READY, bare), HostGraphicsRequest("sharedDirect"), named=["esx3"])
    with pytest.raises(NothingSelected, match="esx3"):
        plan(snapshot(bare), HostGraphicsRequest("sharedDirect"))


def test_a_restart_that_did_not_help_leaves_a_reboot():
    stuck = host("esx1", gpu(graphics_type="shared"), configured=DIRECT, default_type="sharedDirect")
    assert not host_record(stuck)["reboot_required"]
    assert host_record(stuck, restarted=True)["reboot_required"]
    assert pending_text(stuck).endswith("or a restart of Xorg.")
    assert pending_text(stuck, restarted=True).endswith("it takes a reboot of the host.")
    assert pending_text(READY) is None


def test_addresses_are_the_same_however_they_are_written():
    assert normal_address("3B:00.0") == normal_address(" 0000:3b:00.0") == "0000:3b:00.0"
    assert (
        HostGraphicsRequest(devices=(DeviceGraphicsRequest(normal_address("3b:00.0"), "shared"),))
        .device(FIRST)
        .graphics_type
        == "shared"
    )
