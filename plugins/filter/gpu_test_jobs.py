# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_test_jobs
short_description: Build a CUDA job for each GPU node
version_added: 0.1.0
description:
  - Builds a Job for each node. The Job reads the license status of all GPUs of the node with C(nvidia-smi -q), and then
    runs NVIDIA's vector-add sample. The role P(vgpu.fleet.gpu_smoke_test#role) creates the Jobs.
  - A Job requests GPUs only if the node offers some. Otherwise the Job runs without GPUs, and CUDA reports the error.
options:
  _input:
    description: The nodes, as C(kubernetes.core.k8s_info) returns them.
    type: list
    elements: dict
    required: true
  nodes:
    description: Names of nodes. Defaults to all nodes that offer C(nvidia.com/gpu).
    type: list
    elements: str
    default: []
  run:
    description: The name of the run, part of the names and labels of all its jobs.
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
    description: Number of GPUs that the sample requests.
    type: int
    default: 1
  runtime_class:
    description: The runtime class of the pods.
    type: str
    default: ""
  pull_secrets:
    description: Names of Secrets for pulling the image.
    type: list
    elements: str
    default: []
  seconds:
    description:
      - Maximum time that the run waits for the Jobs, in seconds. Kubernetes ends a Job that is still active after twice
        this time and a minute (C(activeDeadlineSeconds)), such as a Job that waits for a busy GPU after an aborted run.
    type: int
    default: 600
  licence:
    description: Whether all GPUs of the node must be licensed. The Job then requests all GPUs of the node.
    type: bool
    default: true
  licence_seconds:
    description: Maximum time that the Job waits for the licenses, in seconds.
    type: int
    default: 300
seealso:
  - plugin: vgpu.fleet.gpu_test_results
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Run the sample on each GPU node
  kubernetes.core.k8s:
    definition: "{{ listed.resources | vgpu.fleet.gpu_test_jobs(run='one', image=image, runtime_class='nvidia') }}"
  vars:
    image: nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0-ubuntu22.04
"""

RETURN = r"""
_value:
  description: The Jobs, in the order of the nodes.
  type: list
  elements: dict
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..plugin_utils.guest.smoke_test import JobOptions, jobs


def gpu_test_jobs(
    listed: Sequence[Mapping[str, Any]], *, nodes: Sequence[str] = (), **sample: Any
) -> list[dict[str, Any]]:
    return jobs(listed, list(nodes), JobOptions(**sample))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"gpu_test_jobs": gpu_test_jobs}
