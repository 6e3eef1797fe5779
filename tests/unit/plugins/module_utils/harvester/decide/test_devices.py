from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.decide.devices import DeviceRequest, plan_devices
from ansible_collections.vgpu.fleet.plugins.module_utils.planning.request import Policy

from tests.unit.plugins.module_utils.harvester.objects import C4, Q4, Q8, claim, gpu, node, snapshot, vgpu, vm

D4, D5, D6, D7 = (f"n1-00000800{number}" for number in "4567")
READY = {"asked": Q4, "configured": Q4}


def planned(requests, *, policy=None, **things):
    taken = snapshot(**things)
    return [
        (step.action, step.slot, step.after) for step in plan_devices(taken.fleet, requests, policy or Policy()).steps
    ]


@pytest.mark.parametrize(
    ("requested", "device", "options", "steps"),
    [
        (DeviceRequest(D4, "A2-4Q"), vgpu(), {}, [("enable", D4, Q4)]),
        (DeviceRequest(D4, Q4), vgpu(**READY), {}, []),
        (DeviceRequest(D4), vgpu(**READY), {}, []),
        (DeviceRequest(D4, Q4), vgpu(asked=Q4), {}, []),
        (DeviceRequest(D4, enabled=False), vgpu(), {}, []),
        (DeviceRequest(D4, enabled=False), vgpu(**READY), {}, [("disable", D4, None)]),
        (DeviceRequest(D4, enabled=False), vgpu(configured=Q4), {}, []),
        (DeviceRequest(D4, C4), vgpu(**READY), {"reprofile": True}, [("disable", D4, None), ("enable", D4, C4)]),
        (
            DeviceRequest(D4, C4),
            vgpu(asked=C4, configured=Q4),
            {"reprofile": True},
            [("disable", D4, None), ("enable", D4, C4)],
        ),
        (
            DeviceRequest(D4, Q4),
            vgpu(asked="no type"),
            {"reprofile": True},
            [("disable", D4, None), ("enable", D4, Q4)],
        ),
        # Only its spec is wrong: writing what it is there changes nothing about it.
        (DeviceRequest(D4, Q4), vgpu(asked=C4, configured=Q4), {}, [("correct", D4, Q4)]),
        # Disabled, but the controller has not taken it away yet: it will be enabled once it has.
        (DeviceRequest(D4, Q4), vgpu(configured=Q4), {"reprofile": True}, [("enable", D4, Q4)]),
    ],
)
def test_steps_for_one_device(requested, device, options, steps):
    assert planned([requested], vgpus=[device], policy=Policy(**options)) == steps


@pytest.mark.parametrize(
    ("requests", "things", "options", "code"),
    [
        ([DeviceRequest(D4)], {"vgpus": [vgpu()]}, {}, "invalid_demand"),
        ([DeviceRequest(D4, Q4), DeviceRequest(D4, C4)], {"vgpus": [vgpu()]}, {}, "invalid_demand"),
        ([DeviceRequest("n1-000009004", Q4)], {"vgpus": [vgpu()]}, {}, "unknown_device"),
        ([DeviceRequest(D4, "A2-3Q")], {"vgpus": [vgpu()]}, {}, "unknown_profile"),
        ([DeviceRequest(D4, C4)], {"vgpus": [vgpu(**READY)]}, {}, "needs_reprofile"),
        (
            [DeviceRequest(D4, C4)],
            {"vgpus": [vgpu(asked=C4, configured=C4)], "claims": [claim()]},
            {},
            "needs_reprofile",
        ),
        ([DeviceRequest(D5, Q8)], {"vgpus": [vgpu(**READY), vgpu(5)]}, {}, "does_not_fit"),
        ([DeviceRequest(D5, Q4)], {"vgpus": [vgpu(), vgpu(5, offered=(Q8,))]}, {}, "does_not_fit"),
        ([DeviceRequest(D4, "NVIDIA L40S-8Q")], {"vgpus": [vgpu()]}, {}, "does_not_fit"),
        (
            [DeviceRequest(D4, Q8), DeviceRequest(D5, Q8), DeviceRequest(D6, Q8)],
            {"vgpus": [vgpu(4), vgpu(5), vgpu(6)]},
            {},
            "does_not_fit",
        ),
        ([DeviceRequest(D4, Q4)], {"gpus": [gpu(enabled=False)]}, {}, "sriov_off"),
        (
            [DeviceRequest(D4, enabled=False)],
            {"vgpus": [vgpu(**READY)], "vms": [vm("v", devices=[(D4, "nvidia.com/NVIDIA_A2-4Q")])]},
            {},
            "device_in_use",
        ),
        (
            [DeviceRequest(D5, Q4)],
            {
                "vgpus": [vgpu(**READY), vgpu(5)],
                "vms": [vm("v", devices=[(D4, "nvidia.com/NVIDIA_A2-4Q")])],
            },
            {"exclusive": True},
            "device_in_use",
        ),
    ],
)
def test_refusals(requests, things, options, code):
    with pytest.raises(FleetError) as caught:
        planned(requests, policy=Policy(**options), **things)
    assert caught.value.code == code
    assert caught.value.message.endswith(".")


def test_all_disables_of_a_gpu_come_before_its_enables_and_exclusive_adds_the_rest():
    devices = [vgpu(4, **READY), vgpu(5, **READY), vgpu(6, **READY), vgpu(7, offered=())]
    requests = [DeviceRequest(D7, Q8), DeviceRequest(D5, enabled=False)]
    assert planned(requests, vgpus=devices, policy=Policy(exclusive=True)) == [
        ("disable", D4, None),
        ("disable", D5, None),
        ("disable", D6, None),
        ("enable", D7, Q8),
    ]


def test_a_device_of_a_gpu_that_is_off_is_enabled_once_the_gpu_is_on():
    device = {"metadata": {"name": "n1-000008000"}, "status": {"deviceId": "25b6"}}
    things = {"gpus": [gpu(enabled=False)], "pci_devices": [device], "nodes": [node()]}
    policy = Policy(enable_sriov=True)
    assert planned([DeviceRequest(D4, "A2-4Q")], policy=policy, **things) == [
        ("enable_sriov", None, None),
        ("enable", D4, Q4),
    ]
    assert planned([DeviceRequest(D4, enabled=False)], policy=policy, **things) == []
