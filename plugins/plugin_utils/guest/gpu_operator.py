# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The state of the NVIDIA GPU Operator in a cluster, and the reasons why it is not ready."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .objects import gpus_of, why

# The operator sets this label on nodes on which it found a GPU.
PRESENT_LABEL = "nvidia.com/gpu.present"
# Prefix of the label app of the driver pods.
DRIVER_APP = "nvidia-driver-daemonset"


def offers(nodes: Iterable[Mapping[str, Any]], expected: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of GPUs that each node offers, for nodes that have or should have GPUs."""
    found = {}
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        if gpus_of(node) or name in expected or labels.get(PRESENT_LABEL) == "true":
            found[name] = gpus_of(node)
    return found


def shortfalls(offered: Mapping[str, int], expected: Mapping[str, Any]) -> list[str]:
    """Return a message for each node that does not offer the expected GPUs."""
    if not expected:
        none = [f"node {name} offers no GPU" for name, gpus in sorted(offered.items()) if not gpus]
        return none if offered else ["the operator has found a GPU on no node"]
    said = []
    for name, gpus in sorted(expected.items()):
        if name not in offered:
            said.append(f"node {name} is not there")
        elif offered[name] != int(gpus):
            said.append(f"node {name} offers {offered[name]} of {int(gpus)} GPUs")
    return said


def is_ready(policies: Iterable[Mapping[str, Any]], values: Mapping[str, Any]) -> bool:
    """Return whether the policy has the driver and the license of the chart's values, and is ready."""
    wanted = _driver_of(values)
    return any(
        (policy.get("status") or {}).get("state") == "ready" and _driver_of(policy.get("spec") or {}) == wanted
        for policy in policies
    )


def _driver_of(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the driver version and the name of its license, or an empty tuple if the operator installs no driver."""
    driver = spec.get("driver") or {}
    if not driver.get("enabled", True):
        return ()
    return str(driver.get("version") or ""), _licence_of(driver)


def _licence_of(driver: Mapping[str, Any]) -> str:
    config = driver.get("licensingConfig") or {}
    return str(config.get("secretName") or config.get("configMapName") or "")


def outdated_drivers(values: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the driver pods that started with another license or are not ready yet."""
    driver = values.get("driver") or {}
    wanted = _licence_of(driver) if driver.get("enabled", True) else ""
    if not wanted:
        return []
    found = []
    for pod in pods:
        if not str((pod["metadata"].get("labels") or {}).get("app", "")).startswith(DRIVER_APP):
            continue
        if wanted not in _mounted(pod) or not _is_ready(pod):
            found.append(str(pod["metadata"]["name"]))
    return sorted(found)


def _mounted(pod: Mapping[str, Any]) -> set[str]:
    """Return the names of the Secrets and ConfigMaps that a pod mounts."""
    volumes = (pod.get("spec") or {}).get("volumes") or []
    secrets = {str((volume.get("secret") or {}).get("secretName") or "") for volume in volumes}
    return secrets | {str((volume.get("configMap") or {}).get("name") or "") for volume in volumes}


def _is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    ready = any((condition.get("type"), condition.get("status")) == ("Ready", "True") for condition in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def complaints(policies: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the errors of the policy, and the reasons why the operator's pods wait."""
    said = [
        str(condition["message"]).rstrip(".")
        for policy in policies
        for condition in (policy.get("status") or {}).get("conditions") or []
        if condition.get("type") == "Error" and condition.get("status") == "True" and condition.get("message")
    ]
    for pod in pods:
        said += [f"pod {pod['metadata']['name']} waits: {wait}" for wait in _waits(pod.get("status") or {})]
    return list(dict.fromkeys(said))


def _waits(status: Mapping[str, Any]) -> list[str]:
    containers: Sequence[Mapping[str, Any]] = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    said = [why((container.get("state") or {}).get("waiting") or {}) for container in containers]
    return list(dict.fromkeys(filter(None, said)))
