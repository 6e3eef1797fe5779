# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_test_results
short_description: Evaluate the CUDA jobs of a smoke test
version_added: 0.1.0
description:
  - Returns for each Job of P(vgpu.fleet.gpu_test_jobs#filter) whether its node passed, the licenses of its GPUs, and
    the reason if the node did not pass.
positional: _input, pods, logs, licence_logs
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
    description: The logs of the container C(cuda), by the names of the jobs.
    type: dict
    required: true
  licence_logs:
    description: The logs of the container C(licence), by the names of the jobs.
    type: dict
    default: {}
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
      description: The name of the node.
      type: str
    gpus:
      description: Number of GPUs that the sample requested. V(0) if the node offers none.
      type: int
    passed:
      description: Whether the job succeeded, its log has C(Test PASSED), and all GPUs of the node are licensed.
      type: bool
    seconds:
      description: Duration of the job in seconds, including the time that it waited.
      type: int
    log:
      description: The log of the sample.
      type: str
    licensed:
      description: Whether all GPUs of the node are licensed. V(null) if the licenses were not tested.
      type: bool
    licences:
      description: The license status of each GPU, as C(nvidia-smi -q) shows it.
      type: list
      elements: dict
      contains:
        gpu:
          description: The PCI address of the GPU in the guest.
          type: str
          sample: "00000000:02:00.0"
        product:
          description: The licensed product.
          type: str
          sample: NVIDIA RTX Virtual Workstation
        status:
          description: The status as the driver writes it.
          type: str
          sample: "Licensed (Expiry: 2026-11-19 8:12:9 GMT)"
        licensed:
          description: Whether the status begins with C(Licensed).
          type: bool
        expires:
          description: The time at which the license expires.
          type: str
          sample: "2026-11-19T08:12:09Z"
    licence_expires:
      description: The earliest expiry of the licenses of the node.
      type: str
      sample: "2026-11-19T08:12:09Z"
    reason:
      description: The reason why the node did not pass.
      type: str
"""

from collections.abc import Callable
from typing import Any

from ..plugin_utils.guest.smoke_test import results


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_test_results": results}
