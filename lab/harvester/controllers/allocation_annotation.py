"""Controller for the allocation annotation of running VMs and the device names of stopped VMs (harvester.md 12.4)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping

from lab.harvester import resources as r
from lab.harvester.admission.mutations import rebuilt_note
from lab.harvester.admission.rules import devices_of
from lab.harvester.cluster import Cluster
from lab.harvester.node.kubelet import Kubelet
from lab.harvester.node.virt_handler import Guests
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.workqueue import WorkQueue

ATTEMPTS = 10
# Time from an update of a stopped VM to its annotation.
UPDATE_SECONDS = 0.2


class AllocationNotes:
    """Part of the pcidevices process on the guest's node, which does nothing while that process is down."""

    def __init__(
        self, cluster: Cluster, kubelets: Mapping[str, Kubelet], guests: Guests, alive: Callable[[str], bool]
    ) -> None:
        self._cluster = cluster
        self._kubelets = kubelets
        self._guests = guests
        self._alive = alive
        guests.before_end = self.guest_ends

    def run(self) -> None:
        self._queue = WorkQueue(self._cluster.clock, "allocation notes", self._reconcile)
        self._cluster[r.VMI].listen(lambda old, new: self._notice(new))
        if self._cluster.version.rebuilds_allocation_notes:
            self._updates = WorkQueue(self._cluster.clock, "notes of stopped VMs", self._rebuild)
            self._cluster[r.VM].listen(self._notice_update)
        self.look_again()

    def look_again(self) -> None:
        for instance in self._cluster[r.VMI].all():
            self._notice(instance)

    def _notice(self, instance: Json | None) -> None:
        if instance is not None:
            self._queue.add(f"{instance['metadata']['namespace']}/{instance['metadata']['name']}")

    def _notice_update(self, old: Json | None, new: Json | None) -> None:
        """Handle an update of a VM, whose response does not contain the annotation yet (harvester.md 12.5)."""
        if old is not None and new is not None and _content(old) != _content(new):
            self._updates.add_after(f"{new['metadata']['namespace']}/{new['metadata']['name']}", UPDATE_SECONDS)

    async def _rebuild(self, key: str) -> None:
        """Rebuild the annotation of a VM that does not run from its spec (from 1.9 on)."""
        namespace, name = key.split("/")
        vm = self._cluster[r.VM].get(name, namespace)
        if vm is None or self._cluster[r.VMI].get(name, namespace) is not None:
            return
        if "deletionTimestamp" not in vm["metadata"] and any(map(self._alive, self._kubelets)):
            await self._write(vm, rebuilt_note(vm))

    async def _reconcile(self, key: str) -> None:
        namespace, name = key.split("/")
        instance = self._cluster[r.VMI].get(name, namespace)
        vm = self._cluster[r.VM].get(name, namespace)
        if instance is None or vm is None:
            return
        status = instance.get("status") or {}
        node = status.get("nodeName", "")
        if not self._alive(node) or not self._cluster.version.notes_allocations:
            return
        if "deletionTimestamp" not in instance["metadata"] and status.get("phase") == "Running":
            await self._write(vm, self._note(instance, node))

    async def guest_ends(self, instance: Json) -> None:
        """Write the names of the allocated devices into the VM's spec before the instance is removed."""
        metadata = instance["metadata"]
        if not self._alive((instance.get("status") or {}).get("nodeName", "")):
            return
        for _ in range(ATTEMPTS):
            vm = self._cluster[r.VM].get(metadata["name"], metadata["namespace"])
            if vm is None:
                return
            try:
                await self._rewrite_names(vm)
                return
            except ApiError as error:
                if error.status != 409:
                    raise
                await self._cluster[r.VM].sync()

    def _note(self, instance: Json, node: str) -> str | None:
        devices = devices_of({"spec": {"template": instance}})
        pod = self._guests.launcher(instance)
        if pod is None or not (devices.get("gpus") or devices.get("hostDevices")):
            return None
        allocated = self._kubelets[node].allocations.get(
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", {}
        )
        details: Json = {}
        for key, field in (("hostdevices", "hostDevices"), ("gpus", "gpus")):
            resources = dict.fromkeys(device.get("deviceName", "") for device in devices.get(field) or [])
            named = {
                resource: [self._object_name(node, device) for device in allocated[resource]]
                for resource in resources
                if resource in allocated
            }
            if named:
                details[key] = named
        return json.dumps(details, separators=(",", ":"))

    def _object_name(self, node: str, device: str) -> str:
        """Return the object name of a device plugin's device id: an address from 1.8 on, a UUID before."""
        if self._cluster.version.vendor_vfio:
            return r.device_name(node, device)
        for vgpu in self._cluster[r.VGPU].labelled(r.NODENAME_LABEL, node):
            if (vgpu.get("status") or {}).get("uuid") == device:
                return str(vgpu["metadata"]["name"])
        return ""

    async def _write(self, vm: Json, note: str | None) -> None:
        current = (vm["metadata"].get("annotations") or {}).get(r.ALLOCATION_ANNOTATION)
        if current != note:
            body = {"metadata": {"annotations": {r.ALLOCATION_ANNOTATION: note}}}
            # The managed fields of the VM must name pcidevices as the manager of the annotation, with the time.
            written = await self._cluster.pcidevices.patch(_path(vm), body)
            await self._cluster[r.VM].seen(written)

    async def _rewrite_names(self, vm: Json) -> None:
        note = (vm["metadata"].get("annotations") or {}).get(r.ALLOCATION_ANNOTATION)
        if note is None:
            return
        details = json.loads(note)
        changed = copy.deepcopy(vm)
        for key, field in (("hostdevices", "hostDevices"), ("gpus", "gpus")):
            left = {resource: list(names) for resource, names in (details.get(key) or {}).items()}
            for device in devices_of(changed).get(field) or []:
                if left.get(device.get("deviceName", "")):
                    device["name"] = left[device["deviceName"]].pop(0)
        if changed != vm:
            written = await self._cluster.pcidevices.replace(_path(vm), changed)
            await self._cluster[r.VM].seen(written)


def _content(vm: Json) -> Json:
    """Return the part of a VM that users write."""
    metadata = vm["metadata"]
    return {"spec": vm.get("spec"), "labels": metadata.get("labels"), "annotations": metadata.get("annotations")}


def _path(vm: Json) -> str:
    return r.VM.path(vm["metadata"]["name"], vm["metadata"]["namespace"])
