# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: harvester_take_back
short_description: Plan which vGPUs and SR-IOV GPUs to take back
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.harvester_gpu_node#role) with O(ignore:harvester_gpu_node_state=absent). Finds the
    vGPUs that a declaration made and that no VM uses, and the GPUs that need no SR-IOV without them.
  - vGPUs of other profiles, on other GPUs, or beyond the declared number stay, and the result says why.
positional: _input, layout
options:
  _input:
    description: The result of M(vgpu.fleet.harvester_gpu_info) for the whole cluster.
    type: dict
    required: true
  layout:
    description: The declared layout, as the option O(vgpu.fleet.harvester_vgpu#module:layout).
    type: list
    elements: dict
    default: []
  mig:
    description: The declared MIG instances. Only C(nodes) and C(gpus) of each entry are used.
    type: list
    elements: dict
    default: []
  nodes:
    description: >-
      Names of nodes, or shell patterns, for entries that select nothing themselves. Without O(nodes) and O(gpus) such
      entries mean the whole fleet.
    type: list
    elements: str
  gpus:
    description: Names of GPUs, or shell patterns, for entries that select nothing themselves.
    type: list
    elements: str
  all_sriov:
    description: Whether SR-IOV was declared for all GPUs of O(nodes) and O(gpus), whatever the layout needs.
    type: bool
    default: false
  everything:
    description: Whether all vGPUs and SR-IOV of O(nodes) and O(gpus) are taken back, whoever made them.
    type: bool
    default: false
  owner:
    description: >-
      Only vGPUs that were enabled for this owner are taken back. Others stay. If not given, marks are not looked at, as
      with O(everything).
    type: str
  adopt:
    description: Whether vGPUs that carry no mark of any owner are taken back, too.
    type: bool
    default: false
  gone_vms:
    description: VMs that are expected to be deleted by then, as namespace and name.
    type: list
    elements: str
    default: []
  gone_labels:
    description: Labels of further VMs that are expected to be deleted by then.
    type: dict
    default: {}
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show what a layout has made
  ansible.builtin.debug:
    msg: "{{ (fleet | vgpu.fleet.harvester_take_back([{'profile': 'A2-4Q', 'count': 2}])).steps }}"
"""

RETURN = r"""
_value:
  description:
    - C(vgpus) to disable, C(gpus) to switch SR-IOV off on, and C(mig_gpus) of them whose MIG instances go first.
    - C(steps) are sentences about that, C(stays) about what stays and why.
    - C(held) are vGPUs that VMs use, with O(everything).
    - C(waits_for) are VMs of O(gone_vms) or O(gone_labels) that still hold some of the vGPUs.
    - C(problem) is a sentence about a declaration that is not valid, otherwise empty. Then the other lists are empty.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.errors import FleetError
from ansible_collections.vgpu.fleet.plugins.module_utils.fleet.model import Fleet
from ansible_collections.vgpu.fleet.plugins.plugin_utils.take_back import Declaration, TakeBack, take_back


def harvester_take_back(
    found: Mapping[str, Any],
    layout: Sequence[Mapping[str, Any]] = (),
    mig: Sequence[Mapping[str, Any]] = (),
    nodes: Sequence[str] | None = None,
    gpus: Sequence[str] | None = None,
    all_sriov: bool = False,
    everything: bool = False,
    gone_vms: Sequence[str] = (),
    gone_labels: Mapping[str, str] | None = None,
    owner: str | None = None,
    adopt: bool = False,
) -> dict[str, Any]:
    nothing = TakeBack().as_dict()
    try:
        declaration = Declaration.read(
            layout, mig, nodes, gpus, all_sriov=all_sriov, everything=everything, owner=owner, adopt=adopt
        )
    except (TypeError, ValueError, AttributeError):
        return {**nothing, "problem": "The layout is not valid. Give each entry a profile and a number as count."}
    except FleetError as error:
        return {**nothing, "problem": str(error)}
    try:
        plan = take_back(Fleet.from_dict(found), declaration, gone_vms, gone_labels)
    except FleetError as error:
        return {**nothing, "problem": str(error)}
    return {**plan.as_dict(), "problem": ""}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"harvester_take_back": harvester_take_back}
