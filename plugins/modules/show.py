#!/usr/bin/python
# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# The action plugin of the same name does the work, on the controller.

from __future__ import annotations

DOCUMENTATION = r"""
module: show
short_description: Print lines without formatting
version_added: 0.1.0
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
description:
  - Prints lines, such as a table, without the quotes and brackets that M(ansible.builtin.debug) puts around a list
    unless a result format is configured.
  - The lines also appear in the job output of AWX and in the log file of C(ansible-playbook), but not in the result of
    the task. With callbacks for programs (C(ansible.posix.json) and C(ansible.posix.jsonl)), nothing is printed and the
    result contains the lines.
  - A task with C(no_log) prints nothing.
options:
  lines:
    description: The lines to print. A text with line breaks is printed as several lines.
    type: list
    elements: str
    required: true
  title:
    description: A heading above the lines, such as the name of the cluster in a report on several clusters.
    type: str
    default: ""
extends_documentation_fragment:
  - vgpu.fleet.controller
  - ansible.builtin.action_common_attributes
  - ansible.builtin.action_common_attributes.conn
  - ansible.builtin.action_common_attributes.flow
attributes:
  check_mode:
    details: The lines are printed in check mode too.
  delegation:
    details: The lines are always printed by the controller.
  diff_mode:
    details: The module does not change anything.
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
