# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Short records of nodes and GPUs, which count vGPUs instead of listing them. They fit into job events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ...fleet.model import Fleet, Gpu, Node
from .records import Record

# Values of the option `detail`.
SUMMARY, FULL = "summary", "full"
DETAIL_OPTION = {"detail": {"type": "str", "choices": [SUMMARY, FULL], "default": SUMMARY}}


def gpu_summary(gpu: Gpu) -> Record:
    """Return a short record of a GPU: its vGPUs are counted by profile instead of listed."""
    enabled = [slot for slot in gpu.ordered_slots if not slot.empty]
    return {
        "name": gpu.name,
        "address": gpu.address,
        "board": gpu.board,
        "possible_boards": sorted(gpu.boards),
        "mode": gpu.mode,
        "vgpu_enabled": gpu.sharing,
        "unavailable_reason": gpu.blocked,
        "vgpus": dict(sorted(Counter(slot.profile or slot.wanted for slot in enabled).items())),
        "in_use": sum(1 for slot in enabled if slot.holders),
        "empty": len(gpu.slots) - len(enabled),
    }


def gpu_summaries(fleet: Fleet, gpus: Iterable[str]) -> list[Record]:
    chosen = set(gpus)
    return [{**gpu_summary(gpu), "node": gpu.node} for gpu in fleet.gpus if gpu.name in chosen]


def node_summary(node: Node) -> Record:
    """Return a short record of a node: without labels, and with short records of its GPUs."""
    return {
        "name": node.name,
        "ready": node.ready,
        "schedulable": node.schedulable,
        "reserved_for_containers": node.reserved_for_containers,
        "advertised": None if node.advertised is None else dict(sorted(node.advertised.items())),
        "gpus": [gpu_summary(gpu) for gpu in node.ordered_gpus],
    }
