# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: harvester_removal
short_description: Plan which vGPUs to remove and where to disable SR-IOV
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.harvester_gpu_node#role) with O(ignore:harvester_gpu_node_state=absent). Selects the
    vGPUs of a declared layout that no VM uses, and the GPUs that no longer need SR-IOV.
  - Keeps vGPUs of other profiles, on other GPUs, or beyond the declared number. The result contains the reasons.
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
      Names of nodes, or shell patterns, for entries without a selection of their own. Without O(nodes) and O(gpus),
      such entries select the whole fleet.
    type: list
    elements: str
  gpus:
    description: Names of GPUs, or shell patterns, for entries without a selection of their own.
    type: list
    elements: str
  all_sriov:
    description: Whether SR-IOV was declared for all GPUs of O(nodes) and O(gpus), regardless of the layout.
    type: bool
    default: false
  everything:
    description: Whether to remove all vGPUs and SR-IOV of O(nodes) and O(gpus), regardless of their owner.
    type: bool
    default: false
  owner:
    description: >-
      Remove only vGPUs with the mark of this owner. Without this option, or with O(everything), owner marks are
      ignored.
    type: str
  adopt:
    description: Whether to also remove vGPUs without an owner mark.
    type: bool
    default: false
  gone_vms:
    description: VMs that are about to be deleted, as C(namespace/name).
    type: list
    elements: str
    default: []
  gone_labels:
    description: Labels of additional VMs that are about to be deleted.
    type: dict
    default: {}
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show the vGPUs of a layout that would be removed
  ansible.builtin.debug:
    msg: "{{ (fleet | vgpu.fleet.harvester_removal([{'profile': 'A2-4Q', 'count': 2}])).steps }}"
"""

RETURN = r"""
_value:
  description:
    - C(vgpus) lists the vGPUs to disable, C(gpus) the GPUs on which to disable SR-IOV, and C(mig_gpus) the GPUs among
      them whose MIG instances to remove first.
    - C(steps) describes these steps. C(kept) describes the objects that are kept, with the reasons.
    - C(held) lists the vGPUs that VMs use, with O(everything).
    - C(waits_for) lists the VMs of O(gone_vms) or O(gone_labels) that still hold some of the vGPUs.
    - C(problem) describes an invalid declaration. The lists are empty then.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..module_utils.errors import FleetError
from ..module_utils.fleet.model import Fleet
from ..plugin_utils.removal import Declaration, Removal, plan_removal


def harvester_removal(
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
    nothing = Removal().as_dict()
    try:
        declaration = Declaration.read(
            layout, mig, nodes, gpus, all_sriov=all_sriov, everything=everything, owner=owner, adopt=adopt
        )
    except (TypeError, ValueError, AttributeError):
        return {**nothing, "problem": "The layout is not valid. Each entry needs a profile and a number as count."}
    except FleetError as error:
        return {**nothing, "problem": str(error)}
    try:
        plan = plan_removal(Fleet.from_dict(found), declaration, gone_vms, gone_labels)
    except FleetError as error:
        return {**nothing, "problem": str(error)}
    return {**plan.as_dict(), "problem": ""}


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"harvester_removal": harvester_removal}
