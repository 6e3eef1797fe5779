# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CUDA job on each GPU node of a cluster, and what its pod and its log say afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Json = dict[str, Any]

RESOURCE = "nvidia.com/gpu"
LABEL = "vgpu.fleet/smoke-test"
NODE_ANNOTATION = "vgpu.fleet/node"
PASSED = "Test PASSED"
# What a run that was killed leaves behind goes by itself.
KEPT_SECONDS = 86400


@dataclass(frozen=True)
class Sample:
    """How the jobs are run."""

    run: str
    image: str
    namespace: str = "default"
    gpus: int = 1
    runtime_class: str = ""
    pull_secrets: Sequence[str] = ()


def gpus_of(node: Mapping[str, Any]) -> int:
    """How many GPUs a node offers."""
    return int(((node.get("status") or {}).get("allocatable") or {}).get(RESOURCE, 0))


def jobs(nodes: Iterable[Mapping[str, Any]], names: Sequence[str], sample: Sample) -> list[Json]:
    """One for each node of these names; without names, for each that offers a GPU."""
    chosen = [node for node in nodes if (node["metadata"]["name"] in names if names else gpus_of(node))]
    return [_job(node, number, sample) for number, node in enumerate(chosen, start=1)]


def _job(node: Mapping[str, Any], number: int, sample: Sample) -> Json:
    """A node without GPUs is asked for none, so that the job runs there and CUDA tells what it finds."""
    name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
    pod: Json = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": labels.get("kubernetes.io/hostname", name)},
        "tolerations": [{"operator": "Exists"}],
        "containers": [
            {
                "name": "cuda",
                "image": sample.image,
                "resources": {"limits": {RESOURCE: sample.gpus} if gpus_of(node) else {}},
            }
        ],
    }
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
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": mark}, "spec": pod},
        },
    }


def results(
    ended: Iterable[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]], logs: Mapping[str, str]
) -> list[Json]:
    """By node: whether it passed, in how many seconds, the log, and if it did not pass what its pod says."""
    found = []
    for one in ended:
        name, status = one["metadata"]["name"], one.get("status") or {}
        log = logs.get(name, "")
        passed = bool(status.get("succeeded")) and PASSED in log
        container = one["spec"]["template"]["spec"]["containers"][0]
        asked = ((container.get("resources") or {}).get("limits") or {}).get(RESOURCE, 0)
        found.append(
            {
                "node": one["metadata"]["annotations"][NODE_ANNOTATION],
                "gpus": int(asked),
                "passed": passed,
                "seconds": _seconds(status),
                "log": log,
                "reason": "" if passed else _reason(name, pods, offered=bool(asked)),
            }
        )
    return sorted(found, key=lambda result: str(result["node"]))


def _seconds(status: Mapping[str, Any]) -> int | None:
    if not status.get("startTime") or not status.get("completionTime"):
        return None
    began, done = (
        datetime.fromisoformat(status[key].replace("Z", "+00:00")) for key in ("startTime", "completionTime")
    )
    return int((done - began).total_seconds())


def _reason(job_name: str, pods: Sequence[Mapping[str, Any]], *, offered: bool) -> str:
    said = [] if offered else [f"it offers no {RESOURCE}"]
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get("job-name") == job_name]
    for pod in mine:
        said += _said(pod.get("status") or {})
    nothing = "its pod has not run" if mine else "its pod has not been made"
    return "; ".join(dict.fromkeys(filter(None, said))) or nothing


def _said(status: Mapping[str, Any]) -> list[str]:
    said = [
        one.get("message") or ""
        for one in status.get("conditions") or []
        if one.get("type") == "PodScheduled" and one.get("status") == "False"
    ]
    said.append(_both(status))
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        ending = state.get("terminated") or {}
        if ending.get("exitCode"):
            said.append(_both(ending) or f"exit code {ending['exitCode']}")
        said.append(_both(state.get("waiting") or {}))
    return said


def _both(said: Mapping[str, Any]) -> str:
    return ": ".join(filter(None, (said.get("reason"), said.get("message"))))
