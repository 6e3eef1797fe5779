"""Guest cluster: a real control plane whose nodes are the VMs of its machines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from lab.clock import Clock
from lab.harvester.admission.rules import devices_of
from lab.harvester.node.kubelet import timestamp
from lab.kubernetes import certificates, controlplane, custom_resources
from lab.kubernetes.client import ApiError, Client, Json
from lab.rancher import definitions, resources as r
from lab.rancher.guest.gpu_operator import CONTAINERD_SOCKET, USUAL_SOCKET, GpuOperator
from lab.rancher.guest.kubelet import GPU, GuestKubelet
from lab.rancher.world import World
from lab.rundir import RunDir

WATCHED = (r.NODE, r.POD, r.SECRET, r.CONFIG_MAP, r.DAEMON_SET, r.HELM_CHART, r.POLICY)
RKE2, KUBEADM = "rke2", "kubeadm"
SOCKETS = {RKE2: CONTAINERD_SOCKET, KUBEADM: USUAL_SOCKET}
NODE_ROLES = {"etcdRole": "etcd", "controlPlaneRole": "control-plane", "workerRole": "worker"}


@dataclass(frozen=True)
class Member:
    """A node that a machine joins the cluster with, and what its VM has."""

    name: str
    provider_id: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Json] = ()
    cpus: str = "2"
    memory: str = "4Gi"
    gpus: int = 0
    driver_in_image: bool = False
    # Why the node is not ready although its machine runs.
    trouble: str = ""


class Guest:
    def __init__(
        self,
        run: RunDir,
        world: World,
        stack: AsyncExitStack,
        driver_in_image: Callable[[Json], bool],
        distribution: str = RKE2,
    ) -> None:
        self.run = run
        self.world = world
        self._stack = stack
        self._driver_in_image = driver_in_image
        self._gpus: dict[str, int] = {}
        self._distribution = distribution
        self.operator = GpuOperator(world, self._gpus, socket=SOCKETS[distribution])
        self.kubelet = GuestKubelet(world, run, self.operator, self._gpus)

    @classmethod
    async def start(
        cls,
        run: RunDir,
        lab: RunDir,
        clock: Clock,
        driver_in_image: Callable[[Json], bool],
        distribution: str = RKE2,
    ) -> Guest:
        programs = {name: Path(path) for name, path in lab.read()["binaries"].items()}
        await asyncio.to_thread(_start, run, programs)
        stack = AsyncExitStack()
        client = await stack.enter_async_context(
            Client.from_kubeconfig(run.kubeconfig("harvester"), user_agent="guest")
        )
        await custom_resources.install(client, definitions.guest_definitions())
        world = World(clock, client)
        world.watch(*(resource for resource in WATCHED if resource is not r.POLICY))
        await world.watched()
        # A chart installs the definition later, so the lab does not wait for this watch.
        world.watch(r.POLICY)
        guest = cls(run, world, stack, driver_in_image, distribution)
        await guest.kubelet.run()
        guest.operator.run()
        return guest

    async def stop(self) -> None:
        self.world.stop()
        await self.kubelet.stop()
        self.operator.stop()
        await self._stack.aclose()

    # Nodes
    async def node(self, machine: Json, vm: Json | None, instance: Json | None) -> bool:
        """Reconcile the machine's node with its guest, and return whether the node is ready."""
        name = machine["spec"]["infrastructureRef"]["name"]
        node = self.world[r.NODE].get(name)
        if node is None:
            if instance is None or vm is None:
                return False
            node = await self._join(name, machine)
        ready = instance is not None
        await self.world.write_status(r.NODE, node, self._status(node, vm, ready=ready))
        return ready

    async def _join(self, name: str, machine: Json) -> Json:
        metadata = machine["metadata"]
        roles = [called for role, called in NODE_ROLES.items() if r.ROLE_LABELS[role] in metadata["labels"]]
        annotations = metadata.get("annotations") or {}
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/os": "linux",
            **{f"node-role.kubernetes.io/{role}": "true" for role in roles},
            **json.loads(annotations.get(r.LABELS_ANNOTATION, "{}")),
        }
        taints = json.loads(annotations.get(r.TAINTS_ANNOTATION, "[]"))
        if "worker" not in roles:
            taints += [
                {"key": f"node-role.kubernetes.io/{role}", "effect": effect}
                for role, effect in (("etcd", "NoExecute"), ("control-plane", "NoSchedule"))
                if role in roles
            ]
        return await self._register(name, labels, taints, f"harvester://{metadata['uid']}")

    async def member(self, member: Member, *, running: bool) -> bool:
        """Reconcile the node of a machine that is not on Harvester, and return whether the node is ready."""
        node = self.world[r.NODE].get(member.name)
        if node is None:
            if not running:
                return False
            labels = {
                "kubernetes.io/hostname": member.name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                **member.labels,
            }
            node = await self._register(member.name, labels, list(member.taints), member.provider_id)
        self._gpus[member.name] = member.gpus
        self.operator.driver_in_image[member.name] = member.driver_in_image
        ready = running and not member.trouble
        own = {"cpu": member.cpus, "memory": member.memory}
        await self.world.write_status(r.NODE, node, self._node_status(node, own, ready=ready, trouble=member.trouble))
        return ready

    async def _register(self, name: str, labels: Json, taints: list[Json], provider_id: str) -> Json:
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints, "providerID": provider_id}}
        try:
            await self.world[r.NODE].create(body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
        # The API server taints a new node until its kubelet has reported.
        return await self.world[r.NODE].patch(body, {"spec": {"taints": taints}})

    def _status(self, node: Json, vm: Json | None, *, ready: bool) -> Json:
        name, limits = node["metadata"]["name"], _limits(vm)
        self._gpus[name] = len(_vgpus(vm))
        self.operator.driver_in_image[name] = bool(vm and self._driver_in_image(vm))
        own = {"cpu": limits.get("cpu", "2"), "memory": limits.get("memory", "4Gi")}
        return self._node_status(node, own, ready=ready)

    def _node_status(self, node: Json, own: Json, *, ready: bool, trouble: str = "") -> Json:
        name, current = node["metadata"]["name"], node.get("status") or {}
        own = own | {"ephemeral-storage": "40Gi", "pods": "110"}
        offered = self._offered(name, (current.get("allocatable") or {}).get(GPU), ready=ready)
        said = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        if not ready:
            said = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        if trouble:
            said = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": trouble}
        before: Json = next((one for one in current.get("conditions") or [] if one["type"] == "Ready"), {})
        unchanged = all(before.get(key) == value for key, value in said.items())
        return {
            "capacity": own | offered,
            "allocatable": own | offered,
            "conditions": [before if unchanged else said | {"lastTransitionTime": timestamp()}],
            "addresses": [
                {"type": "InternalIP", "address": "10.52.0.10"},
                {"type": "Hostname", "address": name},
                # Address at which the API server requests logs.
                {"type": "ExternalDNS", "address": "localhost"},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet.port}},
            "nodeInfo": _NODE_INFO | ({} if self._distribution == RKE2 else _KUBEADM_INFO),
        }

    def _offered(self, name: str, before: str | None, *, ready: bool) -> Json:
        """Return the node's GPUs: 0 if they are no longer offered, the last count while the node is not ready."""
        if ready and self.operator.serves(name):
            return {GPU: str(self._gpus[name])}
        if before is None:
            return {}
        return {GPU: "0" if ready else before}

    async def remove_node(self, name: str) -> None:
        self._gpus.pop(name, None)
        if self.world[r.NODE].get(name) is not None:
            await self.world.remove(r.NODE, name)


def _start(run: RunDir, programs: dict[str, Path]) -> None:
    run.create()
    # The API server requests logs at the address of the lab's kubelets, not at the node's internal address.
    run.update(apiserver_flags={"kubelet-preferred-address-types": "ExternalDNS"})
    controlplane.start_api(run, programs)
    # The controllers start while machines boot; nothing has to wait for them.
    controlplane.start_controllers(run)
    certificates.server(run, "kubelet")


def _limits(vm: Json | None) -> Json:
    template = (((vm or {}).get("spec") or {}).get("template") or {}).get("spec") or {}
    limits: Json = ((template.get("domain") or {}).get("resources") or {}).get("limits") or {}
    return limits


def _vgpus(vm: Json | None) -> list[Json]:
    devices = devices_of(vm or {})
    return [
        device
        for device in [*(devices.get("gpus") or []), *(devices.get("hostDevices") or [])]
        if str(device.get("deviceName", "")).startswith("nvidia.com/")
    ]


_NODE_INFO = {
    "architecture": "amd64",
    "operatingSystem": "linux",
    "bootID": "",
    "containerRuntimeVersion": "containerd://2.0.0-k3s1",
    "kernelVersion": "6.8.0",
    "kubeProxyVersion": "lab",
    "kubeletVersion": "v1.34.0+rke2r1",
    "machineID": "",
    "osImage": "Ubuntu 22.04 LTS",
    "systemUUID": "",
}
_KUBEADM_INFO = {"containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": "v1.34.1"}
