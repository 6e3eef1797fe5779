# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: rancher_reuse_problem
short_description: Explain why a Secret cannot be used for a Rancher cluster
version_added: 0.1.0
description:
  - Used by the role P(vgpu.fleet.rancher_gpu_cluster#role). The role reuses an existing Secret only if it is for the
    same Harvester cluster, and if the role created it for the same owner, the cluster already uses it, or O(adopt) is
    set.
positional: _input
options:
  _input:
    description: The Secrets, as M(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  owner:
    description: The owner of the cluster.
    type: str
    required: true
  harvester:
    description: The ID of the Harvester cluster in Rancher.
    type: str
    required: true
  cluster:
    description: The C(Cluster) object, if it exists.
    type: dict
  adopt:
    description: Whether to use Secrets of other owners.
    type: bool
    default: false
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Refuse a credential of another Harvester cluster
  ansible.builtin.assert:
    that: problem | length == 0
    fail_msg: "{{ problem }}"
  vars:
    problem: "{{ found.resources | vgpu.fleet.rancher_reuse_problem(owner='team-a', harvester='c-m-abcdef12') }}"
"""

RETURN = r"""
_value:
  description: A sentence that names the Secret. Empty if all Secrets can be used.
  type: str
"""

from collections.abc import Callable
from typing import Any

from ..module_utils.rancher.ownership import reuse_problem


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"rancher_reuse_problem": reuse_problem}
