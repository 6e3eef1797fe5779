# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_test_results
short_description: What came of the CUDA jobs of a smoke test
version_added: 0.1.0
description:
  - Tells for each job of P(vgpu.fleet.gpu_test_jobs#filter) whether its node has passed, and if not why.
positional: _input, pods, logs
options:
  _input:
    description: The jobs, as C(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  pods:
    description: Their pods, likewise.
    type: list
    elements: dict
    required: true
  logs:
    description: Their logs, by the names of the jobs.
    type: dict
    required: true
seealso:
  - plugin: vgpu.fleet.gpu_test_jobs
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Say which nodes did not pass
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
      description: How many GPUs the job had asked for, which is none where the node offers none.
      type: int
    passed:
      description: Whether the job succeeded and says C(Test PASSED).
      type: bool
    seconds:
      description: How long the job took, with all that it waited for.
      type: int
    log:
      description: What the sample wrote.
      type: str
    reason:
      description: If the node did not pass, what the job's pod says.
      type: str
"""

from collections.abc import Callable
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.smoke_test import results


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_test_results": results}
