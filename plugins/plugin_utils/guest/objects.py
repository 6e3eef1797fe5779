# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values from the objects of a guest cluster: the number of GPUs of a node, and the reason of a failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RESOURCE = "nvidia.com/gpu"


def gpus_of(node: Mapping[str, Any]) -> int:
    """Return the number of GPUs that a node offers."""
    return int(((node.get("status") or {}).get("allocatable") or {}).get(RESOURCE, 0))


def why(said: Mapping[str, Any]) -> str:
    """Return the reason and the message of a state or a status, if present."""
    return ": ".join(filter(None, (said.get("reason"), said.get("message"))))
