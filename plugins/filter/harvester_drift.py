# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: harvester_drift
short_description: What is not as declared on Harvester, and what may be done about it
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.vgpu_drift#role). Puts together what modules found, and says of each finding how it
    can be repaired without taking anything from a VM.
positional: _input
options:
  _input:
    description: The result of M(vgpu.fleet.harvester_gpu_info).
    type: dict
    required: true
  driver:
    description:
      - The result of M(vgpu.fleet.harvester_addon) in check mode, for the driver's addon as it was declared. Leave it
        out if nobody declared the addon.
    type: dict
  layout:
    description: The result of M(vgpu.fleet.harvester_vgpu) in check mode, for the layout that was declared.
    type: dict
  unused:
    description: Whether vGPUs that no VM asks for are worth telling.
    type: bool
    default: true
  all_nodes:
    description: Whether all nodes were looked at. Otherwise the driver, which serves all of them, is not repaired.
    type: bool
    default: true
  mig:
    description:
      - Results of M(vgpu.fleet.harvester_mig) in check mode, looped over the MIG instances that were declared.
    type: list
    elements: dict
    default: []
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: What is wrong is shown
  ansible.builtin.debug:
    msg: "{{ fleet | vgpu.fleet.harvester_drift | map(attribute='text') }}"
"""

RETURN = r"""
_value:
  description: Findings with C(kind), C(device), C(text) and C(repair), which is empty where nothing can be done safely.
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.drift import harvester_drift


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"harvester_drift": harvester_drift}
