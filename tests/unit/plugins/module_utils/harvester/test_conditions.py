from __future__ import annotations

import pytest
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import version as versions
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.conditions import (
    NodeAllocatable,
    SriovDisabled,
    SriovEnabled,
    VgpuConfigured,
    VgpuRemoved,
    VgpuTypeAvailable,
)

from tests.unit.plugins.module_utils.harvester.objects import C4, Q4, claim, gpu, node, snapshot, vgpu

NAME = "n1-000008004"
MDEV, VFIO = versions.from_option("1.7"), versions.from_option("1.8")
HALF = vgpu(asked=Q4, status={"vGPUStatus": "vGPUConfigured", "uuid": "a-b"})


@pytest.mark.parametrize(
    ("which", "things", "lacking"),
    [
        (MDEV, {"vgpus": [vgpu(asked=Q4, configured=Q4)]}, ""),
        (MDEV, {"vgpus": [HALF]}, "configured as nothing"),
        (MDEV, {"vgpus": [vgpu(asked=Q4)]}, "not configured"),
        (MDEV, {}, "no such vGPU"),
        (VFIO, {"vgpus": [vgpu(asked=Q4, configured=Q4)], "claims": [claim()]}, ""),
        (VFIO, {"vgpus": [vgpu(asked=Q4, configured=Q4)]}, "no claim"),
        (VFIO, {"vgpus": [HALF]}, "no claim"),
        (VFIO, {"vgpus": [HALF], "claims": [claim()]}, ""),
        (VFIO, {"vgpus": [vgpu(asked=Q4, configured=Q4)], "claims": [claim(going=True)]}, "no claim"),
        (VFIO, {"vgpus": [vgpu(asked=Q4, configured=Q4)], "claims": [claim(bound=False)]}, "not bound"),
        (VFIO, {"vgpus": [vgpu(asked=Q4, configured=Q4)], "claims": [claim(type_name=C4)]}, "advertises"),
    ],
)
def test_configured(which, things, lacking):
    said = VgpuConfigured(NAME, "n1", Q4, which).missing(snapshot(**things))
    assert lacking in said if lacking else not said


@pytest.mark.parametrize(
    ("which", "things", "cleared", "offers"),
    [
        (MDEV, {"vgpus": [vgpu()]}, True, True),
        (MDEV, {"vgpus": [HALF]}, False, False),
        (MDEV, {"vgpus": [vgpu(offered=(C4,))]}, True, False),
        (VFIO, {"vgpus": [vgpu()]}, True, True),
        (VFIO, {"vgpus": [vgpu()], "claims": [claim(going=True)]}, False, False),
        (VFIO, {"vgpus": [vgpu()], "claims": [claim()]}, False, True),
        (VFIO, {"vgpus": [vgpu()], "claims": [claim(type_name=C4)]}, False, False),
    ],
)
def test_cleared_and_ready_for_the_next_type(which, things, cleared, offers):
    seen = snapshot(**things)
    assert (VgpuRemoved(NAME, "n1", which).missing(seen) == "") is cleared
    assert (VgpuTypeAvailable(NAME, "n1", Q4, which).missing(seen) == "") is offers


@pytest.mark.parametrize(
    ("things", "lacking"),
    [
        ({"gpus": [gpu(enabled=False)]}, "no virtual functions"),
        ({"gpus": [gpu(functions=2)], "vgpus": [vgpu(4)]}, "1 of 2 vGPU devices are missing"),
        ({"gpus": [gpu(functions=2)], "vgpus": [vgpu(4), vgpu(5, offered=())]}, "1 of 2 vGPU devices offer no types"),
        ({"gpus": [gpu(functions=2)], "vgpus": [vgpu(4), vgpu(5)]}, ""),
        # One fills the GPU; the other has nothing left to offer.
        ({"gpus": [gpu(functions=2)], "vgpus": [vgpu(4, configured=Q4), vgpu(5, offered=())]}, ""),
        (
            {
                "gpus": [gpu(functions=1)],
                "vgpus": [vgpu(4, offered=())],
                "mig": [{"metadata": {"name": "n1-000008000"}}],
            },
            "",
        ),
    ],
)
def test_shared(things, lacking):
    said = SriovEnabled("n1-000008000", "n1").missing(snapshot(**things))
    assert lacking in said if lacking else not said


def test_unshared_when_functions_and_devices_are_gone():
    goal = SriovDisabled("n1-000008000", "n1", frozenset((NAME,)))
    assert "virtual functions" in goal.missing(snapshot())
    assert "still there" in goal.missing(snapshot(gpus=[gpu(enabled=False)], vgpus=[vgpu()]))
    assert not goal.missing(snapshot(gpus=[gpu(enabled=False)]))


def test_advertised_and_the_plugin_that_lost_count():
    goal = NodeAllocatable("n1", "nvidia.com/NVIDIA_A2-4Q", 4)
    assert not goal.missing(snapshot(nodes=[node(q4=4)]))
    late = snapshot(nodes=[node(q4=3)])
    assert "3 of 4" in goal.missing(late)
    assert not goal.device_plugin_stale(late)
    assert goal.device_plugin_stale(snapshot(nodes=[node(q4=3, capacity={"q4": 4})]))
