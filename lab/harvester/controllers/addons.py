"""Controller for addons: enables and disables them in operations that take time (harvester.md 11.1)."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Awaitable, Callable

import yaml

from lab.errors import LabError
from lab.harvester import resources as r
from lab.harvester.cluster import Cluster
from lab.harvester.versions import Version
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.workqueue import WorkQueue
from lab.scenarios.scenario import DRIVER_TOOLKIT, PCIDEVICES

# Duration of the Helm job of an addon. Harvester polls the real job every 5 s.
OPERATION_SECONDS = 20.0
POLL_SECONDS = 5.0
DEPLOYED, ENABLING, DISABLING = "AddonDeploySuccessful", "AddonEnabling", "AddonDisabling"
DISABLED, UPDATING = "AddonDisabled", "AddonUpdating"

CONTROLLER_POD_LABELS = {"app.kubernetes.io/name": "harvester-pcidevices-controller"}
DRIVER_POD_LABELS = {"app": "nvidia-driver-daemonset"}
PLACEHOLDER = "HTTPENDPOINT"
CHARTS = {PCIDEVICES: "harvester-pcidevices-controller", DRIVER_TOOLKIT: "nvidia-driver-runtime"}


def default_values(version: Version) -> dict[str, Json]:
    """Return the default values of a version's addons."""
    return {
        PCIDEVICES: {
            "image": {"tag": f"v{version.addon_version}"},
            "fullnameOverride": "harvester-pcidevices-controller",
        },
        DRIVER_TOOLKIT: {
            "image": {"repo": "rancher/harvester-nvidia-driver-toolkit", "tag": version.toolkit_tag},
            "driverLocation": f"{PLACEHOLDER}/NVIDIA-Linux-x86_64-vgpu-kvm.run",
            "fullnameOverride": "nvidia-driver-runtime",
        },
    }


class Addons:
    def __init__(self, cluster: Cluster, on_pcidevices: Callable[[bool], Awaitable[None]]) -> None:
        self._cluster = cluster
        self._on_pcidevices = on_pcidevices
        self._deployed_values: dict[str, str] = {}
        self.fails: set[str] = set()
        self._hanging: set[str] = set()
        self.on_driver_rollout: Callable[[], None] | None = None

    async def seed(self) -> None:
        """Create the addons of the scenario with finished operations."""
        for name, shipped in default_values(self._cluster.version).items():
            enabled = self._cluster.scenario.addons[name]
            values = dict(shipped)
            if name == DRIVER_TOOLKIT:
                values["driverLocation"] = self._cluster.scenario.driver_location
            content = yaml.safe_dump(values, sort_keys=False)
            defaults = base64.b64encode(yaml.safe_dump(shipped, sort_keys=False).encode()).decode()
            addon = await self._cluster[r.ADDON].create(
                {
                    "metadata": {
                        "name": name,
                        "namespace": r.HARVESTER_NAMESPACE,
                        "labels": {"addon.harvesterhci.io/experimental": str(name == DRIVER_TOOLKIT).lower()},
                        "annotations": {"harvesterhci.io/addon-defaults": defaults},
                    },
                    "spec": {
                        "repo": "http://harvester-cluster-repo.cattle-system.svc/charts",
                        "chart": CHARTS[name],
                        "version": self._cluster.version.addon_version,
                        "enabled": enabled,
                        "valuesContent": content,
                    },
                },
                r.HARVESTER_NAMESPACE,
            )
            if enabled:
                await self._deploy(addon)
                await self._settle(addon, DEPLOYED)

    def run(self) -> None:
        queue = self._queue = WorkQueue(self._cluster.clock, "addons", self._reconcile)
        self._cluster[r.ADDON].listen(lambda old, new: queue.add(new["metadata"]["name"]) if new else None)
        for addon in self._cluster[r.ADDON].all():
            queue.add(addon["metadata"]["name"])

    def values(self, name: str) -> Json:
        addon = self._cluster[r.ADDON].get(name, r.HARVESTER_NAMESPACE)
        content = addon["spec"].get("valuesContent", "") if addon else ""
        try:
            values = yaml.safe_load(content)
        except yaml.YAMLError:
            values = None
        return values if isinstance(values, dict) else {}

    async def _reconcile(self, name: str) -> None:
        addon = self._cluster[r.ADDON].get(name, r.HARVESTER_NAMESPACE)
        if addon is None or "deletionTimestamp" in addon["metadata"]:
            return
        state = (addon.get("status") or {}).get("status", "")
        enabled = addon["spec"]["enabled"]
        if enabled and state in ("", DISABLED):
            await self._operate(addon, ENABLING, DEPLOYED)
        elif enabled and state == DEPLOYED and self._deployed_values.get(name) != addon["spec"]["valuesContent"]:
            await self._operate(addon, UPDATING, DEPLOYED)
        elif not enabled and state not in ("", DISABLED, DISABLING):
            await self._operate(addon, DISABLING, DISABLED)

    async def hang(self, name: str, *, on: bool) -> None:
        """Keep an operation from finishing until the fault is switched off."""
        if not on:
            self._hanging.discard(name)
            return
        addon = self._cluster[r.ADDON].get(name, r.HARVESTER_NAMESPACE)
        if addon is None or (addon.get("status") or {}).get("status") != DEPLOYED:
            raise LabError(f"The addon {name} is not deployed.", hint="Enable it first.")
        self._hanging.add(name)
        self._deployed_values.pop(name, None)
        self._queue.add(name)

    async def _operate(self, addon: Json, during: str, after: str) -> None:
        name = addon["metadata"]["name"]
        addon = await self._status(addon, during, InProgress="True", Completed="False", OperationFailed="False")
        await self._cluster.clock.sleep(OPERATION_SECONDS)
        while name in self._hanging:
            await self._cluster.clock.sleep(POLL_SECONDS)
        addon = self._cluster[r.ADDON].get(name, r.HARVESTER_NAMESPACE) or addon
        if name in self.fails and after == DEPLOYED:
            # The addon keeps this status until a user disables it.
            await self._status(addon, during, InProgress="False", OperationFailed="True")
            return
        if after == DEPLOYED:
            await self._deploy(addon)
        else:
            await self._remove(name)
        await self._settle(addon, after)

    async def _settle(self, addon: Json, state: str) -> None:
        name = addon["metadata"]["name"]
        addon = self._cluster[r.ADDON].get(name, r.HARVESTER_NAMESPACE) or addon
        await self._status(addon, state, InProgress="False", Completed="True", OperationFailed="False")

    async def _status(self, addon: Json, state: str, **conditions: str) -> Json:
        now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entries = [{"type": kind, "status": value, "lastUpdateTime": now} for kind, value in conditions.items()]
        return await self._cluster[r.ADDON].patch(
            addon, {"status": {"status": state, "conditions": entries}}, subresource="status"
        )

    async def _deploy(self, addon: Json) -> None:
        name = addon["metadata"]["name"]
        self._deployed_values[name] = addon["spec"]["valuesContent"]
        if name not in CHARTS:
            # The lab simulates no workloads of other addons.
            return
        await self._apply_daemon_set(_daemon_set(name, avoids_reserved=self._cluster.version.baremetal_label))
        if name == PCIDEVICES:
            await self._on_pcidevices(True)
        elif self.on_driver_rollout is not None:
            self.on_driver_rollout()

    async def _remove(self, name: str) -> None:
        if name not in CHARTS:
            return
        daemon_set = _daemon_set(name, avoids_reserved=False)["metadata"]["name"]
        try:
            await self._cluster.admin.delete(r.DAEMON_SET.path(daemon_set, r.HARVESTER_NAMESPACE))
        except ApiError as error:
            if error.status != 404:
                raise
        if name == PCIDEVICES:
            await self._on_pcidevices(False)

    async def _apply_daemon_set(self, body: Json) -> None:
        values = {"metadata": {"annotations": {"lab.vgpu.fleet/rolled-out": str(self._cluster.clock.now)}}}
        collection = r.DAEMON_SET.collection_in(r.HARVESTER_NAMESPACE)
        try:
            await self._cluster.admin.create(collection, body)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            # New values trigger a rollout of the pods.
            await self._cluster.admin.patch(
                r.DAEMON_SET.path(body["metadata"]["name"], r.HARVESTER_NAMESPACE), {"spec": {"template": values}}
            )


def _daemon_set(addon: str, *, avoids_reserved: bool) -> Json:
    """Return the workload of an addon. The driver's chart avoids nodes that are reserved for containers since 1.9."""
    if addon == PCIDEVICES:
        return _workload("harvester-pcidevices-controller", CONTROLLER_POD_LABELS, "agent", None)
    expressions = [{"key": r.DRIVER_NEEDED_LABEL, "operator": "In", "values": ["true"]}]
    if avoids_reserved:
        expressions.append({"key": r.BARE_METAL_LABEL, "operator": "NotIn", "values": ["true"]})
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return _workload("nvidia-driver-runtime", DRIVER_POD_LABELS, "nvidia-driver-ctr", affinity)


def _workload(name: str, labels: dict[str, str], container: str, affinity: Json | None) -> Json:
    pod: Json = {
        "containers": [{"name": container, "image": f"lab/{name}"}],
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    if affinity:
        pod["affinity"] = affinity
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": r.HARVESTER_NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
