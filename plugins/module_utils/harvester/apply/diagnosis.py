# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Find out why a request had no effect. Harvester does not report causes, so inspect its objects (harvester.md 15)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ...errors import FleetError, join_names
from ...kube.client import ApiClient, Json
from ...kube.objects import ObjectList
from .. import paths as r
from ..read.snapshot import parent_of
from ..read.vm_usage import broken_notes

PLACEHOLDER = "HTTPENDPOINT"
DRIVER_POD = ("app", "nvidia-driver-daemonset")
CONTROLLER_POD = ("app.kubernetes.io/name", "harvester-pcidevices-controller")


class Diagnosis:
    """A second read of the cluster, as far as permissions allow, that looks for causes on some nodes and GPUs."""

    def __init__(self, api: ApiClient) -> None:
        self._unreadable: list[str] = []

        def read(what: str, path: str) -> Callable[[], ObjectList]:
            def call() -> ObjectList:
                try:
                    return ObjectList.of(api.get(path))
                except FleetError:
                    self._unreadable.append(what)
                    return ObjectList()

            return call

        self.addons, self.pods, self.nodes, self.gpus, self.vgpus, self.claims, self.vms, self.mig = api.together(
            [
                read("addons", r.ADDONS),
                read("pods", r.SYSTEM_PODS),
                read("nodes", r.NODES),
                read("GPUs", r.GPUS),
                read("vGPU devices", r.VGPUS),
                read("claims", r.CLAIMS),
                read("VMs", r.VMS),
                read("MIG configurations", r.MIG_CONFIGURATIONS),
            ]
        )

    def causes(self, nodes: Iterable[str], gpus: Iterable[str], wanted: Collection[str] = ()) -> list[str]:
        """Return the likely causes, the most severe first. `wanted` are the types that the request is about."""
        found = [*self._addons(), *self._notes()]
        for node in sorted(set(nodes)):
            found += [*self._node(node), *self._controller(node), *self._driver(node), *self._labels(node)]
        for gpu in sorted(set(gpus)):
            found += self._gpu(gpu, wanted)
        if not found and "pods" in self._unreadable:
            found.append(f"The pods in {r.SYSTEM_NAMESPACE} could not be read; the driver's may not be ready")
        return found

    def _addons(self) -> Iterable[str]:
        if "addons" in self._unreadable:
            return
        addons = {item["metadata"]["name"]: item for item in self.addons.items.values()}
        for name in (r.PCIDEVICES_ADDON, r.DRIVER_ADDON):
            addon = addons.get(name)
            if addon is None or not (addon.get("spec") or {}).get("enabled"):
                yield f"The addon {name} is not enabled"
                continue
            status = addon.get("status") or {}
            failed = [
                condition.get("message") or condition.get("reason") or ""
                for condition in status.get("conditions") or []
                if condition.get("type") == "OperationFailed" and condition.get("status") == "True"
            ]
            if failed:
                yield f"The addon {name} failed: {failed[0]}".rstrip(": ")
            if PLACEHOLDER in str((addon.get("spec") or {}).get("valuesContent") or ""):
                yield f"The placeholder {PLACEHOLDER} is still in the driverLocation of the addon {name}"

    def _notes(self) -> Iterable[str]:
        for vm in broken_notes(self.vms.items):
            yield (
                f"The annotation {r.ALLOCATION_NOTE} of VM {vm} cannot be read,"
                " which takes the pcidevices controllers of all nodes down"
            )

    def _node(self, node: str) -> Iterable[str]:
        found = self.nodes.items.get(node)
        if found is not None and not is_ready(found):
            yield f"Node {node} is not ready"

    def _controller(self, node: str) -> Iterable[str]:
        if "pods" in self._unreadable:
            return
        pods = list(self._pods_on(node, CONTROLLER_POD, r.PCIDEVICES_DAEMONSET))
        if not pods:
            yield f"There is no pcidevices controller pod on node {node}"
        for pod in pods:
            trouble = _trouble(pod)
            if trouble:
                yield f"The pcidevices controller pod {pod['metadata']['name']} on node {node} {trouble}"

    def _driver(self, node: str) -> Iterable[str]:
        if "pods" in self._unreadable:
            return
        pods = list(self._pods_on(node, DRIVER_POD, r.DRIVER_DAEMONSET))
        if not pods:
            yield f"There is no NVIDIA driver pod on node {node}"
        for pod in pods:
            trouble = _trouble(pod)
            if trouble:
                yield f"The NVIDIA driver pod {pod['metadata']['name']} on node {node} {trouble}"

    def _pods_on(self, node: str, label: tuple[str, str], owner: str) -> Iterable[Json]:
        for pod in self.pods.items.values():
            if (pod.get("spec") or {}).get("nodeName") == node and _belongs(pod, label, owner):
                yield pod

    def _labels(self, node: str) -> Iterable[str]:
        bare = [
            name
            for name, vgpu in self.vgpus.items.items()
            if vgpu["spec"].get("nodeName") == node and (vgpu["metadata"].get("labels") or {}).get(r.NODE_LABEL) != node
        ]
        if bare:
            yield (
                f"vGPU device {join_names(bare)} has lost its label {r.NODE_LABEL}={node},"
                " which stops the scan of the whole node"
            )

    def _gpu(self, gpu: str, wanted: Collection[str]) -> Iterable[str]:
        if gpu in self.claims.items:
            yield f"GPU {gpu} is claimed for passthrough as a whole: delete its PCIDeviceClaim first"
        mig = self.mig.items.get(gpu)
        if mig is not None and not (mig.get("spec") or {}).get("enabled"):
            yield f"GPU {gpu} is in MIG mode and its MIG configuration is not enabled, so it offers no types"
        elif mig is not None and (mig.get("status") or {}).get("status") == "out-of-sync":
            said = (mig.get("status") or {}).get("message")
            yield f"The MIG configuration of GPU {gpu} is out of sync" + (f": {said}" if said else "")
        yield from self._scan(gpu)
        taken = {
            str(name)
            for vgpu in self.vgpus.items.values()
            if parent_of(vgpu) == gpu and (name := (vgpu.get("status") or {}).get("configureVGPUTypeName"))
        }
        # vGPUs of the requested type are never in the way of another one.
        taken -= set(wanted)
        if taken:
            yield f"GPU {gpu} has {join_names(taken)}, which limits what its other vGPUs can be"

    def _scan(self, gpu: str) -> Iterable[str]:
        """Name a scan that ended early: one unreadable virtual function hides all of them (harvester.md 4.2)."""
        if "vGPU devices" in self._unreadable:
            return
        found = self.gpus.items.get(gpu) or {}
        functions = (found.get("status") or {}).get("vGPUDevices") or []
        if not functions or any(name in self.vgpus.items for name in functions):
            return
        node = (found.get("spec") or {}).get("nodeName")
        yield (
            f"GPU {gpu} has {len(functions)} virtual functions, but the pcidevices controller of node {node} has"
            " created no vGPU device for them. Its scan ends at a virtual function whose types it cannot read; see the"
            " log of its pod"
        )


def is_ready(item: Json) -> bool:
    """Return whether a node or a pod has the condition Ready."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def driver_pods(pods: Iterable[Json]) -> list[Json]:
    return [pod for pod in pods if _belongs(pod, DRIVER_POD, r.DRIVER_DAEMONSET)]


def waiting_reason(pod: Json) -> tuple[str, str]:
    """Return why a container of a pod waits, with details. Both are empty if no container waits."""
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason"):
            last = ((container.get("lastState") or {}).get("terminated") or {}).get("message") or ""
            return str(waiting["reason"]), str(waiting.get("message") or last)
    return "", ""


def _belongs(pod: Json, label: tuple[str, str], owner: str) -> bool:
    key, value = label
    metadata = pod["metadata"]
    owners = {reference.get("name") for reference in metadata.get("ownerReferences") or []}
    return (metadata.get("labels") or {}).get(key) == value or owner in owners


def _trouble(pod: Json) -> str:
    """Return the reason why a pod is not ready, from its status."""
    if is_ready(pod):
        return ""
    status = pod.get("status") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    reason, detail = waiting_reason(pod)
    if reason:
        return f"is not ready: {reason}" + (f" ({detail})" if detail else "")
    message = (conditions.get("Ready") or {}).get("message") or status.get("message") or ""
    return f"is not ready: {message}" if message else "is not ready"
