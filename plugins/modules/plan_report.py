#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The action plugin of the same name does the work, on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: plan_report
short_description: Describe and draw the changes of a dry run
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Converts results of modules in check mode into the steps in order, the VMs to stop and the conditions to wait for.
  - With O(html), it also writes a page that draws each changed GPU twice, before and after the change. For a vCenter,
    the page draws the GPUs once, because vCenter chooses the GPU of a VM when the VM starts.
  - The page is written on the controller. Clusters that are planned in the same run share it. The next run replaces it.
    The task fails if the file has content that the collection did not write.
  - The task never reports a change, because the page is output. It is also written in check mode.
options:
  results:
    description:
      - The result of M(vgpu.fleet.harvester_vgpu), M(vgpu.fleet.harvester_mig), M(vgpu.fleet.harvester_sriov_gpu),
        M(vgpu.fleet.harvester_reprofile), M(vgpu.fleet.rancher_gpu_pool), M(vgpu.fleet.vsphere_gpu_host) or
        M(vgpu.fleet.vsphere_vgpu_vm) in check mode, or a list of results in the order of the tasks. Results of loops
        and of skipped tasks are accepted.
    type: raw
    required: true
  info:
    description: The result of M(vgpu.fleet.harvester_gpu_info) or M(vgpu.fleet.vsphere_gpu_info) before the change.
    type: dict
    required: true
  availability:
    description: The result of M(vgpu.fleet.vgpu_availability) for the same hosts. Required for a vCenter.
    type: dict
  layout:
    description: The option O(vgpu.fleet.harvester_reprofile#module:layout) of the planned task.
    type: list
    elements: dict
    default: []
  cluster:
    description: The name of the cluster on the page. Defaults to the name of the host in the inventory.
    type: str
  html:
    description:
      - Path of the file for the page.
      - A relative path is relative to the folder in which C(ansible-playbook) was started.
    type: path
extends_documentation_fragment:
  - vgpu.fleet.controller
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.conn
  - ansible.builtin.action_common_attributes.flow
attributes:
  check_mode:
    details: The page is written in check mode too.
  delegation:
    details: The file is always written on the controller.
  diff_mode:
    details: The file is output.
seealso:
  - module: vgpu.fleet.fleet_export
  - plugin: vgpu.fleet.fleet_plan
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read the GPUs
  vgpu.fleet.harvester_gpu_info:
    detail: full
  register: fleet

- name: Plan a layout in check mode
  vgpu.fleet.harvester_vgpu:
    layout: [{profile: A2-4Q, count: 2, per: node}]
    enable_sriov: true
  check_mode: true
  register: planned

- name: Write the plan to a page
  vgpu.fleet.plan_report:
    results: "{{ planned }}"
    info: "{{ fleet }}"
    cluster: berlin
    html: plan.html
"""

RETURN = r"""
summary:
  description: The plan in one sentence.
  returned: success
  type: str
  sample: 3 steps on 2 GPUs, no VM is stopped
lines:
  description: The plan as a short text.
  returned: success
  type: list
  elements: str
  sample: ["1. Enable SR-IOV on GPU gpu-a-000008000"]
steps:
  description: The steps in order.
  returned: success
  type: list
  elements: str
  sample: ["Enable SR-IOV on GPU gpu-a-000008000"]
stops:
  description: The VMs to stop, with the reasons.
  returned: success
  type: list
  elements: str
  sample: []
waits:
  description: The conditions to wait for.
  returned: success
  type: list
  elements: str
  sample: ["GPU gpu-a-000008000 to have its virtual functions"]
notes:
  description: Additional notes.
  returned: success
  type: list
  elements: str
  sample: []
file:
  description: Absolute path of the page. Empty if no page was written.
  returned: success
  type: str
  sample: /home/user/plan.html
error:
  description: Why the plan could not be described or written.
  returned: failure
  type: dict
  contains:
    code:
      description: Stable error code for C(rescue) blocks, such as V(cannot_write).
      type: str
      sample: cannot_write
    message:
      description: Description of the error.
      type: str
    hint:
      description: How to resolve the error.
      type: str
"""
