# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: assumed_plan
short_description: Plan a layout on GPUs that Harvester does not know yet
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Plans a layout on assumed GPUs, with the profiles of their boards in the catalog. A dry run on a cluster whose
    addons are disabled can thus show the whole plan.
  - GPUs that support MIG are assumed to be in MIG mode, as on Harvester 1.7 and later.
positional: _input, layout
options:
  _input:
    description: >-
      The assumed GPUs. Each entry has C(nodes), the names of the nodes, C(board), and C(count), the number of GPUs of
      each node, which defaults to 1.
    type: list
    elements: dict
    required: true
  layout:
    description: The layout, as for O(vgpu.fleet.harvester_vgpu#module:layout).
    type: list
    elements: dict
    required: true
  nodes:
    description: Names of nodes, or shell patterns, for entries without a selection.
    type: list
    elements: str
  gpus:
    description: >-
      Names of GPUs, or shell patterns, for entries without a selection. Assumed GPUs are called C(NODE-gpu-1).
    type: list
    elements: str
  enable_mig:
    description: Whether to create the MIG instances that profiles of the layout need.
    type: bool
    default: false
  placement:
    description: Whether vGPUs fill one GPU after the other or are spread over many.
    type: str
    choices: [consolidate, spread]
    default: consolidate
  cluster:
    description: The name of the cluster in the plan.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Show how a layout would look on two nodes with an A2 each
  ansible.builtin.debug:
    msg: >-
      {{ ([{'nodes': ['gpu-a', 'gpu-b'], 'board': 'A2'}]
          | vgpu.fleet.assumed_plan([{'profile': 'A2-4Q', 'count': 2, 'per': 'node'}])).lines }}
"""

RETURN = r"""
_value:
  description: >-
    The plan, as P(vgpu.fleet.fleet_plan#filter) returns it, and C(problem), which describes an invalid assumption or a
    layout that does not fit. The plan is empty then.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..module_utils.errors import FleetError
from ..plugin_utils import assumed_plan as plans


def assumed_plan(
    assume: Sequence[Mapping[str, Any]],
    layout: Sequence[Mapping[str, Any]],
    nodes: Sequence[str] | None = None,
    gpus: Sequence[str] | None = None,
    enable_mig: bool = False,
    placement: str = "consolidate",
    cluster: str = "",
) -> dict[str, Any]:
    try:
        plan = plans.assumed_plan(
            assume, layout, nodes=nodes, gpus=gpus, enable_mig=enable_mig, placement=placement, cluster=cluster
        )
    except FleetError as error:
        return {"lines": [], "steps": [], "summary": "", "problem": str(error)}
    except (TypeError, ValueError, KeyError):
        problem = "The layout is not valid. Each entry needs a profile and a number as count."
        return {"lines": [], "steps": [], "summary": "", "problem": problem}
    return {**plan, "problem": ""}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"assumed_plan": assumed_plan}
