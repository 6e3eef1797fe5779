"""Device plugins of a node and the resources that its kubelet derives from them (harvester.md 9.1)."""

from __future__ import annotations

from collections.abc import Callable


class DeviceManager:
    """Device manager of the kubelet: last known devices of each resource. A lost plugin leaves its capacity behind."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self.capacity: dict[str, int] = {}
        self.allocatable: dict[str, int] = {}
        self.healthy: dict[str, list[str]] = {}
        # Number of kubelet restarts: the kubelet ignores plugins that registered before its last restart.
        self.life = 0

    def restart(self) -> None:
        """Drop all resources until new plugins start, because plugins do not register again (harvester.md 9.4)."""
        self.life += 1
        for resource in self.capacity:
            self.healthy[resource] = []
            self.capacity[resource] = self.allocatable[resource] = 0
        self._changed()

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
    """Device plugin for one resource of one node. Devices stay in its list and are only marked unhealthy."""

    def __init__(self, manager: DeviceManager, resource: str) -> None:
        self._manager = manager
        self.resource = resource
        self._devices: dict[str, bool] = {}
        self._life = manager.life
        self._drifted: list[str] = []

    @property
    def healthy_count(self) -> int:
        return sum(self._devices.values())

    def add(self, device: str) -> None:
        # A known device keeps its health: a virtual function that is enabled again is not counted again.
        if device not in self._devices:
            self._devices[device] = True
            self._report()

    def remove(self, device: str) -> None:
        if self._devices.get(device):
            self._devices[device] = False
            self._report()

    def stop(self) -> None:
        if self._life == self._manager.life:
            self._manager.lost(self.resource)

    def drift(self, *, on: bool, counts_too_many: bool) -> bool:
        """Make one healthy device unhealthy, or count one too many, or undo both. Return whether a drift remains."""
        if on and counts_too_many:
            self._drifted.append(f"gone-{len(self._devices)}")
            self._devices[self._drifted[-1]] = False
        elif on:
            healthy = [device for device, well in self._devices.items() if well]
            self._drifted += healthy[-1:]
            self._devices |= dict.fromkeys(healthy[-1:], False)
        else:
            for device in self._drifted:
                if counts_too_many:
                    del self._devices[device]
                else:
                    self._devices[device] = True
            self._drifted = []
        self._report()
        return bool(self._drifted)

    def _report(self) -> None:
        if self._life == self._manager.life:
            self._manager.report(self.resource, self._devices)
