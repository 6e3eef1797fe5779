# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a layout on GPUs that Harvester does not know yet, made from assumed boards and the catalog. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..module_utils.errors import FleetError, did_you_mean
from ..module_utils.fleet import catalog
from ..module_utils.fleet.model import MIG, TIME_SLICED, Fleet, Gpu, Node
from ..module_utils.harvester.decide.layout import request_from
from .views.plan import fleet_plan

Json = dict[str, Any]
KEYS = ("nodes", "board", "count")


class InvalidAssumption(FleetError):
    code = "invalid_request"


def assumed_fleet(assume: Iterable[Mapping[str, Any]]) -> Fleet:
    """Return nodes with the assumed GPUs, on which SR-IOV is disabled."""
    boards: dict[str, list[catalog.Board]] = {}
    for entry in assume:
        if not isinstance(entry, Mapping) or not set(entry) <= set(KEYS) or not {"nodes", "board"} <= set(entry):
            raise InvalidAssumption("An assumption needs nodes and board, and can have count.")
        board = catalog.find_board(str(entry["board"]))
        if board is None:
            close = did_you_mean(str(entry["board"]), catalog.boards(), limit=1)
            hint = f"Did you mean {close[0]}?" if close else ""
            raise InvalidAssumption(f"Board {entry['board']} is not in the catalog.", hint=hint)
        for node in [entry["nodes"]] if isinstance(entry["nodes"], str) else entry["nodes"]:
            boards.setdefault(str(node), []).extend([board] * int(entry.get("count", 1)))
    return Fleet(tuple(_node(name, found) for name, found in boards.items()))


def _node(name: str, boards: Sequence[catalog.Board]) -> Node:
    gpus = tuple(
        Gpu(
            f"{name}-gpu-{number}",
            name,
            address=f"0000:{number:02x}:00.0",
            boards=(board.name,),
            # From Harvester 1.7 on, SR-IOV switches GPUs that support MIG to MIG mode (harvester.md 5.6).
            mode=MIG if board.mig_capable else TIME_SLICED,
            sharing=False,
        )
        for number, board in enumerate(boards, start=1)
    )
    return Node(name, gpus=gpus, advertised={})


def assumed_plan(
    assume: Iterable[Mapping[str, Any]],
    layout: Sequence[Mapping[str, Any]],
    *,
    nodes: Sequence[str] | None = None,
    gpus: Sequence[str] | None = None,
    enable_mig: bool = False,
    placement: str = "consolidate",
    cluster: str = "",
) -> Json:
    """Return the plan for a layout as `fleet_plan` does, or raise the error that the real run would end with."""
    fleet = assumed_fleet(assume)
    steps: list[Json] = []
    if layout:
        entries = [
            {"per": None, "nodes": None, "gpus": None, **entry, "count": int(entry["count"])} for entry in layout
        ]
        options = {"layout": entries, "nodes": nodes, "gpus": gpus, "devices": None, "name": None, "state": None}
        policy = {"exclusive": False, "reprofile": False, "enable_sriov": True, "enable_mig": enable_mig}
        request = request_from({**options, **policy, "placement": placement})
        steps = [step.as_dict() for step in request.plan(fleet).steps]
    info = {**fleet.as_dict(), "vgpus": [], "findings": [], "harvester": {}}
    return fleet_plan([{"steps": steps}], info, cluster=cluster)
