# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_test_jobs
short_description: A CUDA job for each of some nodes
version_added: 0.1.0
description:
  - Describes a Job for each node, which runs NVIDIA's vector-add sample there. The role
    P(vgpu.fleet.gpu_smoke_test#role) makes them.
  - A job asks for GPUs where the node offers some. Elsewhere it asks for none, so that it runs and CUDA tells what it
    finds.
options:
  _input:
    description: The nodes, as C(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  nodes:
    description: Names of nodes. Without any, those that offer C(nvidia.com/gpu).
    type: list
    elements: str
    default: []
  run:
    description: A name for the run, part of the names and labels of all its jobs.
    type: str
    required: true
  namespace:
    description: The namespace of the jobs.
    type: str
    default: default
  image:
    description: The image of the sample.
    type: str
    required: true
  gpus:
    description: How many GPUs each job asks for.
    type: int
    default: 1
  runtime_class:
    description: The runtime class of the pods.
    type: str
    default: ""
  pull_secrets:
    description: Names of Secrets that the image is pulled with.
    type: list
    elements: str
    default: []
  seconds:
    description:
      - How long the jobs are waited for. A job that has not ended after twice as many seconds and a minute, such as one
        that waits for a busy GPU after a run that was killed, is ended by Kubernetes (C(activeDeadlineSeconds)).
    type: int
    default: 600
seealso:
  - plugin: vgpu.fleet.gpu_test_results
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Each node runs the sample
  kubernetes.core.k8s:
    definition: "{{ listed.resources | vgpu.fleet.gpu_test_jobs(run='one', image=image, runtime_class='nvidia') }}"
  vars:
    image: nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04
"""

RETURN = r"""
_value:
  description: Jobs, in the order of the nodes.
  type: list
  elements: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.vgpu.fleet.plugins.plugin_utils.guest.smoke_test import JobOptions, jobs


def gpu_test_jobs(
    listed: Sequence[Mapping[str, Any]], *, nodes: Sequence[str] = (), **sample: Any
) -> list[dict[str, Any]]:
    return jobs(listed, list(nodes), JobOptions(**sample))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_test_jobs": gpu_test_jobs}
