# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vsphere_drift
short_description: Detect drift on vSphere
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.vgpu_drift#role). Collects findings from the results of modules, with a repair for
    each finding that can be repaired without stopping a VM.
positional: _input, vms, evacuation
options:
  _input:
    description: The result of M(vgpu.fleet.vsphere_gpu_info).
    type: dict
    required: true
  vms:
    description: Results of M(vgpu.fleet.vsphere_vgpu_vm) in check mode, one for each VM with vGPUs.
    type: list
    elements: dict
  evacuation:
    description: Whether hosts that cannot be emptied for maintenance are findings.
    type: bool
    default: false
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show the findings
  ansible.builtin.debug:
    msg: "{{ fleet | vgpu.fleet.vsphere_drift | map(attribute='text') }}"
"""

RETURN = r"""
_value:
  description: Findings with C(kind), C(device), C(text) and C(repair). C(repair) is empty if no repair is safe.
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ..plugin_utils.drift import vsphere_drift


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"vsphere_drift": vsphere_drift}
