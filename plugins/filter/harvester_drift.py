# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: harvester_drift
short_description: Detect drift on Harvester
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.vgpu_drift#role). Collects findings from the results of modules, with a repair for
    each finding that can be repaired without affecting a VM.
positional: _input
options:
  _input:
    description: The result of M(vgpu.fleet.harvester_gpu_info).
    type: dict
    required: true
  driver:
    description:
      - The result of M(vgpu.fleet.harvester_addon) in check mode with the declared driver addon. Omit this option if
        the addon is not declared.
    type: dict
  layout:
    description: The result of M(vgpu.fleet.harvester_vgpu) in check mode with the declared layout.
    type: dict
  unused:
    description: Whether to report vGPUs that no VM uses.
    type: bool
    default: true
  all_nodes:
    description: Whether the results cover all nodes. If V(false), the driver, which serves all nodes, is not repaired.
    type: bool
    default: true
  mig:
    description:
      - Results of M(vgpu.fleet.harvester_mig) in check mode, one for each declared entry.
    type: list
    elements: dict
    default: []
  shared_layout:
    description:
      - The result of M(vgpu.fleet.harvester_vgpu) in check mode without
        O(vgpu.fleet.harvester_vgpu#module:exclusive), if the exclusive layout of O(layout) was refused. The findings
        then contain the reason and the drift of the declared vGPUs.
    type: dict
    version_added: 0.1.0
  restart_controllers:
    description:
      - Whether the repair may restart the controllers of nodes that do not offer all their configured vGPUs.
    type: bool
    default: false
    version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show the findings
  ansible.builtin.debug:
    msg: "{{ fleet | vgpu.fleet.harvester_drift | map(attribute='text') }}"
"""

RETURN = r"""
_value:
  description: Findings with C(kind), C(device), C(text) and C(repair). C(repair) is empty if no repair is safe.
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ..plugin_utils.drift import harvester_drift


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"harvester_drift": harvester_drift}
