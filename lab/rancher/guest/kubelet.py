"""Kubelets of a guest cluster's nodes: they run pods and serve their logs."""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from aiohttp import web

from lab.harvester.node.kubelet import timestamp
from lab.kubernetes import certificates, controlplane
from lab.kubernetes.client import ApiError, Json
from lab.kubernetes.workqueue import WorkQueue
from lab.rancher import resources as r
from lab.rancher.guest import licence
from lab.rancher.guest.gpu_operator import GpuOperator
from lab.rancher.world import World
from lab.rundir import RunDir

START_SECONDS = 2.0
RUN_SECONDS = 3.0
GPU = "nvidia.com/gpu"
VECTOR_ADD = ("vectoradd", "cuda-vector-add")
PASSED = """[Vector addition of 50000 elements]
Copy input data from the host memory to the CUDA device
CUDA kernel launch with 196 blocks of 256 threads
Copy output data from the CUDA device to the host memory
Test PASSED
Done
"""
FAILED = """[Vector addition of 50000 elements]
Failed to allocate device vector A (error code no CUDA-capable device is detected)!
"""


class GuestKubelet:
    def __init__(self, world: World, run: RunDir, operator: GpuOperator, gpus: Mapping[str, int]) -> None:
        self._world = world
        self._run = run
        self._operator = operator
        # Number of vGPUs of each node's VM.
        self._gpus = gpus
        self.port = 0
        # Keys are pod and container.
        self._logs: dict[str, dict[str, str]] = {}
        self._taken: dict[str, tuple[str, int]] = {}

    async def run(self) -> None:
        self._queue = WorkQueue(self._world.clock, "guest kubelets", self._reconcile, workers=8)

        def noticed(old: Json | None, new: Json | None) -> None:
            pod = new or old or {}
            if pod["spec"].get("nodeName"):
                self._queue.add(_key(pod))

        self._world[r.POD].listen(noticed)
        self._operator.on_change.append(self.look_again)
        for pod in self._world[r.POD].all():
            noticed(None, pod)
        await self._serve_logs()

    def look_again(self) -> None:
        for pod in self._world[r.POD].all():
            if pod["spec"].get("nodeName"):
                self._queue.add(_key(pod))

    async def stop(self) -> None:
        self._queue.stop()
        await self._runner.cleanup()

    # Logs
    async def _serve_logs(self) -> None:
        application = web.Application()
        application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._log)
        self._runner = web.AppRunner(application, shutdown_timeout=0.5)
        await self._runner.setup()
        serving = certificates.pair(self._run, "kubelet")
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(str(serving.cert), str(serving.key))
        (self.port,) = controlplane.free_ports(1)
        await web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=tls).start()

    async def _log(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['pod']}"
        return web.Response(text=self._logs.get(key, {}).get(request.match_info["container"], ""))

    # Pods
    async def _reconcile(self, key: str) -> None:
        namespace, name = key.split("/")
        pod = self._world[r.POD].get(name, namespace)
        if pod is None:
            self._taken.pop(key, None)
            self._logs.pop(key, None)
            return
        if "deletionTimestamp" in pod["metadata"]:
            await self._end(key, pod)
            return
        phase = (pod.get("status") or {}).get("phase", "Pending")
        if phase in ("Succeeded", "Failed"):
            return
        if phase == "Pending":
            await self._world.clock.sleep(START_SECONDS)
            wanted = _gpus_of(pod)
            if wanted > self._free(pod["spec"]["nodeName"]):
                reason = "UnexpectedAdmissionError"
                await self._write(pod, {"phase": "Failed", "reason": reason, "message": f"Allocate failed: no {GPU}"})
                return
            self._taken[key] = (pod["spec"]["nodeName"], wanted)
            if not await self._initialise(key, pod):
                return
        if _ends(pod):
            await self._run_to_end(key, pod)
        else:
            status = self._running(pod)
            if self._operator.trouble(pod) is None:
                self._operator.started(pod)
            await self._write(pod, status)

    def _free(self, node: str) -> int:
        offered = self._gpus.get(node, 0) if self._operator.serves(node) else 0
        return offered - sum(count for where, count in self._taken.values() if where == node)

    async def _initialise(self, key: str, pod: Json) -> bool:
        """Run the init containers in order, and return whether the pod still exists."""
        for container in pod["spec"].get("initContainers") or []:
            if "nvidia-smi" not in " ".join(container.get("command") or []):
                continue
            node, gpus = pod["spec"]["nodeName"], _limit(container)
            good = gpus > 0 and pod["spec"].get("runtimeClassName") == "nvidia"
            licensed = good and self._operator.licensed(node)
            if good and not licensed:
                # The script polls until its timeout.
                await self._world.clock.sleep(float(_environment(container).get("SECONDS_TO_WAIT", 0)))
                licensed = self._operator.licensed(node)
            text = licence.smi(gpus, licensed=licensed) if good else "/bin/sh: 1: nvidia-smi: not found\n"
            self._logs.setdefault(key, {})[container["name"]] = text
        return self._world[r.POD].get(*reversed(key.split("/"))) is not None

    async def _run_to_end(self, key: str, pod: Json) -> None:
        await self._write(pod, self._running(pod))
        await self._world.clock.sleep(RUN_SECONDS)
        image = pod["spec"]["containers"][0].get("image", "")
        good = True
        if any(part in image for part in VECTOR_ADD):
            good = _gpus_of(pod) > 0 and pod["spec"].get("runtimeClassName") == "nvidia"
            self._logs.setdefault(key, {})[pod["spec"]["containers"][0]["name"]] = PASSED if good else FAILED
        self._taken.pop(key, None)
        code = 0 if good else 1
        ended = {
            "exitCode": code,
            "reason": "Completed" if good else "Error",
            "startedAt": timestamp(),
            "finishedAt": timestamp(),
        }
        status = self._running(pod) | {"phase": "Succeeded" if good else "Failed"}
        for container in status["containerStatuses"]:
            container |= {"ready": False, "started": False, "state": {"terminated": ended}}
        for condition in status["conditions"]:
            if condition["type"] in ("Ready", "ContainersReady"):
                condition |= {"status": "False", "reason": "PodCompleted"}
        await self._write(pod, status)

    async def _end(self, key: str, pod: Json) -> None:
        self._taken.pop(key, None)
        try:
            await self._world.client.delete(
                r.POD.path(pod["metadata"]["name"], pod["metadata"]["namespace"]), {"gracePeriodSeconds": 0}
            )
        except ApiError as error:
            if error.status != 404:
                raise

    async def _write(self, pod: Json, status: Json) -> None:
        await self._world.write_status(r.POD, pod, status)

    def _running(self, pod: Json) -> Json:
        trouble = self._operator.trouble(pod)
        started = (pod.get("status") or {}).get("startTime") or timestamp()
        ready = trouble is None
        state: Json = {"running": {"startedAt": started}} if ready else {"waiting": trouble}
        crashed = trouble is not None and trouble["reason"] == "CrashLoopBackOff"
        return {
            "phase": "Running" if ready or crashed else "Pending",
            "startTime": started,
            "podIP": "10.42.0.2",
            "podIPs": [{"ip": "10.42.0.2"}],
            "conditions": [
                {
                    "type": kind,
                    "status": str(ready or kind in ("Initialized", "PodScheduled")),
                    "lastTransitionTime": started,
                }
                for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "ready": ready,
                    "started": ready,
                    "restartCount": 1 if crashed else 0,
                    "image": container.get("image", ""),
                    "imageID": "",
                    "state": state,
                }
                for container in pod["spec"]["containers"]
            ],
        }


def _key(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _ends(pod: Json) -> bool:
    return pod["spec"].get("restartPolicy") in ("Never", "OnFailure")


def _gpus_of(pod: Json) -> int:
    """Return the number of GPUs of a pod, whose init containers release their GPUs before the others start."""
    spec = pod["spec"]
    together = sum(_limit(container) for container in spec["containers"])
    return max([together, *(_limit(container) for container in spec.get("initContainers") or [])])


def _limit(container: Json) -> int:
    return int(((container.get("resources") or {}).get("limits") or {}).get(GPU, 0))


def _environment(container: Json) -> dict[str, str]:
    return {one["name"]: str(one.get("value", "")) for one in container.get("env") or []}
