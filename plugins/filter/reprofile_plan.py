# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: reprofile_plan
short_description: What it takes to give GPUs in use another layout
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.vgpu_reprofile#role). Says which GPUs have to change, which VMs have to be stopped for
    it, and what to put back if it fails. It is refused if VMs are in the way that were not named, if the layout does
    not fit even without them, or if a VM would not find its vGPUs afterwards.
positional: _input
options:
  _input:
    description: The result of M(vgpu.fleet.harvester_gpu_info), of the whole fleet.
    type: dict
    required: true
  gpus:
    description: Names of the GPUs, in the order in which they are changed.
    type: list
    elements: str
    required: true
  layout:
    description: What each GPU shall hold, as C(profile) and C(count).
    type: list
    elements: dict
    required: true
  vms:
    description: VMs that may be stopped, as C(name), C(namespace), and C(vgpus) if they get others afterwards.
    type: list
    elements: dict
  vm_labels:
    description: Labels of further VMs that may be stopped.
    type: dict
  serial:
    description: How many GPUs are changed at a time.
    type: int
    default: 1
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: The plan is shown
  ansible.builtin.debug:
    msg: "{{ (fleet | vgpu.fleet.reprofile_plan(gpus=['gpu-a-000008000'], layout=layout)).lines }}"
"""

RETURN = r"""
_value:
  description: C(work) has the GPUs to change, as many together as O(serial) says, C(refusals) why it must not be
    done, and C(lines) the plan for people.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.harvester.reprofile import reprofile_plan


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"reprofile_plan": reprofile_plan}
