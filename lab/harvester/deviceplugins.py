"""Device plugins on a node and what its kubelet makes of them (facts 3.5)."""

from __future__ import annotations

from collections.abc import Callable


class DeviceManager:
    """The kubelet's side: last known devices of each resource. A lost plugin leaves its capacity behind."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.capacity: dict[str, int] = {}
        self.allocatable: dict[str, int] = {}
        self.healthy: dict[str, list[str]] = {}

    def report(self, resource: str, devices: dict[str, bool]) -> None:
        self.healthy[resource] = [device for device, healthy in devices.items() if healthy]
        self.capacity[resource] = len(devices)
        self.allocatable[resource] = len(self.healthy[resource])
        self._changed()

    def lost(self, resource: str) -> None:
        self.healthy[resource] = []
        self.allocatable[resource] = 0
        self._changed()


class DevicePlugin:
    """One resource of one node. Devices are never taken off its list, only marked unhealthy."""

    def __init__(self, manager: DeviceManager, resource: str) -> None:
        self._manager = manager
        self.resource = resource
        self._devices: dict[str, bool] = {}

    @property
    def healthy_count(self) -> int:
        return sum(self._devices.values())

    def add(self, device: str) -> None:
        # A device that is known already stays as it is, unhealthy too: a re-enabled VF is not counted again.
        if device not in self._devices:
            self._devices[device] = True
            self._manager.report(self.resource, self._devices)

    def remove(self, device: str) -> None:
        if self._devices.get(device):
            self._devices[device] = False
            self._manager.report(self.resource, self._devices)

    def stop(self) -> None:
        self._manager.lost(self.resource)
