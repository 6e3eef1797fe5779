# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A job on each GPU node of a cluster that reads the licenses and runs CUDA, and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from . import licence as licences
from .objects import RESOURCE, SHARED_RESOURCE, gpus_of, resource_of, shares_gpus, why

Json = dict[str, Any]

LABEL = "vgpu.fleet/smoke-test"
NODE_ANNOTATION = "vgpu.fleet/node"
PASSED = "Test PASSED"
CUDA_CONTAINER, LICENCE_CONTAINER = "cuda", "licence"
# Jobs of a run that was killed clean themselves up: a job that waits for a GPU ends at its deadline, and a finished job
# is removed after a day.
KEPT_SECONDS = 86400
DEFAULT_SECONDS, GRACE_SECONDS = 600, 60


@dataclass(frozen=True)
class JobOptions:
    """The options of the jobs."""

    run: str
    image: str
    namespace: str = "default"
    gpus: int = 1
    runtime_class: str = ""
    pull_secrets: Sequence[str] = ()
    # Maximum time to wait for the jobs, in seconds.
    seconds: int = DEFAULT_SECONDS
    # Whether every GPU of the node must be licensed, and the maximum time to wait for the licenses, in seconds.
    licence: bool = True
    licence_seconds: int = 300


def jobs(nodes: Iterable[Mapping[str, Any]], names: Sequence[str], sample: JobOptions) -> list[Json]:
    """Return one job for each node of these names. Without names, return one for each node that offers a GPU."""
    chosen = [node for node in nodes if (node["metadata"]["name"] in names if names else gpus_of(node))]
    return [_job(node, number, sample) for number, node in enumerate(chosen, start=1)]


def deadline(seconds: int) -> int:
    """Return a deadline well after the end of the wait, because each check takes time as well.

    Kubernetes deletes the pods at the deadline, and their logs with them.
    """
    return 2 * max(seconds, 1) + GRACE_SECONDS


def _job(node: Mapping[str, Any], number: int, sample: JobOptions) -> Json:
    """Return the job of a node. Without GPUs on the node the job requests none, so that CUDA can report an error."""
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    pod: Json = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": labels.get("kubernetes.io/hostname", name)},
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": CUDA_CONTAINER,
                "image": sample.image,
                "resources": {"limits": {resource_of(node): sample.gpus} if gpus_of(node) else {}},
            }
        ],
    }
    if sample.licence and gpus_of(node):
        pod["initContainers"] = [_licence_container(node, sample)]
    if sample.runtime_class:
        pod["runtimeClassName"] = sample.runtime_class
    if sample.pull_secrets:
        pod["imagePullSecrets"] = [{"name": secret} for secret in sample.pull_secrets]
    mark = {LABEL: sample.run}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"gpu-smoke-test-{sample.run}-{number}",
            "namespace": sample.namespace,
            "labels": mark,
            "annotations": {NODE_ANNOTATION: name},
        },
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline(sample.seconds),
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": mark}, "spec": pod},
        },
    }


def _licence_container(node: Mapping[str, Any], sample: JobOptions) -> Json:
    """Return the container that reads the licenses. It requests all GPUs of the node: a pod sees only its own.

    Of shared GPUs it requests one share: the device plugin may refuse more, and several may be of the same GPU.
    """
    gpus = 1 if shares_gpus(node) else gpus_of(node)
    return {
        "name": LICENCE_CONTAINER,
        "image": sample.image,
        "command": ["/bin/sh", "-c", licences.SCRIPT],
        "env": [
            # The container toolkit mounts nvidia-smi for this capability.
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
            {"name": "SECONDS_TO_WAIT", "value": str(sample.licence_seconds)},
        ],
        "resources": {"limits": {resource_of(node): gpus}},
    }


def results(
    ended: Iterable[Mapping[str, Any]],
    pods: Sequence[Mapping[str, Any]],
    logs: Mapping[str, str],
    licence_logs: Mapping[str, str] | None = None,
) -> list[Json]:
    """Return the result of each node: passed or not, duration, log and licenses, and the reason of a failure."""
    found = []
    for job in ended:
        name, status = job["metadata"]["name"], job.get("status") or {}
        log, shown = logs.get(name, ""), (licence_logs or {}).get(name, "")
        computed = bool(status.get("succeeded")) and PASSED in log
        gpus = _asked(job, LICENCE_CONTAINER)
        licensed = licences.licences(shown)
        # A pod that did not reach the license check failed for another reason.
        unlicensed = licences.problem(licensed, gpus, shown) if gpus and (shown or computed) else ""
        passed = computed and not unlicensed
        reasons = [unlicensed] if computed else [_reason(job, pods, log), unlicensed]
        found.append(
            {
                "node": job["metadata"]["annotations"][NODE_ANNOTATION],
                "gpus": _asked(job),
                "passed": passed,
                "seconds": _seconds(status),
                "log": log,
                "licensed": (bool(licensed) and not unlicensed) if gpus else None,
                "licences": licensed,
                "licence_expires": licences.earliest(licensed),
                "reason": "" if passed else "; ".join(filter(None, reasons)),
            }
        )
    return sorted(found, key=lambda result: str(result["node"]))


def lines(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each node: which GPUs passed, and how long the test took."""
    return [_line(result) for result in found]


def _line(result: Mapping[str, Any]) -> str:
    count = result["gpus"]
    named = [
        f"{licence['gpu']}, {'licensed' if licence['licensed'] else 'not licensed'}" for licence in result["licences"]
    ]
    gpus = f"{count} GPU{'' if count == 1 else 's'}" + (f" ({'; '.join(named)})" if named else "")
    if not result["passed"]:
        return f"Node {result['node']}: FAILED on {gpus}"
    took = "" if result["seconds"] is None else f" in {result['seconds']} s"
    return f"Node {result['node']}: {PASSED} on {gpus}{took}"


def _seconds(status: Mapping[str, Any]) -> int | None:
    if not status.get("startTime") or not status.get("completionTime"):
        return None
    began, done = (
        datetime.fromisoformat(status[key].replace("Z", "+00:00")) for key in ("startTime", "completionTime")
    )
    return int((done - began).total_seconds())


def _asked(job: Mapping[str, Any], name: str = CUDA_CONTAINER) -> int:
    """Return the number of GPUs that a container of the job requests."""
    pod = job["spec"]["template"]["spec"]
    for container in [*(pod.get("initContainers") or []), *pod["containers"]]:
        if container["name"] == name:
            limits = (container.get("resources") or {}).get("limits") or {}
            return int(limits.get(RESOURCE) or limits.get(SHARED_RESOURCE) or 0)
    return 0


def _reason(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], log: str) -> str:
    if (job.get("status") or {}).get("succeeded"):
        return f"its log does not say {PASSED}" if log else "its log cannot be read, though the job succeeded"
    said = [] if _asked(job) else [f"it offers no {RESOURCE}"]
    name = job["metadata"]["name"]
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get("job-name") == name]
    for pod in mine:
        said += _said(pod.get("status") or {})
    if not mine:
        # Kubernetes deletes the pods at the deadline, and only the job itself has the reason.
        conditions = (job.get("status") or {}).get("conditions") or []
        said += [
            why(condition)
            for condition in conditions
            if (condition.get("type"), condition.get("status")) == ("Failed", "True")
        ]
    nothing = "its pod has not run" if mine else "its pod has not been made"
    return "; ".join(dict.fromkeys(filter(None, said))) or nothing


def _said(status: Mapping[str, Any]) -> list[str]:
    said = [
        condition.get("message") or ""
        for condition in status.get("conditions") or []
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False"
    ]
    said.append(why(status))
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = container.get("state") or {}
        ending = state.get("terminated") or {}
        if ending.get("exitCode"):
            said.append(why(ending) or f"exit code {ending['exitCode']}")
        said.append(why(state.get("waiting") or {}))
    return said
