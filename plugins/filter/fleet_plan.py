# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_plan
short_description: Describe the changes of a dry run
version_added: 0.1.0
description:
  - Converts results of modules in check mode into the fleet before and after the changes, and the steps between them.
    The plan also contains the conditions to wait for and the VMs that are stopped.
  - P(vgpu.fleet.fleet_map#filter) draws the plan as a page.
positional: _input
options:
  _input:
    description:
      - The result of M(vgpu.fleet.harvester_vgpu), M(vgpu.fleet.harvester_mig), M(vgpu.fleet.harvester_sriov_gpu),
        M(vgpu.fleet.harvester_reprofile), M(vgpu.fleet.rancher_gpu_pool), M(vgpu.fleet.vsphere_gpu_host) or
        M(vgpu.fleet.vsphere_vgpu_vm) in check mode, or a list of them in the order of the tasks. The list may contain
        results of loops and of skipped tasks.
    type: raw
    required: true
  info:
    description: The preceding result of M(vgpu.fleet.harvester_gpu_info) or M(vgpu.fleet.vsphere_gpu_info).
    type: dict
    required: true
  layout:
    description: The layout that was passed to M(vgpu.fleet.harvester_reprofile).
    type: list
    elements: dict
    default: []
  cluster:
    description: The name of the cluster.
    type: str
    default: ""
  availability:
    description: The result of M(vgpu.fleet.vgpu_availability) for the same hosts. Required for a vCenter.
    type: dict
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Read the GPUs
  vgpu.fleet.harvester_gpu_info:
    detail: full
  register: fleet

- name: Plan a layout without applying it
  vgpu.fleet.harvester_vgpu:
    layout: [{profile: A2-4Q, count: 2, per: node}]
    enable_sriov: true
  check_mode: true
  register: planned

- name: Write the page for approval
  ansible.builtin.copy:
    content: "{{ planned | vgpu.fleet.fleet_plan(fleet, cluster='berlin') | vgpu.fleet.fleet_map }}"
    dest: /srv/www/plan.html
    mode: "0644"
"""

RETURN = r"""
_value:
  description: >-
    C(before) and C(after) are records of P(vgpu.fleet.fleet_record#filter). C(steps), C(stops), C(waits) and C(notes)
    are lists of sentences, C(summary) is one sentence, and C(lines) is the plan as a short text.
  type: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils.errors import FleetError
from ..plugin_utils.views import plan


def fleet_plan(
    results: Any,
    info: Mapping[str, Any],
    layout: Sequence[Mapping[str, Any]] = (),
    cluster: str = "",
    availability: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    try:
        return plan.fleet_plan(results, info, layout=layout, cluster=cluster, availability=availability)
    except FleetError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet_plan": fleet_plan}
