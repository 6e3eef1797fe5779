# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: awx_kept
short_description: List the objects in AWX that a removal leaves in place
version_added: 0.1.0
description:
  - Used by the playbook C(vgpu.fleet.awx_setup) to remove only objects that it created and that nobody else uses.
positional: _input, users, mark, adopted
options:
  _input:
    description: Objects with the names that the playbook declares, each with C(type), C(label), C(id) and C(ours).
    type: list
    elements: dict
    required: true
  users:
    description:
      - Objects of AWX that may use the objects, as lists named C(steps) (workflow nodes), C(schedules),
        C(job_templates), C(workflows), C(inventory_sources), C(hosts), C(projects), C(organizations) and
        C(credentials).
    type: dict
    required: true
  mark:
    description: Text in the description of objects that the playbook created.
    type: str
    required: true
  adopted:
    description: Labels of further objects that the playbook may remove.
    type: list
    elements: str
    default: []
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Decide which objects stay
  ansible.builtin.set_fact:
    kept: "{{ found | vgpu.fleet.awx_kept(users, 'Managed by vgpu.fleet.') }}"
"""

RETURN = r"""
_value:
  description: The reason for each object that stays, by the label of the object.
  type: dict
"""

from collections.abc import Callable
from typing import Any

from ..plugin_utils.awx_removal import kept


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"awx_kept": kept}
