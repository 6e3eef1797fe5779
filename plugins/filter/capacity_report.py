# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: capacity_report
short_description: Show capacity as a table
version_added: 0.1.0
description:
  - Turns the result of M(vgpu.fleet.vgpu_availability) into a table for people, and into a few numbers for programs.
positional: _input
options:
  _input:
    description: The result of M(vgpu.fleet.vgpu_availability).
    type: dict
    required: true
  platform:
    description: The kind of system that was asked.
    type: str
    choices: [harvester, vsphere]
    default: harvester
  profiles:
    description: Profiles to show, in any spelling. Without any, those that there are.
    type: list
    elements: str
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: The capacity is shown
  ansible.builtin.debug:
    msg: "{{ (available | vgpu.fleet.capacity_report).lines }}"
"""

RETURN = r"""
_value:
  description: C(lines) has the table, C(summary) the numbers.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.vgpu.fleet.plugins.module_utils.capacity_report import capacity_report


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"capacity_report": capacity_report}
