# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_operator_state
short_description: Summarize the state of the NVIDIA GPU Operator
version_added: 0.1.0
description:
  - Evaluates the operator's ClusterPolicy, its pods and the nodes, and returns whether it is ready and what is missing.
  - The role P(vgpu.fleet.gpu_operator#role) uses this filter to wait for the operator.
options:
  _input:
    description: The ClusterPolicies, as C(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  values:
    description: The values of the chart. A policy with another driver or another license counts as outdated.
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
    description: Number of GPUs that each node should offer, by node name. Defaults to at least one per node with a GPU.
    type: dict
    default: {}
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show why the operator is not ready
  ansible.builtin.debug:
    msg: "{{ (policies.resources | vgpu.fleet.gpu_operator_state(pods=pods.resources)).missing }}"
"""

RETURN = r"""
_value:
  description: The state of the operator.
  type: dict
  contains:
    policy_ready:
      description: Whether the policy has the requested driver and license, and is ready.
      type: bool
    renewed:
      description: Whether all driver pods use the license of the values. True if the operator installs no driver.
      type: bool
    done:
      description: Whether the policy is ready, all driver pods use the license, and the nodes offer their GPUs.
      type: bool
    gpus:
      description: Number of GPUs that each GPU node offers.
      type: dict
      sample:
        demo-gpu-8xk2p-hw6dq: 2
    missing:
      description: Problems of the policy, the pods and the nodes.
      type: list
      elements: str
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plugin_utils.guest import gpu_operator as operator

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
    outdated = operator.outdated_drivers(values or {}, pods)
    waiting = [f"pod {name} does not use the license of the values yet" for name in outdated]
    return {
        "policy_ready": ready,
        "renewed": not outdated,
        "done": ready and not short and not outdated,
        "gpus": offered,
        "missing": [*operator.complaints(policies, pods), *waiting, *short],
    }


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_operator_state": gpu_operator_state}
