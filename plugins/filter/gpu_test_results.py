# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_test_results
short_description: Summarize the CUDA jobs of a smoke test
version_added: 0.1.0
description:
  - Reports for each job of P(vgpu.fleet.gpu_test_jobs#filter) whether its node has passed the test, and if not, why.
positional: _input, pods, logs
options:
  _input:
    description: The jobs, as C(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  pods:
    description: The pods of the jobs, as C(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  logs:
    description: The logs of the jobs, by job name.
    type: dict
    required: true
seealso:
  - plugin: vgpu.fleet.gpu_test_jobs
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Show the nodes that did not pass
  ansible.builtin.debug:
    msg: "{{ jobs.resources | vgpu.fleet.gpu_test_results(pods.resources, logs) | rejectattr('passed') }}"
"""

RETURN = r"""
_value:
  description: One record for each job, sorted by node.
  type: list
  elements: dict
  contains:
    node:
      description: The node.
      type: str
    gpus:
      description: Number of GPUs that the job requested. V(0) if the node offers none.
      type: int
    passed:
      description: Whether the job succeeded with C(Test PASSED) in its log.
      type: bool
    seconds:
      description: Duration of the job in seconds, including waiting times.
      type: int
    log:
      description: Output of the sample.
      type: str
    reason:
      description: If the node did not pass, the reason from the pod of the job.
      type: str
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.smoke_test import results


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_test_results": results}
