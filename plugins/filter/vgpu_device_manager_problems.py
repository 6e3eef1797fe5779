# Copyright: (c) 2026, The vgpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: vgpu_device_manager_problems
short_description: Explain why a configuration of NVIDIA's vGPU Device Manager cannot be used
version_added: 0.1.0
description:
  - Returns one sentence if P(vgpu.fleet.vgpu_device_manager#filter) rejects a configuration.
  - Use it with M(ansible.builtin.assert) before the task that uses the layout. If a filter fails inside a template,
    ansible-core 2.19 and later report all templates that the value passes through.
positional: _input, config
options:
  _input:
    description: The content of the file, as text or parsed from YAML.
    type: raw
    required: true
  config:
    description: The name of the configuration.
    type: str
    required: true
  nodes:
    description: Names of nodes, or shell patterns, to which the configuration applies.
    type: list
    elements: str
  gpus:
    description: Names of GPUs, or shell patterns, to which the configuration applies.
    type: list
    elements: str
seealso:
  - plugin: vgpu.fleet.vgpu_device_manager
    plugin_type: filter
author:
  - The vgpu.fleet contributors (@vgpu-fleet)
"""

EXAMPLES = r"""
- name: Refuse a configuration that cannot be used
  ansible.builtin.assert:
    that: config | vgpu.fleet.vgpu_device_manager_problems('A2-4Q') | length == 0
    fail_msg: "{{ config | vgpu.fleet.vgpu_device_manager_problems('A2-4Q') | join(' ') }}"
  vars:
    config: "{{ lookup('ansible.builtin.file', 'vgpu-config.yaml') }}"
"""

RETURN = r"""
_value:
  description: At most one sentence. Empty if the configuration can be used.
  type: list
  elements: str
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from .vgpu_device_manager import vgpu_device_manager


def vgpu_device_manager_problems(content: Any, config: str, **selection: Any) -> list[str]:
    try:
        vgpu_device_manager(content, config, **selection)
    except AnsibleFilterError as error:
        return [str(error)]
    return []


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {"vgpu_device_manager_problems": vgpu_device_manager_problems}
