"""What a node offers of its device plugins' devices."""

from __future__ import annotations

import pytest

from lab.harvester.node.device_plugins import DeviceManager, DevicePlugin

RESOURCE = "nvidia.com/NVIDIA_A2-4Q"


@pytest.fixture
def manager() -> DeviceManager:
    return DeviceManager(lambda: None)


def plugin_of(manager: DeviceManager, *devices: str) -> DevicePlugin:
    plugin = DevicePlugin(manager, RESOURCE)
    for device in devices:
        plugin.add(device)
    return plugin


def amounts(manager: DeviceManager) -> tuple[int, int]:
    return manager.allocatable[RESOURCE], manager.capacity[RESOURCE]


def test_a_device_that_was_removed_is_counted_and_not_offered_again(manager):
    plugin = plugin_of(manager, "a", "b")
    plugin.remove("a")
    plugin.add("a")
    assert amounts(manager) == (1, 2)


def test_a_restarted_kubelet_does_not_hear_the_plugins_it_had(manager):
    old = plugin_of(manager, "a", "b")
    manager.restart()
    old.add("c")
    assert amounts(manager) == (0, 0)
    plugin_of(manager, "a", "b")
    old.stop()
    assert amounts(manager) == (2, 2)


@pytest.mark.parametrize(("counts_too_many", "drifted"), [(False, (1, 2)), (True, (2, 3))])
def test_drift_comes_and_goes(manager, counts_too_many, drifted):
    plugin = plugin_of(manager, "a", "b")
    assert plugin.drift(on=True, counts_too_many=counts_too_many)
    assert amounts(manager) == drifted
    plugin.drift(on=False, counts_too_many=counts_too_many)
    assert amounts(manager) == (2, 2)
