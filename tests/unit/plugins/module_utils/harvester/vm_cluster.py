"""A cluster in memory whose controllers act at once: GPUs, vGPUs and VMs behind the interface of `ApiServer`."""

from __future__ import annotations

import copy
import json
import threading
import time
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.harvester import paths as r, version as versions
from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.read.vm_usage import allocation, devices_of
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.client import AdmissionDenied, Conflict, NotFound
from ansible_collections.vgpu.fleet.plugins.module_utils.kube.objects import key_of

from tests.unit.plugins.module_utils.harvester import objects

Json = dict[str, Any]
VERSION = versions.from_option("1.8")
# How many of each size there may be on a GPU.
MOST = {"4": 4, "8": 2}


class Killed(BaseException):
    """The process is gone: nothing of it runs any more."""


class Cluster:
    fail_fast = False

    def __init__(self, *nodes: str) -> None:
        self.revision = 100
        self.things: dict[str, dict[str, Json]] = {
            path: {} for path in (r.GPUS, r.VGPUS, r.NODES, r.CLAIMS, r.VMS, r.INSTANCES, r.PCI_DEVICES)
        }
        self.events: list[tuple[int, str, str, Json]] = []
        self.writes: list[tuple[str, Json]] = []
        # After so many writes the process is killed.
        self.killed_after: int | None = None
        self.before_write: Any = None
        self._lock = threading.RLock()
        for node in nodes:
            self._put(r.NODES, objects.node(node))
            self._put(r.GPUS, objects.gpu(node))
            for function in range(4, 8):
                self._put(r.VGPUS, objects.vgpu(function, node=node))

    # What tests arrange and look at
    def enable(self, name: str, type_name: str, owner: str | None = None) -> None:
        marks = {r.OWNER_ANNOTATION: owner} if owner else {}
        spec = {"enabled": True, "vGPUTypeName": type_name}
        self._patch_vgpu(name, {"metadata": {"annotations": marks}, "spec": spec})

    def add_vm(self, name: str, *entries: Json, **run: Any) -> None:
        vm = objects.vm(name)
        vm["metadata"]["uid"] = f"{name}-{self.revision}"
        vm["spec"] |= run
        vm["spec"]["template"]["spec"]["domain"]["devices"] = {"hostDevices": list(entries)}
        self._put(r.VMS, vm)
        self._run_vm(f"default/{name}")

    def delete_vm(self, name: str) -> None:
        self._remove(r.INSTANCES, f"default/{name}")
        self._remove(r.VMS, f"default/{name}")

    def vm(self, name: str) -> Json:
        return self.things[r.VMS][f"default/{name}"]

    def runs(self, name: str) -> bool:
        return f"default/{name}" in self.things[r.INSTANCES]

    def entries(self, name: str) -> list[Json]:
        return list(devices_of(self.vm(name)).get("hostDevices") or [])

    def layout(self) -> dict[str, str]:
        vgpus = self.things[r.VGPUS].items()
        return {name: vgpu["spec"]["vGPUTypeName"] for name, vgpu in vgpus if vgpu["spec"]["enabled"]}

    def owners(self) -> dict[str, str | None]:
        """For whom each enabled vGPU is, by its mark."""
        vgpus = {name: self.things[r.VGPUS][name]["metadata"] for name in self.layout()}
        return {name: (one.get("annotations") or {}).get(r.OWNER_ANNOTATION) for name, one in vgpus.items()}

    def annotations(self) -> list[Json]:
        """Those of ours, wherever they are."""
        items = [*self.things[r.GPUS].values(), *self.things[r.VMS].values()]
        found = [item["metadata"].get("annotations") or {} for item in items]
        return [
            {name: value for name, value in one.items() if name.startswith("vgpu.fleet/")}
            for one in found
            if any(name.startswith("vgpu.fleet/") for name in one)
        ]

    def state(self) -> Json:
        """Everything that a user would compare."""
        vms = self.things[r.VMS].values()
        return {
            "layout": self.layout(),
            "owners": self.owners(),
            "vms": {
                vm["metadata"]["name"]: {
                    "entries": self.entries(vm["metadata"]["name"]),
                    "run": {name: vm["spec"][name] for name in ("running", "runStrategy") if name in vm["spec"]},
                    "runs": self.runs(vm["metadata"]["name"]),
                }
                for vm in vms
            },
            "journal": self.annotations(),
        }

    # The interface of ApiServer
    def get(self, path: str, **query: str) -> Json:
        with self._lock:
            if path == r.SERVER_VERSION:
                return {"value": "v1.8.0"}
            if path in self.things:
                name = query.get("fieldSelector", "").removeprefix("metadata.name=")
                items = [item for item in self.things[path].values() if name in ("", item["metadata"]["name"])]
                return {"items": copy.deepcopy(items), "metadata": {"resourceVersion": str(self.revision)}}
            if len(path.partition("/namespaces/")[2].split("/")) == 2:
                # A list within a namespace, such as the pods that a diagnosis looks at.
                return {"items": [], "metadata": {"resourceVersion": str(self.revision)}}
            listing, key = self._split(path)
            if key not in self.things.get(listing, {}):
                raise NotFound(f"{path} not found", status=404)
            return copy.deepcopy(self.things[listing][key])

    def get_or_none(self, path: str) -> Json | None:
        try:
            return self.get(path)
        except NotFound:
            return None

    def together(self, calls: list[Any]) -> list[Any]:
        return [call() for call in calls]

    def patch(self, path: str, body: Json, *, dry_run: bool = False) -> Json:
        with self._lock:
            self._die_if_killed()
            if self.before_write:
                self.before_write(path, body)
            listing, key = self._split(path)
            thing = self.things[listing].get(key)
            if thing is None:
                raise NotFound(f"{path} not found", status=404)
            wanted = (body.get("metadata") or {}).get("resourceVersion")
            if wanted is not None and wanted != thing["metadata"]["resourceVersion"]:
                raise Conflict("changed meanwhile", status=409)
            if dry_run:
                return merged(thing, body)
            if listing == r.VGPUS:
                self._patch_vgpu(key, body)
            else:
                self._put(listing, merged(thing, body))
                if listing == r.VMS:
                    self._run_vm(key)
            self.writes.append((path, copy.deepcopy(body)))
            answer = copy.deepcopy(self.things[listing][key])
            self._die_if_killed()
            return answer

    @property
    def now(self) -> float:
        return time.time()

    def watch(self, path: str, revision: str, seconds: float, *, opened: Any = None) -> Any:
        if opened:
            opened()
        at, deadline = int(revision), time.monotonic() + seconds
        while time.monotonic() < deadline:
            with self._lock:
                new = [event for event in self.events if event[0] > at and event[1] == path]
            for number, _path, kind, thing in new:
                at = number
                yield {"type": kind, "object": copy.deepcopy(thing)}
            time.sleep(0.005)

    def _die_if_killed(self) -> None:
        if self.killed_after is not None and len(self.writes) >= self.killed_after:
            raise Killed

    # The controllers
    @staticmethod
    def _split(path: str) -> tuple[str, str]:
        if "/namespaces/" in path:
            before, after = path.split("/namespaces/")
            namespace, kind, name = after.split("/")
            return f"{before}/{kind}", f"{namespace}/{name}"
        listing, _slash, name = path.rpartition("/")
        return listing, name

    def _put(self, listing: str, thing: Json) -> None:
        with self._lock:
            self.revision += 1
            thing["metadata"]["resourceVersion"] = str(self.revision)
            self.things[listing][key_of(thing)] = thing
            self.events.append((self.revision, listing, "MODIFIED", copy.deepcopy(thing)))

    def _remove(self, listing: str, key: str) -> None:
        with self._lock:
            thing = self.things[listing].pop(key, None)
            if thing:
                self.revision += 1
                thing["metadata"]["resourceVersion"] = str(self.revision)
                self.events.append((self.revision, listing, "DELETED", thing))

    def _patch_vgpu(self, name: str, body: Json) -> None:
        vgpu = merged(self.things[r.VGPUS][name], body)
        users = [key for key, vm in self.things[r.VMS].items() if name in _noted(vm)]
        if users:
            raise AdmissionDenied(
                f"The cluster refused to patch it: device {name} is in use with VM {users[0]}", status=500
            )
        node, enabled, type_name = vgpu["spec"]["nodeName"], vgpu["spec"]["enabled"], vgpu["spec"]["vGPUTypeName"]
        self._put(r.VGPUS, vgpu)
        if enabled:
            vgpu["status"] = {
                "vGPUStatus": r.CONFIGURED,
                "uuid": objects.TYPES[type_name],
                "configureVGPUTypeName": type_name,
            }
            claim = objects.claim(int(name[-1]), type_name, node=node)
            self._put(r.CLAIMS, claim)
        else:
            vgpu["status"] = {}
            self._remove(r.CLAIMS, name)
        self._put(r.VGPUS, vgpu)
        self._offer(node)

    def _offer(self, node: str) -> None:
        """Each free function offers what the driver would still take, and the node counts what there is."""
        here = [vgpu for vgpu in self.things[r.VGPUS].values() if vgpu["spec"]["nodeName"] == node]
        there = [one["status"]["configureVGPUTypeName"] for one in here if one["status"].get("vGPUStatus")]
        sizes = {name.split("-")[1][:-1] for name in there}
        offered = {
            name: number
            for name, number in objects.TYPES.items()
            if sizes <= {name.split("-")[1][:-1]} and len(there) < MOST[name.split("-")[1][:-1]]
        }
        for vgpu in here:
            if not vgpu["status"].get("vGPUStatus"):
                vgpu["status"] = {"availableTypes": dict(offered)} if offered else {}
                self._put(r.VGPUS, vgpu)
        thing = self.things[r.NODES][node]
        counts = {VERSION.resource(name): str(there.count(name)) for name in there}
        thing["status"]["allocatable"] = thing["status"]["capacity"] = counts
        self._put(r.NODES, thing)

    def _run_vm(self, key: str) -> None:
        spec = self.things[r.VMS][key]["spec"]
        if spec.get("runStrategy") == "Halted" or spec.get("running") is False:
            self._remove(r.INSTANCES, key)
        elif spec.get("runStrategy") in ("Always", "RerunOnFailure") or spec.get("running"):
            self._start(key)
        self._show(key)

    def _start(self, key: str) -> None:
        vm = self.things[r.VMS][key]
        if key in self.things[r.INSTANCES]:
            return
        taken = {device for one in self.things[r.INSTANCES] for device in _noted(self.things[r.VMS].get(one))}
        asked = [entry["deviceName"] for entry in devices_of(vm).get("hostDevices") or []]
        got: dict[str, list[str]] = {}
        for resource in asked:
            free = [
                name
                for name, vgpu in sorted(self.things[r.VGPUS].items())
                if name not in taken
                and vgpu["status"].get("configureVGPUTypeName")
                and VERSION.resource(vgpu["status"]["configureVGPUTypeName"]) == resource
            ]
            if not free:
                return
            taken.add(free[0])
            got.setdefault(resource, []).append(free[0])
        vm = copy.deepcopy(vm)
        vm["metadata"].setdefault("annotations", {})[r.ALLOCATION_NOTE] = json.dumps({"hostdevices": got})
        self._put(r.VMS, vm)
        node = next(iter(got.values()))[0].rsplit("-", 1)[0] if got else "n1"
        instance = objects.instance(vm["metadata"]["name"], on=node)
        instance["spec"] = copy.deepcopy(vm["spec"]["template"]["spec"])
        self._put(r.INSTANCES, instance)
        self._show(key)

    def _show(self, key: str) -> None:
        vm = copy.deepcopy(self.things[r.VMS][key])
        shown = "Running" if key in self.things[r.INSTANCES] else "Stopped"
        if (vm.get("status") or {}).get("printableStatus") != shown:
            vm["status"] = {"printableStatus": shown}
            self._put(r.VMS, vm)


def _noted(vm: Json | None) -> list[str]:
    return [device for devices in allocation(vm).values() for device in devices] if vm else []


def merged(thing: Json, patch: Json) -> Json:
    """RFC 7386."""
    result = copy.deepcopy(thing)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name) or {}, value)
        else:
            result[name] = copy.deepcopy(value)
    return result
