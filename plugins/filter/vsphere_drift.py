# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vsphere_drift
short_description: What is about to go wrong on vSphere, and what may be done about it
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.vgpu_drift#role). Puts together what modules found, and says of each finding how it
    can be repaired without stopping a VM.
positional: _input, vms
options:
  _input:
    description: The result of M(vgpu.fleet.vsphere_gpu_info).
    type: dict
    required: true
  vms:
    description: Results of M(vgpu.fleet.vsphere_vgpu_vm) in check mode, looped over the VMs that have vGPUs.
    type: list
    elements: dict
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: What is wrong is shown
  ansible.builtin.debug:
    msg: "{{ fleet | vgpu.fleet.vsphere_drift | map(attribute='text') }}"
"""

RETURN = r"""
_value:
  description: Findings with C(kind), C(device), C(text) and C(repair), which is empty where nothing can be done safely.
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.drift import vsphere_drift


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"vsphere_drift": vsphere_drift}
