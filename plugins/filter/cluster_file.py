# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: cluster_file
short_description: Describe an existing fleet as variables of the cluster playbooks
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Returns the text of a file with variables. A run of C(vgpu.fleet.harvester_gpu_cluster) or
    C(vgpu.fleet.vsphere_gpu_cluster) with this file changes nothing. The playbook C(vgpu.fleet.export) writes it.
  - On Harvester, it contains the vGPUs of each GPU, and the VMs with vGPUs that have the mark of the owner. VMs that
    were created by other means are listed in a comment, ready to be adopted.
  - On vSphere, it contains the hosts whose GPUs are shared direct, and the VMs with vGPUs.
positional: _input
options:
  _input:
    description: >-
      The result of M(vgpu.fleet.harvester_gpu_info) with O(vgpu.fleet.harvester_gpu_info#module:detail=full), or of
      M(vgpu.fleet.vsphere_gpu_info).
    type: dict
    required: true
  owner:
    description: >-
      On Harvester, the owner whose vGPUs and VMs to describe, in addition to vGPUs without a mark. Defaults to the
      owner of most vGPUs.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Read every vGPU
  vgpu.fleet.harvester_gpu_info:
    detail: full
  register: fleet

- name: Show the variables that describe the fleet
  ansible.builtin.debug:
    msg: "{{ fleet | vgpu.fleet.cluster_file }}"
"""

RETURN = r"""
_value:
  description: The text of the file.
  type: str
"""

from collections.abc import Callable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ..module_utils.errors import FleetError
from ..plugin_utils import cluster_file as files


def cluster_file(info: Mapping[str, Any], owner: str = "") -> str:
    try:
        return files.cluster_file(info, owner).text()
    except FleetError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"cluster_file": cluster_file}
