# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: harvester_not_owned
short_description: List objects of other owners
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.harvester_gpu_vm#role), which marks the objects that it creates with the labels
    C(app.kubernetes.io/managed-by=vgpu.fleet) and C(vgpu.fleet/owner).
  - Returns the objects that do not have the labels of the owner.
positional: _input, owner, kind
options:
  _input:
    description: Kubernetes objects, such as C(resources) of M(kubernetes.core.k8s_info).
    type: list
    elements: dict
    required: true
  owner:
    description: The owner whose objects to exclude.
    type: str
    default: vgpu.fleet
  kind:
    description: Name of the kind of objects in C(text).
    type: str
    default: Object
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Refuse to change VMs of other owners
  ansible.builtin.assert:
    that: vms.resources | vgpu.fleet.harvester_not_owned('team-a') | length == 0
"""

RETURN = r"""
_value:
  description:
    - The objects, each with C(name), C(path), C(labels), and C(text), which names the owner if the labels show one.
  type: list
  elements: dict
"""

from collections.abc import Callable
from typing import Any

from ..module_utils.harvester.ownership import not_owned


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"harvester_not_owned": not_owned}
