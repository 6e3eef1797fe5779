# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Enable, disable or configure an addon, and wait until Harvester has finished and the addon's pods are ready."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ...errors import FleetError, did_you_mean, join_names
from ...fleet.profile_resolver import ProfileResolver
from ...kube.client import AdmissionDenied, ApiClient, Conflict, Json, NotFound
from ...kube.objects import ObjectList
from ...kube.watcher import Watcher
from .. import paths as r
from ..apply.certain_causes import CertainCauses
from ..apply.diagnosis import is_ready
from ..read.launcher_pods import read_launcher_pods
from ..read.vm_usage import Device, Pods, VmUsage, is_live, pod_resources, requested, started_with, vm_of_pod
from . import model as addons
from .model import Addon, AddonFailed, AddonPlan

IN_PROGRESS = "existing operation is in progress"
CANNOT_DISABLE = "addon cannot be disabled as"
DRIVER_PODS = "app=nvidia-driver-daemonset"
# Devices that KubeVirt's own device plugin offers, such as kvm and tun.
KUBEVIRT_DEVICES = "devices.kubevirt.io/"
CUSTOM_DRIVER_ANNOTATION = "sriovgpu.harvesterhci.io/custom-driver"
SKIP_CHECK = {
    r.PCIDEVICES_ADDON: "harvesterhci.io/skipPCIDevicesControllerAddonWebhookCheck",
    r.DRIVER_ADDON: "harvesterhci.io/skipNvidiaDriverToolkitAddonWebhookCheck",
}
PAUSE = 0.5
# Controllers write the status of an addon, so some conflicts are normal.
CONFLICTS = 10
CONFLICT_PAUSE = 0.05
# The controller scans the nodes every 30 s, and when it starts.
SCAN_SECONDS = 45.0


class AddonNotFound(FleetError):
    code = "addon_not_found"


class AddonInUse(FleetError):
    code = "addon_in_use"


class AddonTimeout(FleetError):
    code = "timeout"


@dataclass(frozen=True)
class AddonRequest:
    """The request of a task."""

    name: str
    namespace: str
    enabled: bool
    values: Mapping[str, Any]
    # Whether to allow replacing or removing the driver while VMs use it.
    disrupt: bool = False

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> AddonRequest:
        """Read the request from the options of a task."""
        return cls(
            params["name"],
            params["namespace"],
            params["state"] == "enabled",
            addons.wanted_values(params["name"], params["values"], params["driver_location"]),
            disrupt=params["disrupt"],
        )


@dataclass
class AddonResult:
    """The result of a task."""

    plan: AddonPlan
    addon: Addon
    warnings: list[str] = field(default_factory=list)

    def as_result(self) -> Json:
        """Return the keys that the module documents."""
        return {"changed": self.plan.changed, "addon": self.addon.as_dict(), "diff": self.plan.diff}


@dataclass(frozen=True)
class AddonSnapshot:
    """The lists that an operation reads. The selection depends on the addon, not on the state of the cluster."""

    addons: ObjectList
    daemon_sets: ObjectList
    nodes: ObjectList
    gpus: ObjectList

    def addon(self, request: AddonRequest) -> Addon:
        item = self.addons.items.get(f"{request.namespace}/{request.name}")
        if item is None:
            names = [addon["metadata"]["name"] for addon in self.addons.items.values()]
            alike = did_you_mean(request.name, names, limit=1)
            raise AddonNotFound(
                f"There is no addon {request.name} in namespace {request.namespace}.",
                hint=f"Did you mean {alike[0]}?" if alike else f"Addons there: {join_names(names, limit=20)}.",
            )
        return Addon.of(item)

    def is_enabled(self, namespace: str, name: str) -> bool:
        item = self.addons.items.get(f"{namespace}/{name}")
        return item is not None and Addon.of(item).enabled

    def driver_nodes(self) -> list[str]:
        """Return the nodes that should run the driver: nodes with an SR-IOV capable GPU, labeled or not."""
        with_gpus = {gpu["spec"].get("nodeName") for gpu in self.gpus.items.values()}
        reserved = self.reserved_nodes() if self._driver_avoids_reserved_nodes() else []
        return sorted(
            name
            for name, node in self.nodes.items.items()
            if name not in reserved and (name in with_gpus or _labels(node).get(r.DRIVER_NEEDED_LABEL) == "true")
        )

    def reserved_nodes(self) -> list[str]:
        """Return the nodes with the label that reserves their GPUs for containers (harvester.md 2.8)."""
        return sorted(
            name for name, node in self.nodes.items.items() if _labels(node).get(r.BARE_METAL_LABEL) == "true"
        )

    def _driver_avoids_reserved_nodes(self) -> bool:
        """Return whether the driver's DaemonSet leaves out reserved nodes. Only the charts of Harvester 1.9 do so."""
        drivers = [
            Addon.of(addon) for addon in self.addons.items.values() if addon["metadata"]["name"] == r.DRIVER_ADDON
        ]
        keys = [f"{driver.namespace}/{driver.workload}" for driver in drivers]
        found = [self.daemon_sets.items[key] for key in keys if key in self.daemon_sets.items]
        # Before the DaemonSet exists, it is unknown. Then the task does not insist on a driver on these nodes.
        return not found or any(r.BARE_METAL_LABEL in json.dumps(_affinity(workload)) for workload in found)


@dataclass(frozen=True)
class VmLists:
    """The lists that show which VMs need an addon. Read only if the task changes an addon that VMs may need."""

    vms: ObjectList
    instances: ObjectList
    vgpus: ObjectList
    pods: Pods = field(default_factory=Pods)

    def with_vgpus(self, *, running: bool | None = None) -> list[str]:
        types: dict[str, frozenset[str]] = {}
        for name, vgpu in self.vgpus.items.items():
            type_name = (vgpu.get("status") or {}).get("configureVGPUTypeName")
            types[name] = frozenset([type_name] if type_name else [])
        devices = {
            name: Device(vgpu["spec"].get("nodeName", ""), types[name]) for name, vgpu in self.vgpus.items.items()
        }
        known = ProfileResolver(sorted(frozenset().union(*types.values())))
        return VmUsage(self.vms.items, self.instances.items, devices, known, self.pods).using(running=running)

    def unknown_on(self, nodes: ObjectList) -> list[str]:
        """Return the nodes whose launcher pods may have vGPUs that no other object shows.

        A node that is not ready keeps its pods after their instances are deleted, and this user may not list pods.
        """
        if self.pods.readable:
            return []
        configured = {vgpu["spec"].get("nodeName", "") for vgpu in self.vgpus.items.values() if _is_configured(vgpu)}
        return sorted(name for name in configured if not is_ready(nodes.items.get(name) or {}))

    def with_devices(self) -> list[str]:
        """Return the VMs with vGPUs or passed-through devices."""
        asking = {key for key, vm in self.vms.items.items() if requested(vm)}
        asking |= {key for key, one in self.instances.items.items() if is_live(one) and started_with(one)}
        asking |= {vm_of_pod(pod) for pod in self.pods.outliving(self.instances.items) if _has_host_devices(pod)}
        if not self.pods.readable:
            # The pods that an ended instance still lists may still have its devices.
            asking |= {key for key, one in self.instances.items.items() if _lists_pods(one) and started_with(one)}
        return sorted(asking)


class AddonOperation:
    """Enable, disable or configure one addon."""

    def __init__(self, api: ApiClient, request: AddonRequest, *, wait: bool, seconds: float) -> None:
        self._api = api
        self._request = request
        self._wait = wait
        self._seconds = seconds
        self._addons_path = f"/apis/harvesterhci.io/v1beta1/namespaces/{request.namespace}/addons"
        self._daemon_sets_path = f"/apis/apps/v1/namespaces/{request.namespace}/daemonsets"
        self._path = f"{self._addons_path}/{request.name}"
        self._key = f"{request.namespace}/{request.name}"
        # The last change that was checked against the VMs that need the addon.
        self._checked: tuple[bool, Json] | None = None

    def run(self, *, check_mode: bool) -> AddonResult:
        """Plan the request and apply it. In check mode, send the plan as a dry run."""
        reading = self._read()
        addon = reading.addon(self._request)
        planned = self._plan(addon)
        self._guard(reading, planned)
        if check_mode:
            if planned.changed:
                self._dry_run(planned)
            return AddonResult(planned, planned.after, self._warnings_after(reading))
        watched = {self._addons_path: reading.addons}
        if self._request.name in SKIP_CHECK:
            watched[self._daemon_sets_path] = reading.daemon_sets
        if planned.changed or (self._wait and not self._is_done(addon, reading.daemon_sets.items, reading)):
            with Watcher(self._api, watched, seconds=self._seconds) as seen:
                seen.describe = lambda: self._describe(seen)
                if self._request.name == r.DRIVER_ADDON:
                    nodes = partial(self._driver_nodes, reading)
                    seen.find_cause = CertainCauses(self._api, nodes).find
                planned, revision = self._write(planned, reading, seen)
                if self._wait:
                    reading = self._with_gpus(planned, reading, seen)
                    self._await(revision, reading, seen)
                addon = self._seen(seen)
        return AddonResult(planned, addon, self._warnings_after(reading))

    def _driver_nodes(self, reading: AddonSnapshot) -> set[str]:
        return set(reading.driver_nodes()) if self._request.enabled else set()

    def _describe(self, seen: Watcher) -> str:
        """Return the state of the wait in one line."""
        addon = self._seen(seen)
        if not addon.settled:
            return f"addon {addon.name} is {addon.status or 'not reconciled yet'}"
        daemon_set = seen.get(self._daemon_sets_path, f"{addon.namespace}/{addon.workload}") or {}
        status = daemon_set.get("status") or {}
        ready, wanted = status.get("numberReady", 0), status.get("desiredNumberScheduled", 0)
        return f"addon {addon.name}: {ready} of {wanted} pods of {addon.workload} are ready"

    # Reading and planning
    def _read(self) -> AddonSnapshot:
        ours = self._request.name in SKIP_CHECK
        paths = {
            "addons": self._addons_path,
            "daemon_sets": self._daemon_sets_path if ours else None,
            "nodes": r.NODES if ours else None,
            "gpus": r.GPUS if self._request.name == r.DRIVER_ADDON else None,
        }
        return AddonSnapshot(
            **dict(zip(paths, self._api.together([self._lister(path) for path in paths.values()]), strict=True))
        )

    def _lister(self, path: str | None) -> Callable[[], ObjectList]:
        def read() -> ObjectList:
            if path is None:
                return ObjectList()
            try:
                return ObjectList.of(self._api.get(path))
            except NotFound:
                # The resource is defined when the addon runs for the first time.
                return ObjectList()

        return read

    def _plan(self, addon: Addon) -> AddonPlan:
        return addons.plan(addon, enabled=self._request.enabled, values=self._request.values)

    def _guard(self, reading: AddonSnapshot, planned: AddonPlan) -> None:
        after = planned.after
        if after.is_driver and after.enabled and not self._has_own_drivers(reading):
            location = str(after.values.get(addons.DRIVER_LOCATION) or "")
            # An upgrade may have restored the placeholder in an addon that is enabled and reports success.
            if planned.changed or addons.PLACEHOLDER in location:
                addons.check_location(location)
        self._check_users(planned, reading)

    def _check_users(self, planned: AddonPlan, reading: AddonSnapshot) -> None:
        """Refuse to remove the driver or the device plugin while VMs need it.

        Harvester itself checks only before an addon is disabled, only from 1.8 on, and misses VMs whose vGPU entries
        are not named after devices.
        """
        before, after = planned.before, planned.after
        self._checked = (before.enabled, planned.patch["spec"])
        disables = not after.enabled
        if before.name not in SKIP_CHECK or not before.enabled or not planned.changed or self._request.disrupt:
            return
        if disables and before.annotations.get(SKIP_CHECK[before.name]) == "true":
            return
        if not disables and not before.is_driver:
            return
        machines = self._machines()
        if not before.is_driver:
            users = machines.with_devices()
        else:
            users = machines.with_vgpus(running=None if disables else True)
        users += [f"an unknown VM on node {node}" for node in machines.unknown_on(reading.nodes)]
        if users:
            raise _in_use(before.name, join_names(users), disables=disables)

    def _machines(self) -> VmLists:
        vms, instances, vgpus, pods = self._api.together(
            [
                *(self._lister(path) for path in (r.VMS, r.INSTANCES, r.VGPUS)),
                lambda: read_launcher_pods(self._api),
            ]
        )
        return VmLists(vms, instances, vgpus, pods)

    @staticmethod
    def _has_own_drivers(reading: AddonSnapshot) -> bool:
        """Return whether annotations set the driver location of every node, so that the addon's location is unused."""
        nodes = [reading.nodes.items[name] for name in reading.driver_nodes()]
        return bool(nodes) and all(
            (node["metadata"].get("annotations") or {}).get(CUSTOM_DRIVER_ANNOTATION) for node in nodes
        )

    def _warnings_after(self, reading: AddonSnapshot) -> list[str]:
        if self._request.name != r.DRIVER_ADDON or not self._request.enabled or reading.driver_nodes():
            return []
        if reserved := reading.reserved_nodes():
            return [
                f"The GPUs of {join_names(reserved)} are reserved for containers by the label {r.BARE_METAL_LABEL}, and"
                " no other node has a GPU that can be shared, so the driver runs nowhere."
            ]
        if not reading.is_enabled(self._request.namespace, r.PCIDEVICES_ADDON):
            return [f"The driver runs nowhere before the addon {r.PCIDEVICES_ADDON} is enabled and has found GPUs."]
        return ["No node has a GPU that can be shared, so the driver runs nowhere yet."]

    def _dry_run(self, planned: AddonPlan) -> None:
        """Send the plan as a dry run. Ignore an operation in progress: a run outside check mode waits for its end."""
        try:
            self._api.patch(self._path, planned.patch, dry_run=True)
        except AdmissionDenied as error:
            if IN_PROGRESS not in error.message:
                raise _translated(error, planned.before) from error

    # Applying
    def _write(self, planned: AddonPlan, reading: AddonSnapshot, seen: Watcher) -> tuple[AddonPlan, str]:
        """Return the applied plan, and the addon's revision after the write if Harvester will change it further."""
        conflicts = 0
        while planned.changed:
            if not seen.until(lambda: not self._seen(seen).in_progress):
                raise AddonTimeout(
                    f"Another operation on addon {self._request.name} has not ended within {self._seconds:.0f} s"
                    f" ({self._seen(seen).status}).",
                    hint=f"See the Helm job helm-install-{self._request.name} in {self._request.namespace}.",
                )
            planned = self._plan(self._seen(seen))
            if not planned.changed:
                break
            if (planned.before.enabled, planned.patch["spec"]) != self._checked:
                self._check_users(planned, reading)
            try:
                written = self._api.patch(self._path, planned.patch)
                seen.put(self._addons_path, written)
                # Harvester does not act on the values of a disabled addon.
                follows = planned.before.enabled or planned.after.enabled
                return planned, Addon.of(written).revision if follows else ""
            except Conflict as error:
                conflicts += 1
                if conflicts == CONFLICTS:
                    raise Conflict(
                        f"Addon {self._request.name} changes faster than it can be written.",
                        status=error.status,
                        hint="Run it again.",
                    ) from error
                time.sleep(CONFLICT_PAUSE * conflicts)
                seen.put(self._addons_path, self._api.get(self._path))
            except AdmissionDenied as error:
                if IN_PROGRESS not in error.message or not seen.seconds_left:
                    raise _translated(error, planned.before) from error
                time.sleep(PAUSE)
        return planned, ""

    def _seen(self, seen: Watcher) -> Addon:
        item = seen.get(self._addons_path, self._key)
        if item is None:
            raise AddonNotFound(f"The addon {self._request.name} was deleted meanwhile.")
        return Addon.of(item)

    # Waiting
    def _with_gpus(self, planned: AddonPlan, reading: AddonSnapshot, seen: Watcher) -> AddonSnapshot:
        """Wait until the controller has discovered GPUs, a few seconds after its addon was enabled."""
        if not (planned.changed and planned.after.is_driver and planned.after.enabled):
            return reading
        until = time.monotonic() + min(SCAN_SECONDS, seen.seconds_left)
        while not reading.driver_nodes() and reading.is_enabled(self._request.namespace, r.PCIDEVICES_ADDON):
            if time.monotonic() > until:
                break
            time.sleep(PAUSE)
            reading = replace(reading, gpus=self._lister(r.GPUS)())
        return reading

    def _await(self, written: str, reading: AddonSnapshot, seen: Watcher) -> None:
        def over() -> bool:
            addon = self._seen(seen)
            # An update of values starts and ends in the same state, so a newer revision is needed to recognize its end.
            if addon.revision == written:
                return False
            daemon_sets = seen.items(self._daemon_sets_path) if addon.name in SKIP_CHECK else {}
            return addon.stuck or self._is_done(addon, daemon_sets, reading)

        done = seen.until(over)
        addon = self._seen(seen)
        if addon.stuck:
            raise AddonFailed(addon)
        if not done:
            raise self._too_late(addon, reading)
        if addon.enabled and addon.name == r.PCIDEVICES_ADDON:
            self._await_definitions(seen)

    def _is_done(self, addon: Addon, daemon_sets: Mapping[str, Json], reading: AddonSnapshot) -> bool:
        if not addon.settled:
            return False
        if not addon.enabled or addon.name not in SKIP_CHECK:
            return True
        if not addon.is_driver:
            return _rolled_out(daemon_sets.get(f"{addon.namespace}/{addon.workload}"), at_least=1)
        nodes = reading.driver_nodes()
        return not nodes or _rolled_out(daemon_sets.get(f"{addon.namespace}/{addon.workload}"), at_least=len(nodes))

    def _await_definitions(self, seen: Watcher) -> None:
        """Wait until the controllers have defined the device resources. Without them, all other modules fail."""
        while self._api.get_or_none(r.GPUS) is None:
            if not seen.seconds_left:
                raise AddonTimeout(
                    f"The pods of addon {self._request.name} are ready, but the device resources are not defined.",
                    hint="See the logs of the pods harvester-pcidevices-controller in harvester-system.",
                )
            time.sleep(PAUSE)

    def _too_late(self, addon: Addon, reading: AddonSnapshot) -> AddonTimeout:
        if not addon.settled:
            return AddonTimeout(
                f"Addon {addon.name} is still {addon.status or 'without a status'} after {self._seconds:.0f} s.",
                hint=f"See the Helm job helm-install-{addon.name} in {addon.namespace}, or give it a longer"
                " wait_timeout.",
            )
        if not addon.is_driver:
            return AddonTimeout(
                f"Addon {addon.name} is deployed, but its pods are not ready after {self._seconds:.0f} s.",
                hint=f"See the DaemonSet {addon.workload} in {addon.namespace}.",
            )
        troubles = self._driver_troubles(reading.driver_nodes())
        return AddonTimeout(
            f"Addon {addon.name} is deployed, but the driver is not ready after {self._seconds:.0f} s: "
            + "; ".join(f"{node}: {trouble}" for node, trouble in sorted(troubles.items()))
            + ".",
            hint="The driver is fetched from driver_location and built on each node: check that the nodes reach it and"
            " that it builds for their kernel, or give it a longer wait_timeout.",
        )

    def _driver_troubles(self, nodes: list[str]) -> dict[str, str]:
        pods = self._api.get(r.SYSTEM_PODS, labelSelector=DRIVER_PODS).get("items") or []
        troubles = dict.fromkeys(nodes, "no driver pod")
        for pod in pods:
            node = pod["spec"].get("nodeName", "")
            if _is_ready(pod):
                troubles.pop(node, None)
            elif node in troubles:
                troubles[node] = _pod_trouble(pod)
        return troubles or {"all nodes": "the pods are being replaced"}


def _rolled_out(daemon_set: Json | None, *, at_least: int) -> bool:
    """Return whether all pods are ready and belong to the newest revision."""
    if daemon_set is None:
        return False
    status = daemon_set.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(daemon_set["metadata"].get("generation") or 0):
        return False
    desired = int(status.get("desiredNumberScheduled") or 0)
    ready = min(int(status.get("numberReady") or 0), int(status.get("updatedNumberScheduled") or 0))
    return desired >= at_least and ready >= desired


def _labels(item: Json) -> Json:
    return item["metadata"].get("labels") or {}


def _affinity(daemon_set: Json) -> Json:
    template = (daemon_set.get("spec") or {}).get("template") or {}
    return (template.get("spec") or {}).get("affinity") or {}


def _is_configured(vgpu: Json) -> bool:
    """Return whether the driver has configured a vGPU. From 1.8 on, the name of its type may be missing."""
    status = vgpu.get("status") or {}
    return status.get("vGPUStatus") == r.CONFIGURED or bool(status.get("configureVGPUTypeName"))


def _lists_pods(instance: Json) -> bool:
    return bool((instance.get("status") or {}).get("activePods"))


def _has_host_devices(pod: Json) -> bool:
    """Return whether a launcher pod has devices of its node, other than those that every VM of KubeVirt has."""
    return any(not resource.startswith(KUBEVIRT_DEVICES) for resource in pod_resources(pod))


def _is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(condition.get("type") == "Ready" and condition.get("status") == "True" for condition in conditions)


def _pod_trouble(pod: Json) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses") or []:
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    return "the pod is not ready, so the driver is still being built or has failed to"


def _in_use(addon: str, users: str, *, disables: bool = True) -> AddonInUse:
    if not disables:
        return AddonInUse(
            f"Addon {addon} cannot be changed: its pods would be replaced, and install the driver anew under VMs that"
            f" run with vGPUs: {users}.",
            hint="Stop these VMs first, or set disrupt: true to change it under them.",
        )
    what = "vGPUs" if addon == r.DRIVER_ADDON else "passed-through devices or vGPUs"
    return AddonInUse(
        f"Addon {addon} cannot be disabled: these VMs have {what}: {users}.",
        hint="Detach them first: vgpu.fleet.harvester_vgpu_vm with state absent takes vGPUs out of a VM.",
    )


def _translated(error: AdmissionDenied, addon: Addon) -> FleetError:
    if CANNOT_DISABLE in error.message:
        return _in_use(addon.name, error.message.rsplit(": ", 1)[-1].rstrip("."))
    return error
