# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: capacity_report
short_description: Show capacity as a table
version_added: 0.1.0
description:
  - Converts the result of M(vgpu.fleet.vgpu_availability) into a table for people and a summary for programs.
  - Print the table with M(vgpu.fleet.show), which does not wrap it in JSON.
positional: _input
options:
  _input:
    description: The result of M(vgpu.fleet.vgpu_availability).
    type: dict
    required: true
  platform:
    description: The platform of the cluster.
    type: str
    choices: [harvester, vsphere]
    default: harvester
  profiles:
    description: Profiles to show, in any spelling. Defaults to all existing profiles.
    type: list
    elements: str
  info:
    description:
      - The result of M(vgpu.fleet.harvester_gpu_info) or M(vgpu.fleet.vsphere_gpu_info) for the same nodes.
      - If given, the table has a line for each GPU with a bar of its framebuffer and the VMs that use the GPU. On
        vSphere, each host with running vGPUs also has a line that states whether it can be emptied for maintenance.
    type: dict
  details:
    description:
      - V(full) shows a row for each node and each GPU, V(summary) a row for each profile and each board.
      - V(auto) summarizes profiles on more than 8 nodes, and boards with more than 16 GPUs in total.
    type: str
    choices: [auto, full, summary]
    default: auto
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Read the GPUs
  vgpu.fleet.harvester_gpu_info:
    detail: full
  register: fleet

- name: Read the capacity
  vgpu.fleet.vgpu_availability:
  register: available

- name: Show the capacity
  vgpu.fleet.show:
    lines: "{{ (available | vgpu.fleet.capacity_report(info=fleet)).lines }}"
"""

RETURN = r"""
_value:
  description:
    - C(lines) has the table, C(summary) the numbers.
    - The numbers of a profile are C(total), C(in_use), C(claimed), C(free) and C(creatable).
  type: dict
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..plugin_utils.views import capacity_table
from ..plugin_utils.views.record import fleet_record


def capacity_report(
    available: Mapping[str, Any],
    platform: str = "harvester",
    profiles: Iterable[str] | None = None,
    info: Mapping[str, Any] | None = None,
    details: str = capacity_table.AUTO,
) -> dict[str, Any]:
    record = fleet_record(info, available) if info else None
    hosts = (info or {}).get("nodes") or ()
    return capacity_table.capacity_report(
        available, platform, profiles or (), record=record, details=details, hosts=hosts
    )


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"capacity_report": capacity_report}
