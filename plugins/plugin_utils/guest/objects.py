# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values from the objects of a guest cluster: the number of GPUs of a node, and the reason of a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RESOURCE = "nvidia.com/gpu"
# The device plugin can share GPUs by time slices or MPS, and can offer the shares under this name (nvidia.md 6.4).
SHARED_RESOURCE = f"{RESOURCE}.shared"
REPLICAS_LABEL, SHARING_LABEL = f"{RESOURCE}.replicas", f"{RESOURCE}.sharing-strategy"


def gpus_of(node: Mapping[str, Any]) -> int:
    """Return the number of GPUs that a node offers, or of their shares if the node shares them."""
    return int(_allocatable(node).get(resource_of(node), 0))


def resource_of(node: Mapping[str, Any]) -> str:
    """Return the name of the resource that pods request to get a GPU of the node."""
    offers = _allocatable(node)
    return SHARED_RESOURCE if not int(offers.get(RESOURCE, 0)) and int(offers.get(SHARED_RESOURCE, 0)) else RESOURCE


def shares_gpus(node: Mapping[str, Any]) -> bool:
    """Return whether the node offers shares of its GPUs instead of whole GPUs."""
    labels = node["metadata"].get("labels") or {}
    replicas = str(labels.get(REPLICAS_LABEL, ""))
    return (
        resource_of(node) == SHARED_RESOURCE
        or (replicas.isdecimal() and int(replicas) > 1)
        or labels.get(SHARING_LABEL, "none") != "none"
    )


def _allocatable(node: Mapping[str, Any]) -> Mapping[str, Any]:
    return (node.get("status") or {}).get("allocatable") or {}


def why(said: Mapping[str, Any]) -> str:
    """Return the reason and the message of a state or a status, if present."""
    return ": ".join(filter(None, (said.get("reason"), said.get("message"))))
