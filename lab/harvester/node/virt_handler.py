"""Simulated virt-handler: starts and stops guests on the node of their launcher pods (harvester.md 12.7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lab.harvester import resources as r
from lab.harvester.admission.rules import devices_of
from lab.harvester.cluster import Cluster
from lab.harvester.node import displays
from lab.harvester.node.kubelet import timestamp
from lab.kubernetes.client import JSON_PATCH, ApiError, Client, Json
from lab.kubernetes.workqueue import WorkQueue

BOOT_SECONDS = 2.0
SHUTDOWN_SECONDS = 1.0
CREATED_BY_LABEL = "kubevirt.io/created-by"
Patch = list[Json]


class Guests:
    def __init__(self, cluster: Cluster, handler: Client) -> None:
        self._cluster = cluster
        self._handler = handler
        self.before_end: Callable[[Json], Awaitable[None]] | None = None

    def run(self) -> None:
        queue = WorkQueue(self._cluster.clock, "virt-handler", self._reconcile, workers=8)

        def instance_noticed(old: Json | None, new: Json | None) -> None:
            if new is not None:
                queue.add(f"{new['metadata']['namespace']}/{new['metadata']['name']}")

        def pod_noticed(old: Json | None, new: Json | None) -> None:
            pod = new or old
            if pod is not None and CREATED_BY_LABEL in (pod["metadata"].get("labels") or {}):
                for instance in self._cluster[r.VMI].all():
                    if instance["metadata"]["uid"] == pod["metadata"]["labels"][CREATED_BY_LABEL]:
                        instance_noticed(None, instance)

        self._cluster[r.VMI].listen(instance_noticed)
        self._cluster[r.POD].listen(pod_noticed)
        for instance in self._cluster[r.VMI].all():
            instance_noticed(None, instance)

    def launcher(self, instance: Json) -> Json | None:
        for pod in self._cluster[r.POD].all():
            if (pod["metadata"].get("labels") or {}).get(CREATED_BY_LABEL) == instance["metadata"]["uid"]:
                return pod
        return None

    async def _reconcile(self, key: str) -> None:
        namespace, name = key.split("/")
        instance = self._cluster[r.VMI].get(name, namespace)
        if instance is None:
            return
        phase = (instance.get("status") or {}).get("phase", "")
        pod = self.launcher(instance)
        leaving = "deletionTimestamp" in instance["metadata"] or (
            pod is not None and "deletionTimestamp" in pod["metadata"]
        )
        if leaving and phase in ("Scheduled", "Running"):
            if self.before_end is not None:
                await self.before_end(instance)
            await self._cluster.clock.sleep(SHUTDOWN_SECONDS)
            await self._move(instance, "Succeeded", [])
        elif phase == "Scheduled" and pod is not None and not leaving and len(self._boot_displays(instance)) > 1:
            await self._refused_by_libvirt(instance)
        elif phase == "Scheduled" and pod is not None and not leaving:
            await self._cluster.clock.sleep(BOOT_SECONDS)
            await self._move(instance, "Running", self._running(instance))
        if leaving and pod is not None and phase in ("Succeeded", "Failed"):
            await self._remove(pod)

    def _boot_displays(self, instance: Json) -> list[Json]:
        gpus: list[Json] = devices_of({"spec": {"template": instance}}).get("gpus") or []
        return displays.showing(gpus, each=self._cluster.version.display_for_each_vgpu)

    async def _refused_by_libvirt(self, instance: Json) -> None:
        """Record why the guest does not start; virt-handler retries, and the instance keeps its phase."""
        cause = "unsupported configuration: Only one vgpu device can have 'ramfb' enabled"
        text = f"server error. command SyncVMI failed: {cause}"
        known = (instance.get("status") or {}).get("conditions") or []
        if any(condition.get("message") == text for condition in known):
            return
        condition = {
            "type": "Synchronized",
            "status": "False",
            "reason": "Synchronizing with the Domain failed.",
            "message": text,
            "lastProbeTime": None,
            "lastTransitionTime": timestamp(),
        }
        metadata = instance["metadata"]
        patch = [{"op": "add", "path": "/status/conditions/-", "value": condition}]
        written = await self._handler.patch(
            r.VMI.path(metadata["name"], metadata["namespace"]), patch, content_type=JSON_PATCH
        )
        await self._cluster[r.VMI].seen(written)

    async def lose(self, node: str) -> None:
        """End the guests of a node that fails; virt-controller restarts guests with the run strategy Always."""
        for instance in self._cluster[r.VMI].all():
            status = instance.get("status") or {}
            if status.get("nodeName") == node and status.get("phase") in ("Scheduled", "Running"):
                pod = self.launcher(instance)
                await self._move(instance, "Failed", [])
                if pod is not None:
                    await self._remove(pod)

    async def _remove(self, pod: Json) -> None:
        try:
            await self._cluster.admin.delete(
                r.POD.path(pod["metadata"]["name"], pod["metadata"]["namespace"]), {"gracePeriodSeconds": 0}
            )
        except ApiError as error:
            if error.status != 404:
                raise

    @staticmethod
    def _running(instance: Json) -> Patch:
        networks = instance["spec"].get("networks") or [{"name": "default"}]
        interface = {"name": networks[0]["name"], "ipAddress": "10.52.0.10", "mac": "52:54:00:00:00:01"}
        patch: Patch = [{"op": "add", "path": "/status/interfaces", "value": [interface]}]
        devices = devices_of({"spec": {"template": instance}})
        if devices.get("gpus") or devices.get("hostDevices"):
            condition = {
                "type": "LiveMigratable",
                "status": "False",
                "reason": "HostDeviceNotLiveMigratable",
                "message": "VMI uses a PCI host devices",
                # virt-controller compares the whole list, with its own fields, before it writes.
                "lastProbeTime": None,
                "lastTransitionTime": timestamp(),
            }
            # Append the condition, because the other conditions belong to virt-controller.
            patch.append({"op": "add", "path": "/status/conditions/-", "value": condition})
        return patch

    async def _move(self, instance: Json, phase: str, changes: Patch) -> None:
        metadata = instance["metadata"]
        moved = {"phase": phase, "phaseTransitionTimestamp": timestamp()}
        patch = [
            *changes,
            {"op": "replace", "path": "/status/phase", "value": phase},
            {"op": "add", "path": "/status/phaseTransitionTimestamps/-", "value": moved},
        ]
        try:
            written = await self._handler.patch(
                r.VMI.path(metadata["name"], metadata["namespace"]), patch, content_type=JSON_PATCH
            )
            await self._cluster[r.VMI].seen(written)
        except ApiError as error:
            if error.status != 404:
                raise
