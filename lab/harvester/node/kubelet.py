"""Simulated kubelet of one node: node status, running pods, devices allocated to pods."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable

from lab.clock import background
from lab.harvester import resources as r
from lab.harvester.cluster import Cluster
from lab.harvester.node.device_plugins import DeviceManager
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.workqueue import WorkQueue
from lab.scenarios.scenario import NodeSpec

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
POD_START_SECONDS = 1.0
KUBEVIRT_DEVICES = {
    "devices.kubevirt.io/kvm": "1k",
    "devices.kubevirt.io/tun": "1k",
    "devices.kubevirt.io/vhost-net": "1k",
}

# Health of a pod on this node: None to run the pod, otherwise the reason and the message of its failure.
PodHealth = Callable[[Json], "tuple[str, str] | None"]


def timestamp() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kubelet:
    def __init__(
        self,
        cluster: Cluster,
        spec: NodeSpec,
        pod_health: PodHealth,
        pod_ended: Callable[[Json], None] = lambda pod: None,
    ) -> None:
        self._cluster = cluster
        self._spec = spec
        self.node = spec.name
        self._pod_health = pod_health
        self._pod_ended = pod_ended
        self.devices = DeviceManager(self._devices_changed)
        self.allocations: dict[str, dict[str, list[str]]] = {}
        self._sync_pending = False
        self.up = True

    async def register(self) -> None:
        """Create the Node object, with the labels that KubeVirt needs for scheduling (harvester.md 12.7)."""
        labels = {
            "kubernetes.io/hostname": self.node,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            "kubevirt.io/schedulable": "true",
            "machine-type.node.kubevirt.io/q35": "true",
        }
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.node, "labels": labels, "finalizers": [r.NODE_FINALIZER]},
        }
        await self._cluster.admin.create_if_absent(r.NODE.collection, body)
        await self._cluster.admin.patch(r.NODE.path(self.node), {"spec": {"taints": []}})
        await self._write_status()
        await self.heartbeat()

    def run(self) -> None:
        queue = WorkQueue(self._cluster.clock, f"{self.node} kubelet", self._reconcile_pod)

        def on_change(old: Json | None, new: Json | None) -> None:
            pod = new or old
            if pod is not None and pod["spec"].get("nodeName") == self.node:
                queue.add(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")
                if new is None and self.up:
                    self._pod_ended(pod)

        self._cluster[r.POD].listen(on_change)
        self._queue = queue
        for pod in self._cluster[r.POD].all():
            on_change(None, pod)

    def look_again(self) -> None:
        """Reconcile all pods after a change of other objects."""
        for pod in self._cluster[r.POD].all():
            if pod["spec"].get("nodeName") == self.node:
                self._queue.add(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}")

    async def beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            try:
                if self.up:
                    await self.heartbeat()
            except (ApiError, OSError) as error:
                log.info("%s: heartbeat: %s", self.node, error)

    async def heartbeat(self) -> None:
        # In real time, because virt-controller compares the heartbeat with its own clock.
        annotations = {"kubevirt.io/heartbeat": timestamp()}
        await self._cluster.admin.patch(
            r.NODE.path(self.node),
            {"metadata": {"annotations": annotations, "labels": {"kubevirt.io/schedulable": "true"}}},
        )

    async def fall_silent(self) -> None:
        """Stop all reports of this kubelet; other components then write the node's conditions."""
        self.up = False
        ready = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": timestamp(),
        }
        taints = [{"key": "node.kubernetes.io/unreachable", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        path = r.NODE.path(self.node)
        await self._cluster.admin.patch(f"{path}/status", {"status": {"conditions": [ready]}})
        await self._cluster.admin.patch(path, {"spec": {"taints": taints}})

    async def come_back(self) -> None:
        self.up = True
        await self.register()
        self.look_again()

    # Node status
    def _devices_changed(self) -> None:
        if not self._sync_pending:
            self._sync_pending = True
            self._cluster.clock.call_later(self._cluster.scenario.kubelet_sync, self._sync)

    def _sync(self) -> None:
        self._sync_pending = False
        background(self._cluster.clock, self._write_status())

    async def _write_status(self) -> None:
        if not self.up:
            return
        own = {
            "cpu": str(self._spec.cpus),
            "memory": f"{self._spec.memory_gib}Gi",
            "ephemeral-storage": "1Ti",
            "pods": "200",
            **KUBEVIRT_DEVICES,
        }
        status = {
            "capacity": own | {name: str(count) for name, count in self.devices.capacity.items()},
            "allocatable": own | {name: str(count) for name, count in self.devices.allocatable.items()},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": timestamp()}
            ],
            "nodeInfo": _NODE_INFO,
        }
        try:
            await self._cluster[r.NODE].patch(
                {"metadata": {"name": self.node}}, {"status": status}, subresource="status"
            )
        except ApiError as error:
            if error.status != 404:
                raise

    # Pods
    async def _reconcile_pod(self, key: str) -> None:
        namespace, name = key.split("/")
        pod = self._cluster[r.POD].get(name, namespace)
        if pod is None:
            self.allocations.pop(key, None)
            return
        if not self.up:
            return
        if "deletionTimestamp" in pod["metadata"]:
            if not self._is_launcher_of_live_guest(pod):
                await self._end(pod)
            return
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if phase in ("Succeeded", "Failed"):
            return
        if phase == "Pending":
            await self._cluster.clock.sleep(POD_START_SECONDS)
            if not self._allocate(key, pod):
                await self._write_pod(pod, {"phase": "Failed", "reason": "UnexpectedAdmissionError"})
                return
        await self._write_pod(pod, self._running(pod))

    def _is_launcher_of_live_guest(self, pod: Json) -> bool:
        """Return whether the pod is the launcher of a guest that has not ended; virt-handler removes it afterwards."""
        owner = (pod["metadata"].get("labels") or {}).get("kubevirt.io/created-by")
        return owner is not None and any(
            instance["metadata"]["uid"] == owner
            and (instance.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
            for instance in self._cluster[r.VMI].all()
        )

    async def _end(self, pod: Json) -> None:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self.allocations.pop(f"{namespace}/{name}", None)
        try:
            await self._cluster.admin.delete(r.POD.path(name, namespace), {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise

    async def _write_pod(self, pod: Json, status: Json) -> None:
        current = pod.get("status") or {}
        if all(current.get(key) == value for key, value in status.items()):
            return
        try:
            await self._cluster[r.POD].patch(pod, {"status": status}, subresource="status")
        except ApiError as error:
            if error.status != 404:
                raise

    def _allocate(self, key: str, pod: Json) -> bool:
        """Allocate free devices, the highest address first, because the names in the VM are not binding."""
        wanted: dict[str, int] = {}
        for container in pod["spec"]["containers"]:
            for resource, amount in ((container.get("resources") or {}).get("limits") or {}).items():
                if resource.startswith("nvidia.com/"):
                    wanted[resource] = wanted.get(resource, 0) + int(amount)
        taken = {device for other in self.allocations.values() for devices in other.values() for device in devices}
        chosen = {}
        for resource, count in wanted.items():
            free = sorted((d for d in self.devices.healthy.get(resource, []) if d not in taken), reverse=True)
            if len(free) < count:
                return False
            chosen[resource] = free[:count]
        if chosen:
            self.allocations[key] = chosen
        return True

    def _running(self, pod: Json) -> Json:
        trouble = self._pod_health(pod)
        ready = trouble is None
        started = (pod.get("status") or {}).get("startTime") or timestamp()
        state: Json = {"running": {"startedAt": started}}
        if trouble and trouble[0] == "CrashLoopBackOff":
            state = {"waiting": {"reason": trouble[0], "message": trouble[1]}}
        helpers = pod["spec"].get("initContainers") or []
        return {
            "phase": "Running",
            "startTime": started,
            "podIP": "10.52.0.1",
            "podIPs": [{"ip": "10.52.0.1"}],
            "conditions": self._conditions(pod, ready, started),
            "containerStatuses": [
                _container(container["name"], state, ready) for container in pod["spec"]["containers"]
            ],
            **({"initContainerStatuses": [_helper(helper, started) for helper in helpers]} if helpers else {}),
        }

    @staticmethod
    def _conditions(pod: Json, ready: bool, started: str) -> list[Json]:
        """Return the kubelet's conditions, and keep those of other controllers, which would restore them endlessly."""
        held = {"Ready": ready, "ContainersReady": ready, "Initialized": True, "PodScheduled": True}
        others = [
            condition
            for condition in (pod.get("status") or {}).get("conditions") or []
            if condition["type"] not in held
        ]
        own = [{"type": kind, "status": str(value), "lastTransitionTime": started} for kind, value in held.items()]
        return own + others


def _container(name: str, state: Json, ready: bool) -> Json:
    return {
        "name": name,
        "ready": ready,
        "started": ready,
        "restartCount": 0 if ready else 1,
        "image": "lab",
        "imageID": "lab",
        "state": state,
    }


def _helper(container: Json, started: str) -> Json:
    """Return the status of an init container: running if it is a sidecar, otherwise completed."""
    if container.get("restartPolicy") == "Always":
        return _container(container["name"], {"running": {"startedAt": started}}, ready=True)
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": started, "finishedAt": started}
    return _container(container["name"], {"terminated": ended}, ready=True) | {"started": False}


_NODE_INFO = {
    "architecture": "amd64",
    "operatingSystem": "linux",
    "bootID": "",
    "containerRuntimeVersion": "lab",
    "kernelVersion": "6.14.0",
    "kubeProxyVersion": "lab",
    "kubeletVersion": "v1.34.0",
    "machineID": "",
    "osImage": "Harvester",
    "systemUUID": "",
}
