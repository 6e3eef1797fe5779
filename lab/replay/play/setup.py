"""Bring a fresh lab to the initial state of a recording, with the requests that led there."""

from __future__ import annotations

from collections.abc import Iterable

from lab.replay.compare.bindings import Bindings
from lab.replay.observe.normalized import gpu_resources
from lab.replay.play.environment import Environment, coarsely
from lab.replay.play.host_action import set_hardware
from lab.replay.read.condition import CONFIGURED, ClusterState, Condition, field_of, types_of
from lab.replay.read.initial_state import Amounts, InitialState, Vgpu
from lab.replay.read.recording import Recording
from lab.replay.read.step_context import DEVICE, resource_of

SCAN = 35.0
PATIENCE = 180.0


def set_up(recording: Recording, start: InitialState, environment: Environment, bindings: Bindings) -> list[str]:
    """Create the initial state. Return notes on what failed."""
    return _Setup(recording, start, environment, bindings).make()


class _Setup:
    def __init__(self, recording: Recording, start: InitialState, environment: Environment, bindings: Bindings) -> None:
        self.start = start
        self.environment = environment
        self.bindings = bindings
        self.notes: list[str] = []
        self.named = {name for step in recording.steps for name in DEVICE.findall(str(step.content.get("request")))}

    def make(self) -> list[str]:
        nodes = [node for node, on in self.start.gpus.items() if on]
        self._switch_on(nodes)
        for node in nodes:
            self._vgpus(node)
        for path, machine in self.start.machines:
            self.environment.api.request("POST", path, {"apiVersion": "kubevirt.io/v1", **machine})
        if nodes:
            # What follows from the last change only with the next scan has long happened in the recorded cluster.
            self.environment.advance(SCAN)
        self._note_inherited()
        return self.notes

    def _until(self, what: str, condition: Condition) -> None:
        reached, seconds = self.environment.wait(condition, PATIENCE, coarsely)
        if not reached:
            self.notes.append(f"initial state: {what} was not reached within {seconds:.0f} s")

    def _switch_on(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            for name, gpu in self.environment.snapshot.of_node("sriovgpudevices", node).items():
                if node in self.start.mig:
                    set_hardware(self.environment, node, field_of(gpu, "spec.address"), mig_capable=True)
                self.environment.patch("sriovgpudevices", name, {"spec": {"enabled": True}})
        for node in nodes:
            self._until(f"vGPU devices of {node}", _free(node))

    # One node's vGPUs: first what earlier scenarios had and gave up, then what they left on.
    def _vgpus(self, node: str) -> None:
        wanted = self._wanted(node)
        profiles = self._profiles(node)
        amounts = dict(self.start.amounts.get(node, {}))
        for resource in sorted(self.start.permitted - set(amounts)):
            if node == next(iter(self.start.gpus)) and not amounts:
                amounts[resource] = Amounts(1, 0)
        kept = {resource_of(vgpu.configured or vgpu.profile) for vgpu in wanted.values()}
        for resource, amount in sorted(amounts.items()):
            if resource in profiles and resource not in kept and amount.capacity:
                devices = self._spare(node, amount.capacity, taken=wanted)
                self._cycle(node, devices, profiles[resource])
        for name in sorted(self.start.written):
            if name.startswith(f"{node}-") and name not in wanted:
                self._cycle(node, [name], next(iter(profiles.values()), ""))
        for resource in sorted(kept):
            keep = [name for name, vgpu in wanted.items() if resource_of(vgpu.configured or vgpu.profile) == resource]
            more = (amounts[resource].capacity if resource in amounts else 0) - len(keep)
            once = self._spare(node, more, taken=wanted, typed=resource)
            self._enable(node, [*keep, *once], profiles.get(resource, ""))
            self._disable(node, once)
        self._dress(node, wanted)

    def _wanted(self, node: str) -> dict[str, Vgpu]:
        """The vGPUs that were on, with stand-ins for those that only show in the node's amounts or in offers."""
        wanted = {name: vgpu for name, vgpu in self.start.vgpus.items() if vgpu.enabled and name.startswith(f"{node}-")}
        profiles = self._profiles(node)
        for resource, amount in self.start.amounts.get(node, {}).items():
            known = sum(1 for vgpu in wanted.values() if resource_of(vgpu.configured or vgpu.profile) == resource)
            for name in self._spare(node, (amount.allocatable or 0) - known, taken=wanted, stand_in=True):
                if resource in profiles:
                    wanted[name] = Vgpu(True, profiles[resource], profiles[resource])
        offered = self.start.offered.get(node) or []
        if offered and len(offered) < len(profiles) and not wanted:
            profile = next((name for name in offered if name.endswith("Q")), offered[0])
            for name in self._spare(node, 1, taken=wanted, stand_in=True):
                wanted[name] = Vgpu(True, profile, profile)
        return wanted

    def _profiles(self, node: str) -> dict[str, str]:
        offers = [types_of(vgpu) for vgpu in self.environment.snapshot.of_node("vgpudevices", node).values()]
        return {resource_of(name): name for name in max(offers, key=len, default={})}

    def _spare(
        self, node: str, number: int, *, taken: Iterable[str], typed: str = "", stand_in: bool = False
    ) -> list[str]:
        """Devices to use in passing: those that still bear the type first, then those that no request names."""
        free = [name for name in self.environment.snapshot.of_node("vgpudevices", node) if name not in set(taken)]

        def rank(name: str) -> tuple[bool, bool, str]:
            left = self.start.vgpus.get(name, Vgpu())
            bears = not stand_in and bool(typed) and resource_of(left.profile) == typed
            return (not bears, name in self.named, name)

        return sorted(free, key=rank)[: max(number, 0)]

    def _cycle(self, node: str, devices: list[str], profile: str) -> None:
        self._enable(node, devices, profile)
        self._disable(node, devices)

    def _enable(self, node: str, devices: list[str], profile: str) -> None:
        for name in devices:
            self._until(f"{name} offered {profile}", _offered(name, profile))
            answer = self.environment.patch("vgpudevices", name, {"spec": {"enabled": True, "vGPUTypeName": profile}})
            if not answer.accepted:
                self.notes.append(f"initial state: {name} as {profile} was denied: {answer.message}")
            self._until(f"{name} configured", _configured(name))
        resource = resource_of(profile)
        self._until(f"allocatable {resource} on {node}", _allocatable(node, resource, profile))

    def _disable(self, node: str, devices: list[str]) -> None:
        for name in devices:
            # A type that a recording shows on a disabled device was not cleared when it was disabled.
            left = self.start.vgpus.get(name, Vgpu()).profile
            self.environment.patch(
                "vgpudevices", name, {"spec": {"enabled": False} | ({} if left else {"vGPUTypeName": ""})}
            )
        if devices:
            self._until(f"{', '.join(devices)} off", _off(devices))

    def _dress(self, node: str, wanted: dict[str, Vgpu]) -> None:
        """Types, labels and annotations that earlier scenarios wrote and left."""
        for name, vgpu in self.start.vgpus.items():
            live = self.environment.snapshot.get("vgpudevices", name)
            if not name.startswith(f"{node}-") or live is None:
                continue
            body: dict[str, object] = {}
            if (field_of(live, "spec.vGPUTypeName") or "") != vgpu.profile and (name not in wanted or vgpu.profile):
                body["spec"] = {"vGPUTypeName": vgpu.profile}
            if vgpu.labels or vgpu.annotations:
                body["metadata"] = {"labels": vgpu.labels, "annotations": vgpu.annotations}
            if body:
                self.environment.patch("vgpudevices", name, body)

    def _note_inherited(self) -> None:
        for node, amounts in self.start.amounts.items():
            live = self.environment.snapshot.get("nodes", node) or {}
            for resource, amount in amounts.items():
                ours = tuple(gpu_resources(live, of).get(resource) for of in ("capacity", "allocatable"))
                recorded = (str(amount.capacity), str(amount.allocatable or 0))
                if ours != recorded and amount.allocatable is not None:
                    self.bindings.inherited.setdefault(node, {})[resource] = recorded
                    self.notes.append(f"{node} starts with {resource} {ours}, the recording with {recorded}")


def _free(node: str) -> Condition:
    def holds(cluster: ClusterState) -> bool:
        vgpus = cluster.snapshot.of_node("vgpudevices", node).values()
        addresses = [
            address
            for gpu in cluster.snapshot.of_node("sriovgpudevices", node).values()
            for address in field_of(gpu, "status.vfAddresses") or []
        ]
        return 0 < len(addresses) == len(vgpus) and all(types_of(vgpu) for vgpu in vgpus)

    return Condition(holds)


def _offered(name: str, profile: str) -> Condition:
    return Condition(lambda cluster: profile in types_of(cluster.snapshot.get("vgpudevices", name)))


def _configured(name: str) -> Condition:
    def holds(cluster: ClusterState) -> bool:
        vgpu = cluster.snapshot.get("vgpudevices", name)
        return field_of(vgpu, "status.vGPUStatus") == CONFIGURED and bool(field_of(vgpu, "configureVGPUTypeName"))

    return Condition(holds)


def _allocatable(node: str, resource: str, profile: str) -> Condition:
    def holds(cluster: ClusterState) -> bool:
        on = [
            vgpu
            for vgpu in cluster.snapshot.of_node("vgpudevices", node).values()
            if field_of(vgpu, "status.configureVGPUTypeName") == profile
        ]
        amounts = gpu_resources(cluster.snapshot.get("nodes", node) or {}, "allocatable")
        return amounts.get(resource, "0") == str(len(on))

    return Condition(holds)


def _off(devices: list[str]) -> Condition:
    def holds(cluster: ClusterState) -> bool:
        vgpus = [cluster.snapshot.get("vgpudevices", name) for name in devices]
        return all(vgpu and not field_of(vgpu, "status.vGPUStatus") and types_of(vgpu) for vgpu in vgpus) and not any(
            cluster.snapshot.get("pcideviceclaims", name) for name in devices
        )

    return Condition(holds)
