# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet_record
short_description: Describe the GPUs of a cluster in the same format on all platforms
version_added: 0.1.0
description:
  - Converts results of modules into one record of a Harvester cluster or vCenter, with its nodes, GPUs, vGPUs, their
    holders and the profiles that still fit. The record has the same keys on both platforms.
  - P(vgpu.fleet.fleet_map#filter) draws its map from these records.
positional: _input
options:
  _input:
    description: The result of M(vgpu.fleet.harvester_gpu_info) or M(vgpu.fleet.vsphere_gpu_info).
    type: dict
    required: true
  availability:
    description: >-
      The result of M(vgpu.fleet.vgpu_availability) for the same hosts. Required for a vCenter, because only this
      result contains the profiles that fit.
    type: dict
  cluster:
    description: The name of the cluster in the record.
    type: str
    default: ""
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Read the GPUs of a Harvester cluster
  vgpu.fleet.harvester_gpu_info:
    detail: full
  register: fleet

- name: Show how much framebuffer the vGPUs occupy
  ansible.builtin.debug:
    msg: "{{ berlin.framebuffer_used_mib }} of {{ berlin.framebuffer_mib }} MiB"
  vars:
    berlin: "{{ fleet | vgpu.fleet.fleet_record(cluster='berlin') }}"
"""

RETURN = r"""
_value:
  description:
    - The record. C(nodes) have C(gpus), which have C(vgpus) with a C(state) (C(in_use), C(claimed), C(free),
      C(drifted) or C(unusable)) and C(holders), and C(available_profiles), the profiles that still fit.
    - C(profiles) counts vGPUs by profile. C(requests) lists VMs with unbound requests for vGPUs. C(findings) are part
      of the cluster, node, GPU or vGPU concerned.
  type: dict
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils.errors import FleetError
from ..plugin_utils.views import record


def fleet_record(
    info: Mapping[str, Any], availability: Mapping[str, Any] | None = None, cluster: str = ""
) -> dict[str, Any]:
    try:
        return record.fleet_record(info, availability, cluster=cluster)
    except FleetError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"fleet_record": fleet_record}
