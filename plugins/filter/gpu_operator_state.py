# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_operator_state
short_description: What NVIDIA's GPU operator has come to in a cluster
version_added: 0.1.0
description:
  - Reads the operator's ClusterPolicy, its pods and the nodes, and tells whether it is done and what is missing.
  - The role P(vgpu.fleet.gpu_operator#role) waits by it.
options:
  _input:
    description: The ClusterPolicies, as C(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  values:
    description: The values that the chart was given. A policy with another driver is an old one.
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
    description: How many GPUs each node should offer, by its name. Without, one at least on each node with a GPU.
    type: dict
    default: {}
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Say what keeps the operator from being done
  ansible.builtin.debug:
    msg: "{{ (policies.resources | vgpu.fleet.gpu_operator_state(pods=pods.resources)).missing }}"
"""

RETURN = r"""
_value:
  description: How far the operator is.
  type: dict
  contains:
    policy_ready:
      description: Whether the policy is the one that was asked for, and done.
      type: bool
    done:
      description: Whether nodes offer what they should besides.
      type: bool
    gpus:
      description: How many GPUs each GPU node offers.
      type: dict
      sample:
        demo-gpu-8xk2p-hw6dq: 2
    missing:
      description: What is wrong, as the policy, the pods and the nodes tell it.
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
