#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The action plugin of the same name does the work, on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: show
short_description: Print lines as they are
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Prints lines, such as a table, without the quotes and brackets that M(ansible.builtin.debug) puts around a list
    unless a
    result format is configured.
  - The lines are part of the job's output in AWX as well, and of the log file of C(ansible-playbook), but not of the
    result of
    the task. Only where the output is for a program (the callbacks C(ansible.posix.json) and C(ansible.posix.jsonl)),
    nothing is
    printed, and the result has the lines.
  - Nothing is printed by a task with C(no_log).
options:
  lines:
    description: The lines. One that contains line breaks is several.
    type: list
    elements: str
    required: true
  title:
    description: A line above them, such as the name of the cluster where several are reported on.
    type: str
    default: ""
extends_documentation_fragment:
  - vgpu.fleet.controller
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.conn
  - ansible.builtin.action_common_attributes.flow
attributes:
  check_mode:
    details: The lines are printed.
  delegation:
    details: The lines are always printed by the controller.
  diff_mode:
    details: Nothing is changed.
seealso:
  - plugin: vgpu.fleet.capacity_report
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Read the capacity
  vgpu.fleet.vgpu_availability:
  register: available

- name: Show the capacity
  vgpu.fleet.show:
    lines: "{{ (available | vgpu.fleet.capacity_report).lines }}"
"""

RETURN = r"""
lines:
  description: The lines.
  returned: where standard output is for a program
  type: list
  elements: str
  sample: ["PROFILE  NODE   TOTAL  IN USE  CLAIMED  FREE", "A2-4Q    gpu-a      2       1        0     1"]
"""
