# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Labels that show who created an object of the management cluster. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

MANAGED_BY = "app.kubernetes.io/managed-by"
OWNER = "vgpu.fleet/owner"
MANAGER = "vgpu.fleet"
CLUSTER_NAME = "cluster.x-k8s.io/cluster-name"
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def marks(owner: str, cluster: str) -> dict[str, str]:
    """Return the labels of an object that this collection creates for a cluster."""
    return {MANAGED_BY: MANAGER, OWNER: owner, CLUSTER_NAME: cluster}


def labels_of(thing: Mapping[str, Any]) -> dict[str, str]:
    return dict((thing.get("metadata") or {}).get("labels") or {})


def is_ours(thing: Mapping[str, Any], owner: str, cluster: str) -> bool:
    return marks(owner, cluster).items() <= labels_of(thing).items()


def belongs(thing: Mapping[str, Any], cluster: str) -> bool:
    return labels_of(thing).get(CLUSTER_NAME) == cluster


def whose(thing: Mapping[str, Any]) -> str:
    """Return who made an object, as the end of a sentence."""
    labels = labels_of(thing)
    if labels.get(MANAGED_BY) == MANAGER and labels.get(OWNER):
        return f"belongs to owner {labels[OWNER]} and cluster {labels.get(CLUSTER_NAME) or 'unknown'}"
    return "was not made by this collection"
