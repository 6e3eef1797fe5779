# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_operator_state
short_description: Summarize the state of the NVIDIA GPU Operator
version_added: 0.1.0
description:
  - Evaluates the ClusterPolicy of the operator, its pods and the nodes, and reports whether the rollout is complete and
    what is missing.
  - Used by the role P(vgpu.fleet.gpu_operator#role) to wait for the operator.
options:
  _input:
    description: The ClusterPolicies, as C(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  values:
    description: The values of the chart. A ClusterPolicy with another driver counts as outdated.
    type: dict
    default: {}
  nodes:
    description: The nodes.
    type: list
    elements: dict
    default: []
  pods:
    description: The pods in the operator's namespace.
    type: list
    elements: dict
    default: []
  gpus:
    description: Expected number of GPUs by node name. Defaults to at least one on each node with a GPU.
    type: dict
    default: {}
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show what is missing for the operator
  ansible.builtin.debug:
    msg: "{{ (policies.resources | vgpu.fleet.gpu_operator_state(pods=pods.resources)).missing }}"
"""

RETURN = r"""
_value:
  description: The state of the operator.
  type: dict
  contains:
    policy_ready:
      description: Whether the ClusterPolicy matches the values and is ready.
      type: bool
    done:
      description: Whether the ClusterPolicy is ready and all nodes offer the expected GPUs.
      type: bool
    gpus:
      description: Number of GPUs that each GPU node offers.
      type: dict
      sample:
        demo-gpu-8xk2p-hw6dq: 2
    missing:
      description: Problems reported by the ClusterPolicy, the pods and the nodes.
      type: list
      elements: str
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest import gpu_operator as operator

Objects = Sequence[Mapping[str, Any]]


def gpu_operator_state(
    policies: Objects,
    values: Mapping[str, Any] | None = None,
    nodes: Objects = (),
    pods: Objects = (),
    gpus: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    expected = gpus or {}
    offered = operator.offers(nodes, expected)
    short = operator.shortfalls(offered, expected)
    ready = operator.is_ready(policies, values or {})
    return {
        "policy_ready": ready,
        "done": ready and not short,
        "gpus": offered,
        "missing": [*operator.complaints(policies, pods), *short],
    }


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_operator_state": gpu_operator_state}
