# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What NVIDIA's GPU operator has come to in a cluster, and what keeps it from being done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.objects import gpus_of, why

# The operator marks nodes on which it has found a GPU.
PRESENT_LABEL = "nvidia.com/gpu.present"


def offers(nodes: Iterable[Mapping[str, Any]], expected: Mapping[str, Any]) -> dict[str, int]:
    """How many GPUs each node offers that has or should have some."""
    found = {}
    for node in nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        if gpus_of(node) or name in expected or labels.get(PRESENT_LABEL) == "true":
            found[name] = gpus_of(node)
    return found


def shortfalls(offered: Mapping[str, int], expected: Mapping[str, Any]) -> list[str]:
    """Where nodes offer something else than they should, one sentence each."""
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
    """Whether the policy is the one that was asked for by the chart's values, and all that it says is done."""
    wanted = _driver_of(values)
    return any(
        (policy.get("status") or {}).get("state") == "ready" and _driver_of(policy.get("spec") or {}) == wanted
        for policy in policies
    )


def _driver_of(spec: Mapping[str, Any]) -> tuple[bool, str]:
    driver = spec.get("driver") or {}
    enabled = bool(driver.get("enabled", True))
    return enabled, str(driver.get("version") or "") if enabled else ""


def complaints(policies: Iterable[Mapping[str, Any]], pods: Iterable[Mapping[str, Any]]) -> list[str]:
    """What the policy says is wrong, and which of the operator's pods wait for what."""
    said = [
        str(one["message"]).rstrip(".")
        for policy in policies
        for one in (policy.get("status") or {}).get("conditions") or []
        if one.get("type") == "Error" and one.get("status") == "True" and one.get("message")
    ]
    for pod in pods:
        said += [f"pod {pod['metadata']['name']} waits: {one}" for one in _waits(pod.get("status") or {})]
    return list(dict.fromkeys(said))


def _waits(status: Mapping[str, Any]) -> list[str]:
    containers: Sequence[Mapping[str, Any]] = [
        *(status.get("initContainerStatuses") or []),
        *(status.get("containerStatuses") or []),
    ]
    said = [why((one.get("state") or {}).get("waiting") or {}) for one in containers]
    return list(dict.fromkeys(filter(None, said)))
