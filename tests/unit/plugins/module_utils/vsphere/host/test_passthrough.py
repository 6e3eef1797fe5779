"""Passthrough plans: only what is asked for, never a device that a VM uses, and all or nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError, NothingSelected
from ansible_collections.vgpu.fleet.plugins.module_utils.vsphere.host.passthrough import (
    DeviceInUse,
    HostUnreachable,
    InvalidPassthrough,
    NotSwitchable,
    PassthroughDevice,
    PassthroughHost,
    PassthroughRequest,
    plan,
)
from hypothesis import given, strategies as st

A40, NIC = (0x10DE, 0x2235), (0x15B3, 0x1021)
GPU = PassthroughDevice("0000:3b:00.0", A40, dependent="0000:3b:00.0")
CARD = PassthroughDevice("0000:81:00.0", NIC, dependent="0000:81:00.0")
HOST = PassthroughHost("host-1", "esx1", rebinds=True, devices=(GPU, CARD))


def asked(*ids, enabled=True):
    return PassthroughRequest(dict.fromkeys(ids, enabled))


def test_only_devices_with_the_ids_are_switched():
    (change,) = plan([HOST], asked(A40)).changes
    assert [(device.address, device.enabled, device.active) for device in change.devices] == [(GPU.address, True, True)]


def test_a_host_that_needs_a_reboot_keeps_the_device_until_then():
    made = plan([replace(HOST, rebinds=False)], asked(A40))
    (device, _card) = made.preview()[0].devices
    assert (device.enabled, device.active) == (True, False)


def test_what_is_enabled_and_pending_is_not_written_again():
    waiting = replace(HOST, rebinds=False, devices=(replace(GPU, enabled=True),))
    assert not plan([waiting], asked(A40)).changed


@pytest.mark.parametrize(
    ("host", "request_", "error", "said"),
    [
        (HOST, asked((1, 2)), NothingSelected, "0001:0002"),
        (replace(HOST, connected=False), asked(A40), HostUnreachable, "esx1"),
        (replace(HOST, devices=(replace(GPU, capable=False),)), asked(A40), NotSwitchable, "0000:3b:00.0"),
        (
            replace(HOST, devices=(GPU, replace(CARD, dependent=GPU.dependent))),
            asked(A40),
            NotSwitchable,
            "0000:81:00.0",
        ),
        (replace(HOST, devices=(replace(GPU, users=("vm1",)),)), asked(A40), DeviceInUse, "vm1"),
        (
            replace(HOST, devices=(replace(GPU, enabled=True, active=True, users=("vm1",)),)),
            asked(A40, enabled=False),
            DeviceInUse,
            "vm1",
        ),
    ],
)
def test_refusals_name_what_stands_in_the_way(host, request_, error, said):
    with pytest.raises(error, match=said):
        plan([host], request_)


@pytest.mark.parametrize("text", ["", "nvidia", "-1", "10000", "0x1ffff"])
def test_ids_are_hexadecimal_numbers_of_16_bits(text):
    with pytest.raises(InvalidPassthrough, match="device_id"):
        PassthroughRequest.from_options([{"vendor_id": "10de", "device_id": text, "enabled": True}])


DEVICES = st.builds(
    PassthroughDevice,
    address=st.sampled_from([f"0000:{bus:02x}:00.0" for bus in range(6)]),
    ids=st.sampled_from([A40, NIC, (0x8086, 0x1521)]),
    capable=st.booleans(),
    enabled=st.booleans(),
    active=st.booleans(),
    dependent=st.sampled_from(["a", "b", "c"]),
    users=st.sampled_from([(), (), ("vm1",)]),
)
HOSTS = st.lists(
    st.builds(
        PassthroughHost,
        moid=st.just("host"),
        name=st.just("esx"),
        rebinds=st.booleans(),
        devices=st.lists(DEVICES, unique_by=lambda device: device.address).map(tuple),
    ),
    max_size=2,
)


@given(HOSTS, st.dictionaries(st.sampled_from([A40, NIC]), st.booleans(), min_size=1))
def test_no_plan_switches_a_device_that_a_vm_uses_or_nobody_asked_for(hosts, wanted):
    hosts = [replace(host, moid=f"host-{number}") for number, host in enumerate(hosts)]
    request = PassthroughRequest(wanted)
    try:
        made = plan(hosts, request)
    except FleetError:
        return
    for change in made.changes:
        for device in change.devices:
            assert not device.users
            assert device.enabled == wanted[device.ids]
            assert all(other.ids in wanted for other in change.host.devices if other.dependent == device.dependent)
    assert not plan(made.preview(), request).changed
