# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A CUDA job on each GPU node of a cluster, and what its pod and its log say afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.objects import RESOURCE, gpus_of, why

Json = dict[str, Any]

LABEL = "vgpu.fleet/smoke-test"
NODE_ANNOTATION = "vgpu.fleet/node"
PASSED = "Test PASSED"
# What a run that was killed leaves behind goes by itself: a job that waits for a GPU ends at its deadline, and a job
# that has ended is removed after a day.
KEPT_SECONDS = 86400
DEFAULT_SECONDS, GRACE_SECONDS = 600, 60


@dataclass(frozen=True)
class JobOptions:
    """How the jobs are run."""

    run: str
    image: str
    namespace: str = "default"
    gpus: int = 1
    runtime_class: str = ""
    pull_secrets: Sequence[str] = ()
    # How long the run waits for its jobs.
    seconds: int = DEFAULT_SECONDS


def jobs(nodes: Iterable[Mapping[str, Any]], names: Sequence[str], sample: JobOptions) -> list[Json]:
    """One for each node of these names; without names, for each that offers a GPU."""
    chosen = [node for node in nodes if (node["metadata"]["name"] in names if names else gpus_of(node))]
    return [_job(node, number, sample) for number, node in enumerate(chosen, start=1)]


def deadline(seconds: int) -> int:
    """Well after the run has stopped waiting, since each look takes time as well: the pods go at the deadline, and with
    them what they say."""
    return 2 * max(seconds, 1) + GRACE_SECONDS


def _job(node: Mapping[str, Any], number: int, sample: JobOptions) -> Json:
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
            "activeDeadlineSeconds": deadline(sample.seconds),
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
        found.append(
            {
                "node": one["metadata"]["annotations"][NODE_ANNOTATION],
                "gpus": _asked(one),
                "passed": passed,
                "seconds": _seconds(status),
                "log": log,
                "reason": "" if passed else _reason(one, pods, log),
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


def _asked(job: Mapping[str, Any]) -> int:
    container = job["spec"]["template"]["spec"]["containers"][0]
    return int(((container.get("resources") or {}).get("limits") or {}).get(RESOURCE, 0))


def _reason(job: Mapping[str, Any], pods: Sequence[Mapping[str, Any]], log: str) -> str:
    if (job.get("status") or {}).get("succeeded"):
        return f"its log does not say {PASSED}" if log else "its log cannot be read, though the job succeeded"
    said = [] if _asked(job) else [f"it offers no {RESOURCE}"]
    name = job["metadata"]["name"]
    mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get("job-name") == name]
    for pod in mine:
        said += _said(pod.get("status") or {})
    if not mine:
        # At the deadline the pods go, and only the job itself says why.
        conditions = (job.get("status") or {}).get("conditions") or []
        said += [why(one) for one in conditions if (one.get("type"), one.get("status")) == ("Failed", "True")]
    nothing = "its pod has not run" if mine else "its pod has not been made"
    return "; ".join(dict.fromkeys(filter(None, said))) or nothing


def _said(status: Mapping[str, Any]) -> list[str]:
    said = [
        one.get("message") or ""
        for one in status.get("conditions") or []
        if one.get("type") == "PodScheduled" and one.get("status") == "False"
    ]
    said.append(why(status))
    for container in status.get("containerStatuses") or []:
        state = container.get("state") or {}
        ending = state.get("terminated") or {}
        if ending.get("exitCode"):
            said.append(why(ending) or f"exit code {ending['exitCode']}")
        said.append(why(state.get("waiting") or {}))
    return said
