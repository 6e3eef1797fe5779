"""Simulated NVIDIA GPU operator of a guest cluster: a chart, a policy, DaemonSets, and nodes that offer GPUs.

A vGPU guest requires a driver, which is not public, its license, and RKE2's containerd socket (nvidia.md 6.1). As on
a real cluster, pods do not become ready if one of them is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from lab.harvester.node.kubelet import timestamp
from lab.kubernetes import custom_resources
from lab.kubernetes.client import Json
from lab.kubernetes.workqueue import WorkQueue
from lab.rancher import definitions, resources as r
from lab.rancher.guest import licence
from lab.rancher.world import World

CHART = "gpu-operator"
POLICY_NAME = "cluster-policy"
INSTALL_SECONDS = 20.0
DETECT_SECONDS = 5.0
DEFAULT_NAMESPACE = "gpu-operator"
PUBLIC_DRIVERS = "nvcr.io/nvidia"
CONTAINERD_SOCKET = "/run/k3s/containerd/containerd.sock"
USUAL_SOCKET = "/run/containerd/containerd.sock"
LICENCE_KEYS = (licence.TOKEN, licence.CONF)
PRESENT_LABEL = "nvidia.com/gpu.present"
DRIVER, TOOLKIT, PLUGIN = (
    "nvidia-driver-daemonset",
    "nvidia-container-toolkit-daemonset",
    "nvidia-device-plugin-daemonset",
)


class GpuOperator:
    def __init__(self, world: World, gpus: Mapping[str, int], *, socket: str = CONTAINERD_SOCKET) -> None:
        self._world = world
        # Where containerd of the nodes listens, which depends on the distribution.
        self._socket = socket
        # Number of vGPUs of each node's VM, and whether its image contains the driver.
        self._gpus = gpus
        self.driver_in_image: dict[str, bool] = {}
        self.on_change: list[Callable[[], None]] = []
        self._installed: dict[str, str] = {}
        self._operating = False
        # Keys are the uids of the driver pods.
        self._licensed: dict[str, bool] = {}

    def run(self) -> None:
        self._queue = WorkQueue(self._world.clock, "gpu operator", self._reconcile, workers=1)

        def noticed(old: Json | None, new: Json | None) -> None:
            self._queue.add("all")

        for resource in (r.HELM_CHART, r.POLICY, r.NODE, r.SECRET, r.CONFIG_MAP, r.DAEMON_SET):
            self._world[resource].listen(noticed)
        self._queue.add("all")

    def stop(self) -> None:
        self._queue.stop()

    # Queries of other components
    def serves(self, node: str) -> bool:
        """Return whether the device plugin offers the node's GPUs."""
        policy = self._policy()
        if policy is None or not self._gpus.get(node):
            return False
        found = self._world[r.NODE].get(node) or {"metadata": {}}
        return PRESENT_LABEL in (found["metadata"].get("labels") or {}) and self._obstacle(policy, node) is None

    def trouble(self, pod: Json) -> Json | None:
        """Return the waiting state of the container if a pod of the operator does not run, otherwise None."""
        policy, node = self._policy(), pod["spec"].get("nodeName", "")
        app = (pod["metadata"].get("labels") or {}).get("app")
        if policy is None or app not in (DRIVER, TOOLKIT, PLUGIN):
            return None
        obstacle = self._obstacle(policy, node)
        if obstacle is None:
            return None
        culprit, reason, message = obstacle
        if app == culprit:
            return {"reason": reason, "message": message}
        order = (DRIVER, TOOLKIT, PLUGIN)
        if culprit == "image":
            # No driver will be loaded, so the toolkit's validation never ends.
            return {"reason": "PodInitializing", "message": message}
        return {"reason": "PodInitializing"} if order.index(app) > order.index(culprit) else None

    # The chart
    async def _reconcile(self, key: str) -> None:
        charts = {chart["metadata"]["name"]: chart for chart in self._world[r.HELM_CHART].all() if _is_ours(chart)}
        for name in [one for one in self._installed if one not in charts]:
            await self._uninstall(name)
        for name, chart in charts.items():
            await self._install(name, chart)
        policy = self._policy()
        if policy is not None:
            self._operating = True
            await self._operate(policy)
        elif self._operating:
            # Nodes stop offering their GPUs only now.
            self._operating = False
            self._changed()

    async def _install(self, name: str, chart: Json) -> None:
        spec = chart["spec"]
        values = yaml.safe_load(spec.get("valuesContent") or "{}") or {}
        namespace = spec.get("targetNamespace") or DEFAULT_NAMESPACE
        version = str(spec.get("version") or "")
        asked = yaml.safe_dump([values, namespace, version], sort_keys=True)
        if self._installed.get(name) == asked:
            return
        await self._world.clock.sleep(INSTALL_SECONDS)
        await custom_resources.install(self._world.client, definitions.operator_definitions())
        await self._world[r.POLICY].ready.wait()
        if spec.get("createNamespace"):
            await self._world.client.create_if_absent(r.NAMESPACE.collection, {"metadata": {"name": namespace}})
        runtime = {"metadata": {"name": "nvidia"}, "handler": "nvidia"}
        await self._world.client.create_if_absent(r.RUNTIME_CLASS.collection, runtime)
        policy, content = self._policy(), {"spec": _policy_of(values, version)}
        if policy is None:
            policy = await self._world[r.POLICY].create({"metadata": {"name": POLICY_NAME}, **content})
        else:
            policy = await self._world[r.POLICY].replace(policy | content)
        await self._world.write_status(r.POLICY, policy, {"namespace": namespace})
        await self._world.write_status(r.HELM_CHART, chart, {"jobName": f"helm-install-{name}"})
        self._installed[name] = asked

    async def _uninstall(self, name: str) -> None:
        policy = self._policy()
        if policy is not None:
            for daemon_set in (DRIVER, TOOLKIT, PLUGIN):
                await self._world.remove(r.DAEMON_SET, daemon_set, self._namespace(policy))
            await self._world.remove(r.POLICY, policy["metadata"]["name"])
        del self._installed[name]

    def _changed(self) -> None:
        for callback in self.on_change:
            callback()

    # The operator
    def _policy(self) -> Json | None:
        found = self._world[r.POLICY].all()
        return found[0] if found else None

    def _namespace(self, policy: Json) -> str:
        return str((policy.get("status") or {}).get("namespace") or DEFAULT_NAMESPACE)

    def _obstacle(self, policy: Json, node: str) -> tuple[str, str, str] | None:
        """Return the first DaemonSet that cannot run on a node, with reason and message of its container."""
        spec = policy.get("spec") or {}
        driver = spec.get("driver") or {}
        if driver.get("enabled", True):
            found = self._driver_obstacle(driver, self._namespace(policy))
            if found:
                return (DRIVER, *found)
        elif not self.driver_in_image.get(node):
            return (
                "image",
                "PodInitializing",
                "waiting for the driver: none is loaded on the node, and none is deployed",
            )
        toolkit = spec.get("toolkit") or {}
        asked = _env(toolkit).get("CONTAINERD_SOCKET") or USUAL_SOCKET
        if toolkit.get("enabled", True) and asked != self._socket:
            message = f"unable to dial: dial unix {asked}: connect: no such file or directory"
            return TOOLKIT, "CrashLoopBackOff", f"unable to restart containerd: {message}"
        return None

    def _driver_obstacle(self, driver: Json, namespace: str) -> tuple[str, str] | None:
        repository, version = driver.get("repository") or PUBLIC_DRIVERS, driver.get("version")
        image = f"{repository}/driver:{version or 'latest'}"
        if repository.startswith(PUBLIC_DRIVERS) or not version:
            return "ImagePullBackOff", f'Back-off pulling image "{image}": there is no public driver for vGPU guests'
        # Without a license configuration the driver works, but is unlicensed.
        kind, name = _source_of(licence.source(driver))
        if not name:
            return None
        found = self._licence_object(kind, name, namespace)
        if found is None:
            return (
                "ContainerCreating",
                f'MountVolume.SetUp failed for volume "{licence.VOLUME}": {kind} "{name}" not found',
            )
        missing = [key for key in LICENCE_KEYS if key not in (found.get("data") or {})]
        if missing:
            return "ContainerCreating", f"references non-existent {kind} key: {', '.join(missing)}"
        return None

    def _licence_object(self, kind: str, name: str, namespace: str) -> Json | None:
        resource = r.SECRET if kind == "secret" else r.CONFIG_MAP
        return self._world[resource].get(name, namespace)

    # Licenses
    def started(self, pod: Json) -> None:
        """Read the license when a driver pod starts. The pod does not see later changes of the object (subPath)."""
        if (pod["metadata"].get("labels") or {}).get("app") != DRIVER or pod["metadata"]["uid"] in self._licensed:
            return
        volumes = [one for one in pod["spec"].get("volumes") or [] if one["name"] == licence.VOLUME]
        kind, name = _source_of(volumes[0] if volumes else None)
        found = self._licence_object(kind, name, pod["metadata"]["namespace"]) if name else None
        self._licensed[pod["metadata"]["uid"]] = found is not None and licence.accepted(licence.content(found))

    def licensed(self, node: str) -> bool:
        """Return whether the vGPUs of a node are licensed. An image with a driver contains the license."""
        policy = self._policy() or {}
        if not ((policy.get("spec") or {}).get("driver") or {}).get("enabled", True):
            return self.driver_in_image.get(node, False)
        drivers = [
            pod
            for pod in self._world[r.POD].all()
            if (pod["metadata"].get("labels") or {}).get("app") == DRIVER and pod["spec"].get("nodeName") == node
        ]
        return any(self._licensed.get(pod["metadata"]["uid"], False) for pod in drivers)

    async def _operate(self, policy: Json) -> None:
        nodes = [
            node["metadata"]["name"] for node in self._world[r.NODE].all() if self._gpus.get(node["metadata"]["name"])
        ]
        for name in nodes:
            node = self._world[r.NODE].get(name)
            if node and PRESENT_LABEL not in node["metadata"]["labels"]:
                await self._world.clock.sleep(DETECT_SECONDS)
                await self._world[r.NODE].patch(node, {"metadata": {"labels": {PRESENT_LABEL: "true"}}})
        await self._deploy(policy)
        troubles = {name: self._obstacle(policy, name) for name in nodes}
        bad = {name: found for name, found in troubles.items() if found}
        message = "; ".join(f"{name}: {found[0]}: {found[2]}" for name, found in sorted(bad.items()))
        await self._state(policy, ready=not bad, message=message)
        self._changed()

    async def _deploy(self, policy: Json) -> None:
        namespace, spec = self._namespace(policy), policy.get("spec") or {}
        for name, part in ((DRIVER, "driver"), (TOOLKIT, "toolkit"), (PLUGIN, "devicePlugin")):
            wanted = (spec.get(part) or {}).get("enabled", True)
            there = self._world[r.DAEMON_SET].get(name, namespace)
            volume = licence.source(spec.get("driver") or {}) if name == DRIVER else None
            body = _daemon_set(name, namespace, [volume] if volume else [])
            if wanted and there is None:
                await self._world[r.DAEMON_SET].create(body, namespace)
            elif wanted and there is not None and _volumes(there) != _volumes(body):
                # The DaemonSet controller replaces the pods one by one.
                change = {"spec": {"template": {"spec": {"volumes": _volumes(body) or None}}}}
                await self._world[r.DAEMON_SET].patch(there, change)
            elif there is not None and not wanted:
                await self._world.remove(r.DAEMON_SET, name, namespace)

    async def _state(self, policy: Json, *, ready: bool, message: str) -> None:
        state = "ready" if ready else "notReady"
        before = {one["type"]: one for one in (policy.get("status") or {}).get("conditions") or []}
        conditions = []
        for kind, holds in (("Ready", ready), ("Error", not ready)):
            said: dict[str, Any] = {
                "type": kind,
                "status": str(holds),
                "reason": "Reconciled" if ready else "OperandNotReady",
                "message": "ClusterPolicy is ready as all resources have been successfully reconciled"
                if ready
                else message,
            }
            same = all((before.get(kind) or {}).get(key) == value for key, value in said.items())
            conditions.append(before[kind] if same else said | {"lastTransitionTime": timestamp()})
        await self._world.write_status(r.POLICY, policy, {"state": state, "conditions": conditions})


def _is_ours(chart: Json) -> bool:
    name = str((chart.get("spec") or {}).get("chart", ""))
    return name.rsplit("/", maxsplit=1)[-1] == CHART and "deletionTimestamp" not in chart["metadata"]


def _policy_of(values: Json, chart_version: str) -> Json:
    """Return the values that the chart's template copies and the definition of ClusterPolicy keeps."""
    parts = ("operator", "driver", "toolkit", "devicePlugin", "dcgmExporter", "gfd", "mig", "vgpuManager", "validator")
    kept = {part: values[part] for part in parts if part in values}
    return {**kept, "driver": licence.pruned(values, chart_version)} if "driver" in kept else kept


def _source_of(volume: Json | None) -> tuple[str, str]:
    """Return kind and name of the object that a license volume mounts."""
    if volume and "secret" in volume:
        return "secret", str(volume["secret"]["secretName"])
    if volume and "configMap" in volume:
        return "configmap", str(volume["configMap"]["name"])
    return "", ""


def _volumes(daemon_set: Json) -> list[Json]:
    """Return the volumes without the defaults of the API server."""
    found = daemon_set["spec"]["template"]["spec"].get("volumes") or []
    return [
        {
            "name": one["name"],
            **({"secret": {"secretName": one["secret"]["secretName"]}} if "secret" in one else {}),
            **({"configMap": {"name": one["configMap"]["name"]}} if "configMap" in one else {}),
        }
        for one in found
    ]


def _env(part: Json) -> dict[str, str]:
    return {one.get("name", ""): str(one.get("value", "")) for one in part.get("env") or []}


def _daemon_set(name: str, namespace: str, volumes: list[Json]) -> Json:
    labels = {"app": name, "app.kubernetes.io/part-of": "gpu-operator"}
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {PRESENT_LABEL: "true"},
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [{"name": name.removesuffix("-daemonset"), "image": f"lab/{name}"}],
                    "volumes": volumes,
                },
            },
        },
    }
