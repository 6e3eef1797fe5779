"""Host graphics: what would be changed, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import NothingSelected
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.host.plan import (
    DeviceGraphicsRequest,
    GpuInUse,
    HostGraphicsRequest,
    HostUnavailable,
    NotSettable,
    VsgaInUse,
    host_record,
    normal_address,
    plan,
)
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.read.inventory import (
    ConfiguredGraphics,
    pending,
    pending_text,
)

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


WAITING = host("esx1", gpu(graphics_type="shared"), configured=DIRECT, default_type="sharedDirect")


@pytest.mark.parametrize(
    "wish", [HostGraphicsRequest("sharedDirect"), HostGraphicsRequest(assignment_policy="performance")]
)
def test_a5_a_configuration_that_waits_for_a_reboot_is_left_alone_on_later_runs(wish):
    found = plan(snapshot(WAITING), wish)
    assert not found.changed
    assert host_record(found.changes[0].after, restarted=True)["reboot_required"]
    assert found.host_records(found.preview())[0]["reboot_required"]
    assert "reboot" in found.left_to_do(found.preview())[0]


def test_a5_a_policy_is_written_without_a_restart_for_what_waits():
    found = change(WAITING, HostGraphicsRequest(assignment_policy="consolidation"))
    assert (found.write, found.restart) == (True, False)


def test_a_configuration_that_waits_takes_a_restart_on_demand():
    found = change(WAITING, HostGraphicsRequest("sharedDirect"), restart_pending=True)
    assert (found.write, found.restart) == (False, True)
    assert not change(WAITING, HostGraphicsRequest("sharedDirect"), restart_pending=True, restart_xorg=False).changed


@pytest.mark.parametrize(
    "desk",
    [
        vm("desk", vsga=True),
        vm("desk"),
    ],
    ids=["its video card renders on hardware", "a shared GPU lists it"],
)
def test_a5_running_vsga_vms_are_named_before_xorg_restarts(desk):
    listed = () if desk.vsga else ("desk",)
    mixed = host(
        "esx1",
        gpu(FIRST, graphics_type="shared"),
        gpu(SECOND, *listed, graphics_type="shared"),
        configured={FIRST: ConfiguredGraphics("shared"), SECOND: ConfiguredGraphics("shared")},
        default_type="shared",
    )
    wish = HostGraphicsRequest(devices=(DeviceGraphicsRequest(FIRST, "sharedDirect"),))
    there = snapshot(mixed, vms=(desk,))
    with pytest.raises(VsgaInUse, match="on host esx1 interrupts VM desk") as caught:
        plan(there, wish)
    assert caught.value.vms == ("desk",)
    permitted = plan(there, wish, interrupt_vsga=True)
    assert permitted.restarts == ["esx1"]
    assert any("interrupts VM desk" in warning for warning in permitted.warnings)
    assert plan(there, wish, restart_xorg=False).restarts == []
    stopped = snapshot(mixed, vms=(replace(desk, power="poweredOff", vsga=True),))
    if desk.vsga:
        assert plan(stopped, wish).restarts == ["esx1"]


@pytest.mark.parametrize(
    ("version", "wanted", "needed"),
    [("8.0.3", "sharedDirect", False), ("7.0.1", "sharedDirect", False), ("6.7.0", "sharedDirect", True)],
)
def test_a5_vgpus_need_xorg_only_before_7_0_u1(version, wanted, needed):
    assert change(replace(shared_host(), version=version), HostGraphicsRequest(wanted)).needs_xorg is needed


def test_a5_shared_graphics_need_xorg_in_every_version():
    assert change(READY, HostGraphicsRequest("shared")).needs_xorg


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
    assert pending_text(stuck).endswith("or a restart of Xorg (restart_pending).")
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
