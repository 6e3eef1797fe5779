"""The modules give the same results in process and packed. `make same-results` compares all tests of the suites."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.modules.playbooks import Playbooks
from tests.integration.vsphere_modules.conftest import Section, VCenter
from tools import same_results

A40 = "nvidia_a40-8q"
DEMAND = {"name": "pool", "machines": 1, "vgpus": [{"profile": A40, "count": 1}]}
TASKS = (
    ("vsphere_gpu_info", {}),
    ("vsphere_vgpu_vm", {"name": "trainer", "vgpus": [{"profile": A40}]}),
    ("vsphere_vgpu_vm", {"name": "idle", "vgpus": [{"profile": A40}]}, {"check_mode": True}),
    ("vsphere_vgpu_vm", {"name": "idle", "vgpus": [{"profile": "nvidia_a40-9q"}]}),
    ("vsphere_gpu_host", {"esxi_hosts": ["esx1"], "graphics_type": "shared"}),
    ("vsphere_gpu_host", {"esxi_hosts": ["no-such-host"], "graphics_type": "shared"}),
    ("vgpu_availability", {"platform": "vsphere", "require": False, "demand": [DEMAND]}),
)


def test_results_in_process_and_packed_are_the_same(
    start: Callable[..., VCenter], section: Section, playbooks: Callable[[VCenter], Playbooks]
) -> None:
    section["vms"] += [
        {"name": "trainer", "host": "esx1", "vgpus": [A40], "memory_locked": True, "power": "on"},
        {"name": "idle", "host": "esx2"},
    ]
    run = playbooks(start(section))
    inside, packed = (run.tasks(*TASKS, vars={"vgpu_fleet_in_process": way}) for way in (True, False))
    assert [result.failed for result in inside] == [False, False, False, True, True, True, False]
    for task, one, other in zip(TASKS, inside, packed, strict=True):
        found = same_results.differences(same_results.comparable(one), same_results.comparable(other))
        assert list(found) == [], task
